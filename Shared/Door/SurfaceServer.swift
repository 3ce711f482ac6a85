package import HTTPServer
import Observability
package import ServiceKit

/// Answers a service's callers on all of its loops: its surfaces, each behind its loop's door, and
/// what operators ask beside them.
package struct SurfaceServer: ServicePart {
    package let name = "http"
    private let server: HTTPServer

    /// - Parameters:
    ///   - configuration: What to listen on, and what to grant.
    ///   - rooms: One for each of the service's loops, in their order.
    ///   - runtime: The service's.
    ///   - surfaces: Made once for each loop.
    /// - Throws: `HTTPServerError` when the certificate cannot be used.
    package init(
        _ configuration: HTTPServerConfiguration,
        _ rooms: [LoopRooms],
        in runtime: ServiceRuntime,
        surfaces: (LoopRooms) -> [any Surface]
    ) throws {
        server = try runtime.makeServer(
            configuration,
            for: .service(),
            loops: runtime.loops
        ) { loop in
            var router = Router()
            router.log = runtime.log
            router.addOperationsRoutes(runtime)
            guard let rooms = rooms.first(where: { $0.loop === loop }) else { return router }
            let surfaces = surfaces(rooms)
            if loop === runtime.mainLoop { Self.tell(surfaces, router, to: runtime.log) }
            router.mount(surfaces, behind: rooms.door)
            return router
        }
    }

    package func run() async throws { try await server.run() }

    package func notReadyReason() -> String? { server.notReadyReason() }

    /// All that can be asked here, for whoever checks who may ask it: by path, and then what a surface
    /// has names of its own for, in its order.
    private static func tell(_ surfaces: [any Surface], _ operations: Router, to log: Log) {
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
