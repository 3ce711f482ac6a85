import Kafka
import Observability
import PushCore
import PushEvents
import ServiceKit
import Testing

@testable import Dispatcher
@testable import PushStorage
@testable import Storage

@Suite("The run recorder produces outcomes before it writes the ledger", .timeLimit(.minutes(1)))
struct RunRecorderTests {
    private struct Failure: Error {}

    /// Records of Kafka and writes to the ledger, in the order of the requests.
    @DispatchLoop
    private final class Bench {
        let session = WorkSession()
        let inHand = WorkInHand()
        let notReady = NotReadyReasons()
        let recorder: RunRecorder
        let room: SendSlots
        private(set) var steps: [String] = []
        private(set) var released: [String] = []
        /// Answers to the next produce calls: the indices that fail.
        var failures: [[Int]] = []
        /// Errors of the next writes.
        var errors: [any Error] = []
        var result = LedgerResult.written
        var onProduce: () -> Void = {}
        private var waiter: CheckedContinuation<Void, Never>?

        init() {
            session.begin(1)
            room = SendSlots(total: 100, session: session) { _ in }
            let door = Door()
            recorder = RunRecorder(
                log: door,
                topic: "push.outcomes",
                ledger: door,
                session: session,
                notReady: notReady,
                meters: DeliveryMetrics(Metrics()),
                logger: .disabled
            )
            door.bench = self
        }

        /// Stands in for the bench until there is one.
        @DispatchLoop
        private final class Door: OutcomeLog, LedgerWriting {
            weak var bench: Bench?

            func append(_ block: KafkaRecordBlock) async -> [Int: any Error] {
                await bench?.append(block) ?? [:]
            }

            func write(_ entries: [LedgerEntry], session: Int) async throws -> [LedgerResult] {
                try await bench?.write(entries, session: session) ?? []
            }
        }

        func append(_ block: KafkaRecordBlock) async -> [Int: any Error] {
            steps.append("produce \(block.count)")
            onProduce()
            let failed = failures.isEmpty ? [] : failures.removeFirst()
            return Dictionary(uniqueKeysWithValues: failed.map { ($0, Failure()) })
        }

        func write(_ entries: [LedgerEntry], session: Int) async throws -> [LedgerResult] {
            let targets = entries.map { entry in
                if case .row(let record) = entry { record.delivery.target } else { "?" }
            }
            steps.append("write " + targets.joined(separator: " "))
            if !errors.isEmpty { throw errors.removeFirst() }
            return entries.map { _ in result }
        }

        /// Adds ended rows, each of its own run, and waits until nothing is in flight.
        func record(_ targets: [String], _ decision: DeliveryEnd.Decision = .settle(.delivered))
            async
        {
            recorder.onFreed = { [self] in
                guard recorder.isIdle else { return }
                waiter?.resume()
                waiter = nil
            }
            await withCheckedContinuation { done in
                waiter = done
                for target in targets { add(target, decision) }
            }
        }

        /// Notes the end of its row.
        private final class Row: RecordedRun {
            let run: RowRun
            let onEnd: () -> Void

            init(_ run: RowRun, _ onEnd: @escaping () -> Void) {
                self.run = run
                self.onEnd = onEnd
            }

            var kind: LedgerEntry.Kind { run.kind }
            var session: Int { run.session }
            func outcomes(of place: Int) -> Int { run.outcomes(of: place) }
            func entry(of place: Int) -> LedgerEntry { run.entry(of: place) }

            func writeOutcomes(
                of place: Int,
                by writer: inout OutcomeWriter,
                to block: inout KafkaRecordBlock
            ) {
                run.writeOutcomes(of: place, by: &writer, to: &block)
            }

            func willWrite(_ place: Int, remember: (PushContext) -> Void) {
                run.willWrite(place, remember: remember)
            }

            func recorded(_ place: Int, _ end: RecordedEnd, at now: ContinuousClock.Instant) {
                run.recorded(place, end, at: now)
                onEnd()
            }
        }

        /// A recorder that ignores its runs.
        private final class Nowhere: RunRecording {
            func add(_ run: any RecordedRun, _ place: Int) {}
        }

