import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Records rows: outcomes are produced and acknowledged first, then the batch is settled in one
/// transaction (promise 4). Two batches at a time: while one waits for Kafka or for the disk, the
/// other is settled. The members of shards have their checkpoints instead.
///
/// Authority: what has ended as a row and is not written down.
///
/// Confined to the loop.
final class RowRecorder: @unchecked Sendable {
    private static let batchLimit = 1000
    /// A batch of this size does not wait for more.
    private static let batchReady = 500
    private static let maximumRecorders = 2
    private static let batchWait: Duration = .milliseconds(20)
    private static let cannotSettle = "deliveries cannot be settled"

    private let database: PushDatabase
    private let announcer: OutcomeAnnouncer
    private let session: WorkSession
    private let inHand: WorkInHand
    private let trouble: Trouble
    private let meters: DeliveryMeters
    private let loop: EventLoop
    private let log: Log
    /// Answered or decided, and not recorded yet.
    private var finished: [OwnedDelivery] = []
    /// Batches that are being recorded.
    private var recorders = 0
    private var timer: LoopTimer?
    /// Hears of each batch that was written down, or is another's now; of an empty one when nothing
    /// is written any more.
    var onReleased: ([OwnedDelivery]) -> Void = { _ in }

    init(
        database: PushDatabase,
        announcer: OutcomeAnnouncer,
        session: WorkSession,
        inHand: WorkInHand,
        trouble: Trouble,
        meters: DeliveryMeters,
        loop: EventLoop,
        log: Log
    ) {
        self.database = database
        self.announcer = announcer
        self.session = session
        self.inHand = inHand
        self.trouble = trouble
        self.meters = meters
        self.loop = loop
        self.log = log
    }

    /// Nothing waits to be written down, and nothing is.
    var isIdle: Bool { finished.isEmpty && recorders == 0 }

    func add(_ delivery: OwnedDelivery) {
        finished.append(delivery)
        recordSoon()
    }

    private func recordSoon() {
        if finished.count >= Self.batchReady {
            startRecording()
        } else if timer == nil, recorders == 0 {
            timer = loop.schedule(after: Self.batchWait) { [weak self] in
                self?.startRecording()
            }
        }
    }

    private func startRecording() {
        guard recorders < Self.maximumRecorders else { return }
        timer?.cancel()
        timer = nil
        recorders += 1
        Task(executorPreference: loop) { await self.recordAll() }
    }

    private func recordAll() async {
        // What came too late for a full batch is the last recorder's.
        while !finished.isEmpty, !session.hasEnded,
            recorders == 1 || finished.count >= Self.batchReady
        {
            let batch = Array(finished.prefix(Self.batchLimit))
            finished.removeFirst(batch.count)
            await record(batch)
            onReleased(batch)
        }
        recorders -= 1
        onReleased([])
    }

    private func record(_ batch: [OwnedDelivery]) async {
        guard let number = session.current, batch.contains(where: { $0.session == number })
        else { return }
        let ours = batch.filter { $0.session == number }
        var outcomes = KafkaRecordBlock(topic: announcer.topic, count: ours.count)
        var writer = OutcomeWriter()
        for item in ours {
            guard let end = item.end else { continue }
            item.context.writeOutcome(of: item.delivery, end, by: &writer, to: &outcomes)
        }
        guard await announcer.announce(outcomes, session: number) else { return }
        await settle(ours, session: number)
    }

    /// Writes a batch down: what is over with the books of its pushes, what is not as rows due
    /// later.
    private func settle(_ batch: [OwnedDelivery], session number: Int) async {
        let settled = batch.filter { $0.end?.outcome != nil }.map(\.record)
        let postponed = batch.filter { $0.end?.decision.dueAt != nil }.map(\.record)
        for record in postponed { inHand.leave(record.delivery.key) }
        var pause = Pause()
        while session.isCurrent(number), !session.hasEnded {
            do {
                let matched = try await database.recording.settle(session: number, settled)
                let returned = try await database.recording.postpone(session: number, postponed)
                trouble.clear(Self.cannotSettle)
                for item in batch {
                    if let end = item.end {
                        meters.settled(end, at: item.delivery.device.provider)
                    }
                }
                let lost = settled.count + postponed.count - matched.count - returned
                if lost > 0 {
                    log.warning(
                        "deliveries were another's when they were to be written down",
                        [.count: .integer(lost)]
                    )
                }
                return
            } catch let error as StorageError where error.kind == .sessionLost {
                return
            } catch {
                trouble.set(Self.cannotSettle)
                log.warning(
                    "deliveries cannot be settled; trying again",
                    [.count: .integer(batch.count), .error: .string("\(error)")]
                )
                await pause.wait(on: loop)
            }
        }
    }
}
