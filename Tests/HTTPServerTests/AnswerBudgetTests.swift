import HTTP2
import Observability
import Support
import Synchronization
import Testing

@testable import HTTPServer

/// The memory that unread responses may use in a server, and for how long.
@Suite(.timeLimit(.minutes(1)))
struct AnswerBudgetTests {
    private static let noWindow = Frame(.settings, [0, 4] + bigEndianBytes(0))
    /// The maximum of RFC 9113.
    private static let largestWindow = Int(Int32.max)

    @Test func aConnectionWithoutAWindowHasNoMoreBegunThanItsBudget() async throws {
        let (streams, bytes) = (100, 200_000)
        let begun = Atomic<Int>(0)
        let answer = [UInt8](repeating: UInt8(ascii: "x"), count: bytes)
        try await withStillServer(answerBytes: 0) {
            $0.http2.maxConcurrentStreams = streams
        } routes: { router in
            router.on(.get, "/big") { _ in
                begun.add(1, ordering: .relaxed)
                return HTTPServerResponse(status: 200, body: answer)
            }
        } _: { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(Self.noWindow)
            try await wire.send((0..<streams).map { requestHead(2 * $0 + 1, "GET", "/big") })
            try await wire.send(Frame(.ping, [UInt8](repeating: 7, count: 8)))
            _ = try await wire.next(.ping)
            #expect(begun.load(ordering: .relaxed) <= 6)
            #expect(server.heldAnswerBytes <= 2 << 20)

            // Once the peer reads, it gets each response completely.
            try await wire.send(
                Frame(.settings, [0, 4] + bigEndianBytes(Self.largestWindow)),
                Frame(.windowUpdate, bigEndianBytes(Self.largestWindow - 65_535))
            )
            var (taken, ended) = (0, 0)
            while ended < streams {
                let frame = try await wire.next(.data)
                taken += frame.payload.count
                if frame.endsStream { ended += 1 }
            }
            #expect(taken == streams * bytes)
        }
    }

    @Test func connectionsThatReadNothingTogetherHoldNoMoreThanTheLoopsBudget() async throws {
        let (bytes, budget) = (8 << 20, 24 << 20)
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        try await withStillServer(answerBytes: bytes) {
            $0.maximumHeldAnswerBytes = budget
        } _: { server in
            var idle: [Wire] = []
            defer { for wire in idle { wire.close() } }
            for _ in 0..<20 {
                let wire = try Wire(port: server.port, receiveBufferBytes: 4096)
                idle.append(wire)
                try await wire.send(get)
                // This is the start of any of the responses.
                _ = try await wire.receive()
                #expect(server.heldAnswerBytes <= budget)
            }
            // Another client's response is as large, and needs memory once the slow reader is
            // known.
            let answer = try await eventually("an honest client gets a large answer") {
                let honest = try Wire(port: server.port)
                defer { honest.close() }
                try await honest.send(get + get.andClose)
                let answers = try replies(try await honest.receiveAll())
                return answers.map(\.status) == [200, 200] ? answers : nil
            }
            #expect(answer.map(\.body.utf8.count) == [bytes, bytes])
            let slow = server.metrics.counter(.httpRefused, ["reason": "slow_reader"])
            #expect(slow.value > 0)
            #expect(server.heldAnswerBytes <= budget)
        }
    }

    /// Handlers that collect their responses share the bound, and release their memory when they
    /// end.
    @Test func whatIsGatheredHasTheSameBudget() async throws {
        let (refused, refusal) = AsyncStream.makeStream(of: Int.self)
        let gate = Gate()
        try await withStillServer(answerBytes: 0) {
            $0.maximumHeldAnswerBytes = 1 << 20
        } routes: { router in
            router.on(.get, "/gather") { request in
                var parts = 0
                while request.caller.hold(10_000), parts < 1000 { parts += 1 }
                refusal.yield(parts)
                await gate.wait()
                return .text("\(parts)")
            }
        } _: { server in
            func gather() async throws -> (wire: Wire, parts: Int) {
                let wire = try Wire(port: server.port)
                try await wire.send("GET /gather HTTP/1.1\r\nHost: a\r\n\r\n")
                for await parts in refused { return (wire, parts) }
                throw TestFailure("the handler did not run")
            }
            let first = try await gather()
            #expect(first.parts == 104)
            // There is still memory for small ones.
            let second = try await gather()
            #expect(second.parts == 1)
            await gate.open()
            for wire in [first.wire, second.wire] {
                _ = try await wire.receive()
                wire.close()
            }
            let third = try await gather()
            third.wire.close()
            #expect(third.parts == 104)
        }
    }

