import EventLoop
import HTTPServer
import Support
import Synchronization
import Testing

/// A handler's query ends when its client has left; its other work continues.
@Suite(.timeLimit(.minutes(1)))
struct ClientPresenceTests {
    /// Runs `body` with a handler that waits for ever, and reports how that ended and whether its
    /// own task continued.
    private func withAsker(
        _ test: (TestServer, AsyncStream<Void>, AsyncStream<String>) async throws -> Void
    ) async throws {
        let (begun, begins) = AsyncStream.makeStream(of: Void.self)
        let (ended, ends) = AsyncStream.makeStream(of: String.self)
        try await withServer(routes: { router, _ in
            router.on(.get, "/") { request in
                do {
                    try await request.caller.whileThere {
                        begins.yield()
                        while true { try await Task.sleep(for: .seconds(3600)) }
                    }
                } catch {
                    ends.yield("\(error) \(request.caller.isGone) \(Task.isCancelled)")
                }
                return .text("too late")
            }
        }) { server in
            try await test(server, begun, ended)
        }
    }

    private func first<Element>(of stream: AsyncStream<Element>) async -> Element? {
        for await element in stream { return element }
        return nil
    }

    private let left = "CancellationError() true false"
    private let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    @Test func aConnectionThatIsClosedEndsWhatItAsked() async throws {
        try await withAsker { server, begun, ended in
            let wire = try Wire(port: server.port)
            try await wire.send(get)
            _ = await first(of: begun)
            wire.close()
            #expect(await first(of: ended) == left)
        }
    }

    /// It may still read, but it looks like one that has left, so the time is bounded.
    @Test func aConnectionThatEndedItsSideIsGoneAfterAWhile() async throws {
        try await withAsker { server, begun, ended in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(get)
            _ = await first(of: begun)
            let end = ContinuousClock.now
            wire.endOutput()
            #expect(await first(of: ended) == left)
            #expect(ContinuousClock.now - end >= .seconds(1))
            #expect(try await wire.receive(until: "too late").contains("200"))
        }
    }

    /// The handler has not failed: its client left, and one that still reads gets a response.
    @Test func whoLeftIsToldSoAndIsNoFailure() async throws {
        let (begun, begins) = AsyncStream.makeStream(of: Void.self)
        try await withServer(routes: { router, _ in
            router.on(.get, "/") { request in
                try await request.caller.whileThere {
                    begins.yield()
                    while true { try await Task.sleep(for: .seconds(3600)) }
                }
                return .text("never")
            }
        }) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(get)
            _ = await first(of: begun)
            wire.endOutput()
            #expect(try replies(try await wire.receiveAll()).map(\.status) == [408])
        }
    }

    @Test func aStreamThatIsResetEndsWhatItAskedAndNoOther() async throws {
        try await withAsker { server, begun, ended in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/"), requestHead(3, "GET", "/"))
            for _ in 0..<2 { _ = await first(of: begun) }
            try await wire.send(Frame(.reset, stream: 1, bigEndianBytes(8)))
            #expect(await first(of: ended) == left)
            try await wire.send(Frame(.ping, [UInt8](repeating: 7, count: 8)))
            _ = try await wire.next(.ping)
            wire.close()
            #expect(await first(of: ended) == left)
        }
    }

    @Test func whatIsAskedAfterHeHasGoneIsNotBegun() async throws {
        let (begun, begins) = AsyncStream.makeStream(of: Void.self)
        let (released, release) = AsyncStream.makeStream(of: Void.self)
        let (ended, ends) = AsyncStream.makeStream(of: Bool.self)
        let asked = Atomic<Int>(0)
        try await withServer(routes: { router, _ in
            router.on(.get, "/") { request in
                begins.yield()
                for await _ in released where request.caller.isGone { break }
                do {
                    try await request.caller.whileThere { _ = asked.add(1, ordering: .relaxed) }
                    ends.yield(false)
                } catch {
                    ends.yield(error is CancellationError)
                }
                return .text("")
            }
        }) { server in
            let wire = try Wire(port: server.port)
            try await wire.send(get)
            _ = await first(of: begun)
            wire.close()
            let isOver = Task { await first(of: ended) }
            let releasing = Task {
                while !Task.isCancelled {
                    release.yield()
                    try await Task.sleep(for: .milliseconds(10))
                }
            }
            #expect(await isOver.value == true)
            releasing.cancel()
            #expect(asked.load(ordering: .relaxed) == 0)
        }
    }
}
