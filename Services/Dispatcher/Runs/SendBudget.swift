import PushCore

/// The number of deliveries that this process may own at once: read, waiting, sent or being
/// recorded.
///
/// It keeps promises 7 and 8. The sum is bounded. Broadcasts leave slots for single devices and for
/// their own retries, and single devices leave slots for broadcasts. One provider of one app cannot
/// take all slots, nor can several: each gets three quarters of the single devices' slots that the
/// others have left. So there are always free slots for a client with little in flight.
/// `ShardWindow` decides how long an ended member of a shard holds its slot.
struct SendBudget {
    /// A provider of one app. Its deliveries share its slots. A number, as it is hashed for each
    /// delivery.
    struct Client: Hashable, Sendable {
        let number: Int

        init(_ number: Int) { self.number = number }
    }

    /// The uses of slots.
    enum Use: Int, CaseIterable {
        case direct
        /// Rows of broadcasts: retries, or rows that another session has released.
        case rows
        /// Members of the shards that this process sends.
        case shards

        init(_ lane: Lane) { self = lane == .direct ? .direct : .rows }
    }

    private struct Owned {
        var direct = 0
        var shards = 0
        /// The deliveries of `direct` that are answered and not recorded yet. They wait only for
        /// Postgres.
        var ended = 0
        /// The rows for single devices that wait here.
        var waiting = 0

        var isNothing: Bool { direct + shards + waiting == 0 }
    }

    let total: Int
    private let limits: [Int]
    let perClient: Int
    private var inUse = [0, 0, 0]
    private var ofClient: [Client: Owned] = [:]
    /// The releases of slots that were not owned. They change nothing else, so that a slot which is
    /// released twice is not given to two deliveries.
    private(set) var excess = 0

    /// - Parameter total: `DISPATCH_IN_FLIGHT`, 1 or more.
    init(total: Int) {
        self.total = max(1, total)
        limits = [
            max(1, self.total * 7 / 8), max(1, self.total / 4), max(1, self.total * 5 / 8),
        ]
        perClient = max(1, self.total / 2)
    }

    var owned: Int { inUse[0] + inUse[1] + inUse[2] }

    func owned(for use: Use) -> Int { inUse[use.rawValue] }

    private func owned(for use: Use, _ client: Client) -> Int {
        switch use {
        case .direct: ofClient[client]?.direct ?? 0
        case .shards: ofClient[client]?.shards ?? 0
        case .rows: 0
        }
    }

    /// The number of free slots for a use.
    func room(for use: Use) -> Int {
        // A broadcast never gets the whole total, however small that is.
        let reserved = use != .direct && total > 1 ? max(1, total / 8) : 0
        return max(0, min(limits[use.rawValue] - inUse[use.rawValue], total - reserved - owned))
    }

    /// Takes a slot.
    ///
    /// - Returns: `false` if no slot is free. The caller then releases the delivery, uncounted.
    mutating func admit(_ use: Use, _ client: Client) -> Bool {
        admit(use, client, atMost: 1) == 1
    }

    /// Takes slots.
    ///
    /// - Returns: The number of slots taken; 0 if no slot is free.
    mutating func admit(_ use: Use, _ client: Client, atMost count: Int) -> Int {
        var taken = min(count, room(for: use))
        guard taken > 0 else { return 0 }
        switch use {
        case .direct:
            let used = ofClient[client]?.direct ?? 0
            taken = min(taken, perClient - used, fairRoom(for: client))
            guard taken > 0 else { return 0 }
            ofClient[client, default: Owned()].direct = used + taken
        case .shards:
            let used = ofClient[client]?.shards ?? 0
            taken = min(taken, perClient - used)
            guard taken > 0 else { return 0 }
            ofClient[client, default: Owned()].shards = used + taken
        case .rows: break
        }
        inUse[use.rawValue] += taken
        return taken
    }

    /// Takes slots for a batch of a shard's members. A very small batch costs more than it gains,
    /// so a few free slots are left alone while other members of the client are in flight.
    ///
    /// - Returns: The number of slots taken; 0 if there are too few.
    mutating func admitBatch(_ use: Use, _ client: Client, atMost count: Int) -> Int {
        let smallest = max(1, min(32, total / 64))
        let taken = admit(use, client, atMost: count)
        guard taken < min(count, smallest), owned(for: use, client) > taken else { return taken }
        release(use, client, taken)
        return 0
    }

    /// Returns how many slots for single devices one client may still take: one more while it holds
    /// less than three times the free slots.
    private func fairRoom(for client: Client) -> Int {
        let free = room(for: .direct)
        let held = ofClient[client].map { $0.direct + $0.waiting - $0.ended } ?? 0
        guard free > 0 else { return 0 }
        return max((3 * free - held + 3) / 4, held == 0 ? 1 : 0)
    }

    /// The number of slots held by clients that have more than an eighth of all. While their
    /// providers are slow these slots are not released, so no batch should wait for them.
    var heldByFew: Int {
        ofClient.values.reduce(0) { sum, owned in
            let held = owned.direct + owned.shards - owned.ended
            return held * 8 > total ? sum + held : sum
        }
    }

    /// Notes that a single device of a client was answered. Its slot is held until the answer is
    /// recorded.
    mutating func ended(_ client: Client) { ofClient[client]?.ended += 1 }

    /// Takes a slot for a row that waits here. `start` adds the row to its client's share.
    mutating func admitWaiting(_ client: Client) -> Bool {
        guard fairRoom(for: client) > 0 else { return false }
        inUse[Use.direct.rawValue] += 1
        ofClient[client, default: Owned()].waiting += 1
        return true
    }

    /// Counts waiting rows to their client's share, at most `count`.
    ///
    /// - Returns: The number of rows that may start.
    mutating func start(_ client: Client, atMost count: Int) -> Int {
        let used = ofClient[client]?.direct ?? 0
        let started = max(0, min(count, perClient - used))
        guard started > 0 else { return 0 }
        var owned = ofClient[client] ?? Owned()
        owned.direct = used + started
        owned.waiting = max(0, owned.waiting - started)
        ofClient[client] = owned
        return started
    }

    /// Releases the slots of rows that waited and were not started.
    mutating func releaseWaiting(_ client: Client, _ count: Int = 1) {
        guard count > 0 else { return }
        var owned = ofClient[client] ?? Owned()
        let released = bounded(count, by: owned.waiting)
        inUse[Use.direct.rawValue] -= released
        owned.waiting -= released
        ofClient[client] = owned.isNothing ? nil : owned
    }

    /// Releases slots that `admit` took.
    mutating func release(_ use: Use, _ client: Client, _ count: Int = 1) {
        if use == .rows {
            inUse[use.rawValue] -= bounded(count, by: inUse[use.rawValue])
            return
        }
        var owned = ofClient[client] ?? Owned()
        let released = bounded(count, by: use == .direct ? owned.direct : owned.shards)
        inUse[use.rawValue] -= released
        if use == .direct {
            owned.direct -= released
            owned.ended = min(max(0, owned.ended - released), owned.direct)
        } else {
            owned.shards -= released
        }
        ofClient[client] = owned.isNothing ? nil : owned
    }

    /// Returns how many of `count` slots are owned, and counts the others as `excess`.
    private mutating func bounded(_ count: Int, by owned: Int) -> Int {
        excess += max(0, count - owned)
        return min(count, owned)
    }

    /// Returns `excess`, and sets it to 0.
    mutating func takeExcess() -> Int {
        defer { excess = 0 }
        return excess
    }
}