    /// A peer that reads a byte now and then is never idle.
    @Test func anAnswerThatIsTakenByTheByteIsReset() async throws {
        try await withStillServer(answerBytes: 200_000) { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(Self.noWindow)
            try await wire.send(requestHead(1, "GET", "/"))
            _ = try await wire.next(.headers, stream: 1)
            for step in 1...2 {
                try await openWindows(wire, bytes: 1)
                _ = try await wire.next(.data, stream: 1)
                await server.tick(after: .seconds(40 * step))
            }
            #expect(try await wire.next(.reset, stream: 1).number(at: 0) == 0)
            _ = try await eventually("it is let go of") {
                server.heldAnswerBytes < 1000 ? true : nil
            }
        }
    }

    /// The rate is the same, far below the minimum for a response, which an event stream does not
    /// have.
    @Test(arguments: [true, false]) func onlyEventsMayBeReadSlowly(areEvents: Bool) async throws {
        // A busy machine may keep the test this long from reading the next byte.
        let idleTimeout = Duration.seconds(3)
        try await withServer {
            $0.idleTimeout = idleTimeout
            $0.minimumAnswerBytesPerSecond = 10_000_000
        } routes: { router, _ in
            router.on(.get, "/") { _ in
                let body: @Sendable (HTTPBodyWriter) async throws -> Void = { writer in
                    try await writer.write([UInt8](repeating: 120, count: 1_000_000))
                }
                if areEvents { return .events(body: body) }
                var response = HTTPServerResponse(status: 200)
                response.stream = HTTPBodyStream(body: body)
                return response
            }
        } _: { server in
            let wire = try await FrameWire(port: server.port)
            defer { wire.close() }
            try await wire.send(Self.noWindow)
            try await wire.send(requestHead(1, "GET", "/"))
            _ = try await wire.next(.headers, stream: 1)
            let end = ContinuousClock.now + idleTimeout * 2.5
            let slow = server.metrics.counter(.httpRefused, ["reason": "slow_reader"])
            while ContinuousClock.now < end, slow.value == 0 {
                try await openWindows(wire, bytes: 1)
                // A ping shows it, as no data follows once the response has been cancelled.
                try await wire.send(Frame(.ping, [UInt8](repeating: 7, count: 8)))
                _ = try await wire.next(.ping)
                try await Task.sleep(for: .milliseconds(20))
            }
            #expect(slow.value == (areEvents ? 0 : 1))
        }
    }

    private func openWindows(_ wire: FrameWire, bytes: Int) async throws {
        let more = bigEndianBytes(bytes)
        try await wire.send(Frame(.windowUpdate, more), Frame(.windowUpdate, stream: 1, more))
    }
}

extension String {
    fileprivate var andClose: String {
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    }
}

@Suite struct DrainRateTests {
    private let start = ContinuousClock.now

    @Test func aPeerIsJudgedByEachWholeWindow() {
        var pace = DrainRate(taken: 0, at: start)
        func isTooSlow(_ taken: Int, at second: Int) -> Bool {
            pace.isTooSlow(
                taken: taken,
                at: start + .seconds(second),
                least: 100,
                over: .seconds(10)
            )
        }
        #expect(!isTooSlow(0, at: 9))
        #expect(!isTooSlow(1000, at: 10))
        #expect(!isTooSlow(1000, at: 19))
        // Earlier bytes are not credited.
        #expect(isTooSlow(1999, at: 20))
    }

    @Test func whoStopsReadingLosesThePaceOfBefore() {
        var pace = DrainRate(taken: 0, at: start)
        #expect(pace.secondsLeft(held: 1, taken: 0, at: start + .milliseconds(200)) == nil)
        #expect(pace.secondsLeft(held: 1000, taken: 0, at: start + .seconds(1)) == 1000)
        #expect(pace.secondsLeft(held: 1000, taken: 500, at: start + .seconds(1)) == 2)
        for second in 1...15 {
            _ = pace.isTooSlow(
                taken: 50_000_000,
                at: start + .seconds(second),
                least: 1,
                over: .seconds(75)
            )
        }
        let left = pace.secondsLeft(held: 1000, taken: 50_000_000, at: start + .seconds(15))
        #expect(left == 1000)
    }
}

@Suite struct OutgoingBytesTests {
    @Test func whatWasTakenIsLetGoOf() {
        let all = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        var bytes = OutgoingBytes()
        bytes.append(Array(all[..<1000]))
        bytes.append { $0.append(contentsOf: all[1000...]) }
        var taken: [UInt8] = []
        while !bytes.isEmpty {
            bytes.take(upTo: 100_000) { taken += $0 }
            #expect(bytes.count == all.count - taken.count)
            #expect(bytes.heldBytes <= max(2 * bytes.count, 300_000) + 100_000)
        }
        #expect(taken == all)
    }
}
