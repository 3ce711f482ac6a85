import EventLoop
import HTTPServer
import Observability
import Support
import Synchronization
import Testing

/// Responses that are made while they are sent.
@Suite(.timeLimit(.minutes(1)))
struct StreamTests {
    private func get(_ target: String) -> String { "GET \(target) HTTP/1.1\r\nHost: a\r\n\r\n" }

    /// Tells a test what a stream's handler has done.
    private final class Watch: Sendable {
        let written = Atomic<Int>(0)
        private let channel = AsyncStream.makeStream(of: String.self)

        func ended(_ reason: String) { channel.continuation.yield(reason) }

        func end() async -> String? {
            for await reason in channel.stream { return reason }
            return nil
        }

        func expectEnd(_ reason: String, at location: SourceLocation = #_sourceLocation) async {
            let end = await end()
            #expect(end == reason, sourceLocation: location)
        }
    }

    /// Makes the routes: `GET /endless` writes 16 KiB again and again; `/ticks` sends three events
    /// and ends; `/quiet` sends one and waits.
    private func routes(
        _ watch: Watch,
        maximumDuration: Duration? = nil
    ) -> @Sendable (inout Router, EventLoop) -> Void {
        { router, loop in
            router.on(.get, "/ticks") { _ in
                .events { writer in
                    for number in 1...3 {
                        try await writer.send(ServerSentEvent("tick\n\(number)", id: "\(number)"))
                        try await loop.sleep(for: .milliseconds(1))
                    }
                }
            }
            router.on(.get, "/endless") { _ in
                var response = HTTPServerResponse(status: 200)
                response.stream = HTTPBodyStream { writer in
                    do {
                        while true {
                            try await writer.write([UInt8](repeating: 120, count: 16 * 1024))
                            watch.written.add(16 * 1024, ordering: .relaxed)
                        }
                    } catch {
                        watch.ended("\(error)")
                        throw error
                    }
                }
                return response
            }
            router.on(.get, "/quiet") { _ in
                .events(maximumDuration: maximumDuration) { writer in
                    do {
                        try await writer.send(ServerSentEvent("here"))
                        while true { try await loop.sleep(for: .seconds(100)) }
                    } catch {
                        do { try await writer.sendHeartbeat() } catch { watch.ended("\(error)") }
                    }
                }
            }
            router.on(.get, "/failing") { _ in
                .events { writer in
                    try await writer.send(ServerSentEvent("one"))
                    throw TestFailure("in the middle")
                }
            }
            router.on(.get, "/") { _ in .text("plain") }
        }
    }

    private let ticks = (1...3).map { "id: \($0)\ndata: tick\ndata: \($0)\n\n" }.joined()

