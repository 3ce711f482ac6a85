/// The members of one shard from its durable cursor to the last one that was read, in the order of
/// their object ids. Pure: no clock, no I/O.
///
/// A member is unsent, in flight or ended. A checkpoint records a prefix of the members: an ended
/// member with its end, and a member in flight as a row, which is settled like any other row when
/// its answer comes. So the cursor never skips a member that is not recorded.
///
/// The bound of promise 3: a crash repeats only members that were sent and are not recorded. Such a
/// member is counted by the `UnrecordedBudget` of all shards of its lane, if it has ended and holds
/// no slot of the flight budget. Every other one holds a slot, and the flight budget bounds the
/// slots. In addition, a shard sends no member that is `reach` or more beyond its cursor.
struct ShardWindow<Member, End> {
    private enum State {
        case unsent
        case inFlight
        case ended(End)
        /// In flight, and being stored as a row.
        case leaving
        /// Answered while it was being stored as a row. The row ends at once.
        case leftWith(End)
    }

    private struct Entry {
        let member: Member
        var state = State.unsent
        /// Whether the member counts in the flight budget.
        var holdsSlot = false
    }

    /// The effect of a member's end.
    enum Arrival {
        /// The member waits here for its checkpoint, and its slot is free.
        case freed
        /// The member waits here for its checkpoint, and keeps its slot until then.
        case keepsSlot
        /// A checkpoint has made the member a row. The caller settles the row; the slot is held
        /// until then.
        case row(Member)
        /// The member has ended already.
        case unknown
    }

    /// The end of a checkpoint's prefix.
    enum Extent {
        /// Up to the first member in flight, or beyond it if a share of ended members has overtaken
        /// it.
        case ended
        /// Up to the last member that has ended.
        case answered
        /// Up to the last member that was sent.
        case sent
    }

    struct Checkpoint {
        struct Record {
            let member: Member
            /// The end; `nil` if the member is in flight and becomes a row.
            let end: End?
        }

        let records: [Record]
        /// The last recorded member; `nil` if there is no record, so that the cursor stays.
        var last: Member? { records.last?.member }
        let isFinished: Bool
    }

    /// The members affected by a durable checkpoint.
    struct Written {
        /// The members whose slots are free now, as they held them beyond their end.
        var freed: [Member] = []
        /// The members that are rows now and still in flight.
        var rows: [Member] = []
        /// The members that are rows now and have ended meanwhile.
        var endedRows: [(member: Member, end: End)] = []
    }

    /// Shared with the other shards of the lane.
    private let unrecorded: UnrecordedBudget
    private let inFlightShare: Int

    private var entries: ContiguousArray<Entry> = []
    /// The index in `entries` of the member at `base`. The entries before it are recorded.
    private var head = 0
    /// The position of the first member that is not recorded.
    private(set) var base = 0
    /// The position of the first member that is not sent.
    private(set) var next = 0
    /// The position of the first member from `base` on that has not ended.
    private var firstOpen = 0
    private(set) var inFlight = 0
    /// The number of members that have ended and are not recorded.
    private(set) var ended = 0
    /// The number of these that hold no slot. `unrecorded` counts them.
    private var slotless = 0
    /// The end of the checkpoint that is being written, and whether it is the shard's last.
    private var writing: (end: Int, isLast: Bool)?
    /// The members that have become rows, by position, until their answers come.
    private var rows: [Int: Member] = [:]
    private var lastIsRead = false
    private(set) var isFinished = false

    /// Opens a shard. `close` must be called at its end.
    ///
    /// - Parameters:
    ///   - unrecorded: The budget of the lane.
    ///   - inFlightShare: The part of the flight budget that is meant for one shard, 0 or more.
    init(unrecorded: UnrecordedBudget, inFlightShare: Int) {
        self.unrecorded = unrecorded
        self.inFlightShare = max(0, inFlightShare)
        unrecorded.open()
    }

    /// The number of ended members that a checkpoint is meant to record. It changes as other shards
    /// open and close.
    private var share: Int { unrecorded.share }

    /// The most members that may be sent beyond the durable cursor.
    private var reach: Int { share + inFlightShare }

    private var end: Int { base + entries.count - head }

    private func index(_ position: Int) -> Int { position - base + head }

    subscript(position: Int) -> Member { entries[index(position)].member }

    /// Returns a member that was sent and is not recorded, or that has become a row.
    func member(at position: Int) -> Member? {
        position < base ? rows[position] : position < next ? self[position] : nil
    }

    /// Returns the first member that was read after a position and meets a condition.
    func first(behind position: Int, where holds: (Member) -> Bool) -> Int? {
        ((position + 1)..<max(position + 1, end)).first { holds(self[$0]) }
    }

    // MARK: Reading

    mutating func append(_ members: [Member], isLast: Bool) {
        entries.reserveCapacity(entries.count + members.count)
        for member in members { entries.append(Entry(member: member)) }
        if isLast { lastIsRead = true }
    }

    /// The number of members that are read and not sent.
    var unsent: Int { end - next }

    var hasReadAll: Bool { lastIsRead }

    // MARK: Sending

    /// The number of members that are sent beyond the durable cursor.
    var beyond: Int { next - base }

    /// The number of members that may be sent now.
    var room: Int { max(0, min(unsent, reach - beyond)) }

    /// Returns how many members to send now: 0 if they would be too few beside those in flight, as
    /// a small batch costs more than it gains.
    func worthSending(atMost limit: Int) -> Int {
        let wanted = min(room, limit)
        let isWorthIt =
            wanted == unsent || wanted * 8 >= min(reach, limit) || inFlight == 0
        return isWorthIt ? wanted : 0
    }

