internal import HTTP2

/// Fuzzes the HTTP/2 session. It gives the same events however the bytes are split; a stream opens
/// once, closes at most once and has no events after that; its output stays in proportion to its
/// input and the responses; responses, resets and GOAWAY are harmless at any moment.
///
/// A first byte of 1 says that the rest is a script of frames (`FrameScript`), anything else that
/// the bytes follow the client's preface.
func fuzzHTTP2(_ bytes: [UInt8]) {
    let sent =
        HTTP2.clientPreface + (bytes.first == 1 ? FrameScript.frames(bytes.dropFirst()) : bytes)
    let whole = Conversation(answers: false).run([sent[...]])
    for cut in Pieces.allCases {
        let pieces = cut.cut(sent)
        _ = Conversation(answers: true).run(pieces)
        let told = Conversation(answers: false).run(pieces)
        // libnghttp2 counts a CONTINUATION once for each piece in which its first bytes arrive, and
        // stops at nine. After a GOAWAY it reads to the end of a piece, and then no more.
        if told.contains(.error(continuationsAreTooMany)) { continue }
        let isSame =
            told == whole || (containsGoaway(sent) && whole.starts(with: told.dropLast()))
        require(isSame, "cut (\(cut)) and whole tell other events:\n\(told)\n\(whole)")
    }
}

/// `NGHTTP2_ERR_TOO_MANY_CONTINUATIONS`
private let continuationsAreTooMany: Int32 = -905

private func containsGoaway(_ sent: [UInt8]) -> Bool {
    var rest = sent.dropFirst(HTTP2.clientPreface.count)
    while rest.count >= 9 {
        let head = Array(rest.prefix(9))
        if head[3] == 7 { return true }
        rest = rest.dropFirst(9 + Int(head[0]) << 16 + Int(head[1]) << 8 + Int(head[2]))
    }
    return false
}

private enum Told: Equatable {
    case opened(Int32)
    case head(Int32, pseudo: [String], [HTTP2.Field], isTooLarge: Bool)
    case end(Int32, body: [UInt8])
    case closed(Int32, UInt32)
    case error(Int32)
    case finished(Bool)
}

/// One session from its beginning to its end.
private final class Conversation {
    private enum StreamState {
        case opened
        case told
        case ended
        case closed
    }

    private let session: HTTP2ServerSession
    private let answers: Bool
    private var streams: [Int32: StreamState] = [:]
    private var told: [Told] = []
    /// Collects bodies until they are complete, as the cuts of DATA, and how much of a wrong body
    /// is reported, depend on the network.
    private var bodies: [Int32: [UInt8]] = [:]
    private var received = 0
    private var given = 0
    private var drained = 0

    init(answers: Bool) {
        self.answers = answers
        do {
            session = try HTTP2ServerSession(
                HTTP2ServerSession.Settings(
                    maxConcurrentStreams: 8,
                    initialWindowBytes: 4096,
                    maximumHeadBytes: 1024
                )
            )
        } catch {
            fatalError("no session: \(error)")
        }
    }

    func run(_ pieces: [ArraySlice<UInt8>]) -> [Told] {
        for piece in pieces {
            received += piece.count
            do throws(HTTP2SessionError) {
                try unsafe Array(piece).withUnsafeBytesOrError { bytes throws(HTTP2SessionError) in
                    try unsafe session.receive(bytes)
                }
            } catch {
                takeEvents()
                told.append(.error(error.code))
                break
            }
            takeEvents()
            if answers { drain() }
        }
        told.append(.finished(session.isFinished))
        drain()
        return told
    }

    private func takeEvents() {
        for event in session.takeEvents() {
            if case .body(let stream, let bytes) = event {
                require(isOpen(stream), "a body on stream \(stream), which is \(state(stream))")
                bodies[stream, default: []] += bytes
                continue
            }
            switch event {
            case .opened(let stream):
                require(streams[stream] == nil, "stream \(stream) opens twice")
                streams[stream] = .opened
                told.append(.opened(stream))
            case .head(let stream, let head):
                require(streams[stream] == .opened, "a head on stream that is \(state(stream))")
                streams[stream] = .told
                told.append(
                    .head(
                        stream,
                        pseudo: [head.method, head.scheme, head.authority, head.path],
                        head.fields,
                        isTooLarge: head.isTooLarge
                    )
                )
                if answers, stream % 8 == 3 { answer(stream) }
            case .body: break
            case .end(let stream):
                require(isOpen(stream), "the end of stream \(stream), which is \(state(stream))")
                streams[stream] = .ended
                told.append(.end(stream, body: bodies.removeValue(forKey: stream) ?? []))
                if answers { answer(stream) }
            case .closed(let stream, let code):
                require(streams[stream] != .closed, "stream \(stream) closes twice")
                streams[stream] = .closed
                told.append(.closed(stream, code))
            }
        }
    }

    private func state(_ stream: Int32) -> String {
        streams[stream].map { "\($0)" } ?? "unknown"
    }

    private func isOpen(_ stream: Int32) -> Bool { streams[stream] == .told }

    /// Acts on a stream as a server may; the stream's number selects the action.
    private func answer(_ stream: Int32) {
        do throws(HTTP2SessionError) {
            switch stream % 16 {
            case 5: try session.reset(stream: stream, code: HTTP2.ErrorCode.cancel)
            case 7: try session.goaway(lastStreamID: stream - 2, data: [1, 2, 3])
            case 9: try session.announceEnd()
            case 11: try session.setMaxConcurrentStreams(Int(stream % 5))
            default:
                let body = [UInt8](repeating: 0x61, count: Int(stream % 3) * 700)
                given += body.count + 200
                try session.submitResponse(
                    stream: stream,
                    status: 200,
                    fields: [HTTP2.Field(name: "content-type", value: "text/plain")],
                    body: body
                )
            }
        } catch {
            told.append(.error(error.code))
        }
    }

    private func drain() {
        while true {
            let bytes = session.drain(limit: 1024)
            guard !bytes.isEmpty else { break }
            drained += bytes.count
            // The shortest frame that causes output has 9 bytes, the output to it 17; a GOAWAY may
            // have a text.
            require(drained <= 4096 + given + 20 * received, "it sends \(drained) bytes")
        }
        takeEvents()
    }
}

extension [UInt8] {
    /// Calls `withUnsafeBytes` with a body that throws errors of our own.
    fileprivate func withUnsafeBytesOrError<Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Void
    ) throws(Failure) {
        let result: Result<Void, Failure> = unsafe withUnsafeBytes { bytes in
            do throws(Failure) {
                return .success(unsafe try body(bytes))
            } catch {
                return .failure(error)
            }
        }
        try result.get()
    }
}
