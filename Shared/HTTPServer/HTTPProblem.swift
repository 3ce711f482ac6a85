/// A refusal with its status: thrown by handlers, and by the server itself (400, 404, 405, 408,
/// 413, 414, 417, 431, 501, 505).
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

func bad(_ detail: String) -> HTTPProblem { HTTPProblem(status: 400, detail: detail) }

/// Returns RFC 9110's phrase for a status.
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