    @Test func eventsComeInChunksAndTheConnectionServesOn() async throws {
        try await withServer(routes: routes(Watch())) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(get("/ticks") + get("/"))
            let text = try await wire.receive(until: "plain")
            #expect(text.contains("Transfer-Encoding: chunked\r\n"))
            #expect(text.contains("Content-Type: text/event-stream\r\n"))
            let body = text.split(separator: "\r\n\r\n", maxSplits: 1)[1]
            let chunks = body.split(separator: "\r\n").filter { $0.hasPrefix("id: ") }
            #expect(chunks.joined() == ticks)
            #expect(body.contains("\r\n0\r\n\r\nHTTP/1.1 200 OK"))
        }
    }

    @Test func eventsComeOverHTTP2() async throws {
        try await withServer(routes: routes(Watch())) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/ticks"), requestHead(3, "GET", "/"))
            #expect(try await wire.body(of: 3) == "plain")
            #expect(try await wire.body(of: 1) == ticks)
        }
    }

    @Test func anOlderClientIsToldTheEndByTheConnections() async throws {
        try await withServer(routes: routes(Watch())) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send("GET /ticks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            let text = String(decoding: try await wire.receiveAll(), as: UTF8.self)
            #expect(text.hasSuffix("\r\n\r\n" + ticks))
            #expect(!text.contains("chunked"))
        }
    }

    @Test func headHasNoStream() async throws {
        try await withServer(routes: routes(Watch())) { server in
            let answer = try await server.exchange(
                Array("HEAD /endless HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
            )
            let text = String(decoding: answer, as: UTF8.self)
            #expect(text.hasPrefix("HTTP/1.1 200 OK\r\n"))
            #expect(text.hasSuffix("\r\n\r\n"))
            // The length is not known.
            #expect(!text.lowercased().contains("content-length"))
        }
    }

    /// From off the loop the cancellation overtakes the write.
    @Test func aWriteOfATaskThatIsCancelledAlreadyDoesNotWait() async throws {
        let watch = Watch()
        try await withServer(routes: { router, _ in
            router.on(.get, "/") { _ in
                var response = HTTPServerResponse(status: 200)
                response.stream = HTTPBodyStream { writer in
                    let writing = Task.detached {
                        while !Task.isCancelled { await Task.yield() }
                        try await writer.write([UInt8](repeating: 120, count: 64 << 20))
                    }
                    writing.cancel()
                    do { try await writing.value } catch { watch.ended("\(error)") }
                }
                return response
            }
        }) { server in
            let wire = try Wire(port: server.port, receiveBufferBytes: 4096)
            defer { wire.close() }
            try await wire.send(get("/"))
            await watch.expectEnd("CancellationError()")
        }
    }

    /// The writer waits for a peer that does not read, so the server has a bounded part in memory.
    @Test func aPeerThatDoesNotReadHoldsTheWriterBack() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let wire = try Wire(port: server.port, receiveBufferBytes: 4096)
            try await wire.send(get("/endless"))
            var last = -1
            // The kernel buffers an unknown amount for the two sockets; then the writer stops.
            while watch.written.load(ordering: .relaxed) != last {
                last = watch.written.load(ordering: .relaxed)
                try await Task.sleep(for: .milliseconds(200))
            }
            #expect(last > 0)
            #expect(last < 16 << 20)
            // The test reads as much as necessary: first what the kernel has buffered, megabytes of
            // it. A writer that did not continue would leave nothing to receive, which is an error
            // after ten seconds.
            while watch.written.load(ordering: .relaxed) <= last { _ = try await wire.receive() }
            wire.close()
            await watch.expectEnd("disconnected")
        }
    }

    @Test func aStreamsWindowHoldsTheWriterBack() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/endless"))
            var taken = 0
            while taken < 65_535 { taken += try await wire.next(.data, stream: 1).payload.count }
            #expect(taken == 65_535)
            // The window, 64 KiB that wait, and the write that waits.
            #expect(watch.written.load(ordering: .relaxed) <= 65_535 + 64 * 1024)
            let more = bigEndianBytes(1 << 20)
            try await wire.send(
                Frame(.windowUpdate, more),
                Frame(.windowUpdate, stream: 1, more)
            )
            while taken < 1 << 20 { taken += try await wire.next(.data, stream: 1).payload.count }
            try await wire.send(Frame(.reset, stream: 1, bigEndianBytes(8)))
            await watch.expectEnd("disconnected")
        }
    }

    @Test func aPeerThatTakesNothingIsDropped() async throws {
        let watch = Watch()
        try await withServer(
            // The test may take this long between a connection and its request.
            configure: { $0.idleTimeout = .seconds(2) },
            routes: routes(watch)
        ) { server in
            let plain = try Wire(port: server.port, receiveBufferBytes: 4096)
            defer { plain.close() }
            try await plain.send(get("/endless"))
            #expect(["stalled", "disconnected"].contains(await watch.end()))

            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/endless"))
            await watch.expectEnd("stalled")
            #expect(try await wire.next(.reset, stream: 1).number(at: 0) == 2)
        }
    }

    @Test func aListenerThatLeavesIsMissedAtOnce() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let plain = try Wire(port: server.port)
            try await plain.send(get("/quiet"))
            _ = try await plain.receive(until: "data: here\n\n\r\n")
            plain.close()
            await watch.expectEnd("disconnected")

            let wire = try await FrameWire(port: server.port)
            try await wire.send(requestHead(1, "GET", "/quiet"))
            _ = try await wire.next(.data, stream: 1)
            wire.close()
            await watch.expectEnd("disconnected")
            let streams = server.metrics.gauge(.httpStreams)
            _ = try await eventually("no stream is left") { streams.value == 0 ? true : nil }
        }
    }

    @Test func aStreamEndsWholeAtItsDeadline() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch, maximumDuration: .milliseconds(100))) { server in
            let plain = try Wire(port: server.port)
            defer { plain.close() }
            try await plain.send(get("/quiet"))
            let text = String(decoding: try await plain.receiveAll(), as: UTF8.self)
            #expect(text.hasSuffix("data: here\n\n\r\n0\r\n\r\n"))
            await watch.expectEnd("deadline")

            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/quiet"))
            #expect(try await wire.body(of: 1) == "data: here\n\n")
        }
    }

    @Test func aStopEndsEndlessStreamsWhole() async throws {
        let watch = Watch()
        try await withServer(routes: routes(watch)) { server in
            let plain = try Wire(port: server.port)
            defer { plain.close() }
            try await plain.send(get("/quiet"))
            _ = try await plain.receive(until: "data: here\n\n\r\n")
            let start = ContinuousClock.now
            await server.server.stop(within: .seconds(30))
            #expect(ContinuousClock.now - start < .seconds(10))
            await watch.expectEnd("serverStops")
            let rest = String(decoding: try await plain.receiveAll(), as: UTF8.self)
            #expect(rest == "0\r\n\r\n")
        }
    }

    /// A failed body is cut off, so that its part is not mistaken for the whole.
    @Test func aStreamThatFailsIsCutOff() async throws {
        try await withServer(routes: routes(Watch())) { server in
            let plain = try Wire(port: server.port)
            defer { plain.close() }
            try await plain.send(get("/failing"))
            await #expect(throws: TestFailure.self) { _ = try await plain.receiveAll() }

            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/failing"))
            #expect(try await wire.next(.reset, stream: 1).number(at: 0) == 2)
        }
    }

    @Test func anEventCannotEndEarly() {
        let event = ServerSentEvent("a\r\nb\rc\nd", event: "x\ndata: y", id: "1\0\n2")
        #expect(
            String(decoding: event.bytes, as: UTF8.self)
                == "id: 12\nevent: xdata: y\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
        )
        #expect(
            String(decoding: ServerSentEvent("", retry: .seconds(2)).bytes, as: UTF8.self)
                == "retry: 2000\ndata: \n\n"
        )
    }
}
