/// HTTP/2 over libnghttp2, without a socket: bytes in, events out; answers in, bytes out.
///
/// Authority: framing, header compression, flow control, the stream states and the protocol's own
/// errors. What a request means, its limits and its deadlines are the caller's. A session is not
/// thread-safe: it belongs to whoever owns its connection.
package enum HTTP2 {
    /// What a client sends first of all.
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
        /// Without the pseudo-header fields; names are lower case.
        package internal(set) var fields: [Field] = []
        /// The block went beyond the session's limit; the fields after that are missing.
        package internal(set) var isTooLarge = false
        var sizeBytes = 0
    }

    package enum ServerEvent: Sendable {
        /// A header block began to come in.
        case opened(stream: Int32)
        case head(stream: Int32, RequestHead)
        case body(stream: Int32, [UInt8])
        /// The request is whole. Trailers are dropped.
        case end(stream: Int32)
        /// The one place where a stream ends, whoever ended it.
        case closed(stream: Int32, errorCode: UInt32)
    }
}

/// What makes a session unusable; drain it once more, then close the connection.
package struct HTTP2SessionError: Error, CustomStringConvertible {
    /// libnghttp2's, negative.
    package let code: Int32
    /// What the last GOAWAY names.
    package let errorCode: UInt32
    package let description: String

    init(code: Int32, errorCode: UInt32, description: String) {
        self.code = code
        self.errorCode = errorCode
        self.description = description
    }

    /// What the session's owner finds.
    package init(errorCode: UInt32, _ description: String) {
        self.init(code: 0, errorCode: errorCode, description: description)
    }
}
