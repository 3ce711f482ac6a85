internal import HTTPServer
internal import Observability
internal import Settings

/// Where a service answers its operators.
package struct OperationsConfiguration: Sendable {
    /// `nil`: beside the service's own routes.
    let server: HTTPServerConfiguration?
    /// Whether the routes have a port of their own, which a firewall can close to the world.
    package let isApart: Bool

    /// Reads `OPERATIONS_PORT` (0: any free one; unset: the routes stand on `HTTP_PORT`).
    ///
    /// - Parameters:
    ///   - reader: The environment.
    ///   - ownPort: Of a service that serves nothing else: the default of `HTTP_PORT`, where it
    ///     answers then.
    /// - Throws: Where a variable cannot be used.
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
