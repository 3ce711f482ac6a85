import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage

/// How a push of the fast path ended, for its batch of records.
enum InlineEnd: Equatable {
    /// The push is in the ledger, written by this process or by another that sent it at the same
    /// time.
    case written
    /// The push was stored already.
    case known
    /// The push must be planned.
    case rows
    /// The push names a subject that was erased meanwhile. It is not stored.
    case erased
    case refused(DeadLetterReason)
    /// The session was lost before the push was written. It must be looked up again.
    case lost
}

/// The pushes for few devices of one batch of records, from their look-up until each is written.
/// Pushes and members are stored in arrays, and a member's position is its index there.
///
/// States of a push: looking up; sending; writing, once all its members have ended or
/// `DISPATCH_HOLD` has passed; over. A member that ends while its push is written waits for the
/// write. A member that ends after the write is a row.
///
/// No clock, no I/O.
@DispatchLoop
final class InlineRun: Run {
    enum State: Equatable { case lookingUp, sending, writing, over }

    /// A class: a copy of a struct would retain each of its forty strings.
    private final class Content: Sendable {
        let item: EventBatch.Usable
        let push: NewPush

        init(_ item: EventBatch.Usable, _ push: NewPush) {
            self.item = item
            self.push = push
        }
    }

    private struct Push {
        /// `nil` once it has ended.
        var content: Content?
        /// `nil` once it has ended and no member of it is in flight.
        var context: PushContext?
        var state = State.lookingUp
        var members = 0..<0
        /// Members that have not ended.
        var open = 0
        /// Postgres' time of the look-up.
        var createdAt = Instant(milliseconds: 0)
        var hasRow = false
        var mark: StageMark
        /// Its part of `InlinePushes.named`; `nil` if it is not large, or none of its members is in
        /// flight.
        var share: (app: String, names: Int)?
        /// The callbacks of other batches that have a copy.
        var listeners: [(InlineEnd) -> Void] = []
    }

    private struct Member {
        let push: Int
        let member: ShardMember
        let health: ClientHealth
        var holdsSlot = false
        /// Whether it ended after its push was ready. It is then written as a row in flight, and
        /// ended as a row.
        var isLate = false
        var end: DeliveryEnd?
    }

    private(set) var session = 0
    private let services: RunServices
    private var pushes: [Push] = []
    /// The members; `nil` once a member is recorded or has become a row.
    private var members: [Member?] = []
    /// The number of pushes, and of copies of other batches' pushes, that have not ended.
    private var outstanding = 0
    /// The pushes that ended in another way than written.
    private(set) var ends: [(item: EventBatch.Usable, end: InlineEnd)] = []
    private let all: InlinePushes
    /// Whether each of its pushes names more than `NewPush.largeFrom` devices.
    let isLarge: Bool
    private var waiter: CheckedContinuation<Void, Never>?

    /// - Parameters:
    ///   - all: The process' pushes. The pushes of this run are added there.
    ///   - services: The parts that all runs of a process use.
    ///   - isLarge: Whether its pushes are large. `all` has admitted them before.
    init(in all: InlinePushes, _ services: RunServices, isLarge: Bool = false) {
        self.all = all
        self.services = services
        self.isLarge = isLarge
    }

    // MARK: Pushes

    /// Adds a push that is to be looked up. If a run has the same push already, waits for its end
    /// instead.
    func add(
        _ item: EventBatch.Usable,
        _ push: NewPush,
        fetchedAt: ContinuousClock.Instant
    ) {
        outstanding += 1
        if let first = all[item.pushID] {
            return first.run.pushes[first.index].listeners.append { [self] end in note(item, end) }
        }
        all.enter(item.pushID, self, at: pushes.count)
        pushes.append(
            Push(
                content: Content(item, push),
                context: PushContext(
                    pushID: item.pushID,
                    eventID: item.event.eventID,
                    source: item.event.source,
                    request: item.event.request
                ),
                mark: StageMark(at: fetchedAt),
                share: isLarge ? (item.event.app, item.namedDevices) : nil
            )
        )
    }

    /// The pushes that are looked up, in their order.
    var newPushes: [NewPush] { pushes.compactMap { $0.content?.push } }

    func state(of index: Int) -> State { pushes[index].state }

