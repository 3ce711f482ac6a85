package import EventLoop
package import HTTPServer
package import Observability

extension ServiceRuntime {
    /// Makes a server of the service, with no more connections than there are descriptors for, and
    /// logs how many that is.
    ///
    /// - Parameters:
    ///   - configuration: Its `maximumConnections` is lowered if there are fewer descriptors.
    ///   - listener: Its clients: callers or operators.
    ///   - loops: Its loops; they share the limit.
    ///   - log: Gets its lines instead of the service's log.
    ///   - makeRouter: Called once for each loop.
    /// - Returns: The server, which does not listen yet.
    /// - Throws: `HTTPServerError` if the certificate is invalid.
    package func makeServer(
        _ configuration: HTTPServerConfiguration,
        for listener: DescriptorBudget.Listener,
        loops: [EventLoop],
        log: Log? = nil,
        makeRouter: (EventLoop) -> Router
    ) throws -> HTTPServer {
        var configuration = configuration
        let wanted = configuration.maximumConnections
        let granted = descriptors.connections(for: listener, wanted: wanted)
        configuration.maximumConnections = granted
        var data: LogData = [
            .count: .integer(granted), .descriptors: .integer(descriptors.total),
        ]
        if let surface = configuration.surface { data[.surface] = .string(surface) }
        if granted < wanted, configuration.surface == nil {
            data[.variable] = .string(HTTPServerConfiguration.Variable.maximumConnectionsName)
            self.log.warning("connection limit lowered: too few descriptors (ulimit -n)", data)
        } else {
            self.log.info("connection limit", data)
        }
        return try HTTPServer(
            configuration,
            loops: loops,
            log: log ?? self.log,
            metrics: metrics,
            makeRouter: makeRouter
        )
    }
}
