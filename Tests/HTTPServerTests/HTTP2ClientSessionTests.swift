import HTTP2
import Testing

/// The client's session frame by frame, without a socket.
@Suite(.timeLimit(.minutes(1)))
struct HTTP2ClientSessionTests {
    private let template = HTTP2.RequestTemplate(
        method: "POST",
        scheme: "https",
        authority: "push.example",
        fields: [
            HTTP2.Field(name: "apns-topic", value: String(repeating: "t", count: 180))
        ],
        varying: ["apns-id"]
    )

    /// Makes a session whose peer has announced its stream limit.
    private func session(
        streams: Int? = 100,
        _ settings: HTTP2ClientSession.Settings = HTTP2ClientSession.Settings()
    ) throws -> HTTP2ClientSession {
        let session = try HTTP2ClientSession(settings)
        if let streams { try feed(session, limit(streams)) }
        _ = try drained(session)
        return session
    }

    private func limit(_ streams: Int) -> Frame {
        Frame(.settings, [0, 3] + bigEndianBytes(streams))
    }

    private func feed(_ session: HTTP2ClientSession, _ frames: Frame...) throws {
        try unsafe frames.flatMap(\.bytes).withUnsafeBytes { try unsafe session.receive($0) }
    }

    private func drained(_ session: HTTP2ClientSession) throws -> [Frame] {
        var bytes: [UInt8] = []
        try session.drain(into: &bytes)
        if bytes.starts(with: HTTP2.clientPreface) {
            bytes.removeFirst(HTTP2.clientPreface.count)
        }
        let frames = Frame.take(from: &bytes)
        #expect(bytes.isEmpty)
        return frames
    }

    @discardableResult
    private func submit(
        _ session: HTTP2ClientSession,
        _ tag: Int,
        body: [UInt8] = Array("{}".utf8)
    ) throws -> Int32 {
        try session.submit(
            template,
            path: "/3/device/\(tag)",
            values: ["id-\(tag)"],
            body: body,
            tag: tag
        )
    }

    private func outcomes(_ session: HTTP2ClientSession) -> [Int: HTTP2.Outcome] {
        var outcomes: [Int: HTTP2.Outcome] = [:]
        session.takeCompletions {
            #expect(outcomes[$0.tag] == nil)
            outcomes[$0.tag] = $0.outcome
        }
        return outcomes
    }

    private func answer(
        _ stream: Int,
        _ status: Int = 200,
        ends: Bool = true,
        _ more: [(String, String)] = []
    ) -> Frame {
        Frame(
            .headers,
            flags: Frame.endHeaders | (ends ? Frame.endStream : 0),
            stream: stream,
            headerBlock([(":status", "\(status)")] + more)
        )
    }

    private func status(_ outcome: HTTP2.Outcome?) -> Int? {
        guard case .answered(let response) = outcome else { return nil }
        return response.status
    }

    @Test(
        "The preface and settings without server push come first, and requests wait for the peer's"
    )
    func start() throws {
        let session = try HTTP2ClientSession()
        let frames = try drained(session)
        #expect(frames.first?.isA(.settings) == true)
        #expect(frames.first?.payload.starts(with: [0, 2, 0, 0, 0, 0]) == true)
        #expect(frames.contains { $0.isA(.windowUpdate) && $0.stream == 0 })
        #expect(!session.hasSettings && session.freeStreams == 0)
        #expect(throws: HTTP2ClientSession.Refusal.noStream) { try submit(session, 1) }
    }

    @Test("Request and response pass between both sessions unchanged, however the bytes are split")
    func bothSides() throws {
        let server = try HTTP2ServerSession(
            .init(maxConcurrentStreams: 10, initialWindowBytes: 65_535, maximumHeadBytes: 4096)
        )
        let client = try HTTP2ClientSession()
        var toServer: [UInt8] = []
        var heads: [HTTP2.RequestHead] = []
        var bodies: [UInt8] = []
        func turn() throws {
            try client.drain(into: &toServer)
            try unsafe toServer.withUnsafeBytes { try unsafe server.receive($0) }
            toServer = []
            for event in server.takeEvents() {
                switch event {
                case .head(_, let head): heads.append(head)
                case .body(_, let bytes): bodies += bytes
                case .end(let stream):
                    try server.submitResponse(
                        stream: stream,
                        status: 410,
                        fields: [.init(name: "apns-id", value: "é"), .init(name: "b", value: "")],
                        body: Array("gone".utf8)
                    )
                case .opened, .closed: break
                }
            }
            for byte in server.drain() {
                try unsafe [byte].withUnsafeBytes { try unsafe client.receive($0) }
            }
        }
        try turn()
        #expect(client.freeStreams == 10 && client.peerStreamLimit == 10)
        try submit(client, 7, body: Array("hello".utf8))
        try turn()
        let head = try #require(heads.first)
        #expect(head.method == "POST" && head.scheme == "https")
        #expect(head.authority == "push.example" && head.path == "/3/device/7")
        #expect(head.fields.last == HTTP2.Field(name: "apns-id", value: "id-7"))
        #expect(bodies == Array("hello".utf8))
        guard case .answered(let response) = outcomes(client)[7] else {
            Issue.record("no answer")
            return
        }
        #expect(response.status == 410 && response.body == Array("gone".utf8))
        #expect(response.field("apns-id") == "é" && response.field("b") == "")
        #expect(response.field("c") == nil && response.fields.count == 2)
        #expect(client.openStreams == 0)
    }