    /// Adds the members that a look-up found for a push.
    func found(
        _ index: Int,
        _ deliveries: [Delivery],
        at createdAt: Instant,
        hasRow: Bool,
        health: (Delivery) -> ClientHealth
    ) {
        let first = members.count
        for delivery in deliveries {
            members.append(
                Member(push: index, member: ShardMember(delivery), health: health(delivery))
            )
        }
        pushes[index].members = first..<members.count
        pushes[index].open = deliveries.count
        if let share = pushes[index].share, share.names > deliveries.count {
            releaseShare(of: index, share.names - deliveries.count)
        }
        pushes[index].createdAt = createdAt
        pushes[index].hasRow = hasRow
    }

    /// Begins to send the members that were found.
    ///
    /// - Returns: The positions to send.
    func begin(session: Int, lookedUpAt: ContinuousClock.Instant) -> Range<Int> {
        self.session = session
        for index in pushes.indices where state(of: index) == .lookingUp {
            pushes[index].state = .sending
            reached(.lookedUp, push: index, at: lookedUpAt)
            if pushes[index].open == 0 { becomeReady(index) }
        }
        return members.indices
    }

    /// Makes rows of the members that have not ended: `DISPATCH_HOLD` has passed.
    func hold() {
        for index in pushes.indices where state(of: index) == .sending { becomeReady(index) }
    }

    private func becomeReady(_ index: Int) {
        pushes[index].state = .writing
        all.isReady()
        services.recorder.add(self, index)
    }

    /// Ends all pushes that have not ended: the session is lost, or the drain has ended.
    func drop() {
        for index in pushes.indices where state(of: index) != .over { end(index, .lost) }
    }

    /// Ends a push of which nothing was sent.
    func finish(_ index: Int, _ end: InlineEnd) {
        guard let content = pushes[index].content else { return }
        all.leave(content.item.pushID, wasReady: pushes[index].state == .writing)
        pushes[index].state = .over
        pushes[index].content = nil
        let listeners = pushes[index].listeners
        pushes[index].listeners = []
        for listener in listeners { listener(end) }
        // After a lost session, no end comes for members that still waited to be sent.
        if end == .lost { releaseShare(of: index) }
        forgetIfOver(index)
        note(content.item, end)
    }

    private func note(_ item: EventBatch.Usable, _ end: InlineEnd) {
        switch end {
        case .written, .erased: break
        case .known, .rows, .refused, .lost: ends.append((item, end))
        }
        outstanding -= 1
        guard outstanding == 0 else { return }
        waiter?.resume()
        waiter = nil
    }

    /// Waits until all pushes have ended.
    func waitUntilFinished() async {
        // Checked in the closure: the task may be queued once more before the closure runs.
        await withCheckedContinuation { continuation in
            if outstanding > 0 { waiter = continuation } else { continuation.resume() }
        }
    }

    /// Drops the context of an ended push whose members have all ended. A straggler keeps this run
    /// alive, which must not keep the contexts of the whole batch.
    private func forgetIfOver(_ index: Int) {
        guard pushes[index].state == .over, pushes[index].members.allSatisfy({ members[$0] == nil })
        else { return }
        pushes[index].context = nil
        releaseShare(of: index)
    }

    /// Releases members of a large push from its app's share. Called as each member ends, so that a
    /// few slow devices do not hold the whole share.
    ///
    /// - Parameters:
    ///   - index: The push.
    ///   - count: The number of members to release; `nil` for all that are left.
    private func releaseShare(of index: Int, _ count: Int? = nil) {
        guard let share = pushes[index].share else { return }
        let released = min(count ?? share.names, share.names)
        all.releaseLarge(released, of: share.app)
        pushes[index].share = released < share.names ? (share.app, share.names - released) : nil
    }

    // MARK: Members

    /// Always `false`: the members of a lost push are released one by one.
    var isDropped: Bool { false }

    func member(at position: Int) -> ShardMember? {
        members[position]?.member
    }

    func context(at position: Int) -> PushContext {
        guard let index = members[position]?.push, let context = pushes[index].context else {
            preconditionFailure("recorded already")
        }
        return context
    }

    func health(at position: Int) -> ClientHealth {
        guard let member = members[position] else { preconditionFailure("recorded already") }
        return member.health
    }

    func admitted(_ position: Int) { members[position]?.holdsSlot = true }

    func ended(_ position: Int, _ end: DeliveryEnd) {
        guard let member = members[position], member.end == nil else { return }
        releaseShare(of: member.push, 1)
        switch state(of: member.push) {
        case .lookingUp: break
        case .sending:
            members[position]?.end = end
            pushes[member.push].open -= 1
            if pushes[member.push].open == 0 { becomeReady(member.push) }
        case .writing:
            members[position]?.end = end
            members[position]?.isLate = true
        case .over: recordRow(position, end)
        }
    }

