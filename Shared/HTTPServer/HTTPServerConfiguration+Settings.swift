package import Settings

extension HTTPServerConfiguration {
    /// The environment variables that every listener of a service reads.
    package enum Variable {
        private static let usual = HTTPServerConfiguration()
        private static let times = Duration.milliseconds(10)...Duration.seconds(3600)
        package static let ports = 0...65_535

        package static let host = Setting<String>(
            "HTTP_HOST",
            takes: "an address or a name",
            default: usual.host,
            "address of the listeners"
        )

        package static func port(default fallback: Int) -> Setting<Int> {
            Setting(
                "HTTP_PORT",
                in: ports,
                default: fallback,
                "the plain listener; 0: any free port, named in the log line \"listening\";"
                    + " empty: none"
            )
        }

        static let tlsPort = Setting<Int>(
            "HTTP_TLS_PORT",
            in: ports,
            default: nil,
            "a listener of HTTPS beside the plain one, HTTP/2 by ALPN"
        )
        static let tlsCertificate = Setting<String>.file(
            "HTTP_TLS_CERTIFICATE_FILE",
            takes: "the path of a PEM file",
            "the certificate for HTTP_TLS_PORT, then its chain; read again when it changes"
        )
        static let tlsPrivateKey = Setting<String>.file(
            "HTTP_TLS_PRIVATE_KEY_FILE",
            takes: "the path of a PEM file",
            "the certificate's key; read again when it changes"
        )
        static let maximumBodyBytes = Setting<Int>(
            "HTTP_MAX_BODY_BYTES",
            in: 1024...(1 << 30),
            unit: .bytes,
            default: usual.maximumBodyBytes,
            "maximum size of a request body, unless its route has a limit of its own"
                + " (LeanCloud's batch: 16 MiB);"
                + " beyond it: 413"
        )
        static let maximumHeldBodyBytes = Setting<Int>(
            "HTTP_MAX_HELD_BODY_BYTES",
            in: 1024...(1 << 40),
            unit: .bytes,
            default: usual.maximumHeldBodyBytes,
            "maximum bytes of request bodies that one loop holds, at least"
                + " HTTP_MAX_BODY_BYTES; beyond"
                + " it: 503 for bodies over 16 KiB"
        )
        static let maximumHeldAnswerBytes = Setting<Int>(
            "HTTP_MAX_HELD_ANSWER_BYTES",
            in: (32 << 20)...(1 << 40),
            unit: .bytes,
            default: usual.maximumHeldAnswerBytes,
            "maximum bytes of responses that one loop's peers have not read. Beyond it the"
                + " peer that would"
                + " take the longest is cut off, or an answer over 16 KiB is 503. A connection with"
                + " more than 1 MiB of them begins no further request"
        )
        static let minimumAnswerRate = Setting<Int>(
            "HTTP_MIN_ANSWER_RATE",
            in: 0...(1 << 20),
            default: usual.minimumAnswerBytesPerSecond,
            "bytes a second at which a peer must read its responses, over each HTTP_IDLE_TIMEOUT;"
                + " streams of events need any byte within that time"
        )
        package static let accessLog = Setting<Bool>(
            "HTTP_ACCESS_LOG",
            default: true,
            "log each request at info, except the operators' routes; false: all at debug"
        )
        package static let maximumConnectionsName = "HTTP_MAX_CONNECTIONS"

        static func maximumConnections(default fallback: Int) -> Setting<Int> {
            Setting(
                maximumConnectionsName,
                in: 1...1_000_000,
                default: fallback,
                "maximum connections at once; fewer where the limit of descriptors (ulimit"
                    + " -n) leaves fewer;"
                    + " further ones are closed"
            )
        }

        static let maximumConnectionsPerAddress = Setting<Int>(
            "HTTP_MAX_CONNECTIONS_PER_ADDRESS",
            in: 1...1_000_000,
            default: nil,
            none: "no limit",
            "maximum connections at once from one address"
        )
        static let headTimeout = Setting<Duration>(
            "HTTP_HEAD_TIMEOUT",
            in: times,
            default: usual.headTimeout,
            "from a connection's start, or a later head's first byte, to the head's end; too short"
                + " cuts off slow networks, too long lets a few clients hold connections"
        )
        static let bodyTimeout = Setting<Duration>(
            "HTTP_BODY_TIMEOUT",
            in: times,
            default: usual.bodyTimeout,
            "from a head's end to its body's end"
        )
        static let idleTimeout = Setting<Duration>(
            "HTTP_IDLE_TIMEOUT",
            in: times,
            default: usual.idleTimeout,
            "idle time of a connection: no request, or no byte of a response that the peer reads"
        )

        package static func all(
            defaultPort: Int,
            defaultMaximumConnections: Int = HTTPServerConfiguration().maximumConnections
        ) -> [SettingEntry] {
            [
                host.entry, port(default: defaultPort).entry, tlsPort.entry, tlsCertificate.entry,
                tlsPrivateKey.entry, maximumBodyBytes.entry, maximumHeldBodyBytes.entry,
                maximumHeldAnswerBytes.entry, minimumAnswerRate.entry, accessLog.entry,
                maximumConnections(default: defaultMaximumConnections).entry,
                maximumConnectionsPerAddress.entry, headTimeout.entry, bodyTimeout.entry,
                idleTimeout.entry,
            ]
        }
    }

