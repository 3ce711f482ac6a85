import Testing

@testable import EventLoop

/// A caller on a loop.
private actor Asker {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private var flight: SingleFlight<Int>?
    private(set) var asked = 0

    init(on loop: EventLoop) { self.loop = loop }

    /// Returns the answer after this number of turns of the queue.
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

@Suite("Single flight", .timeLimit(.minutes(1)))
struct SingleFlightTests {
    @Test("Each caller gets the answer, also if its task does not prefer the loop")
    func everybodyIsTold() async throws {
        let loop = try EventLoop(name: "flight")
        let asker = Asker(on: loop)
        for round in 0..<400 {
            // Each hop of a task of the global pool to the loop is a turn in the queue.
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
