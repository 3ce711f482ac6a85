package import HTTPServer

extension HTTPServerConfiguration {
    /// What every service's listeners read: `HTTP_HOST`, `HTTP_PORT` (0: any free one; empty: no
    /// plain listener), `HTTP_TLS_PORT` with its two files, and the limits.
    package init(
        _ reader: ConfigurationReader,
        defaultPort: Int
    ) throws(ConfigurationError) {
        let ports = 0...65_535
        let plainPort: Int? =
            reader.isSetEmpty("HTTP_PORT")
            ? nil : try reader.integer("HTTP_PORT", in: ports, default: defaultPort)
        self.init(
            host: reader.string("HTTP_HOST", default: "0.0.0.0"),
            port: plainPort,
            tls: try Self.tls(reader, ports: ports)
        )
        guard port != nil || tls != nil else {
            throw ConfigurationError(
                "HTTP_PORT",
                "is empty, and HTTP_TLS_PORT is not set: nothing would listen"
            )
        }
        let hour = Duration.seconds(3600)
        let least = Duration.milliseconds(10)
        maximumBodyBytes = try reader.integer(
            "HTTP_MAX_BODY_BYTES",
            in: 1024...(1 << 30),
            default: maximumBodyBytes
        )
        maximumHeldBodyBytes = try reader.integer(
            "HTTP_MAX_HELD_BODY_BYTES",
            in: maximumBodyBytes...(1 << 40),
            default: max(maximumHeldBodyBytes, maximumBodyBytes)
        )
        maximumHeldAnswerBytes = try reader.integer(
            "HTTP_MAX_HELD_ANSWER_BYTES",
            in: (32 << 20)...(1 << 40),
            default: maximumHeldAnswerBytes
        )
        minimumAnswerBytesPerSecond = try reader.integer(
            "HTTP_MIN_ANSWER_RATE",
            in: 0...(1 << 20),
            default: minimumAnswerBytesPerSecond
        )
        accessLog = try reader.boolean("HTTP_ACCESS_LOG", default: true)
        maximumConnections = try reader.integer(
            "HTTP_MAX_CONNECTIONS",
            in: 1...1_000_000,
            default: maximumConnections
        )
        if reader.optional("HTTP_MAX_CONNECTIONS_PER_ADDRESS") != nil {
            maximumConnectionsPerAddress = try reader.integer(
                "HTTP_MAX_CONNECTIONS_PER_ADDRESS",
                in: 1...1_000_000,
                default: 1_000_000
            )
        }
        headTimeout = try reader.duration(
            "HTTP_HEAD_TIMEOUT",
            in: least...hour,
            default: headTimeout
        )
        bodyTimeout = try reader.duration(
            "HTTP_BODY_TIMEOUT",
            in: least...hour,
            default: bodyTimeout
        )
        idleTimeout = try reader.duration(
            "HTTP_IDLE_TIMEOUT",
            in: least...hour,
            default: idleTimeout
        )
    }

    private static func tls(
        _ reader: ConfigurationReader,
        ports: ClosedRange<Int>
    ) throws(ConfigurationError) -> TLS? {
        let variables = ["HTTP_TLS_CERTIFICATE_FILE", "HTTP_TLS_PRIVATE_KEY_FILE"]
        guard reader.optional("HTTP_TLS_PORT") != nil else {
            if let file = variables.first(where: { reader.optional($0) != nil }) {
                throw ConfigurationError(file, "is set, but HTTP_TLS_PORT is not")
            }
            return nil
        }
        let port = try reader.integer("HTTP_TLS_PORT", in: ports, default: 0)
        for variable in variables {
            let path = try reader.required(variable)
            guard readTextFile(path) != nil else {
                throw ConfigurationError(variable, "names a file that cannot be read: \(path)")
            }
        }
        return TLS(
            port: port,
            certificate: .files(
                certificate: try reader.required(variables[0]),
                privateKey: try reader.required(variables[1])
            )
        )
    }
}
