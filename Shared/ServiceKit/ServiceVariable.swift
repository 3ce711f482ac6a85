internal import HTTPServer
internal import Observability
package import Settings

/// The variables that every service reads itself.
package enum ServiceVariable {
    package static let shutdownGrace = Setting<Duration>(
        "SHUTDOWN_GRACE",
        in: .milliseconds(100)...Duration.seconds(3600),
        default: .seconds(25),
        "from SIGTERM to the end; what a dispatcher has not been answered when most of it is"
            + " over goes"
            + " back, and may ring twice"
    )
    static let operationsPort = Setting<Int>(
        "OPERATIONS_PORT",
        in: HTTPServerConfiguration.Variable.ports,
        default: nil,
        none: "HTTP_PORT",
        "port of /livez, /readyz and /metrics; if set, no other port has them; 0: any free"
            + " port, its line"
            + " \"listening\" has the surface operations"
    )
    static let logLevel = Setting<LogLevel>(
        "LOG_LEVEL",
        takes: LogLevel.allCases.map(\.name).joined(separator: ", "),
        default: .info,
        shown: LogLevel.info.name,
        "minimum level of log lines",
        parse: LogLevel.init(name:)
    )
    static let logFormat = Setting<LogFormat>(
        "LOG_FORMAT",
        default: nil,
        shown: "json; text on a terminal",
        "format of the log lines on standard output"
    )

    /// Returns the variables of a service, in the order of the help.
    ///
    /// - Parameters:
    ///   - own: The variables of the service itself.
    ///   - operationsPort: As `runService` takes it.
    /// - Returns: All variables in the service's `--help`.
    package static func all(
        beside own: [SettingEntry],
        operationsPort: Int? = nil
    ) -> [SettingEntry] {
        let http = operationsPort.map { HTTPServerConfiguration.Variable.all(defaultPort: $0) }
        return [ConfigurationReader.file.entry] + own + (http ?? [])
            + [Self.operationsPort.entry, shutdownGrace.entry, logLevel.entry, logFormat.entry]
    }
}