    @Test("Values of a single request stay out of the header table, and shared ones are in it")
    func headerTable() throws {
        let session = try session(streams: 1000)
        var sizes: [Int] = []
        for tag in 100..<600 {
            try submit(session, tag)
            let head = try #require(try drained(session).first { $0.isA(.headers) })
            sizes.append(head.payload.count)
            let literal: UInt8 = 0x10
            // A literal that is never indexed, then the id in Huffman's code.
            #expect(head.payload.contains { $0 & 0xF0 == literal })
        }
        #expect(sizes[0] > 150)
        #expect(sizes.dropFirst().allSatisfy { $0 < 50 })
    }

    @Test("A session opens no more streams than the peer's limit, down to one while more are open")
    func streamLimit() throws {
        let session = try session(streams: 3)
        for tag in 1...3 { try submit(session, tag) }
        #expect(throws: HTTP2ClientSession.Refusal.noStream) { try submit(session, 4) }
        _ = try drained(session)
        try feed(session, limit(1), answer(1), answer(3))
        #expect(session.freeStreams == 0 && session.peerStreamLimit == 1)
        #expect(outcomes(session).count == 2)
        try feed(session, answer(5))
        #expect(session.freeStreams == 1)
        try submit(session, 4)
        #expect(session.freeStreams == 0)
        try feed(session, limit(2))
        #expect(session.freeStreams == 1)
    }

    @Test("Our own limit applies if the peer's is higher")
    func ownLimit() throws {
        let session = try session(streams: 1000, .init(maximumStreams: 2))
        #expect(session.freeStreams == 2)
    }

