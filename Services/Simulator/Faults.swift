import HTTPServer

/// The effect of a scripted answer on its connection.
extension HTTPServerResponse {
    mutating func end(as rule: Rule, _ request: HTTPServerRequest) {
        switch rule.ending {
        case .answer: break
        case .hang: ending = { _ in }
        case .reset:
            // REFUSED_STREAM says that nothing was processed; INTERNAL_ERROR leaves that open.
            let code: UInt32 = rule.reason == "REFUSED_STREAM" ? 7 : 2
            ending = { $0.reset(code: code) }
        case .goaway:
            guard rule.status == nil, let stream = request.streamID else {
                return isLast(of: request)
            }
            // GOAWAY excludes this stream, so no answer may be in flight on it before.
            ending = { exchange in
                exchange.goaway(lastStreamID: max(0, stream - 2), code: 0, data: shutdownReason)
            }
        }
    }

    /// Sends GOAWAY after the answer; over HTTP/1.1 the connection is closed after it.
    mutating func isLast(of request: HTTPServerRequest) {
        guard request.protocolVersion == .http2 else {
            headers["connection"] = "close"
            return
        }
        ending = { exchange in
            exchange.answer()
            exchange.goaway(lastStreamID: nil, code: 0, data: shutdownReason)
        }
    }
}

private let shutdownReason = Array(#"{"reason":"Shutdown"}"#.utf8)
