import Gateway
import HTTPServer
import JSON
import PushCore
import Storage

/// LeanCloud's REST API 1.1 under `/1.1`: routes, authentication, and errors in its own form.
///
/// A call arrives over HTTP, as a browser's form (a POST whose text contains the method and the
/// keys), or as an item of a batch; all three use `LeanCloudRoute`s. Each loop has one instance,
/// which uses the loop's database.
struct LeanCloudSurface: Surface {
    let database: PushDatabase
    let objects: ObjectOperations
    let pushes: PushOperations

    let cors: CORS? = CORS(
        "/1.1/*rest",
        methods: "GET, POST, PUT, DELETE, OPTIONS",
        headers: "Content-Type, X-LC-Id, X-LC-Key, X-LC-Sign, X-LC-Session, X-LC-Prod, X-LC-UA, "
            + "X-LC-Hook-Key, X-AVOSCloud-Application-Id, X-AVOSCloud-Application-Key"
    )

    func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/1.1") }

    /// All routes, a literal path before one with named segments.
    var calls: [LeanCloudRoute] {
        objectRoutes + recordRoutes + pushRoutes + scheduleRoutes + queryRoutes + batchRoutes
            + statisticsRoutes + otherClasses
    }

    var routes: [SurfaceRoute] {
        let date = SurfaceRoute(
            .get,
            "/1.1/date",
            handler: .unauthenticated { _, _ in Self.date().response }
        )
        let routes = Dictionary(grouping: calls, by: \.pattern).flatMap { pattern, calls in
            let handlers = Dictionary(calls.map { ($0.method, $0.handler) }) { first, _ in first }
            // A form is a POST that may stand for any method, so each path accepts POST.
            return Set(handlers.keys).union([.post]).map { method in
                SurfaceRoute(
                    method,
                    "/1.1/" + pattern,
                    maximumBodyBytes: Self.maximumBodyBytes(of: pattern),
                    handler: .caller { request, caller in
                        try await respond(to: request, caller, pattern, handlers)
                    }
                )
            }
        }
        // This route needs no key. In a batch, the date is a call like the others.
        return routes + [date]
    }

    /// Returns the limit of a route's body; `nil`: the server's.
    private static func maximumBodyBytes(of pattern: String) -> Int? {
        if pattern.hasPrefix("batch") { return maximumBatchBytes }
        return statisticsPatterns.contains(pattern) ? maximumStatisticsBytes : nil
    }

    static func date() -> LeanCloudAnswer {
        LeanCloudAnswer(["__type": "Date", "iso": .string(Instant.now().iso8601)])
    }

    func proof(of request: HTTPServerRequest, _ context: RequestContext) throws -> Proof {
        do {
            return Proof(
                try LeanCloudRequest.credential(
                    of: request,
                    requireBodySearchAllowed: context.requireBodySearchAllowed
                )
            )
        } catch Refusal.unauthorized {
            throw context.refusal()
        }
    }

    private func respond(
        to request: HTTPServerRequest,
        _ caller: Caller,
        _ pattern: String,
        _ handlers: [HTTPMethod: LeanCloudRoute.Handler]
    ) async throws -> HTTPServerResponse {
        let incoming = try LeanCloudRequest(request, forMaster: caller.isMaster)
        caller.context?.action = "\(incoming.method.rawValue) /1.1/\(pattern)"
        guard let handler = handlers[incoming.method] else { throw LeanCloudError.wrongMethod }
        var call = LeanCloudCall(method: incoming.method, caller: caller)
        call.pathParameters = request.pathParameters
        call.parameters = incoming.parameters
        call.body = incoming.body
        call.prodHeader = incoming.production
        call.base = request.outsideBase
        return try await handler(call).response
    }

    /// The routes of classes that are not stored here.
    private var otherClasses: [LeanCloudRoute] {
        ["classes/:class", "classes/:class/:id"].flatMap { pattern in
            [HTTPMethod.get, .post, .put, .delete].map { method in
                LeanCloudRoute(method, pattern) { call in
                    let name = call.path("class")
                    guard ObjectOperations.ObjectClass(className: name) == nil else {
                        throw LeanCloudError.wrongMethod
                    }
                    throw LeanCloudError.classNotFound(name)
                }
            }
        }
    }
}
