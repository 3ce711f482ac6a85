import ConnectionStorage
import Cryptography
import EventLoop
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import PushEvents
import ServiceShell
import Storage

/// The routes of one loop: WebSockets on any path that is not another route's, and server-sent events.
struct ConnectionSurface: Surface {
    let database: PushDatabase
    let hub: DeviceHub
    /// The hubs of all loops: an acknowledgement over HTTP may be of another loop's stream.
    let hubs: [DeviceHub]
    let counts: SocketCounts
    let heartbeat: HeartbeatList
    let topics: KafkaTopics

    /// The most messages that one request acknowledges.
    private static let maximumAcks = 1000

    let cors: CORS? = CORS(
        "/v1/stream",
        "/v1/stream/acks",
        methods: "GET, POST, OPTIONS",
        headers: "Authorization, Content-Type, Last-Event-ID, X-LC-Id, X-LC-Key, X-LC-Sign, "
            + "X-Carillon-Device-Secret"
    )

    func owns(_ request: HTTPServerRequest) -> Bool { true }

    var routes: [SurfaceRoute] {
        [
            SurfaceRoute(
                .get,
                "/v1/stream",
                handler: .unauthenticated { request, context in try await stream(request, context) }
            )
            .described(
                RouteDescription(
                    "Receive an installation's pushes as server-sent events",
                    for: [["basic"], ["appId", "appKey"]],
                    parameters: [
                        .query("installation", ["type": "string", "minLength": 16]),
                        .query("register", ["type": "string"]),
                        .query("channels", ["type": "string"]),
                        .header(
                            "Last-Event-ID",
                            ["type": "string"],
                            "The id of the last push that was received: acknowledges it and all before"
                        ), Self.secretHeader,
                    ],
                    answers: [
                        .init(
                            200,
                            "Events ready, push and goaway",
                            RouteDescription.Content("text/event-stream")
                        )
                    ]
                )
            ),
            SurfaceRoute(
                .post,
                "/v1/stream/acks",
                maximumBodyBytes: 64 << 10,
                handler: .unauthenticated { request, context in
                    try await acknowledge(request, context)
                }
            )
            .described(
                RouteDescription(
                    "Acknowledge received pushes",
                    for: [["basic"], ["appId", "appKey"]],
                    parameters: [Self.secretHeader],
                    answers: [.init(200, "The number that were waiting", .json())]
                )
            ),
        ]
            + ["/", "/*rest"].map { path in
                SurfaceRoute(
                    .get,
                    path,
                    handler: .unauthenticated { request, context in try openSocket(request, context)
                    }
                )
            }
    }

    private static let secretHeader = RouteDescription.Parameter.header(
        "X-Carillon-Device-Secret",
        ["type": "string"],
        "The installation's secret, if the app asks for one"
    )

    static let openAPI = OpenAPI(
        "Carillon connections",
        "Pushes over connections that devices hold themselves. WebSockets are not described here.",
        securitySchemes: [
            "basic": ["type": "http", "scheme": "basic", "description": "An app with its app key"],
            "appId": ["type": "apiKey", "in": "header", "name": "X-LC-Id"],
            "appKey": ["type": "apiKey", "in": "header", "name": "X-LC-Key"],
        ],
        schemas: [:],
        pathSchema: { _ in ["type": "string"] }
    )

    // MARK: WebSockets

    private func openSocket(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) throws -> HTTPServerResponse {
        guard WebSocketHandshake.isAsked(by: request) else {
            throw HTTPProblem(status: 404, detail: "there is nothing here but WebSockets")
        }
        let handshake = try WebSocketHandshake(request)
        guard
            let (dialect, subprotocol) = Dialects.choose(
                handshake.subprotocols,
                query: request.queryValue("subprotocol")
            )
        else { throw HTTPProblem(status: 400, detail: "no offered subprotocol is known") }
        try enter(context.address)
        return .upgrade(
            handshake,
            subprotocol: subprotocol,
            to: SocketSession(dialect, context, hub: hub, counts: counts)
        )
    }

    private func enter(_ address: String) throws {
        guard !hub.isDraining else {
            throw HTTPProblem(
                status: 503,
                detail: "the node stops",
                headers: ["Retry-After": "1"]
            )
        }
        switch counts.entered(address) {
        case nil: return
        case .isFull:
            throw HTTPProblem(
                status: 503,
                detail: "the node has no room for another connection",
                headers: ["Retry-After": "5"]
            )
        case .addressIsFull:
            throw HTTPProblem(
                status: 429,
                detail: "too many connections of this address",
                headers: ["Retry-After": "5"]
            )
        }
    }

    // MARK: Server-sent events

