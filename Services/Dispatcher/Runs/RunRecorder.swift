import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit
import Storage

/// Records the ended places of all runs. It produces their outcomes and waits for the
/// acknowledgements, then writes them with the counters of their pushes (promise 4).
/// `RecorderQueue` decides when.
///
/// Authority: the places that have ended here, until they are in the ledger or the session is lost.
/// The session is checked before each produce and each write. Nothing is written for a lost
/// session.
@DispatchLoop
final class RunRecorder: RunRecording {
    /// A place of a run.
    struct Place {
        let run: any RecordedRun
        let index: Int
    }

    typealias Entry = RecorderQueue<Place>.Entry

    private static let cannotAnnounce = "outcomes cannot be written to Kafka"

    private let log: any OutcomeLog
    private let topic: String
    private let ledger: any LedgerWriting
    private let session: WorkSession
    private let notReady: NotReadyReasons
    private let meters: DeliveryMetrics
    private let logger: Log
    private var queue = RecorderQueue<Place>()
    private var timer: LoopTimer?
    private var isWoken = false
    /// Called when slots may be free: a place was recorded or given up, or a produce or write has
    /// returned.
    var onFreed: () -> Void = {}
    /// Called with a session that is no longer in the table.
    var onLost: (Int) -> Void = { _ in }
    /// Returns whether more pushes of the fast path are about to end.
    var isMoreComing: () -> Bool = { false }
    /// Called with the context of a push that still has open deliveries, as it will be needed
    /// again.
    var onOpen: (PushContext) -> Void = { _ in }

    init(
        log: any OutcomeLog,
        topic: String,
        ledger: any LedgerWriting,
        session: WorkSession,
        notReady: NotReadyReasons,
        meters: DeliveryMetrics,
        logger: Log
    ) {
        self.log = log
        self.topic = topic
        self.ledger = ledger
        self.session = session
        self.notReady = notReady
        self.meters = meters
        self.logger = logger
    }

    /// Whether nothing waits to be recorded or is being recorded.
    var isIdle: Bool { queue.isIdle }

    func add(_ run: any RecordedRun, _ place: Int) {
        queue.add(
            Place(run: run, index: place),
            run.kind,
            outcomes: run.outcomes(of: place),
            at: .now()
        )
        wake()
    }

    /// Drops all waiting places: the session is lost, or the drain has ended. Produces and writes
    /// in flight check the session when they return.
    func drop() { lose(queue.removeAll()) }

    // MARK: Turns

    /// Schedules one recorder turn for all places that end in this turn of the loop.
    private func wake() {
        guard !isWoken else { return }
        isWoken = true
        DispatchLoop.loop.atEndOfTurn { self.turn() }
    }

    private func turn() {
        isWoken = false
        let now = MonotonicInstant.now()
        while let block = queue.nextBlock(at: now, isMoreComing: isMoreComing()) {
            DispatchLoop.task { await self.produce(block) }
        }
        while let batch = queue.nextBatch() {
            DispatchLoop.task { await self.write(batch) }
        }
        guard timer == nil, let look = queue.nextLook else { return }
        let wait = Duration.milliseconds(max(1, look.milliseconds(since: now)))
        timer = DispatchLoop.loop.schedule(after: wait) { [weak self] in
            self?.timer = nil
            self?.turn()
        }
    }

    private func isOurs(_ entry: Entry) -> Bool {
        session.isCurrent(entry.item.run.session) && !session.hasEnded
    }

    private func lose(_ entries: [Entry]) {
        guard !entries.isEmpty else { return }
        end(entries, .lost)
        onFreed()
    }

    private func end(_ entries: [Entry], _ end: RecordedEnd) {
        let now = ContinuousClock.now
        for entry in entries { entry.item.run.recorded(entry.item.index, end, at: now) }
    }

    // MARK: Outcomes

