import AzureHub
import Cryptography
import Gateway
import HTTPServer
import JSON
import Observability
import PushCore
import Storage

/// Azure Notification Hubs' REST API at the root of the host, `/{hub}/…`: a hub is an app, and its name is
/// the app's id in any case.
///
/// `DefaultListenSharedAccessSignature` is the app key, `DefaultFullSharedAccessSignature` the
/// master key. Each loop has one instance, which uses the loop's database.
struct AzureSurface: Surface {
    let database: PushDatabase
    let pushes: PushOperations
    let saved: Counter

    static let listenKeyName = "DefaultListenSharedAccessSignature"
    static let fullKeyName = "DefaultFullSharedAccessSignature"
    /// The limit of a message, and of an installation.
    static let maximumBodyBytes = 64 * 1024

    /// The second segments of this surface's paths, in lower case.
    private static let collections: ExactStringSet = [
        "installations", "messages", "schedulednotifications", "registrations", "registrationids",
        "tags", "jobs", "feedbackcontainer", "feedback",
    ]

    func owns(_ request: HTTPServerRequest) -> Bool {
        let segments = request.pathSegments
        return segments.count >= 2 && !AppID.reserved.contains(AppID.folded(segments[0]))
            && Self.collections.contains(segments[1].lowercased())
    }

    var routes: [SurfaceRoute] {
        installationRoutes + registrationRoutes + messageRoutes + feedbackRoutes + refusals
    }

    /// Routes of bulk jobs: all of them answer "not supported", an error that clients do not retry.
    private var refusals: [SurfaceRoute] {
        ["jobs", "jobs/:id"].flatMap { path in
            [HTTPMethod.get, .post, .put, .delete, .patch].flatMap { method in
                on(method, path, .listen) { _, _ in throw AzureError.notSupported("A job of a hub")
                }
            }
        }
    }

    /// Returns a route that requires the caller's token, with and without a trailing slash.
    func on(
        _ method: HTTPMethod,
        _ path: String,
        _ right: AzureRight,
        maximumBodyBytes: Int = AzureSurface.maximumBodyBytes,
        action: String? = nil,
        _ handler:
            @escaping @Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse
    ) -> [SurfaceRoute] {
        ["", "/"].map { end in
            SurfaceRoute(
                method,
                "/:hub/\(path)\(end)",
                action: action ?? (end.isEmpty ? nil : "\(method.rawValue) /:hub/\(path)"),
                appName: "hub",
                maximumBodyBytes: maximumBodyBytes,
                handler: .caller { request, caller in
                    try caller.require(right)
                    var request = request
                    try request.decodeBody()
                    return try await handler(request, caller)
                }
            )
        }
    }

    /// The headers that a request must not repeat, as it would be unclear which value counts.
    private static let singleHeaders = [
        "Authorization", "ServiceBusNotification-Format", "ServiceBusNotification-Tags",
        "ServiceBusNotification-DeviceHandle", "ServiceBusNotification-ScheduleTime",
        "ServiceBusNotification-Apns-Expiry", "ServiceBusNotification-ApnsExpiry",
        "X-Apns-Priority",
    ]

    private static func checkHeaders(_ headers: HTTPHeaders) throws(AzureError) {
        for name in singleHeaders where headers.all(name).count > 1 {
            throw AzureError("the header \(name) is there more than once")
        }
    }

    func proof(of request: HTTPServerRequest, _ context: RequestContext) throws -> Proof {
        try Self.checkHeaders(request.headers)
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
        return Proof(
            app: request.pathParameters["hub"] ?? "",
            anyCase: true,
            rights: rights,
            isProved: token.isSigned(by:)
        )
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
    /// Whether a query parameter is present, and not `false` or `0`: `?direct` and `?direct=true`
    /// are on.
    func isSwitchedOn(_ name: String) -> Bool {
        guard let value = queryValue(name) else { return false }
        return !["false", "0"].contains(value.lowercased())
    }
}
