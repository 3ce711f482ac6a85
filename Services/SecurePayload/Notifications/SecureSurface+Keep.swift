import Cryptography
import Door
import EventLoop
import HTTPServer
import JSON
import Outbox
import PushCore
import PushStorage

extension SecureSurface {
    func notificationRoutes(_ base: String) -> [SurfaceRoute] {
        let all = base + "/api/notifications"
        let one = all + "/:id"
        return [
            route(.post, all, maximumBodyBytes: Self.maximumContentBody) { try await keep($0) },
            route(.get, all) { try await list($0) },
            route(.get, one) { try await read($0) },
            route(.delete, one) { try await delete($0) },
        ]
    }

    /// Tries for an id that nothing has: of numbers some are in use.
    private static let maximumAttempts = 20
    static let maximumKeyLength = 255

    /// `POST /api/notifications`: content is kept and rung for, in one transaction.
    private func keep(_ call: SecureCall) async throws -> HTTPServerResponse {
        if case .reader = call.caller, call.request.body.isEmpty {
            // The tutorial's own: it has a text of its own for its caller. We have none.
            throw SecureRefusal.unproved
        }
        let caller = try call.caller.needBackend()
        let body = try call.body()
        let wanted = try NewNotification(body)
        call.visit.note(wanted.identity)
        let key = try requestKey(call, of: caller.appID, body)
        var form = caller.settings.secureIDs
        if let key, let known = try await database.securePayloads.answered(key) {
            return try answer(to: known, call)
        }
        for _ in 0..<Self.maximumAttempts {
            let id = SecureID.make(form)
            let (payload, ring) = try await made(wanted, id, of: caller.appID)
            let judged = try judge(ring, of: caller.appID)
            let kept = try await database.securePayloads.keep(
                payload,
                judged.push,
                record: judged.record,
                key: key
            )
            switch kept {
            case .kept:
                figures.kept(forDevices: wanted.isSealed)
                return created(
                    SecureAnswer(id: id, pushID: judged.push.id, expiresAt: payload.expiresAt),
                    call
                )
            case .idTaken: continue
            case .otherForm(let current): form = current
            case .repeated(let answer): return created(answer, call)
            case .otherBody: return try self.answer(to: .otherBody, call)
            case .noApp: throw SecureRefusal.unproved
            }
        }
        throw HTTPProblem(
            status: 503,
            detail: "no id is free; try again",
            headers: ["Retry-After": "1"]
        )
    }

    /// - Throws: 400 for a key that is none.
    private func requestKey(
        _ call: SecureCall,
        of app: String,
        _ body: [UInt8]
    ) throws -> SecureRequestKey? {
        let stated = call.request.headers.all("idempotency-key")
        guard let key = stated.first else { return nil }
        guard stated.count == 1, (1...Self.maximumKeyLength).contains(key.unicodeScalars.count),
            !key.utf8.contains(0)
        else {
            throw SecureRequestError(
                "Idempotency-Key must be one of 1 to \(Self.maximumKeyLength) characters"
            )
        }
        return SecureRequestKey(
            app: app,
            key: key,
            bodyMarks: keys.marks(of: body, context: SecureRequestKey.context(app: app, key: key))
        )
    }

    private func answer(
        to known: KnownSecureKey,
        _ call: SecureCall
    ) throws -> HTTPServerResponse {
        switch known {
        case .same(let answer): return created(answer, call)
        case .otherBody:
            throw HTTPProblem(
                status: 422,
                detail: "this Idempotency-Key came with another body before"
            )
        }
    }

    private func created(
        _ answer: SecureAnswer,
        _ call: SecureCall
    ) -> HTTPServerResponse {
        call.visit.note(answer.id)
        var response = HTTPServerResponse.json(
            [
                "Id": SecureID.json(answer.id), "pushId": .string(answer.pushID),
                "expiresAt": .string(answer.expiresAt.iso8601),
            ],
            status: 201
        )
        response.headers["Location"] = call.location(of: answer.id)
        return response
    }

    // MARK: What is kept, and what rings for it

    private func made(
        _ wanted: NewNotification,
        _ id: String,
        of app: String
    ) async throws -> (NewSecurePayload, SecureRing) {
        let expiresAt = database.clock.now().adding(.seconds(wanted.lifetimeSeconds))
        var ring = SecureRing(
            id: id,
            identity: wanted.identity,
            tag: wanted.tag,
            visibleText: wanted.visibleText,
            expiresAt: expiresAt
        )
        let content: NewSecurePayload.Content
        if wanted.isSealed {
            let copies = try await copies(of: wanted, id, app)
            ring.installations = copies.map(\.installation)
            content = .forDevices(copies)
        } else {
            content = .atRest(
                try keys.seal(
                    wanted.payload,
                    context: SecurePayload.context(app: app, id: id, identity: wanted.identity)
                )
            )
        }
        let payload = NewSecurePayload(
            id: id,
            app: app,
            identity: wanted.identity,
            expiresAt: expiresAt,
            readOnce: wanted.readOnce,
            content: content
        )
        return (payload, ring)
    }

    /// The content as each device of the identity gets it that has a key of its own.
    ///
    /// - Throws: 409 where none has.
    private func copies(
        of wanted: NewNotification,
        _ id: String,
        _ app: String
    ) async throws -> [SealedCopy] {
        let devices = try await database.secureReaders.sealing(app: app, identity: wanted.identity)
        guard !devices.isEmpty else {
            throw HTTPProblem(status: 409, detail: "the identity has no device with a sealingKey")
        }
        // A hundred of them, with 64 KiB each, take long.
        return try await loop.blocking {
            try devices.map { device in
                SealedCopy(
                    installation: device.installation,
                    bytes: try SealedForDevice.seal(
                        wanted.payload,
                        to: device.publicKey,
                        app: app,
                        id: id,
                        installation: device.installation
                    )
                )
            }
        }
    }

    private func judge(_ ring: SecureRing, of app: String) throws -> PushAcceptance.Judged {
        do {
            return try PushAcceptance(database, topics: topics).judge(
                ring.request,
                PushAcceptance.Event(
                    app: app,
                    source: PushIdentity.secureSource,
                    id: ring.eventID
                ),
                tellsID: false,
                now: database.clock.now()
            )
        } catch let error as PushRequestError {
            throw SecureRequestError(error.description)
        } catch let error as PushTooLarge {
            throw SecureRequestError(error.description)
        }
    }
}

/// Content that only one device can open: what it must know to do so, too.
enum SealedForDevice {
    static let info = "carillon secure payload v1"
    /// As answers call it.
    static let name = "hpke-x25519-sha256-aes256gcm"

    /// What it belongs to: it opens for no other id, app or device.
    static func aad(app: String, id: String, installation: String) -> [UInt8] {
        Array("\(app)/\(id)/\(installation)".utf8)
    }

    static func seal(
        _ content: [UInt8],
        to publicKey: [UInt8],
        app: String,
        id: String,
        installation: String
    ) throws(CryptographyError) -> [UInt8] {
        try HPKE.seal(
            content,
            to: publicKey,
            info: Array(info.utf8),
            authenticating: aad(app: app, id: id, installation: installation)
        )
    }
}