        private func add(_ target: String, _ decision: DeliveryEnd.Decision) {
            let health = RunBench.health()
            let run = RowRun(
                session: 1,
                RunServices(
                    session: session,
                    room: room,
                    inHand: inHand,
                    meters: DeliveryMetrics(Metrics()),
                    figures: OutcomeFigures(at: .now()),
                    recorder: Nowhere()
                )
            )
            let delivery = RunBench.delivery(target, of: "p")
            inHand.take(delivery.key)
            run.add(
                ShardMember(delivery),
                PushContext(pushID: "p", eventID: "e", source: "s", request: nil),
                health
            )
            if room.budget.admit(.direct, health.client) { run.admitted(0) }
            run.ended(0, DeliveryEnd(decision, of: delivery, at: .now()))
            recorder.add(Row(run) { [self] in released.append(target) }, 0)
        }
    }

    private func onLoop(_ body: @escaping @DispatchLoop (Bench) async -> Void) async {
        await DispatchLoop.task {
            let bench = Bench()
            await body(bench)
            #expect(bench.room.budget.excess == 0)
        }.value
    }

    @Test("Promise 4: outcomes of many are produced in one block and then written in one batch")
    func order() async {
        await onLoop { bench in
            await bench.record(["a", "b", "c"])
            #expect(bench.steps == ["produce 3", "write a b c"])
            #expect(bench.released == ["a", "b", "c"])
            #expect(bench.room.budget.owned == 0 && bench.inHand.rows.isEmpty)
        }
    }

    @Test("A retry is written without an outcome, and its row is released first")
    func postponed() async {
        await onLoop { bench in
            await bench.record(["a"], .retry(at: .now()))
            #expect(bench.steps == ["write a"])
            #expect(bench.inHand.rows.isEmpty)
        }
    }

    @Test(
        "Only a failed record is produced again, and the others are written meanwhile (rule 58)"
    )
    func producedAgain() async {
        await onLoop { bench in
            bench.failures = [[1], [0]]
            await bench.record(["a", "b", "c"])
            #expect(
                bench.steps == ["produce 3", "write a c", "produce 1", "produce 1", "write b"]
            )
            #expect(bench.notReady.reason == nil)
        }
    }

    @Test("A session that is lost between producing and writing writes nothing (rule 58)")
    func lostBetween() async {
        await onLoop { bench in
            bench.onProduce = { _ = bench.session.lose(1) }
            await bench.record(["a", "b"])
            #expect(bench.steps == ["produce 2"])
            #expect(bench.released.sorted() == ["a", "b"], "their slots are free, once")
        }
    }

    @Test("Outcomes are not produced again after the session is lost")
    func lostWhileFailing() async {
        await onLoop { bench in
            bench.failures = [[0]]
            bench.onProduce = { _ = bench.session.lose(1) }
            await bench.record(["a"])
            #expect(bench.steps == ["produce 1"])
            #expect(bench.released == ["a"])
        }
    }

    @Test(
        "A session that is missing in the table is reported to the engine, without a retry"
    )
    func unknownSession() async {
        await onLoop { bench in
            var lost: [Int] = []
            bench.recorder.onLost = {
                lost.append($0)
                _ = bench.session.lose($0)
            }
            bench.errors = [StorageError.sessionLost]
            await bench.record(["a"])
            #expect(lost == [1])
            #expect(bench.steps == ["produce 1", "write a"])
            #expect(bench.released == ["a"])
        }
    }

    @Test("A ledger that is unavailable is retried, with the reason until then (rule 80)")
    func writtenAgain() async {
        await onLoop { bench in
            bench.errors = [Failure(), Failure()]
            await bench.record(["a", "b"])
            #expect(bench.steps == ["produce 2", "write a b", "write a b", "write a b"])
            #expect(bench.notReady.reason == nil)
            #expect(bench.released == ["a", "b"])
        }
    }

    @Test("A batch that takes too long is halved, without producing its outcomes again (rule 10)")
    func halved() async {
        await onLoop { bench in
            bench.errors = [StorageError(.database, "too long", sqlState: "57014")]
            await bench.record(["a", "b"])
            #expect(bench.steps == ["produce 2", "write a b", "write a", "write b"])
        }
    }

    @Test("An entry that the ledger rejects is retried and delays no other")
    func stuck() async {
        await onLoop { bench in
            let refusal = StorageError(.conflict, "no")
            bench.errors = [refusal, refusal]
            await bench.record(["a", "b"])
            #expect(
                bench.steps == ["produce 2", "write a b", "write a", "write b", "write a"]
            )
            #expect(bench.released == ["b", "a"])
            #expect(bench.notReady.reason == nil)
        }
    }

    @Test("A row that another session owns by now is released and not counted")
    func anothers() async {
        await onLoop { bench in
            bench.result = .notOwned
            await bench.record(["a"])
            #expect(bench.released == ["a"])
        }
    }
}
