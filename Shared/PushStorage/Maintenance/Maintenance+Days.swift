import Postgres
import PushCore

/// A table that is partitioned by days: what is over is dropped with its partition. Each is named by its last
/// day: a version before, whose partitions have one day, drops none too early.
enum DayTable: String, CaseIterable {
    case deliveries
    case eventPushes = "event_pushes"
    case deliveryChunks = "delivery_chunks"

    /// How many days are kept.
    func days(_ retention: Retention) -> Int {
        switch self {
        case .deliveries, .deliveryChunks: retention.deliveryDays
        // An event is known by its row.
        case .eventPushes: max(retention.deliveryDays, retention.eventKeyDays)
        }
    }

    /// How many days a partition has: whether an event is known is asked in each.
    func daysTogether(_ retention: Retention) -> Int {
        switch self {
        case .deliveries, .deliveryChunks: 1
        case .eventPushes: min(7, days(retention))
        }
    }

    /// SQL: whether a partition holds what is not over, which stays for the books. `$1` is its name.
    func isOpen(_ partition: String) -> String {
        switch self {
        case .deliveries:
            """
            EXISTS (SELECT FROM \(quotedIdentifier(partition)) WHERE state = \(DeliveryState.pending.sql))
                OR EXISTS (SELECT FROM shards
                    WHERE NOT finished AND day = to_date(right($1, 8), 'YYYYMMDD'))
            """
        // As long as the rows of its day: the books of a push that goes on need both.
        case .deliveryChunks:
            """
            EXISTS (SELECT FROM deliveries
                    WHERE day = to_date(right($1, 8), 'YYYYMMDD') AND state = \(DeliveryState.pending.sql))
                OR EXISTS (SELECT FROM shards
                    WHERE NOT finished AND day = to_date(right($1, 8), 'YYYYMMDD'))
            """
        case .eventPushes: "$1::text IS NULL"
        }
    }

    func partition(of time: Instant) -> String {
        "\(rawValue)_" + time.day.split(separator: "-").joined()
    }
}

extension Retention {
    /// Whole days that cover the time for which an event is known.
    var eventKeyDays: Int { max(1, Int((eventKeys.components.seconds + 86_399) / 86_400)) }
}

extension Maintenance {
    /// Days that have their partition before they come.
    private static let daysAhead = 3

    /// Partitions for the days to come, none for those that are over.
    func turnDays(
        now: Instant,
        _ retention: Retention,
        _ report: inout MaintenanceReport
    ) async throws {
        for table in DayTable.allCases {
            for offset in -1...Self.daysAhead {
                let day = now.adding(milliseconds: Int64(offset) * 86_400_000)
                if try await createPartition(of: table, for: day, retention) {
                    report.partitionsCreated += 1
                }
            }
            for name in try await oldPartitions(of: table, now: now, retention) {
                if try await dropPartition(name, of: table) { report.partitionsDropped += 1 }
            }
        }
    }

    /// Makes the partition that begins with a day, where none has it.
    ///
    /// - Returns: Whether this call made it.
    private func createPartition(
        of table: DayTable,
        for time: Instant,
        _ retention: Retention
    ) async throws -> Bool {
        let day = time.day
        return try await locked { transaction in
            // It ends where the next one begins, or before a day that has rows in the default partition:
            // those stay there, as moving them would lock what is being sent.
            let row = try await transaction.execute(
                """
                WITH other AS (
                    SELECT bound[1]::date AS first, bound[2]::date AS next
                    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                        CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid),
                            'FROM \\(''(.+)''\\) TO \\(''(.+)''\\)') AS m(bound)
                    WHERE i.inhparent = '\(table.rawValue)'::regclass AND bound IS NOT NULL
                ), made AS (
                    SELECT least($1::date + $2::integer,
                        (SELECT min(first) FROM other WHERE next > $1::date),
                        (SELECT min(day) FROM \(table.rawValue)_default WHERE day >= $1::date)) AS next
                )
                SELECT next::text AS next, to_char(next - 1, 'YYYYMMDD') AS last,
                    next > $1::date AS is_free
                FROM made
                """,
                [.text(day), .integer(table.daysTogether(retention))]
            ).first
            guard let row, try row.boolean("is_free") else { return false }
            let name = "\(table.rawValue)_\(try row.text("last"))"
            for statement in [
                "CREATE TABLE \(name) (LIKE \(table.rawValue) INCLUDING ALL)",
                """
                ALTER TABLE \(table.rawValue) ATTACH PARTITION \(name)
                    FOR VALUES FROM ('\(day)') TO ('\(try row.text("next"))')
                """,
            ] {
                try await transaction.script(statement)
            }
            return true
        } ?? false
    }

    private func oldPartitions(
        of table: DayTable,
        now: Instant,
        _ retention: Retention
    ) async throws -> [String] {
        let limit = now.adding(milliseconds: -Int64(table.days(retention)) * 86_400_000)
        return try await database.execute(
            """
            SELECT c.relname::text AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = '\(table.rawValue)'::regclass
                AND c.relname ~ '^\(table.rawValue)_[0-9]{8}$' AND c.relname::text < $1 ORDER BY 1
            """,
            [.text(table.partition(of: limit))]
        ).rows.map { try $0.text("name") }
    }

    private func dropPartition(_ name: String, of table: DayTable) async throws -> Bool {
        try await locked { transaction in
            let known = try await transaction.execute(
                "SELECT to_regclass($1) IS NOT NULL AS known",
                [.text(name)]
            )
            guard try known.first?.boolean("known") == true else { return false }
            let open = try await transaction.execute(
                "SELECT \(table.isOpen(name)) AS open",
                [.text(name)]
            )
            guard try open.first?.boolean("open") != true else { return false }
            try await transaction.script("DROP TABLE \(quotedIdentifier(name))")
            return true
        } ?? false
    }
}
