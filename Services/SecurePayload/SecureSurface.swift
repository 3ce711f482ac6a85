import Cryptography
import EventLoop
import Gateway
import HTTPServer
import JSON
import Observability
import Outbox
import PushCore
import PushEvents
import ServiceShell
import Storage

/// Secure payloads over HTTP: a backend stores content and notifies devices, a reader reads it. The paths and
/// responses under `/api` are those of the app in Microsoft's tutorial on secure push, so that it needs only
/// a new address; the paths under `/v1` are Carillon's own.
///
/// Order: the caller is authenticated before anything else of a request is read. So a refusal of a
/// caller does not depend on an id. Each loop has one instance, which uses the loop's database.
struct SecureSurface: Surface {
    let loop: EventLoop
    let database: PushDatabase
    let authenticator: ReaderAuthenticator
    let keys: KeyRing
    let topics: KafkaTopics
    let checks: SecretVerifier
    let limits: ReaderLimits
    let metrics: SecureMetrics
    let log: Log
    /// The time for which read-once content can be read again.
    let readGrace: Duration

    /// The limit of bodies with content. If each byte is escaped, a payload of 64 KiB is six times
    /// as long, and so are the other fields: such a body is still within the limit.
    static let maximumContentBody = 512 << 10
    /// The limit of all other bodies.
    static let maximumSmallBody = 64 << 10

    /// The prefixes of the tutorial's paths: an app may precede them.
    static let bases = ["", "/:app"]
    static let appName = "app"

    func owns(_ request: HTTPServerRequest) -> Bool { true }

    var routes: [SurfaceRoute] {
        Self.bases.flatMap { notificationRoutes($0) + registerRoutes($0) } + secretRoutes
            + deviceRoutes
    }

    static let openAPI = OpenAPI(
        "Carillon secure payloads",
        "Content that only its identity can fetch, announced by an id.",
        securitySchemes: [
            "basic": [
                "type": "http", "scheme": "basic",
                "description": .string(
                    "An app with its master key, an identity with its secret, or an installation with"
                        + " its device secret."
                ),
            ],
            "token": ["type": "http", "scheme": "bearer", "bearerFormat": "JWT"],
        ],
        schemas: OpenAPISchemas.all,
        pathSchema: OpenAPISchemas.ofPath
    )

    /// The callers of a route, as its description names them.
    enum Callers {
        case backends, readers

        var schemes: [[String]] { self == .readers ? [["basic"], ["token"]] : [["basic"]] }
    }

    /// Creates a route that authenticates its caller, counts its refusals and notes its ids for the audit.
    func route(
        _ method: HTTPMethod,
        _ pattern: String,
        _ description: RouteDescription,
        maximumBodyBytes: Int = SecureSurface.maximumSmallBody,
        _ handler:
            @escaping @Sendable (SecureCall) async throws -> HTTPServerResponse
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            pattern,
            appName: Self.appName,
            maximumBodyBytes: maximumBodyBytes,
            handler: .unauthenticated { request, context in
                do {
                    for name in ["id", "identity"] {
                        if let target = request.pathParameters[name] { context.note(target) }
                    }
                    let caller = try await authenticator.caller(request, context)
                    return try await handler(SecureCall(request, context, caller))
                } catch {
                    if let refusal = SecureRefusal(error) { metrics.refuse(refusal) }
                    throw error
                }
            }
        )
        .described(description)
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        switch refusal {
        case .unauthorized, .signatureTooOld: .problem(SecureRefusal.unproved.problem)
        case .tooManyRequests, .masterKeyNeeded, .nothingHere, .wrongMethod, .problem,
            .valueRefused, .tookTooLong, .unavailable, .failed:
            .problem(HTTPProblem(refusal))
        }
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        switch error {
        case let refusal as SecureRefusal: .problem(refusal.problem)
        case let error as SecureRequestError:
            .problem(HTTPProblem(status: 400, detail: error.description))
        default: nil
        }
    }

    // MARK: Limits of unknown ids

    /// Checks the limit of a reader before its id is looked up.
    ///
    /// - Throws: 429 if too many of the reader's ids were not found.
    func requireNotLimited(_ reader: AuthenticatedReader) throws {
        if let wait = limits.waitAfterMisses(key(of: reader)) {
            throw reader.context.tooMany(retryAfterSeconds: wait)
        }
    }

    /// Counts an id that the reader cannot read, and returns the refusal.
    func notFound(_ reader: AuthenticatedReader) -> SecureRefusal {
        limits.countNotFound(key(of: reader))
        return .notFound
    }

    private func key(of reader: AuthenticatedReader) -> [UInt8] {
        limits.key(ofReader: [reader.app.id, reader.identity, reader.device ?? ""])
    }
}

/// A request with an authenticated caller.
struct SecureCall: Sendable {
    let request: HTTPServerRequest
    let context: RequestContext
    let caller: SecureCaller

    init(_ request: HTTPServerRequest, _ context: RequestContext, _ caller: SecureCaller) {
        self.request = request
        self.context = context
        self.caller = caller
    }

    /// The id in the path.
    var id: String { request.pathParameters["id"] ?? "" }

    /// Returns the body, decoded by its content encoding.
    func body() throws -> [UInt8] {
        var request = request
        try request.decodeBody()
        return request.body
    }

    /// Returns the URL of a notification, with the app if the request's path names it.
    func location(of id: String) -> String {
        let app = request.pathParameters[SecureSurface.appName].map { "/\($0)" } ?? ""
        return "\(request.outsideBase)\(app)/api/notifications/\(id)"
    }
}

extension HTTPServerResponse {
    /// Creates a response that contains a secret: no cache may store it.
    static func secret(_ object: JSONObject) -> HTTPServerResponse {
        var response = json(.object(object))
        response.headers["Cache-Control"] = "no-store"
        return response
    }
}