    /// Produces the outcomes of a block until each is acknowledged. A retry sends only those that
    /// failed.
    private func produce(_ entries: [Entry]) async {
        let count = entries.reduce(0) { $0 + $1.outcomes }
        var block = KafkaRecordBlock(topic: topic, count: count, sizeBytes: count * 512)
        var writer = OutcomeWriter()
        // The entry of each record.
        var owners: [Int] = []
        for (place, entry) in entries.enumerated() {
            entry.item.run.writeOutcomes(of: entry.item.index, by: &writer, to: &block)
            owners += repeatElement(place, count: block.count - owners.count)
        }
        var open = Set(entries.indices)
        var pause = ExponentialBackoff()
        while true {
            let lost = open.filter { !isOurs(entries[$0]) }
            if !lost.isEmpty {
                lose(lost.map { entries[$0] })
                open.subtract(lost)
                let left = owners.indices.filter { open.contains(owners[$0]) }
                (block, owners) = (block.only(left), left.map { owners[$0] })
            }
            guard !open.isEmpty else { break }
            let errors = await log.append(block)
            let failed = errors.keys.sorted()
            let still = Set(failed.map { owners[$0] })
            acknowledge(open.subtracting(still).sorted().map { entries[$0] })
            (open, block) = (still, block.only(failed))
            owners = failed.map { owners[$0] }
            guard let problem = errors.first?.value else {
                notReady.clear(Self.cannotAnnounce)
                break
            }
            notReady.set(Self.cannotAnnounce)
            logger.warning(
                "outcomes are not acknowledged; trying again",
                [.count: .integer(failed.count), .error: .string("\(problem)")]
            )
            await pause.wait(on: DispatchLoop.loop)
        }
        queue.produced()
        onFreed()
        wake()
    }

    private func acknowledge(_ entries: [Entry]) {
        let now = ContinuousClock.now
        for entry in entries { entry.item.run.acknowledged(entry.item.index, at: now) }
        queue.acknowledged(entries)
        wake()
    }

    // MARK: The ledger

    private func write(_ entries: [Entry]) async {
        let kind = entries[0].kind
        for entry in entries where isOurs(entry) {
            entry.item.run.willWrite(entry.item.index, remember: onOpen)
        }
        var queue = PlanQueue(entries)
        var pause = ExponentialBackoff()
        // Entries that Postgres refused even alone. They wait, and the others do not wait for them.
        var stuck: [Entry] = []
        while let portion = queue.next {
            lose(portion.items.filter { !isOurs($0) })
            let ours = portion.items.filter(isOurs)
            guard let number = ours.first?.item.run.session else {
                queue.planned { _ in false }
                continue
            }
            do {
                let results = try await ledger.write(
                    ours.map { $0.item.run.entry(of: $0.item.index) },
                    session: number
                )
                notReady.clear(kind.notReadyReason)
                if kind == .pushes { meters.writes.add(ours.count) }
                pause = ExponentialBackoff()
                queue.planned { _ in false }
                recorded(ours, results)
            } catch let error as StorageError where error.kind == .sessionLost {
                onLost(number)
                lose(ours)
                queue.planned { _ in false }
            } catch let error as StorageError where error.isOfOneEntry {
                guard let entry = queue.refused() else { continue }
                if kind == .pushes, error.isOfTheValues {
                    end([entry], .refused(error.description))
                    onFreed()
                } else {
                    failed(1, of: kind, error)
                    stuck.append(entry)
                }
            } catch {
                if let error = error as? StorageError, error.isStatementTimeout, ours.count > 1,
                    queue.timedOut()
                {
                    continue
                }
                failed(ours.count, of: kind, error)
                await pause.wait(on: DispatchLoop.loop)
            }
        }
        if !stuck.isEmpty {
            await pause.wait(on: DispatchLoop.loop)
            self.queue.acknowledged(stuck)
        }
        self.queue.written(kind)
        onFreed()
        wake()
    }

    private func failed(_ count: Int, of kind: LedgerEntry.Kind, _ error: any Error) {
        notReady.set(kind.notReadyReason)
        logger.warning(
            "the ledger cannot be written; trying again",
            [
                .count: .integer(count), .detail: .string(kind.notReadyReason),
                .error: .string("\(error)"),
            ]
        )
    }

    private func recorded(_ entries: [Entry], _ results: [LedgerResult]) {
        var lost = 0
        for (entry, result) in zip(entries, results) {
            end([entry], .recorded(result))
            switch entry.kind {
            case .rows: if result == .notOwned { lost += 1 }
            case .pushes: meters.written(isNew: result == .written, isErased: result == .erased)
            case .members: break
            }
        }
        if lost > 0 {
            logger.warning(
                "deliveries belong to another session; their outcomes are not recorded",
                [.count: .integer(lost)]
            )
        }
        onFreed()
    }
}

extension StorageError {
    /// Whether one entry of a batch is at fault.
    fileprivate var isOfOneEntry: Bool {
        switch kind {
        case .conflict, .corrupt: true
        case .database: isOfTheValues
        case .sessionLost, .clocksDisagree: false
        }
    }
}

extension LedgerEntry.Kind {
    fileprivate var notReadyReason: String {
        switch self {
        case .members: "checkpoints cannot be written"
        case .rows: "deliveries cannot be settled"
        case .pushes: "cannot record events"
        }
    }
}
