internal import HTTP2

/// Where requests go: an https URL without a path, read once.
package struct HTTP2Origin: Sendable {
    let authority: String

    /// - Throws: `invalidRequest`.
    package init(_ url: String) throws(HTTPTransportError) {
        guard let parts = URLParts(url), parts.scheme == "https" else {
            throw HTTPTransportError(.invalidRequest, requestWasNotSent: true, detail: "origin")
        }
        authority = parts.port == 443 ? parts.host : "\(parts.host):\(parts.port)"
    }
}

/// What many requests to one origin have in common: make it once for all of them. Immutable.
package final class HTTP2RequestHead: Sendable {
    let template: HTTP2.RequestTemplate

    /// - Parameters:
    ///   - origin: Where the requests go.
    ///   - method: Of all requests.
    ///   - headers: The same on each request.
    ///   - varying: Names of the headers whose values each request brings.
    /// - Throws: `invalidRequest`.
    package init(
        origin: HTTP2Origin,
        method: String = "POST",
        headers: [HTTPField],
        varying: [String] = []
    ) throws(HTTPTransportError) {
        let names = headers + varying.map { HTTPField($0, "") }
        guard Transfer.isToken(method), names.allSatisfy(Transfer.isUsable) else {
            throw HTTPTransportError(.invalidRequest, requestWasNotSent: true, detail: "header")
        }
        var fields = headers.map { HTTP2.Field(name: $0.name.lowercased(), value: $0.value) }
        fields.append(HTTP2.Field(name: "user-agent", value: "carillon"))
        template = HTTP2.RequestTemplate(
            method: method,
            scheme: "https",
            authority: origin.authority,
            fields: fields,
            varying: varying.map { $0.lowercased() }
        )
    }
}

/// One request of many. What is waiting holds its body; what is out has it copied.
package struct HTTP2Request: Sendable {
    package var head: HTTP2RequestHead
    package var path: String
    /// One for each of the head's varying names.
    package var values: [String]
    package var body: [UInt8]
    /// From `send` to the last byte of the answer, waiting for a connection included.
    package var timeout: Duration
    /// It overtakes those that are not, while they wait for a stream.
    package var isUrgent: Bool

    package init(
        _ head: HTTP2RequestHead,
        path: String,
        values: [String] = [],
        body: [UInt8] = [],
        timeout: Duration = .seconds(20),
        isUrgent: Bool = false
    ) {
        self.head = head
        self.path = path
        self.values = values
        self.body = body
        self.timeout = timeout
        self.isUrgent = isUrgent
    }
}

package struct HTTP2Response: Sendable {
    /// Names the connection that it came over, for `retire`.
    package let connection: Int
    private let answer: HTTP2.Response

    init(_ answer: HTTP2.Response, connection: Int) {
        self.answer = answer
        self.connection = connection
    }

    package var status: Int { answer.status }
    package var body: [UInt8] { answer.body }

    /// The first value under a name in lower case.
    package func header(_ name: String) -> String? { answer.field(name) }

    /// With every header as text, which costs more than most answers are worth.
    package var whole: HTTPResponse {
        HTTPResponse(
            status: status,
            headers: answer.fields.map { HTTPField($0.name, $0.value) },
            body: body,
            protocolVersion: .http2
        )
    }
}
