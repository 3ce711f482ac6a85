import Testing

@testable import EventLoop

/// Who asks by it, on a loop.
private actor Asker {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private var flight: SingleFlight<Int>?
    private(set) var asked = 0

    init(on loop: EventLoop) { self.loop = loop }

    /// The answer takes so many turns of the queue.
    func answer(after turns: Int) async throws -> Int {
        if let flight { return try await flight.wait() }
        let flight = SingleFlight<Int>(on: loop, atMost: .seconds(30), orElse: CancellationError())
        self.flight = flight
        flight.start {
            for _ in 0..<turns { await self.turn() }
            return await self.count()
        } whenOver: { _ in
            self.assumeIsolated { $0.flight = nil }
        }
        return try await flight.wait()
    }

    private func turn() async { await Task.yield() }

    private func count() -> Int {
        asked += 1
        return asked
    }
}

@Suite("A question that many share", .timeLimit(.minutes(1)))
struct SingleFlightTests {
    @Test("Whoever asks has the answer, also where his task does not prefer the loop")
    func everybodyIsTold() async throws {
        let loop = try EventLoop(name: "flight")
        let asker = Asker(on: loop)
        for round in 0..<400 {
            // A task of the global pool: each of its hops to the loop is a turn in the queue.
            let answers = try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<8 {
                    group.addTask { try await asker.answer(after: round % 3) }
                }
                return try await group.reduce(into: 0) { count, _ in count += 1 }
            }
            #expect(answers == 8)
        }
        await loop.stop()
    }
}
