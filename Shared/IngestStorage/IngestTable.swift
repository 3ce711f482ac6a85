import Postgres
import PushCore
import Storage

/// The table of one type's objects, partitioned by the day of their receipt.
package struct IngestTable: Sendable {
    let number: Int

    package var name: String { "ingest_objects_\(number)" }
    var strays: String { name + "_default" }

    package init(
        number: Int
    ) {
        self.number = number
    }

    /// - Parameter subjects: Properties that name an object's subject: erasures search them.
    /// - Returns: Statements that create it, without a partition of any day.
    func creation(subjects: [String]) -> [String] {
        [
            """
            CREATE TABLE \(name) (
                app text COLLATE "C" NOT NULL,
                day date NOT NULL,
                id text COLLATE "C" NOT NULL,
                received_at timestamptz NOT NULL,
                schema_version integer NOT NULL,
                object jsonb NOT NULL) PARTITION BY RANGE (day)
            """,
            // Only for days whose partition was not created in time.
            "CREATE TABLE \(strays) PARTITION OF \(name) DEFAULT",
        ] + indexes(subjects)
    }

    /// Returns hash indexes: a value may be longer than other indexes accept.
    func indexes(_ subjects: [String]) -> [String] {
        subjects.enumerated().map { index, subject in
            let value = "object->>\(quotedLiteral(subject))"
            return """
                CREATE INDEX \(name)_subject_\(index + 1) ON \(name) USING hash ((\(value)))
                    WHERE \(value) IS NOT NULL
                """
        }
    }

    /// Returns the statements for a change of the subjects.
    func replacementIndexes(_ subjects: [String], instead old: [String]) -> [String] {
        old.indices.map { "DROP INDEX IF EXISTS \(name)_subject_\($0 + 1)" } + indexes(subjects)
    }

    func partition(of time: Instant) -> String {
        name + "_" + time.day.split(separator: "-").joined()
    }

    /// Creates the missing partitions of the days around one.
    ///
    /// - Returns: The number of new ones.
    func makeDays(around now: Instant, _ transaction: PostgresTransaction) async throws -> Int {
        var made = 0
        for offset in -1...Self.daysAhead {
            let time = now.adding(milliseconds: Int64(offset) * Self.day)
            let partition = partition(of: time)
            let known = try await transaction.execute(
                """
                SELECT to_regclass($1) IS NOT NULL
                    OR EXISTS (SELECT FROM \(strays) WHERE day = $2::date) AS known
                """,
                [.text(partition), .text(time.day)],
                isPrepared: false
            )
            // A day that has rows in the default partition stays there.
            guard try known.first?.boolean("known") != true else { continue }
            let next = time.adding(milliseconds: Self.day).day
            try await transaction.script(
                """
                CREATE TABLE \(partition) (LIKE \(name) INCLUDING ALL);
                ALTER TABLE \(name) ATTACH PARTITION \(partition)
                    FOR VALUES FROM ('\(time.day)') TO ('\(next)')
                """
            )
            made += 1
        }
        return made
    }

    /// Returns its partitions with the default one, in order.
    func partitions(in database: Database) async throws -> [String] {
        try await database.execute(
            """
            SELECT c.relname::text AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = to_regclass($1) ORDER BY 1
            """,
            [.text(name)]
        ).rows.map { try $0.text("name") }
    }

    /// The highest number of built-in types.
    static let lastBuiltIn = 100
    static let daysAhead = 3
    static let day: Int64 = 86_400_000
}

/// Quotes a string for a statement that takes no parameters.
package func quotedLiteral(_ text: String) -> String {
    let doubled = text.split(separator: "'", omittingEmptySubsequences: false).joined(
        separator: "''"
    )
    return text.contains("\\")
        ? "E'"
            + doubled.split(separator: "\\", omittingEmptySubsequences: false)
            .joined(separator: "\\\\") + "'"
        : "'" + doubled + "'"
}
