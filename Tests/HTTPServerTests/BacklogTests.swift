import EventLoop
import Observability
import Support
import Testing

@testable import HTTPServer

@Suite(
    "Responses that are larger than the kernel's buffers or the peer's window",
    .timeLimit(.minutes(1))
)
struct BacklogTests {
    private let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    /// The maximum of RFC 9113.
    private let largestWindow = Int(Int32.max)

    private func openWindows(_ wire: FrameWire) async throws {
        try await wire.send(
            Frame(.settings, [0, 4] + bigEndianBytes(largestWindow)),
            Frame(.windowUpdate, bigEndianBytes(largestWindow - 65_535))
        )
    }

    /// The session stops at its output limit; if the kernel accepts that at once, only the server
    /// itself can make it continue.
    @Test func anAnswerComesWholeToAPeerWhoseWindowsNeverFill() async throws {
        let bytes = 32 << 20
        try await withStillServer(answerBytes: bytes) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await openWindows(wire)
            try await wire.send(requestHead(1, "GET", "/"))
            var taken = 0
            while true {
                let frame = try await wire.next(.data, stream: 1)
                taken += frame.payload.count
                if frame.endsStream { break }
            }
            #expect(taken == bytes)
        }
    }

    @Test func requestsBehindALargeAnswerAreAnswered() async throws {
        let bytes = 300_000
        try await withStillServer(answerBytes: bytes) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(String(repeating: get, count: 20))
            var taken = 0
            while taken < 20 * bytes { taken += try await wire.receive().count }
        }
    }

    @Test func aPeerThatReadsSteadilyIsNotCutOff() async throws {
        let bytes = 64 << 20
        try await withStillServer(answerBytes: bytes) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(get)
            var (taken, step) = (0, 0)
            while taken < bytes {
                let until = min(bytes, taken + (4 << 20))
                while taken < until { taken += try await wire.receive().count }
                step += 1
                await server.tick(after: .seconds(50 * step))
            }
        }
    }

    @Test func aPeerThatReadsNothingIsCutOff() async throws {
        try await withStillServer(answerBytes: 64 << 20) { server in
            let wire = try Wire(port: server.port)
            defer { wire.close() }
            try await wire.send(get)
            _ = try await wire.receive()
            var step = 0
            // The kernel's buffers of the two sockets may still drain for a while.
            _ = try await eventually("it is cut off") {
                step += 1
                await server.tick(after: .seconds(80 * step))
                return server.openConnections == 0 ? true : nil
            }
            await #expect(throws: TestFailure.self) { _ = try await wire.receiveAll() }
        }
    }

    @Test func aStreamThatIsTakenSlowlyIsWhole() async throws {
        let bytes = 200_000
        try await withStillServer(answerBytes: bytes) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/"))
            var (taken, step) = (0, 0)
            while true {
                let frame = try await wire.next(.data, stream: 1)
                taken += frame.payload.count
                if frame.endsStream { break }
                guard taken >= 65_535 else { continue }
                // The window is used up, so all of it has been sent.
                step += 1
                // The last bytes may not be acknowledged yet, so one of them may not count: the
                // minimum rate is reached without it.
                await server.tick(after: .seconds(15 * step))
                let more = bigEndianBytes(frame.payload.count)
                try await wire.send(
                    Frame(.windowUpdate, more),
                    Frame(.windowUpdate, stream: 1, more)
                )
            }
            #expect(taken == bytes)
            #expect(step > 5)
        }
    }

    @Test func aStreamThatIsNotTakenIsReset() async throws {
        try await withStillServer(answerBytes: 200_000) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(requestHead(1, "GET", "/"))
            var taken = 0
            while taken < 65_535 { taken += try await wire.next(.data, stream: 1).payload.count }
            for step in 1...3 { await server.tick(after: .seconds(50 * step)) }
            #expect(try await wire.next(.reset, stream: 1).number(at: 0) == 0)
        }
    }
}

/// The budget for request bodies that wait for handlers.
@Suite(.timeLimit(.minutes(1)))
struct BodyBudgetTests {
    private let body = String(repeating: "b", count: 60_000)

