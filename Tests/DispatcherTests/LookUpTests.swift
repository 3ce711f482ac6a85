import JSON
import PushCore
import Testing

@testable import Dispatcher
@testable import PushStorage
@testable import Storage

@Suite("Times and sizes of push look-ups", .timeLimit(.minutes(1)))
struct LookUpTests {
    @Test("An idle process looks up at once, a busy one when the last look-up returns")
    func pace() {
        let age = IntakePace.spacing
        #expect(IntakePace.take(of: 0, underWay: 0, age: age) == 0)
        #expect(IntakePace.take(of: 1, underWay: 0, age: age) == 1)
        #expect(IntakePace.take(of: 499, underWay: 1, age: age) == 0)
        #expect(IntakePace.take(of: 500, underWay: 1, age: age) == 500)
        #expect(IntakePace.take(of: 9000, underWay: 0, age: age) == 500)
        #expect(IntakePace.take(of: 9000, underWay: 2, age: age) == 0)
    }

    @Test("Look-ups begin a few milliseconds apart, but a full one begins at once")
    func spacing() {
        let age = IntakePace.spacing - 1
        #expect(IntakePace.take(of: 499, underWay: 0, age: age) == 0)
        #expect(IntakePace.take(of: 500, underWay: 0, age: age) == 500)
        #expect(IntakePace.take(of: 500, underWay: 1, age: 0) == 500)
    }

    @Test("Pushes that name many devices weigh more, so that no look-up blocks the loop for long")
    func weights() {
        #expect(IntakePace.weight(devices: 0) == 1)
        #expect(IntakePace.weight(devices: 8) == 1)
        #expect(IntakePace.weight(devices: 9) == 2)
        // 16 pushes of 250 devices, 4,000 in all, are as much as 500 of one.
        #expect(IntakePace.weight(devices: 250) * 15 <= IntakePace.limit)
        #expect(IntakePace.weight(devices: 250) * 16 > IntakePace.limit)
    }

    /// Answers by hand.
    @DispatchLoop
    private final class Bench {
        private var lookUps: LookUps?
        /// The ids of each look-up.
        private(set) var asked: [[String]] = []
        /// The gate that the first look-up waits for.
        private var gate: CheckedContinuation<Void, Never>?
        private var hasAnswered = false
        /// The time, if it stands still, and how often it was asked for.
        var now: MonotonicInstant?
        private(set) var looks = 0

        init() {
            lookUps = LookUps(
                clock: { [unowned self] in
                    looks += 1
                    return now ?? .now()
                }
            ) { [unowned self] pushes in try await self.answer(pushes) }
        }

        private func answer(_ pushes: [NewPush]) async throws -> [LookedUpPush] {
            asked.append(pushes.map(\.eventID))
            if asked.count == 1 { await withCheckedContinuation { gate = $0 } }
            if pushes.contains(where: { $0.eventID == "bad" }) {
                throw StorageError(.database, "a value is refused", sqlState: "22021")
            }
            return pushes.map { $0.eventID == "old" ? .known : .many }
        }

        /// Asks for all batches at once, lets the first look-up end, and waits for all.
        func look(for batches: [[String]]) async -> [String] {
            var tasks: [Task<String, Never>] = []
            for batch in batches {
                tasks.append(
                    DispatchLoop.task {
                        do {
                            let found = try await self.lookUps?(try batch.map(self.push)) ?? []
                            return found.map { if case .known = $0 { "known" } else { "many" } }
                                .joined(separator: " ")
                        } catch {
                            return "failed"
                        }
                    }
                )
            }
            while gate == nil, !hasAnswered { await Task.yield() }
            gate?.resume()
            (gate, hasAnswered) = (nil, true)
            var results: [String] = []
            for task in tasks { results.append(await task.value) }
            return results
        }

        private func push(_ id: String) throws -> NewPush {
            NewPush(
                id: id,
                app: "app",
                eventSource: "s",
                eventID: id,
                object: [:],
                request: try PushRequest.parse(
                    [
                        "data": ["alert": "x"],
                        "where": id == "field" ? ["deviceToken": "x"] : ["objectId": "x"],
                    ],
                    now: .now()
                ),
                expiresAt: nil
            )
        }
    }

    private func onLoop(_ body: @escaping @DispatchLoop (Bench) async -> Void) async {
        await DispatchLoop.task { await body(Bench()) }.value
    }

    @Test("Batches that arrive during a look-up share the next one, and each gets its own answers")
    func together() async {
        await onLoop { bench in
            let results = await bench.look(for: [["a"], ["b", "old"], ["c"], ["old"]])
            #expect(bench.asked == [["a"], ["b", "old", "c", "old"]])
            #expect(results == ["many", "many known", "many", "known"])
        }
    }

    @Test("Pushes that arrive just after a look-up share the next one, which begins by itself")
    func afterwards() async {
        await onLoop { bench in
            let start = MonotonicInstant.now()
            bench.now = start
            _ = await bench.look(for: [["a"]])
            let later = DispatchLoop.task { await bench.look(for: [["b"], ["c"]]) }
            // Each batch asks once, and the timer that waits for the spacing asks again and again.
            let before = bench.looks
            while bench.looks < before + 5, bench.asked.count == 1 { await Task.yield() }
            #expect(bench.asked == [["a"]])
            bench.now = start.adding(milliseconds: IntakePace.spacing)
            #expect(await later.value == ["many", "many"])
            #expect(bench.asked == [["a"], ["b", "c"]])
        }
    }

    @Test("A slow look-up by field neither delays other look-ups nor waits for them")
    func byField() async {
        await onLoop { bench in
            let results = await bench.look(for: [["field"], ["a"], ["b"], ["old"]])
            #expect(bench.asked == [["field"], ["a"], ["b", "old"]])
            #expect(results == ["many", "many", "many", "known"])
        }
    }

    @Test("A value that Postgres rejects fails one batch, and the others are looked up")
    func refused() async {
        await onLoop { bench in
            let results = await bench.look(for: [["a"], ["b"], ["bad"], ["old"]])
            #expect(bench.asked == [["a"], ["b", "bad", "old"], ["b"], ["bad"], ["old"]])
            #expect(results == ["many", "many", "failed", "known"])
        }
    }
}
