import Door
import HTTPServer
import JSON
import Observability
import PushCore
import PushStorage

/// Parse Server's REST API under `/parse`: who may call it, and errors in its own form.
///
/// One value a loop. What it does to objects and pushes is what LeanCloud's surface does to them;
/// only the names differ. A request that is at fault is never answered 5xx, since Parse's package
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
        // Parse's package looks for these names in this very spelling, also outside of browsers,
        // before it reads a push's id.
        exposed: "X-Parse-Job-Status-Id, X-Parse-Push-Status-Id"
    )

    func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/parse") }

    /// A form of Parse's package may mean any method, and who calls is asked before what for: so each
    /// path takes every method, and what is not there is behind the key too.
    private static let methods: [HTTPMethod] = [.get, .post, .put, .delete]

    var routes: [SurfaceRoute] {
        let called = ParseRoute.all.flatMap { route in
            route.patterns.map { (pattern: $0, method: route.method, route: route) }
        }
        let patterns = Dictionary(grouping: called, by: \.pattern).mapValues { calls in
            Dictionary(calls.map { ($0.method, $0.route) }) { first, _ in first }
        }
        // What can be called first, in the order of the table.
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

    /// One method of one path; `routes` is what the path takes, `nil` where nothing is there.
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
                caller.visit?.action = Self.unknown(call.method)
                guard let routes else { throw ParseRoute.nothing(at: call.path) }
                guard let route = routes[call.method == .head ? .get : call.method] else {
                    throw ObjectError.wrongMethod
                }
                caller.visit?.action = route.action
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

    /// As the audit shows what has no better name.
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
                    handler: .anybody { _, _ in .json(["status": "ok"]) }
                )
            }
        }
    }

    /// Who calls. With a master key nothing else is looked at: one that is wrong is a failure, whatever
    /// right key stands beside it, or guesses at it would look like calls that were let in.
    func proof(of request: HTTPServerRequest, _ visit: Visit) throws -> Proof {
        let credential = try ParseCredential(request, beforeSearching: visit.beforeSearching)
        guard let credential, let key = credential.masterKey ?? credential.clientKey else {
            throw visit.refusal()
        }
        let rights: CallerRights = credential.masterKey == nil ? .client : .master
        return Proof(LeanCloudCredential(app: credential.app, key: key, rights: rights))
    }
}
