/// The addresses that one HTTP server listens on, and the limits of its peers.
package struct HTTPServerConfiguration: Sendable {
    package enum ApplicationProtocol: String, Sendable {
        case http2 = "h2"
        case http11 = "http/1.1"
    }

    package enum Certificate: Sendable {
        /// PEM files, read at start and again when they change: the leaf first, then its chain.
        case files(certificate: String, privateKey: String)
        /// The same PEM as strings.
        case pem(certificate: String, privateKey: String)
    }

    package struct TLS: Sendable {
        package var port: Int
        package var certificate: Certificate
        /// The protocols that ALPN may choose, the best first. A client without ALPN gets HTTP/1.1
        /// if it is listed; a client that offers only other protocols is refused.
        package var applicationProtocols: [ApplicationProtocol]
        /// Whether to ask for a client certificate. The certificate is optional, and any issuer is
        /// accepted: the request carries the certificate's subject, which only proves that the peer
        /// holds the key.
        package var requestsClientCertificate: Bool

        package init(
            port: Int,
            certificate: Certificate,
            applicationProtocols: [ApplicationProtocol] = [.http2, .http11],
            requestsClientCertificate: Bool = false
        ) {
            self.port = port
            self.certificate = certificate
            self.applicationProtocols = applicationProtocols
            self.requestsClientCertificate = requestsClientCertificate
        }
    }

    package struct HTTP2: Sendable {
        /// The limit in the first SETTINGS; `HTTPServer.setMaxConcurrentStreams` changes it.
        package var maxConcurrentStreams = 100
        /// The bytes of each body that a client may send ahead.
        package var initialWindowBytes = 256 * 1024
        /// The limit of all unfinished bodies of one connection; a stream that exceeds it is reset.
        package var maximumBufferedBytes = 16 * 1024 * 1024

        package init() {}
    }

    /// A numeric address or a name.
    package var host: String
    /// The port of the plain listener (HTTP/1.1, and HTTP/2 by prior knowledge); 0: any free port;
    /// nil: no plain listener.
    package var port: Int?
    package var tls: TLS?
    /// The limit for routes without their own. Beyond it: 413.
    package var maximumBodyBytes = 1024 * 1024
    /// The limit of the bodies of all requests that are arriving or whose handlers run, on each
    /// loop. Beyond it: 503. A limit too low refuses honest peers; a limit too high lets the
    /// process run out of memory.
    package var maximumHeldBodyBytes = 256 * 1024 * 1024
    /// The limit of the responses that peers have not read, on each loop. If a further response has
    /// no room, connections are closed, first the one whose peer would take the longest to read, at
    /// its rate so far. If the rates are not known yet, the further response is 503.
    package var maximumHeldAnswerBytes = 64 * 1024 * 1024
    /// The same limit for one connection: beyond it, no further request begins. A limit too low
    /// slows clients that send many requests at once and read the responses.
    package var maximumHeldAnswerBytesPerConnection = 1024 * 1024
    /// The rate at which a peer must read its responses, over each `idleTimeout`; a slower peer is
    /// cut off. For event streams one byte within `idleTimeout` is enough.
    package var minimumAnswerBytesPerSecond = 240
    /// The limit of the request line and the header lines together. Beyond it: 431.
    package var maximumHeadBytes = 64 * 1024
    /// Beyond it: 414.
    package var maximumTargetBytes = 16 * 1024
    /// Beyond it: 431.
    package var maximumHeaderCount = 128
    /// The limit over all loops; further connections are closed at once.
    package var maximumConnections = 10_000
    package var maximumConnectionsPerAddress: Int?
    /// The time from a connection's start (its TLS handshake included), or a later head's first
    /// byte, to the head's end. Too short cuts off slow networks, too long lets a few clients hold
    /// connections.
    package var headTimeout: Duration = .seconds(10)
    /// The time from a head's end to its body's end.
    package var bodyTimeout: Duration = .seconds(30)
    /// How long a connection may have no request, and how long its peer may take no byte of a
    /// response. Also the window of `minimumAnswerBytesPerSecond`.
    package var idleTimeout: Duration = .seconds(75)
    /// How long a stop waits for the responses in flight.
    package var stopGrace: Duration = .seconds(20)
    package var http2 = HTTP2()
    /// Whether each request logs one line at the level of its route, which is `info` by default; if
    /// false, all lines are at `debug`.
    package var accessLog = false
    /// Identifies the server in its `listening` line if a process has several.
    package var surface: String?

    package init(host: String = "0.0.0.0", port: Int? = 8080, tls: TLS? = nil) {
        self.host = host
        self.port = port
        self.tls = tls
    }
}

/// The address of a listener.
package struct BoundAddress: Sendable, Equatable {
    /// `http` or `https`.
    package let scheme: String
    package let host: String
    package let port: Int

    package init(scheme: String, host: String, port: Int) {
        self.scheme = scheme
        self.host = host
        self.port = port
    }
}

/// The reason why a server could not start.
package struct HTTPServerError: Error, CustomStringConvertible {
    /// Safe to show: names files and ports, never contents.
    package let description: String

    init(_ description: String) { self.description = description }
}
