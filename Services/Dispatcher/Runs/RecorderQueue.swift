import PushCore
import PushStorage

/// Decides when outcomes are produced, and when acknowledged entries are written. Pure: no clock, no
/// I/O.
///
/// A broker's cost is per request, not per record. So outcomes are produced in blocks, and wait for
/// others that are about to come. Acknowledged entries are written at once if no entry of their
/// kind is being written, else when that write returns. So the slower Postgres is, the larger the
/// batches are.
struct RecorderQueue<Item> {
    struct Entry {
        let item: Item
        let kind: LedgerEntry.Kind
        /// The number of records for Kafka.
        let outcomes: Int
        let at: MonotonicInstant
    }

    /// The number of outcomes at which a block is produced at once.
    static var block: Int { 1000 }
    /// The maximum wait of an outcome for others, if more are coming.
    static var maximumAgeMilliseconds: Int64 { 60 }
    static var maximumProduces: Int { 4 }
    /// The most entries of one write.
    static var batch: Int { 500 }
    /// The most outcomes of one write, unless its first entry has more.
    static var batchOutcomes: Int { 5000 }
    /// The most writes of a kind at once. The second one needs a full batch.
    static var maximumWrites: Int { 2 }

    /// Entries that are not yet produced, in the order in which they came.
    private var ended: [Entry] = []
    private var endedOutcomes = 0
    /// Acknowledged entries that are not being written, by kind.
    private var acknowledged = LedgerEntry.Kind.allCases.map { _ in [Entry]() }
    private(set) var produces = 0
    private var writes = LedgerEntry.Kind.allCases.map { _ in 0 }

    /// Whether no entry waits, and nothing is being produced or written.
    var isIdle: Bool {
        ended.isEmpty && produces == 0 && acknowledged.allSatisfy(\.isEmpty)
            && writes.allSatisfy { $0 == 0 }
    }

    /// Adds an ended entry. An entry without outcomes needs no acknowledgement.
    mutating func add(
        _ item: Item,
        _ kind: LedgerEntry.Kind,
        outcomes: Int,
        at time: MonotonicInstant
    ) {
        let entry = Entry(item: item, kind: kind, outcomes: outcomes, at: time)
        guard outcomes > 0 else { return acknowledged([entry]) }
        ended.append(entry)
        endedOutcomes += outcomes
    }

    // MARK: Producing

    /// Returns the block to produce now; call `produced` when it ends. While `isMoreComing`, as
    /// more pushes are about to end, a block waits until it is full or old.
    mutating func nextBlock(at now: MonotonicInstant, isMoreComing: Bool) -> [Entry]? {
        guard produces < Self.maximumProduces, let first = ended.first,
            !isMoreComing || endedOutcomes >= Self.block
                || now.milliseconds(since: first.at) >= Self.maximumAgeMilliseconds
        else { return nil }
        var (count, outcomes) = (0, 0)
        while count < ended.count, outcomes < Self.block {
            outcomes += ended[count].outcomes
            count += 1
        }
        let block = Array(ended.prefix(count))
        ended.removeFirst(count)
        endedOutcomes -= outcomes
        produces += 1
        return block
    }

    /// The time at which the next block is due even if more is coming; `nil` if no entry waits for
    /// it.
    var nextLook: MonotonicInstant? {
        guard produces < Self.maximumProduces else { return nil }
        return ended.first?.at.adding(milliseconds: Self.maximumAgeMilliseconds)
    }

    /// Notes that Kafka has acknowledged the outcomes of these entries.
    mutating func acknowledged(_ entries: [Entry]) {
        for entry in entries { acknowledged[entry.kind.rawValue].append(entry) }
    }

    /// Notes that a block has been produced or has failed.
    mutating func produced() { produces -= 1 }

    // MARK: Writing

    /// Returns the batch to write now, all of one kind; call `written` when it ends.
    mutating func nextBatch() -> [Entry]? {
        for kind in LedgerEntry.Kind.allCases {
            let waiting = acknowledged[kind.rawValue]
            guard !waiting.isEmpty, writes[kind.rawValue] < Self.maximumWrites else { continue }
            var (count, outcomes) = (1, waiting[0].outcomes)
            while count < min(waiting.count, Self.batch),
                outcomes + waiting[count].outcomes <= Self.batchOutcomes
            {
                outcomes += waiting[count].outcomes
                count += 1
            }
            let isFull = count == Self.batch || count < waiting.count
            guard writes[kind.rawValue] == 0 || isFull else { continue }
            acknowledged[kind.rawValue].removeFirst(count)
            writes[kind.rawValue] += 1
            return Array(waiting.prefix(count))
        }
        return nil
    }

    /// Notes that the write of a batch of this kind has succeeded or was given up.
    mutating func written(_ kind: LedgerEntry.Kind) { writes[kind.rawValue] -= 1 }

    // MARK: The end

    /// Removes and returns all waiting entries. Entries that are being produced or written are not
    /// among them.
    mutating func removeAll() -> [Entry] {
        defer {
            ended = []
            endedOutcomes = 0
            acknowledged = LedgerEntry.Kind.allCases.map { _ in [] }
        }
        return ended + acknowledged.flatMap(\.self)
    }
}
