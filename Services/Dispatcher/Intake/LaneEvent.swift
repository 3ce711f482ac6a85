import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage

/// What became of an event of the lane, for the batch that brought it.
enum LaneEnd: Equatable {
    /// It is on the books: by this process, or by another that had it at the same time.
    case written
    /// It was a push already.
    case known
    /// It is to be planned as rows.
    case rows
    /// It names somebody who was erased meanwhile: nothing of it is kept.
    case erased
    case refused(DeadLetterReason)
    /// The session was lost before it was written: it is looked up again.
    case lost
}

/// One event for few devices, from before it is looked up until it is written down.
///
/// States: looking up; sending; writing, once all its deliveries have come to an end or `DISPATCH_HOLD` is
/// over; over. What ends while it is written waits for that, and what ends later is a row's.
///
/// Confined to the loop. No clock, no I/O.
final class LaneEvent: RowlessEvent, Recorded, @unchecked Sendable {
    enum State: Equatable { case lookingUp, sending, writing, over }

    let item: EventBatch.Usable
    let push: NewPush
    let context: PushContext
    private(set) var state = State.lookingUp
    private(set) var session = 0
    private(set) var members: [ShardMember] = []
    private var createdAt = Instant(milliseconds: 0)
    private var hasRow = false
    private(set) var ends: [OwnedDelivery?] = []
    private var open = 0
    /// What ended while it was written.
    private var late: [OwnedDelivery] = []
    private var listeners: [(LaneEnd) -> Void] = []
    private let stages: EventStages
    private var mark: StageMark
    /// Hears once that it is ready to be written down.
    var onReady: (LaneEvent) -> Void = { _ in }

    /// - Parameters:
    ///   - item: As it was read.
    ///   - push: What it becomes.
    ///   - fetchedAt: When it was read.
    ///   - stages: Hear how long each takes.
    init(
        _ item: EventBatch.Usable,
        _ push: NewPush,
        fetchedAt: ContinuousClock.Instant,
        _ stages: EventStages
    ) {
        self.item = item
        self.push = push
        self.stages = stages
        mark = StageMark(at: fetchedAt)
        context = PushContext(
            pushID: item.pushID,
            eventID: item.event.eventID,
            source: item.event.source,
            request: item.event.request
        )
    }

    var pushID: String { item.pushID }

    func reached(_ stage: EventStages.Stage, at now: ContinuousClock.Instant) {
        if let duration = mark.reached(stage, at: now) { stages[stage].observe(duration) }
    }

    /// Some of it has not ended for good: rows are to be written.
    var isOpen: Bool { ends.contains { $0?.end?.outcome == nil } }

    // MARK: From the look-up to the last answer

    func found(_ deliveries: [Delivery], at createdAt: Instant, hasRow: Bool) {
        members = deliveries.map { ShardMember($0) }
        self.createdAt = createdAt
        self.hasRow = hasRow
        ends = Array(repeating: nil, count: deliveries.count)
        open = deliveries.count
    }

    /// - Returns: Whether there is anything to send.
    func begin(session: Int) -> Bool {
        guard state == .lookingUp else { return false }
        self.session = session
        state = .sending
        if open == 0 { becomeReady() }
        return open > 0
    }

    func takes(_ finished: OwnedDelivery) -> Bool {
        switch state {
        case .lookingUp, .over: return false
        case .writing:
            late.append(finished)
            return true
        case .sending:
            guard ends.indices.contains(finished.place), ends[finished.place] == nil else {
                return false
            }
            ends[finished.place] = finished
            open -= 1
            if open == 0 { becomeReady() }
            return true
        }
    }

    /// `DISPATCH_HOLD` is over: what has not ended becomes rows.
    func hold() { if state == .sending { becomeReady() } }

    private func becomeReady() {
        state = .writing
        onReady(self)
    }

    // MARK: Being written down

    var kind: LedgerEntry.Kind { .pushes }
    var outcomes: Int { ends.count { $0?.end?.outcome != nil } }

    func writeOutcomes(by writer: inout OutcomeWriter, to block: inout KafkaRecordBlock) {
        for owned in ends { owned?.writeOutcomes(by: &writer, to: &block) }
    }

    func acknowledged(at now: ContinuousClock.Instant) { reached(.acknowledged, at: now) }

    func willWrite(_ inHand: WorkInHand, remember: (PushContext) -> Void) {
        for member in onTheWay { inHand.take(member.delivery.key) }
        if isOpen { remember(context) }
    }

    /// Those whose rows become the session's.
    var onTheWay: [ShardMember] {
        zip(members, ends).compactMap { member, end in end == nil ? member : nil }
    }

    var entry: LedgerEntry {
        .push(
            SentPush(
                push: push,
                createdAt: createdAt,
                hasRow: hasRow,
                deliveries: zip(members, ends).map { DeliveryRecord($0, $1?.end) }
            )
        )
    }

    func ended(_ end: RecordedEnd, at now: ContinuousClock.Instant) -> Released {
        guard state != .over else { return Released() }
        let ended = ends.compactMap(\.self)
        let late = late
        switch end {
        case .recorded(let result):
            reached(.written, at: now)
            finish(result == .erased ? .erased : .written)
        case .refused(let problem): finish(.refused(DeadLetterReason(.notStorable, problem)))
        case .lost:
            finish(.lost)
            return Released(deliveries: ended + late)
        }
        return Released(deliveries: ended, rows: late)
    }

    /// Tells those that wait for it.
    func finish(_ end: LaneEnd) {
        state = .over
        for listener in listeners { listener(end) }
        // What ended holds this event in turn.
        (listeners, ends, late) = ([], [], [])
    }

    func onEnd(_ listener: @escaping (LaneEnd) -> Void) { listeners.append(listener) }
}

/// The events that this process has in the lane, by the push that they become: a copy waits for the first.
///
/// Confined to the loop.
final class EventLane: @unchecked Sendable {
    private var events: [String: LaneEvent] = [:]

    var isEmpty: Bool { events.isEmpty }
    var all: [LaneEvent] { Array(events.values) }

    /// - Returns: The one that is there already; `nil`: this is the first.
    func enter(_ event: LaneEvent) -> LaneEvent? {
        if let known = events[event.pushID] { return known }
        events[event.pushID] = event
        event.onEnd { [unowned self, unowned event] _ in events[event.pushID] = nil }
        return nil
    }
}

/// The events of one batch that are in the lane, until the last of them has ended.
///
/// Confined to the loop.
final class LaneBatch: @unchecked Sendable {
    private(set) var ends: [(item: EventBatch.Usable, end: LaneEnd)] = []
    private var outstanding = 0
    private var waiter: CheckedContinuation<Void, Never>?

    func add(_ item: EventBatch.Usable, in event: LaneEvent) {
        outstanding += 1
        event.onEnd { [self] end in
            ends.append((item, end))
            outstanding -= 1
            guard outstanding == 0 else { return }
            waiter?.resume()
            waiter = nil
        }
    }

    /// On the loop.
    nonisolated(nonsending) func untilOver() async {
        // Looked at in the closure, before which the task may be queued once more.
        await withCheckedContinuation { continuation in
            if outstanding > 0 { waiter = continuation } else { continuation.resume() }
        }
    }
}
