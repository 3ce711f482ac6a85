import Postgres
import PushCore
import PushStorage
import Storage

extension Maintenance {
    /// The number of future days that have their partition.
    private static let daysAhead = 3

    /// Creates the partitions of the next days, and drops expired ones.
    func rotatePartitions(
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

    /// Creates the partition that begins with a day, unless it exists.
    ///
    /// - Returns: Whether this call created it.
    private func createPartition(
        of table: DayTable,
        for time: Instant,
        _ retention: Retention
    ) async throws -> Bool {
        let day = time.day
        return try await database.locked { transaction in
            // The partition ends where the next one starts, or before a day that has rows in the
            // default partition. These rows stay there, as moving them would lock rows that are
            // being sent.
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
        try await database.locked { transaction in
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
