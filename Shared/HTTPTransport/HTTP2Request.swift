internal import HTTP2

/// The target of requests: an https URL without a path, parsed once.
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

/// The common part of many requests to one origin: make it once for all of them. Immutable.
package final class HTTP2RequestHead: Sendable {
    let template: HTTP2.RequestTemplate

    /// - Parameters:
    ///   - origin: The target of the requests.
    ///   - method: The method of all requests.
    ///   - headers: The headers that are the same on each request.
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

/// Requests that are sent together, once.
package struct HTTP2Requests: ~Copyable, Sendable {
    struct Terms: Sendable {
        let milliseconds: Int64
        let isUrgent: Bool
    }

    let batch: HTTP2.RequestBatch
    private(set) var terms: ContiguousArray<Terms> = []
    private var timeout = Duration.zero
    private var milliseconds: Int64 = 0
    /// The time from when a request is sent; `nil`: half of its timeout.
    private let answerMilliseconds: Int64?

    /// - Parameters:
    ///   - count: The expected number of requests.
    ///   - textBytes: The expected bytes of the path and values of one request.
    ///   - answerTime: The time that a request which waited for a stream has at least from when it is
    ///     sent; `nil`: half of its timeout.
    package init(count: Int = 16, textBytes: Int = 192, answerTime: Duration? = nil) {
        batch = HTTP2.RequestBatch(count: count, bytes: count * textBytes + 4096)
        answerMilliseconds = answerTime.map { Int64($0.milliseconds) }
        terms.reserveCapacity(count)
    }

    package var count: Int { terms.count }

    /// Returns the least milliseconds of a request from when it is sent.
    func answerMilliseconds(of terms: Terms) -> Int64 {
        answerMilliseconds ?? terms.milliseconds / 2
    }

    /// Adds a request. An invalid request ends with `invalidRequest` in its turn.
    ///
    /// - Parameters:
    ///   - head: The part that the request shares with others.
    ///   - path: With its query.
    ///   - pathEnd: Appended to `path`, for a path that differs only in its end.
    ///   - value: The value of the first of the head's varying headers, if any.
    ///   - values: The values of the other varying headers.
    ///   - body: Copied.
    ///   - timeout: From `send` to the last byte of the answer, waiting for a connection included.
    ///     A request that waited for a stream has at least `answerTime` from when it is sent.
    ///   - isUrgent: Whether it overtakes non-urgent requests that wait for a stream.
    package mutating func add(
        _ head: HTTP2RequestHead,
        path: String,
        _ pathEnd: String = "",
        value: String? = nil,
        values: [String] = [],
        body: [UInt8] = [],
        timeout: Duration = .seconds(20),
        isUrgent: Bool = false
    ) {
        if timeout != self.timeout {
            self.timeout = timeout
            milliseconds = Int64(timeout.milliseconds)
        }
        batch.add(head.template, path: (path, pathEnd), value: value, values: values, body: body)
        terms.append(Terms(milliseconds: milliseconds, isUrgent: isUrgent))
    }
}

package struct HTTP2Response: Sendable {
    /// The number of its connection, for `retire`.
    package let connection: Int
    private let answer: HTTP2.Response

    init(_ answer: HTTP2.Response, connection: Int) {
        self.answer = answer
        self.connection = connection
    }

    package var status: Int { answer.status }
    package var body: [UInt8] { answer.body }

    /// Returns the first value of a header, by its name in lower case. If the value equals
    /// `expected`, returns `expected`, which saves making a string.
    package func header(_ name: String, expected: String? = nil) -> String? {
        answer.field(name, expected: expected)
    }

    /// The response with every header as a string, which is expensive.
    package var whole: HTTPResponse {
        HTTPResponse(
            status: status,
            headers: answer.fields.map { HTTPField($0.name, $0.value) },
            body: body,
            protocolVersion: .http2
        )
    }
}
