package import PushCore
import Storage

/// A shard of a broadcast that a session has to send: the installations of an audience between two
/// object ids. Members up to `cursor` are recorded; the others have no row yet.
package struct ClaimedShard: Sendable, Equatable {
    package var pushID: String
    package var shard: Int
    package var app: String
    /// The push's day in UTC, `YYYY-MM-DD`.
    package var day: String
    /// The object id up to which all members are recorded; `nil` if no member is recorded.
    package var cursor: String?
    /// Inclusive; `nil` if there is no bound.
    package var upperID: String?
    /// The number of members: as planned, and corrected since.
    package var expected: Int
    package var recorded: Int
    /// The push's lane.
    package var lane: Int
    /// The time at which its deliveries expire: that of the push, or for a device-local push that
    /// of its members.
    package var expiresAt: Instant?
    /// The time at which its members were first due: that of the push, or for a device-local push
    /// that of its members.
    package var createdAt: Instant

    /// Exclusive; empty if there is no bound.
    var lowerID: String
    /// Whether the audience is found by its channels, without reading all of the app's installations.
    var isSparse: Bool
    /// Whether its members were chosen when the shard was cut, because the push has a condition or
    /// names devices.
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

    /// Whether the push was cancelled. Its members are still read, to report those that were not
    /// sent to.
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
    /// Whether there are no members after these.
    package var isLast: Bool

    package init(members: [Delivery], isLast: Bool) {
        self.members = members
        self.isLast = isLast
    }
}

/// One member of a shard. A class, because each copy of a delivery would retain a dozen strings.
package final class ShardMember: Sendable {
    package let delivery: Delivery

    package init(_ delivery: Delivery) { self.delivery = delivery }
}

/// The deliveries of a shard's members between the last checkpoint and this one.
package struct ShardCheckpoint: Sendable {
    /// The object id up to which all members are recorded now; `nil` if there are no records, so
    /// that the cursor does not move.
    package var cursor: String?
    /// One record for each member after the last cursor, up to this cursor, in any order. Records
    /// up to the last cursor are ignored: a checkpoint whose reply was lost may be written again,
    /// with more records.
    package var records: [DeliveryRecord]
    /// Whether there are no members after the cursor, so that the shard has ended.
    package var isFinished: Bool

    package init(cursor: String?, records: [DeliveryRecord], isFinished: Bool) {
        self.cursor = cursor
        self.records = records
        self.isFinished = isFinished
    }
}

/// The counters of one shard. Pure: no clock, no I/O.
struct ShardLedger: Equatable, Sendable {
    /// The number of all members.
    private(set) var expected: Int
    /// The members that have a row.
    private(set) var recorded: Int
    /// The members that will never have a row, as the push was cancelled.
    private(set) var cancelled: Int
    private(set) var isFinished: Bool

    init(expected: Int, recorded: Int, cancelled: Int = 0, isFinished: Bool = false) {
        self.expected = expected
        self.recorded = recorded
        self.cancelled = cancelled
        self.isFinished = isFinished
    }

    /// The number of members that are pending without a row.
    var unrecorded: Int { isFinished ? 0 : expected - recorded }

    /// Counts rows that were written. There may be more than planned, as installations may have
    /// joined a channel meanwhile. If the shard was cancelled, the rows are subtracted from the
    /// cancelled members.
    mutating func record(_ count: Int) {
        recorded += count
        if isFinished {
            cancelled = max(0, cancelled - count)
            expected = recorded + cancelled
        } else {
            expected = max(expected, recorded)
        }
    }

    /// Ends the shard, as no member is left. There may be fewer than planned: installations may
    /// have been deleted or have left the channel.
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