    /// Records a member whose push is written, with a row for it.
    private func recordRow(_ position: Int, _ end: DeliveryEnd) {
        guard let member = members[position] else { return }
        RowRun.record(
            member.member,
            end,
            context(at: position),
            member.health,
            slot: member.holdsSlot ? .direct : nil,
            session: session,
            services
        )
        members[position] = nil
        forgetIfOver(member.push)
    }

    func release(_ position: Int) {
        guard let member = members[position] else { return }
        if member.end == nil { releaseShare(of: member.push, 1) }
        if member.holdsSlot { services.room.budget.release(.direct, member.health.client) }
        members[position] = nil
        forgetIfOver(member.push)
    }

    func reached(
        _ stage: EventStages.Stage,
        _ positions: [Int],
        at now: ContinuousClock.Instant
    ) {
        for position in positions {
            if let index = members[position]?.push { reached(stage, push: index, at: now) }
        }
    }

    private func reached(
        _ stage: EventStages.Stage,
        push index: Int,
        at now: ContinuousClock.Instant
    ) {
        guard let duration = pushes[index].mark.reached(stage, at: now) else { return }
        services.meters.stages[stage].observe(duration)
    }

    // MARK: Recording

    var kind: LedgerEntry.Kind { .pushes }

    /// Returns the members that are written together with their push, as they ended before it was
    /// ready.
    private func ended(of index: Int) -> some Sequence<Member> {
        pushes[index].members.lazy.compactMap { self.members[$0] }
            .filter { $0.end != nil && !$0.isLate }
    }

    func outcomes(of place: Int) -> Int { ended(of: place).count { $0.end?.outcome != nil } }

    func writeOutcomes(
        of place: Int,
        by writer: inout OutcomeWriter,
        to block: inout KafkaRecordBlock
    ) {
        guard let context = pushes[place].context else { return }
        for member in ended(of: place) {
            guard let end = member.end else { continue }
            context.writeOutcome(of: member.member.delivery, end, by: &writer, to: &block)
        }
    }

    func acknowledged(_ place: Int, at now: ContinuousClock.Instant) {
        reached(.acknowledged, push: place, at: now)
    }

    func willWrite(_ place: Int, remember: (PushContext) -> Void) {
        var isOpen = false
        for position in pushes[place].members {
            guard let member = members[position] else { continue }
            // The session owns the member's row from the write on.
            if member.end == nil || member.isLate {
                services.inHand.take(member.member.delivery.key)
            }
            if member.isLate || member.end?.outcome == nil { isOpen = true }
        }
        if isOpen, let context = pushes[place].context { remember(context) }
    }

    func entry(of place: Int) -> LedgerEntry {
        let push = pushes[place]
        guard let content = push.content else { preconditionFailure("recorded already") }
        return .push(
            SentPush(
                push: content.push,
                createdAt: push.createdAt,
                hasRow: push.hasRow,
                deliveries: push.members.compactMap { position in
                    members[position].map { DeliveryRecord($0.member, $0.isLate ? nil : $0.end) }
                }
            )
        )
    }

    func recorded(_ place: Int, _ end: RecordedEnd, at now: ContinuousClock.Instant) {
        switch end {
        case .recorded(let result):
            for member in ended(of: place) {
                guard let end = member.end else { continue }
                services.meters.settled(end, at: member.member.delivery.device.provider)
                if result == .written, let context = pushes[place].context {
                    services.figures.count(end, of: member.member.delivery, context)
                }
            }
            reached(.written, push: place, at: now)
            self.end(place, result == .erased ? .erased : .written)
        case .refused(let problem):
            self.end(place, .refused(DeadLetterReason(.notStorable, problem)))
        case .lost: self.end(place, .lost)
        }
    }

    /// Ends a push and frees the slots of its ended members. A member that ended late is recorded
    /// as a row, unless the session was lost.
    private func end(_ index: Int, _ end: InlineEnd) {
        guard pushes[index].state != .over else { return }
        for position in pushes[index].members {
            guard let member = members[position], let ended = member.end else { continue }
            if member.isLate, end != .lost {
                recordRow(position, ended)
            } else {
                release(position)
            }
        }
        finish(index, end)
    }
}
