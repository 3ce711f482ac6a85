package import PushCore
import Storage

/// A shard of a broadcast that a session has to send: the installations of an audience behind one
/// object id up to another. Members up to `cursor` are recorded; the others have no row yet.
package struct ClaimedShard: Sendable, Equatable {
    package var pushID: String
    package var shard: Int
    package var app: String
    /// The push's day in UTC, `YYYY-MM-DD`.
    package var day: String
    /// The object id up to which all members are recorded; `nil` if none is.
    package var cursor: String?
    /// Inclusive; `nil` if there is no bound.
    package var upperID: String?
    /// Members, as planned and corrected since.
    package var expected: Int
    package var recorded: Int
    /// The push's lane.
    package var lane: Int
    /// The time at which its deliveries expire: the push's, or for a device-local push its members'
    /// own.
    package var expiresAt: Instant?
    /// The time at which its members were first due: the push's own, or for a device-local push theirs.
    package var createdAt: Instant

    /// Exclusive; empty if there is no bound.
    var lowerID: String
    /// Whether the audience is found by its channels, without reading all of the app's installations.
    var isSparse: Bool
    /// Whether its members were chosen when it was cut, because the push has a condition or names
    /// devices.
    var isChosen = false
    /// The time zones of its members, if the push is device-local; `nil` for all.
    var zones: ZoneFilter?
    /// The environment for installations that do not name their APNs environment.
    var environment: PushEnvironment
    /// Microseconds since 1970: an installation created later is not a member.
    var plannedUntil: Int64
    var selectors: PushRequest.Selectors
    /// The fields of the push's placeholders.
    var templateFields: [String] = []
    /// The push's changes of its members' badges.
    var badgeChanges: [Platform: BadgeChange] = [:]

    /// Whether the push was cancelled: its members are read to report each that was not sent to.
    package var isCancelled = false

    /// Whether each page must be prepared before it is sent.
    package var raisesBadges: Bool { !badgeChanges.isEmpty }
}

extension ClaimedShard {
    /// Creates a shard of all devices of an app, for tests that use a shard without a database.
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
    /// Whether there are no members behind them.
    package var isLast: Bool

    package init(members: [Delivery], isLast: Bool) {
        self.members = members
        self.isLast = isLast
    }
}

/// One member of a shard. A class, because a delivery has a dozen strings, which each copy would
/// retain.
package final class ShardMember: Sendable {
    package let delivery: Delivery

    package init(_ delivery: Delivery) { self.delivery = delivery }
}

/// The deliveries of a shard's members from the last checkpoint up to this one.
package struct ShardCheckpoint: Sendable {
    /// The object id up to which all is recorded now; `nil` if it does not move, and there are no
    /// records.
    package var cursor: String?
    /// One record of each member behind the last cursor, up to this one, in any order. Records up to
    /// the last cursor are left out: a checkpoint whose reply was lost may be written again, and may be
    /// larger then.
    package var records: [DeliveryRecord]
    /// Whether there are no members behind the cursor: the shard has ended.
    package var isFinished: Bool

    package init(cursor: String?, records: [DeliveryRecord], isFinished: Bool) {
        self.cursor = cursor
        self.records = records
        self.isFinished = isFinished
    }
}

/// The counters of one shard. Pure: no clock, no I/O.
struct ShardLedger: Equatable, Sendable {
    /// Members, in all.
    private(set) var expected: Int
    /// The members that have a row.
    private(set) var recorded: Int
    /// The members that will never have one, as the push was cancelled.
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

    /// Counts rows that were written. There may be more than planned: an installation may have joined a
    /// channel in the meantime. After a cancellation they are subtracted from those that it counted.
    mutating func record(_ count: Int) {
        recorded += count
        if isFinished {
            cancelled = max(0, cancelled - count)
            expected = recorded + cancelled
        } else {
            expected = max(expected, recorded)
        }
    }

    /// Ends the shard: no member is left. There may be fewer than planned: deleted, or no longer in the
    /// channel.
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