    @Test("Streams beyond the last one of a GOAWAY were not processed, and the others continue")
    func goaway() throws {
        let session = try session()
        for tag in 1...3 { try submit(session, tag) }
        _ = try drained(session)
        let words = Array(#"{"reason":"Shutdown"}"#.utf8)
        try feed(session, Frame(.goaway, bigEndianBytes(1) + bigEndianBytes(0) + words))
        #expect(outcomes(session) == [2: .notProcessed, 3: .notProcessed])
        #expect(session.isGoingAway && session.freeStreams == 0)
        #expect(session.goaway?.text == #"{"reason":"Shutdown"}"#)
        #expect(throws: HTTP2ClientSession.Refusal.noStream) { try submit(session, 4) }
        #expect(!session.isOver)
        try feed(session, answer(1))
        #expect(status(outcomes(session)[1]) == 200)
        #expect(session.isOver)
    }

    @Test("A GOAWAY that only announces the end leaves open streams alone")
    func announcement() throws {
        let session = try session()
        try submit(session, 1)
        _ = try drained(session)
        try feed(session, Frame(.goaway, bigEndianBytes(0x7FFF_FFFF) + bigEndianBytes(0)))
        #expect(outcomes(session).isEmpty && session.isGoingAway)
        try feed(session, answer(1))
        #expect(status(outcomes(session)[1]) == 200)
    }

    @Test("A reset is a refusal, a doubt, or without effect after a complete response")
    func resets() throws {
        let session = try session()
        let big = [UInt8](repeating: 65, count: 100_000)
        for tag in 1...4 { try submit(session, tag, body: tag == 4 ? big : []) }
        _ = try drained(session)
        func reset(_ stream: Int, _ code: Int) -> Frame {
            Frame(.reset, stream: stream, bigEndianBytes(code))
        }
        try feed(session, reset(1, 7), reset(3, 2), answer(5, ends: false), reset(5, 0))
        // The fourth has its response, and is asked to stop sending the rest.
        try feed(session, answer(7, 413), reset(7, 0))
        let outcomes = outcomes(session)
        #expect(outcomes[1] == .notProcessed)
        #expect(outcomes[2] == .reset(code: 2))
        #expect(outcomes[3] == .malformed)
        #expect(status(outcomes[4]) == 413)
    }

    @Test("At the connection's end, written requests are in doubt and unwritten ones were not sent")
    func abandon() throws {
        let session = try session()
        let before = session.drainedBytes
        try submit(session, 1)
        _ = try drained(session)
        let between = session.drainedBytes
        try submit(session, 2)
        _ = try drained(session)
        try submit(session, 3)
        try feed(session, answer(1))
        try submit(session, 4)
        var outcomes: [Int: HTTP2.Outcome] = [:]
        session.abandon(writtenBytes: between + 1) { outcomes[$0.tag] = $0.outcome }
        #expect(status(outcomes[1]) == 200)
        outcomes[1] = nil
        #expect(outcomes == [2: .lost, 3: .notSent, 4: .notSent])

        let other = try self.session()
        try submit(other, 1)
        _ = try drained(other)
        other.abandon(writtenBytes: before) { #expect($0.outcome == .notSent) }
    }

    @Test("Undrained requests were not sent, at the connection's end and after a cancellation")
    func undrained() throws {
        let session = try session()
        for tag in 1...4 { try submit(session, tag) }
        var bytes: [UInt8] = []
        #expect(try session.drain(into: &bytes, upTo: 1))
        let first = Frame.take(from: &bytes)
        #expect(first.count == 1 && first.first?.isA(.headers) == true && bytes.isEmpty)
        // The first has begun, so it is not recalled, but will never be complete; the third never
        // begins.
        #expect(!session.recall(stream: 1))
        #expect(session.cancel(stream: 1))
        #expect(session.cancel(stream: 5))
        let heads = try drained(session).filter { $0.isA(.headers) }
        #expect(heads.map(\.stream) == [3, 7])
        #expect(outcomes(session) == [1: .reset(code: 8), 3: .notSent])
        try submit(session, 5)
        let written = session.drainedBytes + 1_000_000
        var outcomes: [Int: HTTP2.Outcome] = [:]
        session.abandon(writtenBytes: written) { outcomes[$0.tag] = $0.outcome }
        #expect(outcomes == [2: .lost, 4: .lost, 5: .notSent])
    }

    @Test("Draining stops at a bound and continues where it stopped")
    func drainInParts() throws {
        let session = try session(streams: 1000)
        for tag in 0..<200 { try submit(session, tag) }
        var parts: [[UInt8]] = []
        while true {
            var part: [UInt8] = []
            let mayHaveMore = try session.drain(into: &part, upTo: 1000)
            #expect(part.count < 1000 + 16_384)
            parts.append(part)
            guard mayHaveMore else { break }
        }
        #expect(parts.count > 5)
        var bytes = parts.flatMap { $0 }
        let frames = Frame.take(from: &bytes)
        #expect(frames.filter { $0.isA(.headers) }.map(\.stream) == (0..<200).map { $0 * 2 + 1 })
    }

    @Test("A head that does not fit into frames fails alone, and was not sent")
    func unsendable() throws {
        let session = try session()
        let long = String(repeating: "x", count: 70_000)
        _ = try session.submit(template, path: "/", values: [long], body: [], tag: 1)
        try submit(session, 2)
        let heads = try drained(session).filter { $0.isA(.headers) }
        #expect(heads.map(\.stream) == [3])
        #expect(outcomes(session) == [1: .unsendable])
        try feed(session, answer(3))
        #expect(status(outcomes(session)[2]) == 200)
        #expect(!session.isOver && session.freeStreams == 100)
    }

    @Test("An abandoned session accepts no input and gives no output")
    func over() throws {
        let session = try session()
        try submit(session, 1)
        session.abandon(writtenBytes: 0) { #expect($0.outcome == .notSent) }
        try feed(session, limit(5), answer(1))
        #expect(try drained(session).isEmpty)
        #expect(outcomes(session).isEmpty && session.isOver && session.freeStreams == 0)
        #expect(!session.cancel(stream: 1))
        try session.ping()
        session.terminate()
        #expect(throws: HTTP2ClientSession.Refusal.noStream) { try submit(session, 2) }
    }

    @Test("A cancelled stream is reset on the wire and completes once")
    func cancel() throws {
        let session = try session()
        let stream = try submit(session, 1)
        _ = try drained(session)
        session.cancel(stream: stream)
        let frames = try drained(session)
        #expect(frames.contains { $0.isA(.reset) && $0.stream == 1 && $0.number(at: 0) == 8 })
        #expect(outcomes(session) == [1: .reset(code: 8)])
        // This response was in flight.
        try feed(session, answer(1))
        #expect(outcomes(session).isEmpty && session.freeStreams == 100)
    }

    @Test("PING is answered, and our own is counted when its answer arrives")
    func ping() throws {
        let session = try session()
        try feed(session, Frame(.ping, [1, 2, 3, 4, 5, 6, 7, 8]))
        let acknowledgement = try drained(session).first { $0.isA(.ping) }
        #expect(acknowledgement?.flags == 1 && acknowledgement?.payload.first == 1)
        #expect(session.pingsAnswered == 0)
        try session.ping()
        let ping = try #require(try drained(session).first { $0.isA(.ping) })
        try feed(session, Frame(.ping, flags: 1, ping.payload))
        #expect(session.pingsAnswered == 1)
    }

    @Test("A response beyond a limit ends its stream, not the connection")
    func bounds() throws {
        let session = try session(
            streams: 10,
            .init(maximumHeadBytes: 300, maximumBodyBytes: 1000)
        )
        for tag in 1...3 { try submit(session, tag) }
        _ = try drained(session)
        let long = String(repeating: "x", count: 200)
        try feed(session, answer(1, 200, ends: false, [("a", long), ("b", long)]))
        try feed(session, answer(3, ends: false))
        let part = [UInt8](repeating: 65, count: 400)
        for _ in 0..<3 { try feed(session, Frame(.data, stream: 3, part)) }
        let resets = try drained(session).filter { $0.isA(.reset) }
        #expect(Set(resets.map(\.stream)) == [1, 3] && resets.count == 2)
        try feed(session, answer(5, 200, ends: false, [("a", long)]))
        let body = [UInt8](repeating: 66, count: 1000)
        try feed(session, Frame(.data, flags: Frame.endStream, stream: 5, body))
        let outcomes = outcomes(session)
        #expect(outcomes[1] == .tooLarge && outcomes[2] == .tooLarge)
        guard case .answered(let response) = outcomes[3] else {
            Issue.record("no answer")
            return
        }
        #expect(response.body == body && response.field("a") == long)
    }

    @Test("Interim responses and trailers are not the response")
    func interim() throws {
        let session = try session()
        try submit(session, 1)
        _ = try drained(session)
        try feed(
            session,
            answer(1, 103, ends: false, [("link", "early")]),
            answer(1, 200, ends: false, [("apns-id", "x")]),
            Frame(.data, stream: 1, [65]),
            Frame(
                .headers,
                flags: Frame.endHeaders | Frame.endStream,
                stream: 1,
                headerBlock([("grpc-status", "0")])
            )
        )
        guard case .answered(let response) = outcomes(session)[1] else {
            Issue.record("no answer")
            return
        }
        #expect(response.status == 200 && response.body == [65])
        #expect(response.fields == [HTTP2.Field(name: "apns-id", value: "x")])
    }

    @Test("A body waits for the peer's window")
    func window() throws {
        let session = try session()
        try submit(session, 1, body: [UInt8](repeating: 65, count: 70_000))
        let first = try drained(session).filter { $0.isA(.data) }
        #expect(first.reduce(0) { $0 + $1.payload.count } == 65_535)
        try feed(
            session,
            Frame(.windowUpdate, bigEndianBytes(10_000)),
            Frame(.windowUpdate, stream: 1, bigEndianBytes(10_000))
        )
        let rest = try drained(session).filter { $0.isA(.data) }
        #expect(rest.reduce(0) { $0 + $1.payload.count } == 4465)
        #expect(rest.last?.endsStream == true)
    }

    @Test(
        "A field that could be read as two is not sent",
        arguments: ["a\r\nb: c", "a\0", "\u{7F}"]
    )
    func smuggling(text: String) throws {
        let session = try session()
        #expect(throws: HTTP2ClientSession.Refusal.invalid) {
            try session.submit(template, path: "/" + text, values: [""], body: [], tag: 1)
        }
        #expect(throws: HTTP2ClientSession.Refusal.invalid) {
            try session.submit(template, path: "/", values: [text], body: [], tag: 1)
        }
        #expect(throws: HTTP2ClientSession.Refusal.invalid) {
            try session.submit(template, path: "/", values: [], body: [], tag: 1)
        }
        #expect(session.openStreams == 0)
    }

    @Test("Bytes that are not HTTP/2 end the session")
    func garbage() throws {
        let session = try HTTP2ClientSession()
        _ = try drained(session)
        let bytes = Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)
        #expect(throws: HTTP2SessionError.self) {
            try unsafe bytes.withUnsafeBytes { try unsafe session.receive($0) }
            _ = try drained(session)
            guard !session.isOver else { throw HTTP2SessionError(errorCode: 1, "over") }
        }
    }
}

extension HTTP2ClientSession {
    /// Submits a batch of one.
    fileprivate func submit(
        _ template: HTTP2.RequestTemplate,
        path: String,
        values: [String],
        body: [UInt8],
        tag: Int
    ) throws -> Int32 {
        let batch = HTTP2.RequestBatch(count: 1, bytes: 16)
        batch.add(template, path: (path, ""), value: nil, values: values, body: body)
        return try submit(batch, 0, tag: tag)
    }
}
