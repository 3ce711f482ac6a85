internal import HTTPServer
internal import Observability
internal import Settings

/// `/livez`, `/readyz` and `/metrics` for a service without other routes. It is the first of the
/// parts, so that it answers until the end.
final class OperationsServer: ServicePart {
    let name = "operations"
    private let server: HTTPServer

    /// - Throws: The error of the listener's certificate.
    init(_ configuration: HTTPServerConfiguration, _ runtime: ServiceRuntime) throws {
        server = try runtime.makeServer(
            configuration,
            // Without a port of its own this is the only listener of a service whose connections
            // are outgoing ones, to providers: those get the rest.
            for: runtime.operations.isApart ? .operations : .service(share: 4),
            loops: [runtime.mainLoop]
        ) { _ in
            var router = Router()
            router.addOperations(runtime)
            return router
        }
    }

    func run() async throws { try await server.run() }

    func notReadyReason() -> String? { server.notReadyReason() }
}
