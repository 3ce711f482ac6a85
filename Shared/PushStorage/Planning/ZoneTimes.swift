import JSON
import Observability
import Postgres
import PushCore
import Storage

/// The instants at which the clocks of each time zone show the time of a device-local push.
/// Postgres computes them. If a change of the clocks skips the time, the instant is one hour later.
/// If the time comes twice, the instant is the second.
struct ZoneTimes: Sendable {
    /// The instants by the zone's name.
    let due: [String: Instant]
    /// The instant for devices without a zone, or with a zone that Postgres does not know: the time
    /// in UTC.
    let elsewhere: Instant
    /// The lifetime of each delivery, if the push states it as an interval.
    let lifetimeSeconds: Int?

    func expiry(of due: Instant) -> Instant? {
        lifetimeSeconds.map { due.adding(milliseconds: Int64($0) * 1000) }
    }

    /// Returns the filter for the devices that are due at this instant.
    func filter(due time: Instant) -> ZoneFilter {
        let names = due.keys.sorted()
        guard time == elsewhere else {
            return ZoneFilter(names: names.filter { due[$0] == time }, isExclusion: false)
        }
        return ZoneFilter(names: names.filter { due[$0] != time }, isExclusion: true)
    }

    /// Returns when a device is due, as SQL over its time zone.
    func due(_ zone: String, _ parameters: inout [PostgresValue]) -> String {
        var byName: JSONObject = [:]
        for (name, time) in due { byName[name] = .string(time.iso8601) }
        parameters += [.json(.object(byName)), .timestamp(elsewhere.microseconds)]
        let last = parameters.count
        return "coalesce(($\(last - 1)::jsonb ->> \(zone))::timestamptz, $\(last)::timestamptz)"
    }
}

/// Selects devices by their time zones: devices in one of `names`, or all other devices, including
/// those without a zone.
struct ZoneFilter: Sendable, Equatable {
    var names: [String]
    var isExclusion: Bool

    /// Returns the condition for an installation `n`, with its `AND`.
    func condition(_ parameters: inout [PostgresValue]) -> String {
        parameters.append(.textArray(names))
        let isNamed = "coalesce(n.time_zone, '') = ANY ($\(parameters.count)::text[])"
        return " AND " + (isExclusion ? "NOT \(isNamed)" : isNamed)
    }
}

/// SQL for the times of a device's row: when it is due, when it expires, and from when its age is
/// counted. A device-local push is released up to 26 hours before its last devices are due.
struct RowTimes {
    private(set) var due: String
    let expires: String
    private(set) var begins: String

    private static let now = "now()"

    /// - Parameters:
    ///   - zones: The times of a device-local push; `nil` if the row is due now, and expires with its
    ///     push `p`.
    ///   - zone: The device's time zone, as SQL.
    ///   - parameters: The parameters of the statement, to which some may be appended.
    init(_ zones: ZoneTimes?, zone: String, _ parameters: inout [PostgresValue]) {
        guard let zones else {
            (due, expires, begins) = (Self.now, "p.expires_at", Self.now)
            return
        }
        due = zones.due(zone, &parameters)
        begins = "greatest(\(due), now())"
        parameters.append(.optional(integer: zones.lifetimeSeconds))
        let lifetime = "make_interval(secs => $\(parameters.count)::bigint)"
        expires = "coalesce(\(due) + \(lifetime), p.expires_at)"
    }

    /// Spreads the rows of a push `p` over a time. The time begins when the audience was fixed, or
    /// at the due time of the row's zone.
    ///
    /// - Parameters:
    ///   - milliseconds: The length of that time.
    ///   - place: A row's place in it, as SQL: 0 is its beginning, 1 its end.
    ///   - parameters: The parameters of the statement, to which one is appended.
    mutating func spreadDueTimes(
        over milliseconds: Int,
        at place: String,
        _ parameters: inout [PostgresValue]
    ) {
        parameters.append(.integer(milliseconds))
        let wait = "make_interval(secs => $\(parameters.count)::bigint / 1000.0 * (\(place)))"
        due = (due == Self.now ? "p.planned_until" : due) + " + " + wait
        begins = "greatest(\(due), now())"
    }
}

/// The names of the time zones that Postgres knows. A process reads them once, as Postgres takes a
/// tenth of a second to list them.
final class ZoneNames: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var names: [String]?

    fileprivate func read(_ transaction: PostgresTransaction) async throws -> [String] {
        if let names = lock.withLock({ unsafe names }) { return names }
        let read = try await transaction.execute(
            """
            SELECT name FROM pg_timezone_names
            WHERE name !~ '^(posix|right)/' AND name NOT IN ('localtime', 'posixrules', 'Factory')
            """
        ).rows.map { try $0.text("name") }
        lock.withLock { unsafe names = read }
        return read
    }

    fileprivate func forget() { lock.withLock { unsafe names = nil } }
}

extension ZoneNames {
    /// Returns the times of a released push; `nil` if all its devices are due at once.
    func times(
        of request: PushRequest,
        releasedAt: Instant?,
        _ transaction: PostgresTransaction
    ) async throws -> ZoneTimes? {
        guard releasedAt != nil, case .local(let time) = request.pushTime else { return nil }
        let names = try await read(transaction)
        let rows: PostgresRows
        do {
            rows = try await transaction.execute(
                """
                SELECT name, ($1::timestamptz AT TIME ZONE 'UTC') AT TIME ZONE name AS due
                FROM unnest($2::text[]) AS name
                """,
                [.timestamp(time.inUTC.microseconds), .textArray(names)]
            ).rows
        } catch let error as PostgresError where error.sqlState == "22023" {
            // A name has vanished since the names were read: Postgres' time zones were updated
            // while it ran.
            forget()
            throw StorageError(.database, "a time zone is gone", isRetryable: true)
        }
        var due: [String: Instant] = [:]
        for row in rows { due[try row.text("name")] = try row.instant("due") }
        var lifetime: Int?
        if case .afterSeconds(let seconds) = request.expiration, !request.isNowOrNever {
            lifetime = seconds
        }
        return ZoneTimes(due: due, elsewhere: time.inUTC, lifetimeSeconds: lifetime)
    }
}
