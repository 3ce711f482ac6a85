import HTTP2
import Testing

/// The session frame by frame, without a socket.
@Suite(.timeLimit(.minutes(1)))
struct HTTP2SessionTests {
    private func session() throws -> HTTP2ServerSession {
        try HTTP2ServerSession(
            HTTP2ServerSession.Settings(
                maxConcurrentStreams: 2,
                initialWindowBytes: 100_000,
                maximumHeadBytes: 2000
            )
        )
    }

    private func feed(_ session: HTTP2ServerSession, _ bytes: [UInt8]) throws -> [String] {
        try unsafe bytes.withUnsafeBytes { try unsafe session.receive($0) }
        return session.takeEvents().map(describe)
    }

    private func describe(_ event: HTTP2.ServerEvent) -> String {
        switch event {
        case .opened(let stream): "opened \(stream)"
        case .head(let stream, let head):
            head.isTooLarge
                ? "too large \(stream)"
                : "head \(stream) \(head.method) \(head.authority)\(head.path) "
                    + head.fields.map { "\($0.name)=\($0.value)" }.joined(separator: "&")
        case .body(let stream, let bytes):
            "body \(stream) \(String(decoding: bytes, as: UTF8.self))"
        case .end(let stream): "end \(stream)"
        case .closed(let stream, let code): "closed \(stream) \(code)"
        }
    }

    private func drained(_ session: HTTP2ServerSession) -> [Frame] {
        var bytes = session.drain()
        let frames = Frame.take(from: &bytes)
        #expect(bytes.isEmpty)
        return frames
    }

    @Test func theFirstFrameIsTheSettings() throws {
        let session = try session()
        let frames = drained(session)
        #expect(frames.first?.isA(.settings) == true)
        #expect(frames.first?.payload.starts(with: [0, 3, 0, 0, 0, 2]) == true)
        #expect(session.drain().isEmpty)
    }

    @Test func aRequestBecomesEventsHoweverItsBytesAreCut() throws {
        let bytes =
            clientPreface
            + requestHead(1, "POST", "/x", ends: false, [("x-a", "1"), ("x-b", "2")]).bytes
            + Frame(.data, stream: 1, Array("hel".utf8)).bytes
            + Frame(.data, flags: Frame.endStream, stream: 1, Array("lo".utf8)).bytes
        let expected = [
            "opened 1", "head 1 POST a/x x-a=1&x-b=2", "body 1 hel", "body 1 lo", "end 1",
        ]
        #expect(try feed(try session(), bytes) == expected)
        let slow = try session()
        var heads: [String] = []
        var body = ""
        for event in try bytes.flatMap({ try feed(slow, [$0]) }) {
            if event.hasPrefix("body 1 ") {
                body += event.dropFirst(7)
            } else {
                heads.append(event)
            }
        }
        #expect(heads == ["opened 1", "head 1 POST a/x x-a=1&x-b=2", "end 1"])
        #expect(body == "hello")
    }

    @Test func trailersAreDropped() throws {
        let trailers = Frame(
            .headers,
            flags: Frame.endHeaders | Frame.endStream,
            stream: 1,
            headerBlock([("x-sum", "1")])
        )
        let events = try feed(
            try session(),
            clientPreface + requestHead(1, "POST", "/", ends: false).bytes + trailers.bytes
        )
        #expect(events == ["opened 1", "head 1 POST a/ ", "end 1"])
    }

    @Test func anAnswerIsSentInFramesOfTheWindow() throws {
        let session = try session()
        _ = try feed(session, clientPreface + requestHead(1, "GET", "/").bytes)
        try session.submitResponse(
            stream: 1,
            status: 200,
            fields: [HTTP2.Field(name: "x", value: "y")],
            body: Array(repeating: 7, count: 100_000)
        )
        let before = drained(session).filter { $0.isA(.data) }
        // The client's first window is 65,535 bytes.
        #expect(before.reduce(0) { $0 + $1.payload.count } == 65_535)
        #expect(before.allSatisfy { !$0.endsStream })
        let more = bigEndianBytes(100_000)
        let events = try feed(
            session,
            Frame(.windowUpdate, stream: 0, more).bytes
                + Frame(.windowUpdate, stream: 1, more).bytes
        )
        #expect(events.isEmpty)
        let after = drained(session).filter { $0.isA(.data) }
        #expect(after.reduce(0) { $0 + $1.payload.count } == 100_000 - 65_535)
        #expect(after.last?.endsStream == true)
        #expect(session.takeEvents().map(describe) == ["closed 1 0"])
    }

    @Test(arguments: [
        [(":method", "GET"), (":path", "/")],
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("X-Upper", "a")],
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("connection", "close")],
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":path", "/b")],
        [(":method", "GET"), (":scheme", "http"), ("x", "a"), (":path", "/")],
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("x", "a\r\nb: c")],
    ])
    func aMalformedHeadIsAStreamError(_ fields: [(String, String)]) throws {
        let session = try session()
        let head = Frame(
            .headers,
            flags: Frame.endHeaders | Frame.endStream,
            stream: 1,
            headerBlock(fields)
        )
        let events = try feed(session, clientPreface + head.bytes)
        #expect(!events.contains { $0.hasPrefix("end") })
        let resets = drained(session).filter { $0.isA(.reset) }
        #expect(resets.map { $0.number(at: 0) } == [Int(HTTP2.ErrorCode.protocolError)])
    }

    @Test func aLengthThatTheBodyDoesNotHaveIsAStreamError() throws {
        let session = try session()
        let events = try feed(
            session,
            clientPreface
                + requestHead(1, "POST", "/", ends: false, [("content-length", "5")]).bytes
                + Frame(.data, flags: Frame.endStream, stream: 1, [1, 2]).bytes
        )
        #expect(!events.contains("end 1"))
        #expect(drained(session).contains { $0.isA(.reset) && $0.stream == 1 })
    }

    @Test func aHeadBeyondTheLimitIsToldAsSuch() throws {
        let long = (0..<30).map { ("x-\($0)", String(repeating: "v", count: 100)) }
        let events = try feed(
            try session(),
            clientPreface + requestHead(1, "GET", "/", long).bytes
        )
        #expect(events == ["opened 1", "too large 1", "end 1"])
    }

    @Test func streamsBeyondTheLimitAreRefused() throws {
        let requests = [1, 3, 5].flatMap { requestHead($0, "GET", "/").bytes }
        // A client that cannot know the limit yet may retry.
        let early = try session()
        _ = drained(early)
        let events = try feed(early, clientPreface + requests)
        #expect(events.filter { $0.hasPrefix("end") } == ["end 1", "end 3"])
        let resets = drained(early).filter { $0.isA(.reset) }
        #expect(resets.map(\.stream) == [5])
        #expect(resets.map { $0.number(at: 0) } == [Int(HTTP2.ErrorCode.refusedStream)])

        let knowing = try session()
        _ = drained(knowing)
        let acknowledged = Frame(.settings, flags: 1).bytes
        _ = try feed(knowing, clientPreface + acknowledged + requests)
        #expect(drained(knowing).contains { $0.isA(.goaway) })
    }

    @Test func bytesThatAreNotHTTP2EndTheSession() throws {
        let session = try session()
        #expect(throws: HTTP2SessionError.self) {
            try feed(session, Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8))
        }
        let other = try self.session()
        _ = try feed(other, clientPreface + Frame(.data, stream: 7, [1]).bytes)
        #expect(drained(other).contains { $0.isA(.goaway) })
        #expect(other.isFinished)
    }
}
