/// HTTP/2 over libnghttp2, without a socket: bytes in, events out; answers in, bytes out.
///
/// Authority: framing, header compression, flow control, the stream states and the protocol's own
/// errors. The caller handles requests, their limits and their deadlines. A session is not
/// thread-safe: it belongs to the owner of its connection.
package enum HTTP2 {
    /// The first bytes of a client.
    package static let clientPreface: [UInt8] = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)

    /// RFC 9113 section 7.
    package enum ErrorCode {
        package static let noError: UInt32 = 0
        package static let protocolError: UInt32 = 1
        package static let internalError: UInt32 = 2
        package static let refusedStream: UInt32 = 7
        package static let cancel: UInt32 = 8
        package static let enhanceYourCalm: UInt32 = 11
    }

    package struct Field: Sendable, Equatable {
        package let name: String
        package let value: String

        package init(name: String, value: String) {
            self.name = name
            self.value = value
        }
    }

    /// A request's header block, which libnghttp2 has found well-formed.
    package struct RequestHead: Sendable {
        package internal(set) var method = ""
        package internal(set) var scheme = ""
        package internal(set) var authority = ""
        package internal(set) var path = ""
        /// The fields without the pseudo-header fields; names are lower case.
        package internal(set) var fields: [Field] = []
        /// Whether the block exceeded the session's limit; the fields after that are missing.
        package internal(set) var isTooLarge = false
        var sizeBytes = 0
    }

    package enum ServerEvent: Sendable {
        /// A header block has begun.
        case opened(stream: Int32)
        case head(stream: Int32, RequestHead)
        case body(stream: Int32, [UInt8])
        /// The request is complete. Trailers are dropped.
        case end(stream: Int32)
        /// A stream has ended, on whichever side; once for each stream.
        case closed(stream: Int32, errorCode: UInt32)
    }
}

/// An error that ends a session: drain it once more, then close the connection.
package struct HTTP2SessionError: Error, CustomStringConvertible {
    /// libnghttp2's code, negative.
    package let code: Int32
    /// The code of the last GOAWAY.
    package let errorCode: UInt32
    package let description: String

    init(code: Int32, errorCode: UInt32, description: String) {
        self.code = code
        self.errorCode = errorCode
        self.description = description
    }

    /// Makes an error that the session's owner detects.
    package init(errorCode: UInt32, _ description: String) {
        self.init(code: 0, errorCode: errorCode, description: description)
    }
}
