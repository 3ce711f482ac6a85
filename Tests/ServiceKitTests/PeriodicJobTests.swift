import EventLoop
import Testing

@testable import ServiceKit

@Suite("Periodic jobs", .timeLimit(.minutes(1)))
struct PeriodicJobTests {
    private struct Failure: Error {}

    /// Records rounds. Confined to the loop.
    private final class Bench: @unchecked Sendable {
        var rounds: [Int] = []
        var warnings: [String?] = []
        var job: PeriodicJob<Int>?
        let isOver = AsyncStream.makeStream(of: Void.self)
    }

    private func onLoop(
        _ round: @escaping @Sendable (Bench, Int) throws -> Duration
    ) async throws -> Bench {
        let loop = try EventLoop(name: "job")
        let runtime = ServiceRuntime("test", on: loop)
        let bench = Bench()
        let job = PeriodicJob("job", cannot: "nothing is done", in: runtime, state: 1) { state in
            bench.warnings.append(bench.job?.warning())
            bench.rounds.append(state)
            state += 1
            if bench.rounds.count == 4 {
                bench.isOver.continuation.finish()
                return .seconds(60)
            }
            return try round(bench, bench.rounds.count)
        }
        bench.job = job
        let running = Task(executorPreference: loop) { try await job.run() }
        for await _ in bench.isOver.stream {}
        running.cancel()
        try await running.value
        bench.job = nil
        await loop.stop()
        return bench
    }

    @Test("Each round leaves its state for the next, also one that fails")
    func state() async throws {
        let bench = try await onLoop { _, number in
            if number == 2 { throw Failure() }
            return .zero
        }
        #expect(bench.rounds == [1, 2, 3, 4])
    }

    @Test("A warning lasts from a failed round to a successful one")
    func warning() async throws {
        let bench = try await onLoop { _, number in
            if number < 3 { throw Failure() }
            return .zero
        }
        #expect(bench.warnings == [nil, "nothing is done", "nothing is done", nil])
    }
}
