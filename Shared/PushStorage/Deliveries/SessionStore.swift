import Postgres
import PushCore
import Storage

/// The dispatchers' sessions. A session's id is never used again, and every write to a delivery
/// carries it. So a dispatcher that stalled past its lease can write nothing more.
///
/// A session ends when its row is deleted. Any replica then releases its rows, shards and plans in
/// batches, each in a separate transaction. Nothing here waits for a locked row: otherwise a
/// dispatcher that was stopped in the middle of a transaction would block all others.
package struct SessionStore: Sendable {
    let database: Database

    /// How long a session lives without a heartbeat.
    package static let leaseSeconds = 10
    /// The most rows that are released in one transaction.
    private static let portion = 2000

    /// - Parameters:
    ///   - name: The name of its dispatcher, for operators.
    ///   - connections: The application name of only this process' connections. They are terminated
    ///     with the session.
    /// - Returns: The session's id.
    /// - Throws: `StorageError`.
    package func open(name: String, connections: String? = nil) async throws -> Int {
        let result = try await database.executeMeasuring(
            """
            INSERT INTO dispatchers (name, lease_until, connections)
            VALUES ($1, clock_timestamp() + make_interval(secs => $2), $3)
            RETURNING id, clock_timestamp() AS now
            """,
            [.text(name), .integer(Self.leaseSeconds), .optional(text: connections)]
        )
        guard let row = result.first else {
            throw StorageError(.corrupt, "a session was not stored")
        }
        return try row.integer("id")
    }

    /// - Returns: Whether the session still exists; false if another dispatcher has reaped it.
    package func heartbeat(_ session: Int) async throws -> Bool {
        try await database.executeMeasuring(
            """
            UPDATE dispatchers SET lease_until = clock_timestamp() + make_interval(secs => $2)
            WHERE id = $1 RETURNING clock_timestamp() AS now
            """,
            [.integer(session), .integer(Self.leaseSeconds)]
        ).affectedRows == 1
    }

    /// Ends a session, so that it can write nothing more. `release` then releases all that it
    /// owned.
    package func end(_ session: Int) async throws {
        _ = try await database.execute(
            "DELETE FROM dispatchers WHERE id = $1",
            [.integer(session)]
        )
    }

    /// Ends a session and releases all that it owned.
    package func close(_ session: Int) async throws {
        try await end(session)
        _ = try await release([session])
    }

    /// Ends expired sessions, and releases all that they or sessions without a row own. Any replica
    /// may call it at any time.
    ///
    /// - Returns: The numbers of ended sessions and of released deliveries.
    package func reap() async throws -> (sessions: Int, deliveries: Int) {
        let ended = try await endExpired()
        let released = try await release(Array(Set(ended + sessionsWithOrphans())))
        return (ended.count, released.deliveries)
    }

    /// Ends expired sessions, except those whose row is locked: the next round ends them. Also
    /// terminates the connections of a process that has no live session. Such a process may be
    /// stopped in the middle of a transaction, which keeps its session's row and other rows locked.
    /// While a COPY waits for its client, the server applies no timeout.
    package func endExpired() async throws -> [Int] {
        let expired = try await database.execute(
            "SELECT EXISTS (SELECT FROM dispatchers WHERE lease_until < clock_timestamp()) AS some"
        )
        guard try expired.first?.boolean("some") == true else { return [] }
        _ = try await database.execute(
            """
            SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.usename = current_user
                AND a.pid <> pg_backend_pid() AND a.application_name IN (
                    SELECT d.connections FROM dispatchers d GROUP BY 1
                    HAVING max(d.lease_until) < clock_timestamp())
            """
        )
        return try await database.execute(
            """
            DELETE FROM dispatchers WHERE id IN (
                SELECT id FROM dispatchers WHERE lease_until < clock_timestamp()
                ORDER BY id FOR UPDATE SKIP LOCKED)
            RETURNING id
            """
        ).rows.map { try $0.integer("id") }
    }

    /// Returns sessions that own something although their row is deleted. The process that ended
    /// them stopped before it had released everything, or had a version that did not know all kinds
    /// of claims.
    package func sessionsWithOrphans() async throws -> [Int] {
        // Each step is one index lookup, however many rows an owner has.
        let owners = ["deliveries", "shards", "pushes"].map { table in
            let column = table == "pushes" ? "planner" : "owner"
            let condition = table == "deliveries" ? "state = \(DeliveryState.pending.sql) AND " : ""
            return """
                SELECT id FROM (
                    WITH RECURSIVE owners (id) AS (
                        SELECT (SELECT min(\(column)) FROM \(table)
                            WHERE \(condition)\(column) IS NOT NULL)
                        UNION ALL
                        SELECT (SELECT min(\(column)) FROM \(table)
                            WHERE \(condition)\(column) > o.id)
                        FROM owners o WHERE o.id IS NOT NULL
                    ) SELECT id FROM owners WHERE id IS NOT NULL) AS of_\(table)
                """
        }
        return try await database.execute(
            """
            SELECT DISTINCT id FROM (\(owners.joined(separator: " UNION ALL "))) AS owners
            WHERE NOT EXISTS (SELECT FROM dispatchers d WHERE d.id = owners.id) LIMIT 1000
            """
        ).rows.map { try $0.integer("id") }
    }

    /// Releases all that ended sessions owned, except rows that are locked.
    ///
    /// The caller names the sessions. A query for owners without a session could release too much:
    /// a row that is claimed meanwhile may have an owner that an older snapshot does not contain.
    ///
    /// - Returns: The number of released deliveries, and whether nothing is left.
    package func release(_ ended: [Int]) async throws -> (deliveries: Int, isAll: Bool) {
        guard !ended.isEmpty else { return (0, true) }
        let parameters: [PostgresValue] = [.integerArray(ended), .integer(Self.portion)]
        var deliveries = 0
        for (index, sql) in [Self.releaseShards, Self.releasePlans, Self.releaseRows].enumerated() {
            var released = Self.portion
            while released == Self.portion {
                let result = try await database.transaction { transaction in
                    try await IndexPlan.require(transaction)
                    return try await transaction.execute(sql, parameters)
                }
                released = try result.first?.integer("released") ?? 0
                if index == 2 { deliveries += released }
            }
        }
        let left = try await database.execute(
            """
            SELECT EXISTS (SELECT FROM deliveries WHERE state = \(DeliveryState.pending.sql) AND owner = ANY ($1::bigint[]))
                OR EXISTS (SELECT FROM shards WHERE owner = ANY ($1::bigint[]))
                OR EXISTS (SELECT FROM pushes WHERE planner = ANY ($1::bigint[])) AS some
            """,
            [.integerArray(ended)]
        )
        return (deliveries, try left.first?.boolean("some") == false)
    }

    /// Returns the number of sessions that have not expired.
    package func count() async throws -> Int {
        try await database.execute(
            "SELECT count(*) AS count FROM dispatchers WHERE lease_until >= clock_timestamp()"
        ).first?.integer("count") ?? 0
    }

    private static let releaseShards = """
        WITH found AS (
            SELECT push_id, shard FROM shards WHERE owner = ANY ($1::bigint[])
            LIMIT $2 FOR UPDATE SKIP LOCKED
        ), freed AS (
            UPDATE shards s SET owner = NULL, due_at = least(s.due_at, now()), updated_at = now()
            FROM found f WHERE s.push_id = f.push_id AND s.shard = f.shard
            RETURNING s.finished
        ), told AS (
            SELECT pg_notify('\(NotifyChannel.shards.rawValue)', '')
            FROM freed WHERE NOT finished LIMIT 1
        )
        SELECT count(*) AS released, (SELECT count(*) FROM told) AS told FROM freed
        """

    private static let releasePlans = """
        WITH found AS (
            SELECT id FROM pushes WHERE planner = ANY ($1::bigint[])
            LIMIT $2 FOR UPDATE SKIP LOCKED
        ), freed AS (
            UPDATE pushes p SET planner = NULL, updated_at = now()
            FROM found f WHERE p.id = f.id RETURNING p.id
        )
        SELECT count(*) AS released FROM freed
        """

    private static let releaseRows = """
        WITH found AS (
            SELECT day, push_id, target FROM deliveries
            WHERE owner = ANY ($1::bigint[]) AND state = \(DeliveryState.pending.sql)
            LIMIT $2 FOR UPDATE SKIP LOCKED
        ), freed AS (
            UPDATE deliveries d SET owner = NULL, due_at = least(d.due_at, now()),
                updated_at = now()
            FROM found f
            WHERE d.day = f.day AND d.push_id = f.push_id AND d.target = f.target
            RETURNING d.target
        )
        SELECT count(*) AS released FROM freed
        """

    /// Locks a session's row until the transaction ends, so that a process which ends the session
    /// waits and sees this transaction's writes.
    static func hold(_ session: Int, _ transaction: PostgresTransaction) async throws {
        let found = try await transaction.execute(holdSQL, [.integer(session)])
        guard !found.isEmpty else { throw StorageError.sessionLost }
    }

    /// Locks a session's row like `hold`, and applies `IndexPlan` in the same round trip.
    static func holdByIndex(_ session: Int, _ transaction: PostgresTransaction) async throws {
        let found = try await transaction.pipeline([
            (IndexPlan.sql, []), (holdSQL, [.integer(session)]),
        ])
        guard !found[1].isEmpty else { throw StorageError.sessionLost }
    }

    static let holdSQL = "SELECT 1 AS alive FROM dispatchers WHERE id = $1 FOR KEY SHARE"
}