    private func post(_ target: String) -> String {
        "POST \(target) HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    /// Runs `body` with a server whose `POST /held` answers once `release` is called, and `/` at
    /// once.
    private func withBudget(
        _ test: (TestServer, AsyncStream<Void>, @escaping @Sendable () -> Void)
            async throws -> Void
    ) async throws {
        let (begun, begins) = AsyncStream.makeStream(of: Void.self)
        let (released, release) = AsyncStream.makeStream(of: Void.self)
        try await withServer(
            configure: { $0.maximumHeldBodyBytes = 100_000 },
            routes: { router, _ in
                router.on(.post, "/held") { _ in
                    begins.yield()
                    for await _ in released { break }
                    return .text("held")
                }
                router.on(.post, "/") { .text("\($0.body.count)") }
            }
        ) { server in
            try await test(server, begun) { release.yield() }
        }
    }

    @Test func aBodyThatHasNoRoomBesideOthersIsTold503() async throws {
        try await withBudget { server, begun, release in
            let holder = try Wire(port: server.port)
            defer { holder.close() }
            try await holder.send(post("/held"))
            for await _ in begun { break }
            let refused = try await server.exchange(post("/"))
            #expect(refused.map(\.status) == [503])
            #expect(refused.first?.head.contains("Retry-After: 1") == true)
            // Small ones are still accepted.
            let small = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
            #expect(try await server.exchange(small).map(\.status) == [200])

            release()
            _ = try await holder.receive(until: "held")
            #expect(try await server.exchange(post("/")).map(\.body) == ["60000"])
        }
    }

    @Test func theSameHoldsForAStream() async throws {
        try await withBudget { server, begun, release in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            let data = stride(from: 0, to: 60_000, by: 15_000).map { _ in
                [UInt8](repeating: 98, count: 15_000)
            }
            func post(_ stream: Int, _ path: String) -> [Frame] {
                [requestHead(stream, "POST", path, ends: false)]
                    + data.enumerated().map { index, bytes in
                        Frame(.data, flags: index == 3 ? 1 : 0, stream: stream, bytes)
                    }
            }
            try await wire.send(post(1, "/held"))
            for await _ in begun { break }
            try await wire.send(post(3, "/"))
            #expect(try await wire.body(of: 3).contains("503"))
            release()
            #expect(try await wire.body(of: 1) == "held")
            try await wire.send(post(5, "/"))
            #expect(try await wire.body(of: 5) == "60000")
        }
    }

    /// The share of an unfinished body is released when its peer leaves.
    @Test func aPeerThatLeavesGivesItsPartBack() async throws {
        try await withBudget { server, _, _ in
            for _ in 0..<5 {
                let wire = try Wire(port: server.port)
                try await wire.send(String(post("/").dropLast()))
                wire.close()
            }
            let open = server.metrics.gauge(.httpConnections)
            _ = try await eventually("they are gone") { open.value == 0 ? true : nil }
            #expect(try await server.exchange(post("/")).map(\.body) == ["60000"])
        }
    }
}

@Suite(.timeLimit(.minutes(1)))
struct AccessLogTests {
    private func lines(accessLog: Bool) async throws -> [String] {
        let lines = Lines()
        try await withServer(
            log: lines.log(.info),
            configure: { $0.accessLog = accessLog },
            routes: { router, _ in
                router.on(.get, "/a/:secret") { _ in .text("a") }
                router.on(.get, "/livez", logLevel: .debug) { _ in .text("b") }
            }
        ) { server in
            for target in ["/a/token", "/livez", "/nowhere"] {
                _ = try await server.exchange("GET \(target) HTTP/1.1\r\nHost: a\r\n\r\n")
            }
            _ = try await server.exchange("GET\r\n\r\n")
        }
        return lines.all.filter { $0.contains("request ") }
    }

    @Test func eachRequestHasALineButThoseOfQuietRoutes() async throws {
        let lines = try await lines(accessLog: true)
        #expect(lines.count == 3)
        #expect(lines[0].contains("request answered") && lines[0].contains("/a/:secret"))
        #expect(lines[1].contains("404"))
        #expect(lines[2].contains("request refused") && lines[2].contains("400"))
        #expect(!lines.joined().contains("token"))
    }

    @Test func thereAreNoneWithoutIt() async throws {
        #expect(try await lines(accessLog: false).isEmpty)
    }
}