    /// Takes at most `room` members to be sent. Each holds a slot of the flight budget.
    mutating func take(_ count: Int) -> Range<Int> {
        let taken = next..<(next + min(count, room))
        for position in taken {
            entries[index(position)].state = .inFlight
            entries[index(position)].holdsSlot = true
        }
        next = taken.upperBound
        inFlight += taken.count
        return taken
    }

    /// Puts back members of the last `take` that were not sent. The caller frees their slots.
    mutating func putBack(from position: Int) {
        for position in max(position, base)..<next {
            let index = index(position)
            guard case .inFlight = entries[index].state else { continue }
            entries[index].state = .unsent
            entries[index].holdsSlot = false
            inFlight -= 1
        }
        next = max(position, base)
    }

    // MARK: Ends

    mutating func ended(_ position: Int, _ end: End) -> Arrival {
        guard position >= base else {
            guard let member = rows.removeValue(forKey: position) else { return .unknown }
            return .row(member)
        }
        guard position < next else { return .unknown }
        let index = index(position)
        switch entries[index].state {
        case .inFlight:
            entries[index].state = .ended(end)
            inFlight -= 1
            ended += 1
            if position == firstOpen { passEnded() }
            guard slotless < share, unrecorded.take() else { return .keepsSlot }
            slotless += 1
            entries[index].holdsSlot = false
            return .freed
        case .leaving:
            entries[index].state = .leftWith(end)
            inFlight -= 1
            return .keepsSlot
        case .unsent, .ended, .leftWith: return .unknown
        }
    }

    private mutating func passEnded() {
        while firstOpen < next, case .ended = entries[index(firstOpen)].state { firstOpen += 1 }
    }

    // MARK: Checkpoints

    var isWriting: Bool { writing != nil }

    /// The number of members from the cursor on that have ended without a gap.
    var contiguous: Int { firstOpen - base }

    /// Whether all members have been sent.
    var hasSentAll: Bool { lastIsRead && unsent == 0 }

    /// Whether the number of ended members makes a checkpoint due. Other checkpoints are due by
    /// time.
    var isCheckpointDue: Bool {
        guard !isWriting, !isFinished else { return false }
        return contiguous * 2 >= share || ended - contiguous >= share
            || (hasSentAll && inFlight == 0)
    }

    /// Begins a checkpoint. It is open until `written`, and may be written any number of times.
    ///
    /// - Returns: `nil` if there is nothing to record, or a checkpoint is open.
    mutating func beginCheckpoint(_ extent: Extent = .ended) -> Checkpoint? {
        guard !isWriting, !isFinished else { return nil }
        let stop = self.end(of: extent)
        let finishes = lastIsRead && stop == end
        guard stop > base || finishes else { return nil }
        var records: [Checkpoint.Record] = []
        records.reserveCapacity(stop - base)
        for position in base..<stop {
            let index = index(position)
            switch entries[index].state {
            case .ended(let end):
                records.append(Checkpoint.Record(member: entries[index].member, end: end))
            case .inFlight:
                entries[index].state = .leaving
                records.append(Checkpoint.Record(member: entries[index].member, end: nil))
            case .unsent, .leaving, .leftWith: preconditionFailure("not to be recorded")
            }
        }
        writing = (stop, finishes)
        return Checkpoint(records: records, isFinished: finishes)
    }

    private func end(of extent: Extent) -> Int {
        switch extent {
        case .sent: return next
        case .answered:
            var stop = next
            while stop > firstOpen, !isEnded(stop - 1) { stop -= 1 }
            return stop
        case .ended:
            var stop = firstOpen
            var later = ended - contiguous
            // Goes past a member in flight that enough ended members have overtaken.
            while stop < next {
                if isEnded(stop) {
                    later -= 1
                } else if later < share {
                    break
                }
                stop += 1
            }
            return stop
        }
    }

    private func isEnded(_ position: Int) -> Bool {
        if case .ended = entries[index(position)].state { true } else { false }
    }

    /// Moves the cursor, as the checkpoint is durable.
    mutating func written() -> Written {
        guard let (stop, isLast) = writing else { return Written() }
        var written = Written()
        for position in base..<stop {
            let entry = entries[index(position)]
            switch entry.state {
            case .ended:
                ended -= 1
                if entry.holdsSlot {
                    written.freed.append(entry.member)
                } else {
                    slotless -= 1
                    unrecorded.giveBack(1)
                }
            case .leaving:
                inFlight -= 1
                rows[position] = entry.member
                written.rows.append(entry.member)
            case .leftWith(let end):
                written.endedRows.append((entry.member, end))
            case .unsent, .inFlight: break
            }
        }
        head += stop - base
        base = stop
        if head > 4096 || head == entries.count {
            entries.removeFirst(head)
            head = 0
        }
        writing = nil
        if firstOpen < base { firstOpen = base }
        passEnded()
        isFinished = isLast
        return written
    }

    // MARK: The end

    /// Closes the shard: this process records no more of its members.
    mutating func close() {
        unrecorded.close(unrecorded: slotless)
        slotless = 0
    }

    /// Returns the ended members that still hold a slot, for a shard that is dropped.
    func heldByEnded() -> [Member] {
        entries[head...].filter { entry in
            guard entry.holdsSlot else { return false }
            switch entry.state {
            case .ended, .leftWith: return true
            case .unsent, .inFlight, .leaving: return false
            }
        }.map(\.member)
    }
}

extension ShardWindow.Checkpoint.Record: Sendable where Member: Sendable, End: Sendable {}
extension ShardWindow.Checkpoint: Sendable where Member: Sendable, End: Sendable {}
extension ShardWindow.Written: Sendable where Member: Sendable, End: Sendable {}
