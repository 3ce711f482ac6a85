import Cryptography
import JSON
import PushCore
import PushEvents
import PushStorage
import SecureStorage
import Testing

extension StorageFixture {
    /// Seals the stored content of tests.
    static let keys = "test:" + Base64.encode(Array(repeating: 7, count: 32))

    static func keyRing(_ text: String = keys) throws -> KeyRing { try KeyRing(text) }

    /// Content for an identity, with its push, as the service makes them.
    struct Secret: Sendable {
        var payload: NewSecurePayload
        var push: NewPush
        var record: OutgoingRecord
    }

    func secret(
        _ text: String,
        for identity: String,
        app: String = app,
        id: String = SecureID.make(.random),
        readOnce: Bool = false,
        expiresIn milliseconds: Int64 = 3_600_000,
        sealed copies: [SealedCopy]? = nil,
        keys: String = StorageFixture.keys
    ) throws -> Secret {
        let expiresAt = Instant.now().adding(milliseconds: milliseconds)
        let object: JSONObject = [
            "app": .string(app), "id": .string("secure/\(id)"),
            "source": .string(PushIdentity.secureSource), "identities": [.string(identity)],
            "data": ["secureId": .string(id)],
        ]
        let atRest = try KeyRing(keys).seal(
            Array(text.utf8),
            context: SecurePayload.context(app: app, id: id, identity: identity)
        )
        return Secret(
            payload: NewSecurePayload(
                id: id,
                app: app,
                identity: identity,
                expiresAt: expiresAt,
                readOnce: readOnce,
                content: copies.map { .forDevices($0) } ?? .atRest(atRest)
            ),
            push: NewPush(
                id: PushIdentity.pushID(
                    app: app,
                    source: PushIdentity.secureSource,
                    eventID: "secure/\(id)",
                    digest: sha256
                ),
                app: app,
                eventSource: PushIdentity.secureSource,
                eventID: "secure/\(id)",
                object: object,
                request: try PushRequest.parse(object, now: .now()),
                expiresAt: expiresAt
            ),
            record: OutgoingRecord(
                topic: "push.requests",
                key: Array("secure/\(id)".utf8),
                value: JSONValue.object(object).bytes
            )
        )
    }

    @discardableResult
    func keep(_ secret: Secret, key: IdempotencyKey? = nil) async throws -> SecurePayloadResult {
        try await database.securePayloads.create(
            secret.payload,
            secret.push,
            record: secret.record,
            key: key
        )
    }

    /// Stores content, and returns its id.
    func stored(
        _ text: String,
        for identity: String,
        readOnce: Bool = false,
        expiresIn milliseconds: Int64 = 3_600_000,
        sealed copies: [SealedCopy]? = nil
    ) async throws -> String {
        let secret = try secret(
            text,
            for: identity,
            readOnce: readOnce,
            expiresIn: milliseconds,
            sealed: copies
        )
        #expect(try await keep(secret) == .stored)
        return secret.payload.id
    }

    /// Reads as the service does, and marks the first read of this reader.
    func read(
        _ id: String,
        _ reader: SecureReader,
        grace: Duration = .seconds(60)
    ) async throws -> (text: String, wasRead: Bool)? {
        let payloads = database.securePayloads
        guard let content = try await payloads.look(id, for: reader) else { return nil }
        var wasRead = content.wasRead
        if !content.isNoted {
            let marked = try await payloads.markRead(
                content,
                grace: grace,
                confirming: confirmation(of: content)
            )
            guard let marked else { return nil }
            wasRead = marked
        }
        guard !content.isSealed else {
            return (String(decoding: content.bytes, as: UTF8.self), wasRead)
        }
        let bytes = try Self.keyRing().open(content.bytes, context: content.context)
        return (String(decoding: bytes, as: UTF8.self), wasRead)
    }

    func confirmation(of content: SecureContent) -> OutgoingRecord {
        var object: JSONObject = [
            "app": .string(content.app), "pushId": .string(content.pushID),
            "identity": .string(content.identity), "provider": "secure",
            "outcome": "confirmed",
        ]
        object["installationId"] = content.device.map(JSONValue.string)
        return OutgoingRecord(
            topic: "push.outcomes",
            key: Array((content.device ?? "identity:\(content.identity)").utf8),
            value: JSONValue.object(object).bytes
        )
    }

    /// Makes an installation of an identity and returns its object id.
    func device(_ token: String, of identity: String, app: String = app) async throws -> String {
        try await install(
            [
                "deviceType": "ios", "deviceToken": .string(token),
                "identity": .string(identity),
            ],
            app: app
        ).objectID
    }

    func reader(_ identity: String, _ installation: String? = nil) -> SecureReader {
        SecureReader(app: Self.app, identity: identity, installation: installation)
    }
}
