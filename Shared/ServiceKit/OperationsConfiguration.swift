internal import HTTPServer
internal import Observability
internal import Settings

/// The address of a service's operations routes.
package struct OperationsConfiguration: Sendable {
    /// `nil`: beside the service's own routes.
    let server: HTTPServerConfiguration?
    /// Whether the routes have a port of their own, which a firewall can close.
    package let isApart: Bool

    /// Makes a configuration without a port for operators.
    init() {
        server = nil
        isApart = false
    }

    /// Reads `OPERATIONS_PORT` (0: any free one; unset: the routes are on `HTTP_PORT`).
    ///
    /// - Parameters:
    ///   - reader: The environment.
    ///   - ownPort: The default of `HTTP_PORT` for a service without routes of its own, which then
    ///     answers there.
    /// - Throws: If a variable is invalid.
    init(_ reader: ConfigurationReader, ownPort: Int?) throws(ConfigurationError) {
        isApart = reader.isSet(ServiceVariable.operationsPort)
        if isApart {
            var server = HTTPServerConfiguration(
                host: try reader.value(of: HTTPServerConfiguration.Variable.host),
                port: try reader.value(of: ServiceVariable.operationsPort)
            )
            server.surface = "operations"
            self.server = server
        } else if let ownPort {
            server = try HTTPServerConfiguration(reader, defaultPort: ownPort)
        } else {
            server = nil
        }
    }
}