    package init(
        _ reader: ConfigurationReader,
        defaultPort: Int,
        defaultMaximumConnections: Int = HTTPServerConfiguration().maximumConnections
    ) throws(ConfigurationError) {
        let port = Variable.port(default: defaultPort)
        self.init(
            host: try reader.value(of: Variable.host),
            port: reader.isSetEmpty(port) ? nil : try reader.value(of: port),
            tls: try Self.tls(reader)
        )
        guard self.port != nil || tls != nil else {
            throw ConfigurationError(
                port.name,
                "is empty, and HTTP_TLS_PORT is not set: nothing would listen"
            )
        }
        maximumBodyBytes = try reader.value(of: Variable.maximumBodyBytes)
        maximumHeldBodyBytes = max(
            maximumBodyBytes,
            try reader.value(of: Variable.maximumHeldBodyBytes)
        )
        if let held = try reader.optional(Variable.maximumHeldBodyBytes), held < maximumBodyBytes {
            throw ConfigurationError(
                Variable.maximumHeldBodyBytes.name,
                "is \"\(held)\"; expected at least HTTP_MAX_BODY_BYTES, \(maximumBodyBytes)"
            )
        }
        maximumHeldAnswerBytes = try reader.value(of: Variable.maximumHeldAnswerBytes)
        minimumAnswerBytesPerSecond = try reader.value(of: Variable.minimumAnswerRate)
        accessLog = try reader.value(of: Variable.accessLog)
        maximumConnections = try reader.value(
            of: Variable.maximumConnections(default: defaultMaximumConnections)
        )
        maximumConnectionsPerAddress = try reader.optional(Variable.maximumConnectionsPerAddress)
        headTimeout = try reader.value(of: Variable.headTimeout)
        bodyTimeout = try reader.value(of: Variable.bodyTimeout)
        idleTimeout = try reader.value(of: Variable.idleTimeout)
    }

    private static func tls(_ reader: ConfigurationReader) throws(ConfigurationError) -> TLS? {
        let files = [Variable.tlsCertificate, Variable.tlsPrivateKey]
        guard let port = try reader.optional(Variable.tlsPort) else {
            if let file = files.first(where: { reader.isSet($0) }) {
                throw ConfigurationError(file.name, "is set, but HTTP_TLS_PORT is not")
            }
            return nil
        }
        return TLS(
            port: port,
            certificate: .files(
                certificate: try reader.value(of: Variable.tlsCertificate),
                privateKey: try reader.value(of: Variable.tlsPrivateKey)
            )
        )
    }
}
