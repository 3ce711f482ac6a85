package struct HTTPField: Hashable, Sendable {
    package var name: String
    package var value: String

    package init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// One call. The body is in memory as a whole, and so is the answer's body later.
package struct HTTPRequest: Sendable {
    package var method: String
    package var url: String
    package var headers: [HTTPField]
    package var body: [UInt8]
    /// From `send` to the last byte of the answer, waiting for a connection included.
    package var timeout: Duration
    /// Whether libcurl may repeat it by itself if a connection died before a byte of the answer
    /// came. If this is false, such a call fails instead.
    package var isRepeatable: Bool

    package init(
        method: String = "POST",
        url: String,
        headers: [HTTPField] = [],
        body: [UInt8] = [],
        timeout: Duration = .seconds(20),
        isRepeatable: Bool = true
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
        self.isRepeatable = isRepeatable
    }
}

package enum HTTPProtocolVersion: Int, Sendable {
    case http1_0 = 1
    case http1_1 = 2
    case http2 = 3
}

package struct HTTPResponse: Sendable, Equatable {
    package var status: Int
    /// Names in lower case, in the order of arrival.
    package var headers: [HTTPField]
    package var body: [UInt8]
    package var protocolVersion: HTTPProtocolVersion

    package init(
        status: Int,
        headers: [HTTPField] = [],
        body: [UInt8] = [],
        protocolVersion: HTTPProtocolVersion = .http2
    ) {
        self.status = status
        self.headers = headers
        self.body = body
        self.protocolVersion = protocolVersion
    }

    /// Returns the first value of a header, whatever its case.
    package func header(_ name: String) -> String? {
        let name = name.lowercased()
        return headers.first { $0.name.lowercased() == name }?.value
    }
}
