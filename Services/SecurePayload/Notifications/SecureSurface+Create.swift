import Cryptography
import EventLoop
import Gateway
import HTTPServer
import JSON
import Outbox
import PushCore
import PushStorage
import SecureStorage
import Storage

extension SecureSurface {
    func notificationRoutes(_ base: String) -> [SurfaceRoute] {
        let all = base + "/api/notifications"
        let one = all + "/:id"
        return [
            route(.post, all, Self.keeping, maximumBodyBytes: Self.maximumContentBody) {
                try await create($0)
            },
            route(.get, all, Self.listing) { try await list($0) },
            route(.get, one, Self.reading) { try await read($0) },
            route(
                .delete,
                one,
                RouteDescription(
                    "Delete the content, for all devices: how one says that it has it",
                    for: Callers.readers.schemes,
                    parameters: [Self.device],
                    answers: [.init(204, "Gone")]
                )
            ) { try await delete($0) },
        ]
    }

    private static let device = RouteDescription.Parameter.query(
        "installation",
        ["type": "string"],
        "The device that an identity reads on, of content that is sealed to it"
    )

    private static let keeping = RouteDescription(
        "Keep content for an identity, and ring its devices",
        for: Callers.backends.schemes,
        parameters: [
            .header(
                "Idempotency-Key",
                OpenAPISchemas.requestKey,
                "A repeat gets the first answer, and no notification is sent again"
            )
        ],
        body: .json(named: "NewNotification"),
        needsBody: true,
        answers: [.init(201, "Kept", .json(named: "Kept"))]
    )

    private static let listing = RouteDescription(
        "List the payloads that wait for their reader; for the master key all",
        for: Callers.readers.schemes,
        parameters: [
            .query("identity", OpenAPISchemas.identity, "Master key only"),
            .query("limit", OpenAPISchemas.pageLimit, "Master key only"),
            .query(
                "after",
                OpenAPISchemas.cursor,
                "What a page before gave as next; master key only"
            ), device,
        ],
        answers: [.init(200, "Newest first", .json(named: "Page"))]
    )

    private static let reading = RouteDescription(
        "Get the content, for its identity; for the master key what the list shows",
        for: Callers.readers.schemes,
        parameters: [device],
        answers: [
            .init(
                200,
                "It is there",
                .json(["oneOf": [.schema(named: "Notification"), .schema(named: "Entry")]])
            )
        ]
    )

    /// The limit of attempts to find an unused id, as a numeric id may be in use.
    private static let maximumAttempts = 20

    /// `POST /api/notifications`: stores content and its push in one transaction.
    private func create(_ call: SecureCall) async throws -> HTTPServerResponse {
        if case .reader = call.caller, call.request.body.isEmpty {
            // The tutorial's app sends this request, as its server has a fixed text for the caller.
            // Carillon has none.
            throw SecureRefusal.unproved
        }
        let caller = try call.caller.requireBackend()
        let body = try call.body()
        let wanted = try NewNotification(body)
        call.context.note(wanted.identity)
        let key = try requestKey(call, of: caller.appID, body)
        var form = caller.settings.secureIDs
        if let key, let known = try await database.securePayloads.answered(key) {
            return try answer(to: known, call)
        }
        for _ in 0..<Self.maximumAttempts {
            let id = SecureID.make(form)
            let (payload, push) = try await makePayload(wanted, id, of: caller.appID)
            let validated = try validate(push, of: caller.appID)
            let kept = try await database.securePayloads.create(
                payload,
                validated.push,
                record: validated.record,
                key: key
            )
            switch kept {
            case .stored:
                metrics.countStored(forDevices: wanted.isSealed)
                return created(
                    IdempotentResponse(
                        id: id,
                        pushID: validated.push.id,
                        expiresAt: payload.expiresAt
                    ),
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

    /// - Throws: 400 if the key is invalid.
    private func requestKey(
        _ call: SecureCall,
        of app: String,
        _ body: [UInt8]
    ) throws -> IdempotencyKey? {
        let stated = call.request.headers.all("idempotency-key")
        guard let key = stated.first else { return nil }
        guard stated.count == 1,
            (1...NewNotification.maximumKeyLength).contains(key.unicodeScalars.count),
            !key.utf8.contains(0)
        else {
            throw SecureRequestError(
                "Idempotency-Key must be one of 1 to \(NewNotification.maximumKeyLength) characters"
            )
        }
        return IdempotencyKey(
            app: app,
            key: key,
            bodyMarks: keys.marks(of: body, context: IdempotencyKey.context(app: app, key: key))
        )
    }

    private func answer(
        to known: IdempotencyResult,
        _ call: SecureCall
    ) throws -> HTTPServerResponse {
        switch known {
        case .same(let answer): return created(answer, call)
        case .otherBody:
            throw HTTPProblem(
                status: 422,
                detail: "this Idempotency-Key was used with a different body"
            )
        }
    }

    private func created(
        _ answer: IdempotentResponse,
        _ call: SecureCall
    ) -> HTTPServerResponse {
        call.context.note(answer.id)
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

    // MARK: Content and its push

    private func makePayload(
        _ wanted: NewNotification,
        _ id: String,
        of app: String
    ) async throws -> (NewSecurePayload, SecurePush) {
        let expiresAt = database.clock.now().adding(.seconds(wanted.lifetimeSeconds))
        var push = SecurePush(
            id: id,
            identity: wanted.identity,
            tag: wanted.tag,
            visibleText: wanted.visibleText,
            expiresAt: expiresAt
        )
        let content: NewSecurePayload.Content
        if wanted.isSealed {
            let copies = try await copies(of: wanted, id, app)
            push.installations = copies.map(\.installation)
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
        return (payload, push)
    }

    /// Seals the content to each device of the identity that has a sealing key.
    ///
    /// - Throws: 409 if no device has one.
    private func copies(
        of wanted: NewNotification,
        _ id: String,
        _ app: String
    ) async throws -> [SealedCopy] {
        let devices = try await database.secureReaders.sealing(app: app, identity: wanted.identity)
        guard !devices.isEmpty else {
            throw HTTPProblem(status: 409, detail: "the identity has no device with a sealingKey")
        }
        // Sealing a hundred copies of 64 KiB each takes long, so it runs off the loop.
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

    private func validate(_ push: SecurePush, of app: String) throws -> PushAcceptance.ValidatedPush
    {
        do {
            return try PushAcceptance(database, topics: topics).validate(
                push.request,
                PushAcceptance.Event(
                    app: app,
                    source: PushIdentity.secureSource,
                    id: push.eventID
                ),
                includesPushID: false,
                now: database.clock.now()
            )
        } catch let error as PushRequestError {
            throw SecureRequestError(error.description)
        } catch let error as PushTooLarge {
            throw SecureRequestError(error.description)
        }
    }
}

/// The sealing of content to one device, and the parameters that the device needs to open it.
enum SealedForDevice {
    static let info = "carillon secure payload v1"
    /// The name in responses.
    static let name = "hpke-x25519-sha256-aes256gcm"

    /// Returns the data that binds sealed content to its app, id and device: it opens for no other.
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
