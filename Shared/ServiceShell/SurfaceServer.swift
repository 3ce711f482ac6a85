import Gateway
import HTTPServer
import Observability
import ServiceKit

/// Answers a service's callers on all of its loops: its surfaces, each behind its loop's gateway,
/// their OpenAPI description, and the operations routes.
struct SurfaceServer: ServicePart {
    let name = "http"
    private let server: HTTPServer

    /// - Parameters:
    ///   - configuration: The addresses to listen on, and the limits.
    ///   - loops: The service's, in their order, each with its surfaces.
    ///   - openAPI: Describes the service.
    ///   - runtime: The service's.
    /// - Throws: `HTTPServerError` if the certificate is invalid.
    init(
        _ configuration: HTTPServerConfiguration,
        _ loops: [(loop: ServiceLoop, surfaces: [any Surface])],
        _ openAPI: OpenAPI,
        in runtime: ServiceRuntime
    ) throws {
        let description = DescriptionSurface(
            openAPI.document(
                of: loops[0].surfaces.flatMap(\.routes),
                withOperations: !runtime.operations.isApart
            )
        )
        server = try runtime.makeServer(
            configuration,
            for: .service(),
            loops: runtime.loops
        ) { loop in
            var router = Router()
            router.log = runtime.log
            router.addOperationsRoutes(runtime)
            guard let own = loops.first(where: { $0.loop.loop === loop }) else { return router }
            // The first surface that owns a path answers its errors.
            let surfaces = [description] + own.surfaces
            if loop === runtime.mainLoop { Self.logRoutes(surfaces, router, to: runtime.log) }
            router.mount(surfaces, behind: own.loop.requestGuard)
            return router
        }
    }

    func run() async throws { try await server.run() }

    func notReadyReason() -> String? { server.notReadyReason() }

    /// Logs every route, for a check of its callers: by path, and then the actions that a surface
    /// names itself, in its order.
    private static func logRoutes(_ surfaces: [any Surface], _ operations: Router, to log: Log) {
        let routes = surfaces.flatMap(\.allRoutes)
        let unnamed =
            operations.routes + routes.filter { !$0.isNamed }.map { ($0.method, $0.pattern) }
        let actions =
            unnamed.sorted { ($0.pattern, $0.method.rawValue) < ($1.pattern, $1.method.rawValue) }
            .map { "\($0.method.rawValue) \($0.pattern)" }
            + routes.filter(\.isNamed).map(\.action)
        var told: Set<String> = []
        for action in actions where told.insert(action).inserted {
            log.debug("route", [.httpRoute: .string(action)])
        }
    }
}

/// Serves `/openapi.json`.
private struct DescriptionSurface: Surface {
    private let document: [UInt8]

    init(_ document: [UInt8]) { self.document = document }

    func owns(_ request: HTTPServerRequest) -> Bool { request.path == OpenAPI.path }

    var routes: [SurfaceRoute] {
        [
            SurfaceRoute(
                .get,
                OpenAPI.path,
                handler: .unauthenticated { _, _ in
                    HTTPServerResponse(
                        status: 200,
                        headers: ["Content-Type": "application/json"],
                        body: document
                    )
                }
            )
        ]
    }
}