    private func stream(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let (caller, secret) = try await caller(of: request, context)
        let id = try installationID(request.queryValue("installation"))
        guard caller.settings.sendsToConnections else {
            throw HTTPProblem(status: 403, detail: "the app has no connections")
        }
        if request.queryValue("register") == "1" {
            let channels = (request.queryValue("channels") ?? "").split(separator: ",")
            try await register(id, channels.map(String.init), app: caller.appID)
        }
        let key = DeviceKey(app: caller.appID, installationID: id)
        try await requireSecret(of: id, app: caller.appID, secret)
        if let last = request.header("last-event-id"), PushIdentity.isUUID(last) {
            try await acknowledge(upTo: last, of: key)
        }
        try enter(context.address)
        var response = HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "text/event-stream", "Cache-Control": "no-store"]
        )
        response.stream = HTTPBodyStream(
            fedBy: EventStream(
                LoginRequest(app: caller.appID, installationID: id, secret: secret),
                from: context.address,
                hub: hub,
                counts: counts,
                heartbeat: heartbeat
            )
        )
        return response
    }

    /// Authenticates an app key, by Basic `<app>:<app key>` or the headers of other surfaces. The device's
    /// secret, if it has one, is in a header of its own.
    private func caller(
        of request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> (Caller, secret: String?) {
        let proof: Proof
        if let (app, key) = Self.basic(request.header("authorization")) {
            proof = .appKey(key, of: app)
        } else {
            proof = try Proof(headers: request.headers)
        }
        return (try await context.admit(proof), request.header("x-carillon-device-secret"))
    }

    private static func basic(_ header: String?) -> (app: String, key: String)? {
        let parts = header?.split(separator: " ", maxSplits: 1) ?? []
        guard parts.count == 2, parts[0].lowercased() == "basic",
            let bytes = try? Base64.decode(String(parts[1])),
            let text = String(validating: bytes, as: UTF8.self),
            let colon = text.firstIndex(of: ":")
        else { return nil }
        return (String(text[..<colon]), String(text[text.index(after: colon)...]))
    }

    private func installationID(_ text: String?) throws -> String {
        let limits = DeviceHub.Limits.leastIDLength...DeviceHub.Limits.mostIDLength
        guard let text, limits.contains(text.utf8.count), !text.utf8.contains(0) else {
            throw HTTPProblem(
                status: 400,
                detail: "installation must be an installationId of \(limits.lowerBound) to"
                    + " \(limits.upperBound) bytes"
            )
        }
        return text
    }

    private func requireSecret(of id: String, app: String, _ secret: String?) async throws {
        let login = DeviceLogin(app: app, installationID: id)
        guard let digest = try await database.connections.logIn([login])[0]?.secretDigest else {
            return
        }
        guard let secret, constantTimeEqual(sha256(Array(secret.utf8)), digest) else {
            throw HTTPProblem(status: 403, detail: "the installation's secret is wrong or missing")
        }
    }

    /// Creates a missing installation, of a browser or a script.
    private func register(_ id: String, _ channels: [String], app: String) async throws {
        let now = Instant.now()
        let object: JSONObject = [
            "deviceType": "web", "installationId": .string(id),
            "channels": .array(channels.map(JSONValue.string)),
        ]
        do {
            let keys = try Installation.Keys(object)
            _ = try await database.installations.save(app: app, keys: keys) { existing in
                if let existing { return existing }
                var installation = Installation(
                    app: app,
                    objectID: ObjectID.make(at: now, random: .random(in: 0 ... .max)),
                    at: now
                )
                try installation.take(object, changed: ExactStringSet(object.keys), now: now)
                return installation
            }
        } catch let error as InstallationError {
            throw HTTPProblem(status: 400, detail: error.description)
        }
    }

    // MARK: Acknowledgements over HTTP

    private func acknowledge(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let (caller, secret) = try await caller(of: request, context)
        var request = request
        try request.decodeBody()
        guard let body = (try? JSONValue.parse(request.body, maximumDepth: 8))?.object,
            let list = body["ids"]?.array, list.count <= Self.maximumAcks
        else {
            throw HTTPProblem(
                status: 400,
                detail: "the body must have installation, and ids, at most \(Self.maximumAcks)"
            )
        }
        let id = try installationID(body["installation"]?.string)
        try await requireSecret(of: id, app: caller.appID, secret)
        let ids = Set(list.compactMap(\.string))
        let key = DeviceKey(app: caller.appID, installationID: id)
        let count = try await settle(key) { $0.filter { ids.contains($0.id) } }
        return .json(["acknowledged": JSONValue(count)])
    }

    /// Acknowledges an event and all before it.
    private func acknowledge(upTo id: String, of key: DeviceKey) async throws {
        _ = try await settle(key) { messages in
            guard let last = messages.lastIndex(where: { $0.id == id }) else { return [] }
            return Array(messages[...last])
        }
    }

    private func settle(
        _ key: DeviceKey,
        _ choose: ([WaitingMessage]) -> [WaitingMessage]
    ) async throws -> Int {
        let store = database.connections
        let waiting = try await store.waiting(of: [key], limit: Self.maximumAcks)
        let chosen = choose(waiting).map { MessageAck($0) }
        let count = try await store.acknowledge(chosen, topics: topics, at: .now())
        for hub in hubs { hub.loop.execute { hub.changed(key) } }
        return count
    }
}

extension Proof {
    /// Makes a proof of an app key.
    static func appKey(_ key: String, of app: String) -> Proof {
        Proof(app: app, rights: .client) { constantTimeEqual(key, $0) }
    }
}
