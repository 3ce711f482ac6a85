/// The methods that are known here; any other is answered 501 before a route is looked for.
package enum HTTPMethod: String, Sendable, CaseIterable {
    case get = "GET"
    case head = "HEAD"
    case post = "POST"
    case put = "PUT"
    case delete = "DELETE"
    case patch = "PATCH"
    case options = "OPTIONS"
}

package enum HTTPVersion: String, Sendable {
    case http10 = "HTTP/1.0"
    case http11 = "HTTP/1.1"
    case http2 = "HTTP/2"
}

/// One request, whole: its body has been read and is within its limit.
package struct HTTPServerRequest: Sendable {
    package var method: HTTPMethod
    /// The target's path with its escapes undone. A slash that was escaped is only told apart in
    /// `pathSegments`.
    package var path: String
    /// The path's parts between slashes, each with its escapes undone: `/a%2Fb/` is `a/b` and ``.
    package var pathSegments: [String]
    /// In order, escapes undone, `+` as a blank. A name without `=` has an empty value.
    package var query: [(name: String, value: String)]
    /// As it was sent, but for an absolute form's scheme and authority.
    package var rawTarget: String
    package var headers: HTTPHeaders
    /// As its sender meant it; where the router gives bodies as they are sent, with the coding that
    /// its headers name until `decodeBody`.
    package var body: [UInt8]
    /// What the route's `:name` and `*rest` segments stood for, escapes undone.
    package var pathParameters: [String: String] = [:]
    /// The peer's numeric address, without its port.
    package var remoteAddress: String
    /// `http` or `https`.
    package var scheme: String
    package var protocolVersion: HTTPVersion
    /// RFC 2253 text of the client certificate's subject, whoever signed it; nil without one.
    package var clientCertificateSubject: String?
    /// Unique in the process, counted from 1.
    package var connectionID: Int
    /// HTTP/2 only.
    package var streamID: Int?
    /// Whether anybody still waits for the answer.
    package var caller = CallerPresence.always
    /// Nil of a request that came by no socket.
    var heldBody: HeldBody?

    /// A request as from a socket, for handlers and routers called without one.
    ///
    /// - Throws: `HTTPProblem` with status 400 when the target cannot be used.
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

    /// A request whose target cannot be used, as far as it can be read: for the answer that refuses
    /// it, in the form of the surface that it was meant for.
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

    /// The first value of that name in the query.
    package func queryValue(_ name: String) -> String? {
        query.first { $0.name == name }?.value
    }

    package func header(_ name: String) -> String? { headers[name] }
}

/// A refusal with its status: what a handler throws to answer it, and what the server itself
/// refuses with (400, 404, 405, 408, 413, 414, 417, 431, 501, 505).
package struct HTTPProblem: Error, Equatable, CustomStringConvertible {
    package var status: Int
    /// Shown to the client.
    package var detail: String
    package var headers: HTTPHeaders

    package init(status: Int, detail: String = "", headers: HTTPHeaders = [:]) {
        self.status = status
        self.detail = detail
        self.headers = headers
    }

    package var description: String { "\(status) \(statusText(status)): \(detail)" }
}

/// The phrase that RFC 9110 gives a status.
package func statusText(_ status: Int) -> String {
    switch status {
    case 100: "Continue"
    case 200: "OK"
    case 201: "Created"
    case 202: "Accepted"
    case 204: "No Content"
    case 206: "Partial Content"
    case 301: "Moved Permanently"
    case 302: "Found"
    case 303: "See Other"
    case 304: "Not Modified"
    case 307: "Temporary Redirect"
    case 308: "Permanent Redirect"
    case 400: "Bad Request"
    case 401: "Unauthorized"
    case 402: "Payment Required"
    case 403: "Forbidden"
    case 404: "Not Found"
    case 405: "Method Not Allowed"
    case 406: "Not Acceptable"
    case 408: "Request Timeout"
    case 409: "Conflict"
    case 410: "Gone"
    case 411: "Length Required"
    case 412: "Precondition Failed"
    case 413: "Content Too Large"
    case 414: "URI Too Long"
    case 415: "Unsupported Media Type"
    case 417: "Expectation Failed"
    case 422: "Unprocessable Content"
    case 429: "Too Many Requests"
    case 431: "Request Header Fields Too Large"
    case 500: "Internal Server Error"
    case 501: "Not Implemented"
    case 502: "Bad Gateway"
    case 503: "Service Unavailable"
    case 504: "Gateway Timeout"
    case 505: "HTTP Version Not Supported"
    default: "Status \(status)"
    }
}
