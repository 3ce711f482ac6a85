/// What one HTTP server listens on, and what it grants its peers.
package struct HTTPServerConfiguration: Sendable {
    package enum ApplicationProtocol: String, Sendable {
        case http2 = "h2"
        case http11 = "http/1.1"
    }

    package enum Certificate: Sendable {
        /// PEM files, read at start and again when they change: the leaf first, then its chain.
        case files(certificate: String, privateKey: String)
        /// The same as text.
        case pem(certificate: String, privateKey: String)
    }

    package struct TLS: Sendable {
        package var port: Int
        package var certificate: Certificate
        /// What ALPN may choose, the best first. A client without ALPN gets HTTP/1.1 where it is
        /// listed; one that offers none of these is refused.
        package var applicationProtocols: [ApplicationProtocol]
        /// Asks for a client certificate. None is demanded, and any is taken: its subject is told
        /// in the request, and proves nothing but that the peer holds its key.
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
        /// What SETTINGS allows a client at first; `HTTPServer.setMaxConcurrentStreams` changes it.
        package var maxConcurrentStreams = 100
        /// How much of each body a client may send ahead.
        package var initialWindowBytes = 256 * 1024
        /// All unfinished bodies of one connection together; a stream that goes beyond is reset.
        package var maximumBufferedBytes = 16 * 1024 * 1024

        package init() {}
    }

    /// A numeric address or a name.
    package var host: String
    /// Of the plain listener (HTTP/1.1, and HTTP/2 by prior knowledge); 0: any free; nil: none.
    package var port: Int?
    package var tls: TLS?
    /// For routes that do not name their own. Beyond it: 413.
    package var maximumBodyBytes = 1024 * 1024
    /// The bodies of all requests that are coming or whose handlers run, together, on each loop of
    /// the server. Beyond it: 503. Too little refuses honest peers, too much ends in a process that
    /// is killed.
    package var maximumHeldBodyBytes = 256 * 1024 * 1024
    /// The answers that peers have not read, together, on each loop of the server. Where a further
    /// one has no room, connections are closed, first the one that would take the longest at the
    /// pace it has read at; where that is too early to tell, the further one is 503.
    package var maximumHeldAnswerBytes = 64 * 1024 * 1024
    /// The same of one connection: while there is more, no further request of it is begun. Too
    /// little makes a client wait who asks for much at once and reads it.
    package var maximumHeldAnswerBytesPerConnection = 1024 * 1024
    /// What a peer takes of its answers in a second, over each `idleTimeout` in which there is some
    /// to take; else it is cut off. Streams of events need less: any byte within `idleTimeout`.
    package var minimumAnswerBytesPerSecond = 240
    /// The request line and the header lines together. Beyond it: 431.
    package var maximumHeadBytes = 64 * 1024
    /// Beyond it: 414.
    package var maximumTargetBytes = 16 * 1024
    /// Beyond it: 431.
    package var maximumHeaderCount = 128
    /// Over all loops; further ones are closed at once.
    package var maximumConnections = 10_000
    package var maximumConnectionsPerAddress: Int?
    /// From a connection's start (its TLS handshake included), or a later head's first byte, to the
    /// head's end. Too short cuts off slow networks, too long lets a few clients hold connections.
    package var headTimeout: Duration = .seconds(10)
    /// From a head's end to its body's end.
    package var bodyTimeout: Duration = .seconds(30)
    /// Without a request; also without the peer taking any byte of an answer, and the window of
    /// `minimumAnswerBytesPerSecond`.
    package var idleTimeout: Duration = .seconds(75)
    /// How long a stop waits for the answers that are on their way.
    package var stopGrace: Duration = .seconds(20)
    package var http2 = HTTP2()
    /// One log line a request at the level of its route, which is `info` unless it says otherwise;
    /// without it all are at `debug`.
    package var accessLog = false
    /// What its `listening` line is told apart by, where a process has several servers.
    package var surface: String?

    package init(host: String = "0.0.0.0", port: Int? = 8080, tls: TLS? = nil) {
        self.host = host
        self.port = port
        self.tls = tls
    }
}

/// Where a listener ended up.
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

/// Why a server could not start.
package struct HTTPServerError: Error, CustomStringConvertible {
    /// Safe to show: names files and ports, never what is in them.
    package let description: String

    init(_ description: String) { self.description = description }
}
