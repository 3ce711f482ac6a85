/// One complete request: its body has been read and is within its limit.
package struct HTTPServerRequest: Sendable {
    package var method: HTTPMethod
    /// The target's path with its escapes undone. Only `pathSegments` distinguishes an escaped
    /// slash.
    package var path: String
    /// The path's parts between slashes, each with its escapes undone: `/a%2Fb/` is `a/b` and ``.
    package var pathSegments: [String]
    /// The parameters of the query, in order, escapes undone, `+` as a blank. A name without `=`
    /// has an empty value.
    package var query: [(name: String, value: String)]
    /// The target as sent, without an absolute form's scheme and authority.
    package var rawTarget: String
    package var headers: HTTPHeaders
    /// The decoded body. If the router passes bodies as sent, it has the coding that its headers
    /// name until `decodeBody` is called.
    package var body: [UInt8]
    /// The values of the route's `:name` and `*rest` segments, escapes undone.
    package var pathParameters: [String: String] = [:]
    /// The peer's numeric address, without its port.
    package var remoteAddress: String
    /// `http` or `https`.
    package var scheme: String
    package var protocolVersion: HTTPVersion
    /// The subject of the client certificate in RFC 2253 form, whatever its issuer; nil without a
    /// certificate.
    package var clientCertificateSubject: String?
    /// Unique in the process, counted from 1.
    package var connectionID: Int
    /// HTTP/2 only.
    package var streamID: Int?
    /// Tracks whether the client still waits for the response.
    package var caller = ClientPresence.always
    /// The body, if the route takes it while it arrives: then `body` is empty.
    package internal(set) var bodyReader: HTTPBodyReader?
    /// Nil for a request without a socket.
    var heldBody: BudgetedBody?

    /// Makes a request as from a socket, for handlers and routers that are called without a socket.
    ///
    /// - Throws: `HTTPProblem` with status 400 if the target is invalid.
    package init(
        _ method: HTTPMethod,
        _ target: String,
        headers: HTTPHeaders = [:],
        body: [UInt8] = [],
        remoteAddress: String = "127.0.0.1",
        scheme: String = "http",
        protocolVersion: HTTPVersion = .http11,
        clientCertificateSubject: String? = nil,
        connectionID: Int = 0,
        streamID: Int? = nil
    ) throws(HTTPProblem) {
        let parsed = try HTTPTarget(origin: target)
        self.method = method
        self.path = parsed.path
        self.pathSegments = parsed.segments
        self.query = parsed.query
        self.rawTarget = target
        self.headers = headers
        self.body = body
        self.remoteAddress = remoteAddress
        self.scheme = scheme
        self.protocolVersion = protocolVersion
        self.clientCertificateSubject = clientCertificateSubject
        self.connectionID = connectionID
        self.streamID = streamID
    }

    /// Makes a request of the readable parts of an invalid target, so that its surface can render
    /// the refusal.
    init?(
        refused method: HTTPMethod,
        _ target: String,
        headers: HTTPHeaders,
        remoteAddress: String,
        scheme: String
    ) {
        guard target.utf8.first == UInt8(ascii: "/") else { return nil }
        let path = target.prefix { $0 != "?" }.dropFirst()
        let readable = path.split(separator: "/", omittingEmptySubsequences: false).map { part in
            (try? HTTPTarget(origin: "/" + part)) == nil ? "-" : part
        }
        do throws(HTTPProblem) {
            try self.init(
                method,
                "/" + readable.joined(separator: "/"),
                headers: headers,
                remoteAddress: remoteAddress,
                scheme: scheme
            )
        } catch {
            return nil
        }
    }

    /// Drops the body before the handler ends, for a handler that has read the body and then waits
    /// long. On the connection's loop.
    package mutating func dropBody() {
        body = []
        heldBody?.drop()
    }

    /// Returns the first value of that name in the query.
    package func queryValue(_ name: String) -> String? {
        query.first { $0.name == name }?.value
    }

    package func header(_ name: String) -> String? { headers[name] }
}
