import EventLoop
import HTTPServer
import Support
import Synchronization
import Testing

/// Bodies that are handled while they arrive.
@Suite(.timeLimit(.minutes(1)))
struct BodyReaderTests {
    /// The bytes that a handler has read, and the end of its body.
    private final class Watch: Sendable {
        let read = Atomic<Int>(0)
        private let channel = AsyncStream.makeStream(of: String.self)

        func tell(_ text: String) { channel.continuation.yield(text) }

        func next() async -> String? {
            for await text in channel.stream { return text }
            return nil
        }
    }

    /// Makes the routes: `POST /count` counts the bytes as they come; `/wait` reads nothing for ever;
    /// `/refuse` answers at once.
    private func routes(_ watch: Watch) -> @Sendable (inout Router, EventLoop) -> Void {
        { router, loop in
            router.on(.post, "/count", maximumBodyBytes: 8 << 20, streamsBody: true) { request in
                guard let reader = request.bodyReader else { return .text("no body") }
                var count = 0
                do {
                    while true {
                        let bytes = try await reader.next()
                        if bytes.isEmpty { break }
                        count += bytes.count
                        watch.read.store(count, ordering: .relaxed)
                        watch.tell("\(count)")
                    }
                } catch let problem as HTTPProblem {
                    watch.tell("failed \(problem.status)")
                    throw problem
                }
                return .text("\(count) bytes")
            }
            router.on(.post, "/wait", maximumBodyBytes: 1 << 30, streamsBody: true) { request in
                watch.tell("begun")
                try await loop.sleep(for: .seconds(100))
                return .text("never")
            }
            router.on(.post, "/refuse", maximumBodyBytes: 1 << 30, streamsBody: true) { _ in
                .text("refused", status: 403)
            }
            router.on(.get, "/") { _ in .text("plain") }
        }
    }

    private func head(_ path: String, _ length: Int) -> String {
        "POST \(path) HTTP/1.1\r\nHost: a\r\nContent-Length: \(length)\r\n\r\n"
    }

    @Test("A handler gets the first bytes before the last are sent, over HTTP/1.1 and HTTP/2")
    func arriving() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(head("/count", 10) + "hello")
            #expect(await watch.next() == "5")
            try await wire.send("world" + "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            let text = try await wire.receive(until: "plain")
            #expect(text.contains("10 bytes"))
            #expect(await watch.next() == "10")

            let frames = try await FrameWire(port: server.port)
            defer { frames.close() }
            try await frames.send(
                requestHead(1, "POST", "/count", ends: false),
                Frame(.data, stream: 1, Array("hello".utf8))
            )
            #expect(await watch.next() == "5")
            try await frames.send(
                Frame(.data, flags: Frame.endStream, stream: 1, Array("world".utf8))
            )
            #expect(try await frames.body(of: 1) == "10 bytes")
        }
    }

    @Test("A chunked body of any split is passed on whole")
    func chunked() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(
                "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            for _ in 0..<100 { try await wire.send("5\r\nhello\r\n") }
            try await wire.send("0\r\n\r\n")
            _ = try await wire.receive(until: "500 bytes")
            let without = try await server.exchange(
                "POST /count HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            )
            #expect(without.map(\.body) == ["no body"])
        }
    }

    @Test("A body beyond its limit is 413 before it is read, and while it arrives in chunks")
    func tooLarge() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let claimed = try Wire(port: server.port)
            defer { claimed.close() }
            try await claimed.send(head("/count", (8 << 20) + 1))
            #expect(try replies(try await claimed.receiveAll()).map(\.status) == [413])
            #expect(await watch.next() == "failed 413")

            let chunked = try Wire(port: server.port)
            defer { chunked.close() }
            try await chunked.send(
                "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n900000\r\n"
            )
            #expect(try replies(try await chunked.receiveAll()).map(\.status) == [413])
        }
    }

    @Test("A handler that does not read holds up its sender, not the server's memory")
    func heldUp() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(head("/wait", 1 << 30))
            #expect(await watch.next() == "begun")
            // More than both kernels' buffers: the sender waits for ever.
            await #expect(throws: TestFailure.self) {
                for _ in 0..<64 { try await wire.send([UInt8](repeating: 120, count: 1 << 20)) }
            }
            let reply = try await server.exchange(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            )
            #expect(reply.map(\.body) == ["plain"])
        }
    }

    @Test(
        "A body that has ended holds up no other request of its connection, even if nobody reads it"
    )
    func endedUnread() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let frames = try await FrameWire(port: server.port)
            defer { frames.close() }
            try await frames.send(requestHead(1, "POST", "/wait", ends: false))
            #expect(await watch.next() == "begun")
            let part = [UInt8](repeating: 120, count: 1 << 14)
            for _ in 0..<15 { try await frames.send(Frame(.data, stream: 1, part)) }
            try await frames.send(
                Frame(.data, flags: Frame.endStream, stream: 1, part),
                requestHead(3, "GET", "/")
            )
            #expect(try await frames.body(of: 3) == "plain")
        }
    }

    @Test("A sender that is too slow gets 408, and one that leaves ends its handler")
    func slow() async throws {
        let watch = Watch()
        try await withServer(
            configure: { $0.bodyTimeout = .milliseconds(200) },
            routes: routes(watch)
        ) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(head("/count", 100) + "slow")
            #expect(await watch.next() == "4")
            #expect(await watch.next() == "failed 408")
            #expect(try replies(try await wire.receiveAll()).map(\.status) == [408])

            let gone = try Wire(port: server.port)
            try await gone.send(head("/count", 100) + "gone")
            #expect(await watch.next() == "4")
            gone.close()
            #expect(await watch.next() == "failed 408")
        }
    }

    @Test("A refusal before the body is read ends the connection, but not HTTP/2's")
    func refused() async throws {
        try await withServer(routes: routes(Watch())) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(head("/refuse", 1 << 20) + "some")
            let reply = try #require(try replies(try await wire.receiveAll()).first)
            #expect(reply.status == 403 && reply.head.lowercased().contains("connection: close"))

            let frames = try await FrameWire(port: server.port)
            defer { frames.close() }
            try await frames.send(requestHead(1, "POST", "/refuse", ends: false))
            #expect(try await frames.body(of: 1) == "refused")
            try await frames.send(requestHead(3, "GET", "/"))
            #expect(try await frames.body(of: 3) == "plain")
        }
    }
}

