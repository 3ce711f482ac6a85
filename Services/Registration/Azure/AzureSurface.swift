import Apps
import Cryptography
import Door
import HTTPServer
import JSON
import Observability
import Outbox
import PushCore
import PushStorage

/// What a shared access key lets its holder do, each right including those before it.
enum AzureRight: Sendable {
    /// Register a device, and read what it registered.
    case listen
    case send
    case manage
}

/// Azure Notification Hubs' REST API at the root of the host, `/{hub}/…`: a hub is an app, its name
/// the app's id without case.
///
/// `DefaultListenSharedAccessSignature` is the app key, `DefaultFullSharedAccessSignature` the master
/// key. One value a loop, over that loop's database.
struct AzureSurface: Sendable {
    let database: PushDatabase
    let door: RequestGuard
    let pushes: PushOperations
    let saved: Counter

    static let listenKeyName = "DefaultListenSharedAccessSignature"
    static let fullKeyName = "DefaultFullSharedAccessSignature"
    /// Of a message, and of an installation.
    static let maximumBodyBytes = 64 * 1024

    typealias Handler = @Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse

    /// The second segments of this surface's paths, in lower case.
    private static let collections: TextSet = [
        "installations", "messages", "schedulednotifications", "registrations", "registrationids",
        "tags", "jobs", "feedbackcontainer", "feedback",
    ]

    static func owns(_ segments: [String]) -> Bool {
        segments.count >= 2 && !AppID.reserved.contains(AppID.folded(segments[0]))
            && collections.contains(segments[1].lowercased())
    }

    func addRoutes(to router: inout Router) {
        addInstallationRoutes(to: &router)
        addMessageRoutes(to: &router)
        addFeedbackRoutes(to: &router)
        addRefusals(to: &router)
    }

    /// The older model, and bulk jobs: a clear "not supported", which clients do not repeat.
    private func addRefusals(to router: inout Router) {
        let paths = [
            "registrations", "registrations/:id", "registrationids", "registrationIDs",
            "registrationids/:id", "registrationIDs/:id", "tags/:tag/registrations", "jobs",
            "jobs/:id",
        ]
        for path in paths {
            let what = path.hasPrefix("jobs") ? "A job of a hub" : "The model of registrations"
            for method in [HTTPMethod.get, .post, .put, .delete, .patch] {
                on(method, path, .listen, in: &router) { _, _ in
                    throw AzureError.notSupported(what)
                }
            }
        }
    }

    /// Adds a route behind the caller's token, with and without a slash at its end.
    func on(
        _ method: HTTPMethod,
        _ path: String,
        _ right: AzureRight,
        maximumBodyBytes: Int = AzureSurface.maximumBodyBytes,
        in router: inout Router,
        _ handler: @escaping Handler
    ) {
        for end in ["", "/"] {
            router.on(method, "/:hub/\(path)\(end)", maximumBodyBytes: maximumBodyBytes) {
                request in
                try await answer(request, as: "\(method.rawValue) /:hub/\(path)") { visit in
                    try AzureSurface.checkHeaders(request.headers)
                    let caller = try await authenticate(request, visit)
                    try caller.require(right)
                    var request = request
                    try request.decodeBody()
                    return try await handler(request, caller)
                }
            }
        }
    }

    /// Through the door, with the errors in Azure's form; `handler` lets the caller in.
    func answer(
        _ request: HTTPServerRequest,
        as action: String,
        _ handler: (Visit) async throws -> HTTPServerResponse
    ) async throws -> HTTPServerResponse {
        let tracking = AzureTracking(request)
        return try await door.answer(request, as: action) { visit in
            do {
                return tracking.sign(try await handler(visit))
            } catch {
                guard let known = AzureSurface.error(for: error) else { throw error }
                return tracking.response(to: known, headers: AzureSurface.headers(for: error))
            }
        }
    }

    /// Of two that say different things nobody can tell which is meant.
    private static let singleHeaders = [
        "Authorization", "ServiceBusNotification-Format", "ServiceBusNotification-Tags",
        "ServiceBusNotification-DeviceHandle", "ServiceBusNotification-ScheduleTime",
        "ServiceBusNotification-Apns-Expiry",
    ]

    private static func checkHeaders(_ headers: HTTPHeaders) throws(AzureError) {
        for name in singleHeaders where headers.all(name).count > 1 {
            throw AzureError("the header \(name) is there more than once")
        }
    }

    /// The one place where a caller becomes known.
    private func authenticate(
        _ request: HTTPServerRequest,
        _ visit: Visit
    ) async throws -> Caller {
        guard let token = SharedAccessToken(authorization: request.header("authorization")),
            !token.isExpired(at: .now()),
            token.covers(host: request.header("host") ?? "", path: request.pathSegments)
        else { throw AzureError.badToken }
        let rights: CallerRights
        switch token.keyName {
        case Self.listenKeyName: rights = .client
        case Self.fullKeyName: rights = .master
        default: throw AzureError.badToken
        }
        let app = try await visit.admit(
            app: .folded(request.pathParameters["hub"] ?? ""),
            rights: rights,
            isProved: token.isSigned(by:)
        )
        return Caller(app: app, rights: rights, visit: visit)
    }

    // MARK: Errors

    /// What a client can be told of what a handler threw.
    static func error(for error: any Error) -> AzureError? {
        switch error {
        case let error as AzureError: error
        case RequestRefusal.unauthorized: .badToken
        case RequestRefusal.tooManyRequests(let seconds):
            AzureError(status: 429, "too many requests; try again in \(seconds) s")
        case let error as InstallationError: AzureError(error.description)
        case let error as ObjectError: AzureError(status: error.status, error.description)
        case let error as PushRequestError: AzureError(error.description)
        case let error as TagExpressionError: AzureError(error.description)
        case let error as PushTooLarge: AzureError(status: 413, error.description)
        case let error as PageTooLarge: AzureError(error.description)
        case is TooManyWaiting:
            AzureError(status: 403, "too many notifications of this hub wait for their time")
        case let problem as HTTPProblem:
            AzureError(
                status: problem.status,
                problem.detail.isEmpty ? statusText(problem.status) : problem.detail
            )
        case let error as StorageError where error.isRetryable:
            AzureError(status: 503, "The service cannot answer now; try again.")
        default: nil
        }
    }

    /// The answer to what the server itself refuses, and to what went wrong.
    static func response(to error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse {
        AzureTracking(request).response(
            to: Self.error(for: error) ?? AzureError(status: 500, "Internal error."),
            headers: headers(for: error)
        )
    }

    /// Such as `Retry-After`, without which SDKs do not try again.
    private static func headers(for error: any Error) -> HTTPHeaders {
        (error as? HTTPProblem)?.headers ?? [:]
    }
}

extension Caller {
    func require(_ right: AzureRight) throws(AzureError) {
        switch (right, rights) {
        case (_, .master), (.listen, .client): return
        case (.send, .client): guard mayPush else { throw .claimNeeded(right) }
        case (.manage, .client): throw .claimNeeded(right)
        }
    }
}

extension HTTPServerRequest {
    /// Whether a query parameter is there and not switched off: `?direct` and `?direct=true`.
    func isSwitchedOn(_ name: String) -> Bool {
        guard let value = queryValue(name) else { return false }
        return !["false", "0"].contains(value.lowercased())
    }
}
