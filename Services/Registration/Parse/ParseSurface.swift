import Gateway
import HTTPServer
import JSON
import Observability
import PushCore

/// Parse Server's REST API under `/parse`: authentication, and errors in its own form.
///
/// Each loop has one instance. The operations on objects and pushes are those of LeanCloud's
/// surface; only the names differ. An invalid request never gets a 5xx, since Parse's package
/// repeats such a call, pushes included, four times.
struct ParseSurface: Surface {
    let objects: ObjectOperations
    let pushes: PushOperations
    let log: Log

    let cors: CORS? = CORS(
        "/parse/*rest",
        methods: "GET, PUT, POST, DELETE, OPTIONS",
        headers: """
            X-Parse-Master-Key, X-Parse-REST-API-Key, X-Parse-Javascript-Key, X-Parse-Client-Key, \
            X-Parse-Windows-Key, X-Parse-Application-Id, X-Parse-Client-Version, \
            X-Parse-Session-Token, X-Parse-Installation-Id, X-Parse-Request-Id, \
            X-Parse-Revocable-Session, X-Requested-With, Content-Type, Pragma, Cache-Control
            """,
        // Parse's package reads a push's id only if it finds these names in exactly this spelling,
        // also outside of browsers.
        exposed: "X-Parse-Job-Status-Id, X-Parse-Push-Status-Id"
    )

    func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/parse") }

    /// The methods that each path accepts, as a form of Parse's package may stand for any of them.
    /// Authentication comes before routing, so unknown paths need a key, too.
    private static let methods: [HTTPMethod] = [.get, .post, .put, .delete]

    var routes: [SurfaceRoute] {
        let called = ParseRoute.all.flatMap { route in
            route.patterns.map { (pattern: $0, method: route.method, route: route) }
        }
        let patterns = Dictionary(grouping: called, by: \.pattern).mapValues { calls in
            Dictionary(calls.map { ($0.method, $0.route) }) { first, _ in first }
        }
        // The valid calls first, in the order of the table.
        let refused = patterns.flatMap { pattern, routes in
            Self.methods.filter { routes[$0] == nil }.map { (pattern: pattern, method: $0) }
        }
        let calls = (called.map { ($0.pattern, $0.method) } + refused).flatMap { pattern, method in
            ["", "/"].map { route(method, pattern + $0, patterns[pattern]) }
        }
        let others = ["users/me", "*rest"].flatMap { pattern in
            Self.methods.map { route($0, pattern, nil) }
        }
        return calls + health + others
    }

    /// Returns the route of one method and path. `routes` are the path's methods; `nil` for an
    /// unknown path.
    private func route(
        _ method: HTTPMethod,
        _ pattern: String,
        _ routes: [HTTPMethod: ParseRoute]?
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            "/parse/" + pattern,
            action: routes?[method]?.action ?? Self.unknown(method),
            handler: .caller { request, caller in
                let call = try ParseCall(request, forMaster: caller.isMaster)
                caller.context?.action = Self.unknown(call.method)
                guard let routes else { throw ParseRoute.nothing(at: call.path) }
                guard let route = routes[call.method == .head ? .get : call.method] else {
                    throw ObjectError.wrongMethod
                }
                caller.context?.action = route.action
                let question = ParseQuestion(
                    call: call,
                    caller: caller,
                    id: request.pathParameters["id"] ?? "",
                    base: request.outsideBase
                )
                return try await answer(route, question).response
            }
        )
    }

    /// The audit's name of a call without a route.
    private static func unknown(_ method: HTTPMethod) -> String {
        "\(method.rawValue) /parse/*rest"
    }

    private var health: [SurfaceRoute] {
        Self.methods.flatMap { method in
            ["health", "health/"].map { path in
                SurfaceRoute(
                    method,
                    "/parse/" + path,
                    action: ParseRoute.health.action,
                    handler: .unauthenticated { _, _ in .json(["status": "ok"]) }
                )
            }
        }
    }

    /// Returns the credentials to verify. If there is a master key, only that key is checked. A
    /// wrong one fails even with a valid client key beside it, as guesses would otherwise look like
    /// authenticated calls.
    func proof(of request: HTTPServerRequest, _ context: RequestContext) throws -> Proof {
        let credential = try ParseCredential(
            request,
            requireBodySearchAllowed: context.requireBodySearchAllowed
        )
        guard let credential, let key = credential.masterKey ?? credential.clientKey else {
            throw context.refusal()
        }
        let rights: CallerRights = credential.masterKey == nil ? .client : .master
        return Proof(LeanCloudCredential(app: credential.app, key: key, rights: rights))
    }
}
