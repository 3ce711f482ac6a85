package import PushCore

/// A shard of a broadcast that a session has to send: the installations of an audience behind one
/// object id up to another. Members up to `cursor` are recorded; the others have no row yet.
package struct ClaimedShard: Sendable, Equatable {
    package var pushID: String
    package var shard: Int
    package var app: String
    /// The push's day in UTC, `YYYY-MM-DD`.
    package var day: String
    /// Everything up to it is recorded; `nil`: nothing is.
    package var cursor: String?
    /// Inclusive; `nil`: no bound.
    package var upperID: String?
    /// Members, as planned and corrected since.
    package var expected: Int
    package var recorded: Int
    /// The push's.
    package var lane: Int
    /// When nobody wants it any more: the push's, or of a device-local push its members' own.
    package var expiresAt: Instant?
    /// When its members were first due: the push's own, or of a device-local push theirs.
    package var createdAt: Instant

    /// Exclusive; empty: no bound.
    var lowerID: String
    /// Whether the audience is found by its channels, and not by reading all of the app's.
    var isSparse: Bool
    /// Whether its members were chosen when it was cut: the push has a condition.
    var isChosen = false
    /// The time zones of its members, where the push is device-local; `nil`: all.
    var zones: ZoneFilter?
    /// What decides for the installations that do not name their APNs environment.
    var environment: PushEnvironment
    /// Microseconds since 1970: an installation created later is no member.
    var plannedUntil: Int64
    var selectors: PushRequest.Selectors
    /// What the push has placeholders for.
    var templateFields: [String] = []
    /// What the push does to its members' badges.
    var badgeChanges: [Platform: BadgeChange] = [:]

    /// The push was cancelled: its members are read to tell of each that nobody sent to it.
    package var isCancelled = false

    /// Whether each page must be prepared before it is sent.
    package var raisesBadges: Bool { !badgeChanges.isEmpty }
}

extension ClaimedShard {
    /// Everyone of an app: for tests of what works on a shard without a database.
    package init(
        pushID: String,
        shard: Int,
        app: String,
        createdAt: Instant,
        cursor: String? = nil,
        upperID: String? = nil,
        expected: Int = 0,
        recorded: Int = 0,
        lane: Int = 1,
        expiresAt: Instant? = nil
    ) {
        self.init(
            pushID: pushID,
            shard: shard,
            app: app,
            day: createdAt.day,
            cursor: cursor,
            upperID: upperID,
            expected: expected,
            recorded: recorded,
            lane: lane,
            expiresAt: expiresAt,
            createdAt: createdAt,
            lowerID: "",
            isSparse: false,
            zones: nil,
            environment: .production,
            plannedUntil: createdAt.microseconds,
            selectors: PushRequest.Selectors()
        )
    }
}

/// Members of a shard, in the order of their object ids.
package struct ShardPage: Sendable {
    package var members: [Delivery]
    /// Nobody is behind them.
    package var isLast: Bool

    package init(members: [Delivery], isLast: Bool) {
        self.members = members
        self.isLast = isLast
    }
}

/// One member of a shard. A reference: a delivery is a dozen texts, which each copy would count.
package final class ShardMember: Sendable {
    package let delivery: Delivery

    package init(_ delivery: Delivery) { self.delivery = delivery }
}

/// What became of the members of a shard from the last checkpoint up to this one.
package struct ShardCheckpoint: Sendable {
    /// Everything up to it is recorded now; `nil`: it does not move, and there are no records.
    package var cursor: String?
    /// One of each member behind the last cursor, up to this one, in any order. What lies up to the
    /// last cursor is left out: a checkpoint whose answer was lost may be made again, and may be
    /// larger then.
    package var records: [DeliveryRecord]
    /// Nobody is behind the cursor: the shard is over.
    package var isFinished: Bool

    package init(cursor: String?, records: [DeliveryRecord], isFinished: Bool) {
        self.cursor = cursor
        self.records = records
        self.isFinished = isFinished
    }
}

/// The books of one shard. Pure: no clock, no I/O.
struct ShardBooks: Equatable, Sendable {
    /// Members, in all.
    private(set) var expected: Int
    /// Those that have a row.
    private(set) var recorded: Int
    /// Those that never will, as the push was cancelled.
    private(set) var cancelled: Int
    private(set) var isFinished: Bool

    init(expected: Int, recorded: Int, cancelled: Int = 0, isFinished: Bool = false) {
        self.expected = expected
        self.recorded = recorded
        self.cancelled = cancelled
        self.isFinished = isFinished
    }

    /// Members that are pending without a row.
    var unrecorded: Int { isFinished ? 0 : expected - recorded }

    /// Rows were written. There may be more than planned: an installation may have joined a channel
    /// meanwhile. Behind a cancellation they are taken from those that it counted.
    mutating func record(_ count: Int) {
        recorded += count
        if isFinished {
            cancelled = max(0, cancelled - count)
            expected = recorded + cancelled
        } else {
            expected = max(expected, recorded)
        }
    }

    /// Nobody is left. There may be fewer than planned: deleted, or gone from the channel.
    mutating func finish() {
        if isFinished { return }
        expected = recorded
        isFinished = true
    }

    mutating func cancel() {
        if isFinished { return }
        cancelled = expected - recorded
        isFinished = true
    }
}
