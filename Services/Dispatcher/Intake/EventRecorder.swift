import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Writes events of the lane down, as they ended: their outcomes are produced and acknowledged first, then a
/// batch is written in one transaction (promise 4). What is still on its way becomes rows of the session, and
/// goes on as rows do.
///
/// Authority: events between "all has ended, or was held long enough" and the books.
///
/// Confined to the loop.
final class EventRecorder: @unchecked Sendable {
    private static let batchLimit = 500
    /// A batch of this size does not wait for more.
    private static let batchReady = 200
    private static let maximumRecorders = 3
    private static let batchWait: Duration = .milliseconds(10)
    private static let cannotWrite = "events cannot be written down"

    private let database: PushDatabase
    private let announcer: OutcomeAnnouncer
    private let session: WorkSession
    private let inHand: WorkInHand
    private let trouble: Trouble
    private let meters: DeliveryMeters
    private let loop: EventLoop
    private let log: Log
    private var ready: [LaneEvent] = []
    private var recorders = 0
    private var timer: LoopTimer?
    /// Hears of deliveries that are written down, or are nobody's any more.
    var onReleased: ([OwnedDelivery]) -> Void = { _ in }
    /// Takes deliveries that ended after their event was written, as rows.
    var onRow: (OwnedDelivery) -> Void = { _ in }
    /// Hears of a session that the table does not know any more.
    var onLost: (Int) -> Void = { _ in }
    /// Hears of a push of which something is left, whose context will be asked for.
    var onOpen: (PushContext) -> Void = { _ in }

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

    /// An event is ready.
    func add(_ event: LaneEvent) {
        ready.append(event)
        if ready.count >= Self.batchReady {
            startRecording()
        } else if timer == nil, recorders == 0 {
            timer = loop.schedule(after: Self.batchWait) { [weak self] in
                self?.startRecording()
            }
        }
    }

    /// Nobody writes these down any more: their session is lost, or the drain is over.
    func drop(_ events: [LaneEvent]) {
        guard !events.isEmpty else { return }
        var held: [OwnedDelivery] = []
        for event in events where event.state != .over {
            if event.state != .writing { held += event.ends.compactMap { $0 } }
            held += event.finish(.lost)
        }
        ready.removeAll { $0.state == .over }
        onReleased(held)
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
        while !ready.isEmpty, !session.hasEnded, recorders == 1 || ready.count >= Self.batchReady {
            let batch = Array(ready.prefix(Self.batchLimit))
            ready.removeFirst(batch.count)
            await record(batch)
        }
        recorders -= 1
    }

    private func record(_ batch: [LaneEvent]) async {
        var finished: [OwnedDelivery] = []
        for event in batch { finished += event.beginWriting() }
        // Released whatever becomes of it: what is lost is another's.
        defer { onReleased(finished) }
        guard let number = session.current else { return drop(batch) }
        var outcomes = KafkaRecordBlock(topic: announcer.topic, count: finished.count)
        var writer = OutcomeWriter()
        for item in finished {
            guard let end = item.end else { continue }
            item.context.writeOutcome(of: item.delivery, end, by: &writer, to: &outcomes)
        }
        guard await announcer.announce(outcomes, session: number) else { return drop(batch) }
        let acknowledged = ContinuousClock.now
        for event in batch { event.reached(.acknowledged, at: acknowledged) }
        await write(batch, session: number)
    }

    private func write(_ batch: [LaneEvent], session number: Int) async {
        for event in batch {
            for member in event.onTheWay { inHand.take(member.delivery.key) }
            if event.isOpen { onOpen(event.context) }
        }
        var queue = PlanQueue(batch)
        var pause = Pause()
        while let portion = queue.next {
            guard session.isCurrent(number), !session.hasEnded else { return drop(batch) }
            // Dropped meanwhile, by a session that was lost and found again.
            let events = portion.items.filter { $0.state == .writing }
            do {
                let written = try await database.fewDevices.write(
                    session: number,
                    events.map(\.sent)
                )
                meters.writes.add(events.count)
                trouble.clear(Self.cannotWrite)
                pause = Pause()
                queue.planned { _ in false }
                let now = ContinuousClock.now
                for event in events {
                    event.reached(.written, at: now)
                    finish(event, written)
                }
            } catch let error as StorageError where error.kind == .sessionLost {
                onLost(number)
                return drop(batch)
            } catch let error as StorageError where error.isOfTheValues {
                guard let event = queue.refused() else { continue }
                handOn(event.finish(.refused(DeadLetterReason(.notStorable, error.description))))
            } catch {
                if let error = error as? StorageError, error.isStatementTimeout, events.count > 1,
                    queue.timedOut()
                {
                    continue
                }
                trouble.set(Self.cannotWrite)
                log.warning(
                    "events that were sent cannot be written down; trying again",
                    [.count: .integer(events.count), .error: .string("\(error)")]
                )
                await pause.wait(on: loop)
            }
        }
    }

    private func finish(_ event: LaneEvent, _ written: WrittenPushes) {
        for case let owned? in event.ends {
            if let end = owned.end { meters.settled(end, at: owned.delivery.device.provider) }
        }
        let isErased = written.erased.contains(event.pushID)
        meters.written(isNew: written.ids.contains(event.pushID), isErased: isErased)
        handOn(event.finish(isErased ? .erased : .written))
    }

    private func handOn(_ late: [OwnedDelivery]) {
        for delivery in late { onRow(delivery) }
    }
}