@Suite("Forms with files", .timeLimit(.minutes(1)))
struct MultipartParserTests {
    private static let type = "multipart/form-data; boundary=--b'1"

    private static let form = [
        "----b'1", "Content-Disposition: form-data; name=\"token\"", "", "abc",
        "----b'1", "Content-Disposition: form-data; name=\"empty\"", "", "",
        "----b'1",
        "Content-Disposition: form-data; name=\"file\"; filename=\"C:\\\\a\\\"b\\\".csv\"",
        "Content-Type: text/csv", "", "a,b\r\n--\r\n----b'\r\nc", "----b'1--", "",
    ].joined(separator: "\r\n")

    private func events(
        _ text: String,
        split size: Int,
        type: String = type
    ) throws -> [MultipartParser.Event] {
        var parser = try #require(MultipartParser(contentType: type))
        var found: [MultipartParser.Event] = []
        let bytes = Array(text.utf8)
        for start in stride(from: 0, to: bytes.count, by: size) {
            parser.append(Array(bytes[start..<min(start + size, bytes.count)]))
            while let event = try parser.next() {
                if case .bytes(let more) = event, case .bytes(let before)? = found.last {
                    found[found.count - 1] = .bytes(before + more)
                } else {
                    found.append(event)
                }
            }
        }
        return found
    }

    @Test("A form is read the same, wherever the network splits it")
    func splits() throws {
        for size in [1, 2, 3, 7, 64, 10_000] {
            let found = try events(Self.form, split: size)
            #expect(
                found == [
                    .part(name: "token", fileName: nil), .bytes(Array("abc".utf8)), .partEnd,
                    .part(name: "empty", fileName: nil), .partEnd,
                    .part(name: "file", fileName: "C:\\\\a\"b\".csv"),
                    .bytes(Array("a,b\r\n--\r\n----b'\r\nc".utf8)), .partEnd, .end,
                ],
                "\(size)"
            )
        }
    }

    @Test(
        "A broken form is refused",
        arguments: [
            "preamble\r\n----b'1\r\n\r\n", "----b'1 \r\n", "----b'1xy",
            "----b'1\r\nContent-Type: text/plain\r\n\r\nx\r\n----b'1--",
            "----b'1\r\nContent-Disposition: attachment; name=\"a\"\r\n\r\nx\r\n----b'1--",
            "----b'1\r\nContent-Disposition: form-data\r\n\r\nx\r\n----b'1--",
            "----b'1\r\nX: " + String(repeating: "x", count: 5000),
            String(
                repeating: "----b'1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n",
                count: 65
            ),
        ]
    )
    func broken(_ text: String) throws {
        for size in [1, 10_000] {
            #expect(throws: HTTPProblem.self) { try events(text, split: size) }
        }
    }

    @Test("A form that ends early has no end")
    func early() throws {
        let found = try events(String(Self.form.dropLast(4)), split: 100)
        #expect(!found.contains(.end))
    }

    @Test("Only a form with one boundary is a form")
    func types() {
        for type in [
            "", "text/plain", "multipart/form-data", "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"", "multipart/mixed; boundary=a",
            "multipart/form-data; boundary=a b", "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=" + String(repeating: "a", count: 71),
        ] {
            #expect(MultipartParser(contentType: type) == nil, "\(type)")
        }
        #expect(
            MultipartParser(contentType: "Multipart/Form-Data; charset=x; Boundary=\"a b\"") == nil
        )
        #expect(
            MultipartParser(contentType: "Multipart/Form-Data; charset=x; Boundary=\"a\"") != nil
        )
    }
}
