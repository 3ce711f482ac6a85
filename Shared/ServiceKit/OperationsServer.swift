internal import HTTPServer
internal import Observability

/// Where a service without routes of its own answers its operators.
package struct OperationsConfiguration: Sendable {
    let server: HTTPServerConfiguration

    /// Reads `HTTP_HOST`, `HTTP_PORT` and the rest of a listener's variables.
    package init(
        _ reader: ConfigurationReader,
        defaultPort: Int
    ) throws(ConfigurationError) {
        server = try HTTPServerConfiguration(reader, defaultPort: defaultPort)
    }
}

/// `/livez`, `/readyz` and `/metrics` for a service that serves nothing else. It stands first among
/// the parts, so that it answers to the end.
package final class OperationsServer: ServicePart {
    package let name = "operations"
    private let server: HTTPServer

    /// - Throws: What the listener's certificate is refused for.
    package init(_ configuration: OperationsConfiguration, _ runtime: ServiceRuntime) throws {
        server = try HTTPServer(
            configuration.server,
            loops: [runtime.mainLoop],
            log: runtime.log,
            metrics: runtime.metrics
        ) { _ in
            var router = Router()
            router.addOperationsRoutes(runtime)
            return router
        }
    }

    package func run() async throws { try await server.run() }

    package func notReadyReason() -> String? { server.notReadyReason() }
}
