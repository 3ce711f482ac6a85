import EventLoop
import HTTPServer
import Observability
import Support
import Testing

/// Responses whose many connections one feed serves.
@Suite(.timeLimit(.minutes(1)))
struct FeedTests {
    /// Sends one event at once, and records the end of the stream.
    private final class Feed: HTTPStreamFeed, @unchecked Sendable {
        private let channel = AsyncStream.makeStream(of: String.self)
        private let loop: EventLoop
        private var writer: HTTPBodyWriter?

        init(on loop: EventLoop) { self.loop = loop }

        func began(_ writer: HTTPBodyWriter) {
            self.writer = writer
            writer.post(Array("here\n".utf8))
            channel.continuation.yield("began")
        }

        func finalBytes() -> [UInt8] { Array("bye\n".utf8) }

        func ended(_ writer: HTTPBodyWriter) {
            channel.continuation.yield(writer.post([1]) ? "still open" : "ended")
            self.writer = nil
        }

        func post(_ text: String) {
            loop.execute { self.writer?.post(Array(text.utf8)) }
        }

        func finish() { loop.execute { self.writer?.finish() } }

        func next() async -> String? {
            for await event in channel.stream { return event }
            return nil
        }

        /// Returns once nothing more can happen.
        func hadNoMore() async -> Bool {
            channel.continuation.finish()
            return await next() == nil
        }
    }

    private let request =
        "GET /feed HTTP/1.1\r\nHost: a\r\nX-Long: \(String(repeating: "x", count: 500))\r\n\r\n"

    private func withFeed(_ body: (TestServer, Feed) async throws -> Void) async throws {
        let (feeds, made) = AsyncStream.makeStream(of: Feed.self)
        try await withServer(routes: { router, loop in
            let feed = Feed(on: loop)
            made.yield(feed)
            router.on(.get, "/feed") { request in
                // A handler that queries the database first is like this.
                if request.header("x-long") == nil { try await loop.sleep(for: .milliseconds(1)) }
                var response = HTTPServerResponse(status: 200)
                response.stream = HTTPBodyStream(fedBy: feed)
                return response
            }
        }) { server in
            var iterator = feeds.makeAsyncIterator()
            try await body(server, try #require(await iterator.next()))
        }
    }

    @Test func whatIsPostedComesAndAPeerThatLeavesIsMissed() async throws {
        try await withFeed { server, feed in
            let wire = try Wire(port: server.port)
            try await wire.send(request)
            _ = try await wire.receive(until: "here\n\r\n")
            #expect(await feed.next() == "began")
            feed.post("news\n")
            #expect(try await wire.receive(until: "news\n\r\n").hasSuffix("5\r\nnews\n\r\n"))
            wire.close()
            #expect(await feed.next() == "ended")
            #expect(server.metrics.gauge(.httpStreams).value == 0)
        }
    }

    @Test func whatIsPostedComesOverHTTP2() async throws {
        try await withFeed { server, feed in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/feed"))
            #expect(try await wire.next(.data, stream: 1).payload == Array("here\n".utf8))
            #expect(await feed.next() == "began")
            feed.post("news\n")
            #expect(try await wire.next(.data, stream: 1).payload == Array("news\n".utf8))
            try await wire.send(Frame(.reset, stream: 1, bigEndianBytes(8)))
            #expect(await feed.next() == "ended")
            #expect(server.metrics.gauge(.httpStreams).value == 0)
            // The connection stays open, and the end is not reported twice.
            feed.post("late\n")
            try await wire.send(requestHead(3, "GET", "/feed"))
            #expect(try await wire.next(.data, stream: 3).payload == Array("here\n".utf8))
            #expect(await feed.next() == "began")
            wire.endOutput()
        }
    }

    @Test func aStopSaysLastWordsOverHTTP2() async throws {
        try await withFeed { server, feed in
            let wire = try await FrameWire(port: server.port)
            try await wire.send(requestHead(1, "GET", "/feed"))
            #expect(try await wire.next(.data, stream: 1).payload == Array("here\n".utf8))
            #expect(await feed.next() == "began")
            async let stopped: Void = server.server.stop(within: .seconds(30))
            #expect(try await wire.body(of: 1) == "bye\n")
            #expect(await feed.next() == "ended")
            #expect(try await wire.rest().allSatisfy { !$0.isA(.data) && !$0.isA(.reset) })
            wire.close()
            await stopped
            #expect(server.metrics.gauge(.httpStreams).value == 0)
            #expect(await feed.hadNoMore())
        }
    }

    @Test func whoFeedsItEndsItWholeAfterLastWords() async throws {
        try await withFeed { server, feed in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(request)
            _ = try await wire.receive(until: "here\n\r\n")
            #expect(await feed.next() == "began")
            for _ in 0..<2 { feed.finish() }
            let rest = String(decoding: try await wire.receiveAll(), as: UTF8.self)
            #expect(rest == "4\r\nbye\n\r\n0\r\n\r\n")
            #expect(await feed.next() == "ended")
            #expect(server.metrics.gauge(.httpStreams).value == 0)
            #expect(await feed.hadNoMore())
        }
    }

    @Test func whatIsEndedOverHTTP2LeavesTheConnectionToOthers() async throws {
        try await withFeed { server, feed in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            for stream in [1, 3] {
                try await wire.send(requestHead(stream, "GET", "/feed"))
                #expect(try await wire.next(.data, stream: stream).payload == Array("here\n".utf8))
                #expect(await feed.next() == "began")
                feed.finish()
                #expect(try await wire.body(of: stream) == "bye\n")
                #expect(await feed.next() == "ended")
            }
            #expect(server.metrics.gauge(.httpStreams).value == 0)
        }
    }

    @Test func whatAPeerDoesNotTakeOverHTTP2IsNotGathered() async throws {
        try await withFeed { server, feed in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/feed"))
            #expect(try await wire.next(.data, stream: 1).payload == Array("here\n".utf8))
            #expect(await feed.next() == "began")
            // The peer's window takes 64 KiB, and no more than one post beyond them is accepted.
            let much = String(repeating: "x", count: 1 << 20)
            for _ in 0..<64 { feed.post(much) }
            try await server.loops[0].onLoop {}
            #expect(server.metrics.gauge(.httpHeldAnswers).value < 3 << 20)
        }
    }

    @Test func aStopSaysLastWordsAndEndsWhole() async throws {
        try await withFeed { server, feed in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(request)
            _ = try await wire.receive(until: "here\n\r\n")
            #expect(await feed.next() == "began")
            await server.server.stop(within: .seconds(30))
            let rest = String(decoding: try await wire.receiveAll(), as: UTF8.self)
            #expect(rest == "4\r\nbye\n\r\n0\r\n\r\n")
            #expect(await feed.next() == "ended")
        }
    }

    @Test func whatAPeerDoesNotTakeIsNotGathered() async throws {
        try await withFeed { server, feed in
            let wire = try Wire(port: server.port, receiveBufferBytes: 4096)
            defer { wire.close() }
            try await wire.send(request)
            _ = try await wire.receive(until: "here\n\r\n")
            #expect(await feed.next() == "began")
            // This is far more than the kernel buffers for the two sockets.
            let much = String(repeating: "x", count: 1 << 20)
            for _ in 0..<64 { feed.post(much) }
            let held = server.metrics.gauge(.httpHeldAnswers)
            await withCheckedContinuation { continuation in
                server.loops[0].execute { continuation.resume() }
            }
            #expect(held.value < 16 << 20)
        }
    }
}
