import Postgres

/// The dispatchers' sessions. A session's id is never used again, and every write to a delivery
/// names it: a dispatcher that stalled past its lease finds that it owns nothing.
package struct SessionStore: Sendable {
    let database: PushDatabase

    /// How long a session lives without a heartbeat.
    package static let leaseSeconds = 10

    /// - Returns: The session's id.
    package func open(name: String) async throws -> Int {
        let result = try await database.execute(
            """
            INSERT INTO dispatchers (name, lease_until)
            VALUES ($1, clock_timestamp() + make_interval(secs => $2)) RETURNING id
            """,
            [.text(name), .integer(Self.leaseSeconds)]
        )
        guard let row = result.first else {
            throw StorageError(.corrupt, "a session was not kept")
        }
        return try row.integer("id")
    }

    /// - Returns: False where the session is gone: another dispatcher took it for dead.
    package func heartbeat(_ session: Int) async throws -> Bool {
        try await database.execute(
            """
            UPDATE dispatchers SET lease_until = clock_timestamp() + make_interval(secs => $2)
            WHERE id = $1
            """,
            [.integer(session), .integer(Self.leaseSeconds)]
        ).affectedRows == 1
    }

    /// Ends a session and gives what it held back.
    package func close(_ session: Int) async throws {
        try await database.transaction { transaction in
            _ = try await transaction.execute(
                "DELETE FROM dispatchers WHERE id = $1",
                [.integer(session)]
            )
            _ = try await Self.release([session], transaction)
        }
    }

    /// Ends the sessions whose lease is over and gives what they held back. Any replica may call
    /// it, as often as it likes.
    ///
    /// - Returns: How many sessions ended, and how many deliveries they held.
    package func reap() async throws -> (sessions: Int, deliveries: Int) {
        try await database.transaction { transaction in
            let ended = try await transaction.execute(
                """
                DELETE FROM dispatchers WHERE id IN (
                    SELECT id FROM dispatchers WHERE lease_until < clock_timestamp()
                    ORDER BY id FOR UPDATE SKIP LOCKED)
                RETURNING id
                """
            )
            try await Self.releaseOrphans(transaction)
            guard !ended.isEmpty else { return (0, 0) }
            let ids = try ended.rows.map { try $0.integer("id") }
            return (ids.count, try await Self.release(ids, transaction))
        }
    }

    /// How many sessions are alive.
    package func count() async throws -> Int {
        try await database.execute(
            "SELECT count(*) AS count FROM dispatchers WHERE lease_until >= clock_timestamp()"
        ).first?.integer("count") ?? 0
    }

    /// A statement of its own, so that it sees what the session wrote before its row went.
    private static func release(
        _ sessions: [Int],
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        try await releaseShards("owner = ANY ($1::bigint[])", sessions, transaction)
        _ = try await transaction.execute(
            "UPDATE pushes SET planner = NULL WHERE planner = ANY ($1::bigint[])",
            [.integerArray(sessions)]
        )
        return try await transaction.execute(
            """
            UPDATE deliveries SET owner = NULL, due_at = least(due_at, now()), updated_at = now()
            WHERE owner = ANY ($1::bigint[]) AND state = 0
            """,
            [.integerArray(sessions)]
        ).affectedRows
    }

    /// The shards of sessions that are gone although nobody gave them back: an older dispatcher, which
    /// knows of no shards, ended them.
    private static func releaseOrphans(_ transaction: PostgresTransaction) async throws {
        try await releaseShards(
            """
            owner IS NOT NULL
                AND NOT EXISTS (SELECT FROM dispatchers d WHERE d.id = s.owner)
                AND NOT owner = ANY ($1::bigint[])
            """,
            [],
            transaction
        )
    }

    private static func releaseShards(
        _ condition: String,
        _ sessions: [Int],
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            WITH found AS (
                SELECT push_id, shard FROM shards s WHERE \(condition)
                ORDER BY push_id, shard FOR UPDATE
            ), freed AS (
                UPDATE shards s SET owner = NULL, due_at = least(s.due_at, now()),
                    updated_at = now()
                FROM found f WHERE s.push_id = f.push_id AND s.shard = f.shard
                RETURNING s.finished
            )
            SELECT pg_notify('\(StorageChannel.shards.rawValue)', '')
            FROM freed WHERE NOT finished LIMIT 1
            """,
            [.integerArray(sessions)]
        )
    }

    /// Holds on to a session's row until the transaction ends, so that what it writes is seen by
    /// whoever ends the session.
    static func hold(_ session: Int, _ transaction: PostgresTransaction) async throws {
        let found = try await transaction.execute(holdSQL, [.integer(session)])
        guard !found.isEmpty else { throw StorageError.sessionLost }
    }

    static let holdSQL = "SELECT 1 AS alive FROM dispatchers WHERE id = $1 FOR KEY SHARE"
}
