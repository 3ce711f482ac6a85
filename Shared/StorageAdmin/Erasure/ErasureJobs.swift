import JSON
import Postgres
import PushCore
import Storage

/// The jobs of erasures until they end: the names to find, the cursor, the counts, and the requester. A
/// repeated call for a subject resumes its job.
enum ErasureJobs {
    struct Job {
        var names: SubjectNames
        var counts: ErasureCounts
        /// The last push that was processed; `nil`: none was.
        var cursor: (Int64?, String?)
        /// The time in microseconds after which rows belong to another subject, even with the same
        /// name.
        let until: Int64

        fileprivate init(_ row: PostgresRow) throws {
            names = SubjectNames(try row.json("names"))
            counts = ErasureCounts(try row.json("counts").object ?? [:])
            cursor = (
                try row.timestampMicrosecondsOrNil("cursor_at"), try row.uuidOrNil("cursor_id")
            )
            until = try row.timestampMicroseconds("started_at")
        }
    }

    /// An erasure that no process has worked on for a minute.
    struct Abandoned {
        let subject: Subject
        let names: SubjectNames
        let entry: AuditEntry
        /// The `until` of its job.
        let until: Int64
    }

    private static let columns = "names, counts, cursor_at, cursor_id, started_at"

    private static func key(_ subject: Subject) -> [PostgresValue] {
        [.text(subject.app), .text(subject.kind.rawValue), .text(subject.id)]
    }

    /// Refuses to erase if the schema is newer than this program: rows of newer services would stay.
    ///
    /// - Throws: `SchemaTooNew`.
    static func requireKnownSchema(_ transaction: PostgresTransaction) async throws {
        let rows = try await transaction.execute(
            "SELECT max(version) AS version FROM carillon_schema"
        )
        let version = try rows.first?.integerOrNil("version") ?? 0
        guard version > Migration.current else { return }
        throw SchemaTooNew(
            schemaVersion: version,
            oldestUsable: version,
            ownVersion: Migration.current,
            purpose: "to erase"
        )
    }

    /// Locks the job, or creates it. A second caller waits here, and continues with the names that
    /// the first has found.
    static func open(_ subject: Subject, _ transaction: PostgresTransaction) async throws -> Job {
        let rows = try await transaction.execute(
            """
            INSERT INTO erasure_jobs (app, kind, id, names) VALUES ($1, $2, $3, '{}')
            ON CONFLICT (app, kind, id) DO UPDATE SET touched_at = clock_timestamp()
            RETURNING \(columns)
            """,
            key(subject)
        )
        guard let row = rows.first else {
            throw StorageError(.corrupt, "the job of an erasure was not stored")
        }
        return try Job(row)
    }

    /// Stores the names that were found, and the requester. A new name restarts the walk through
    /// the pushes. Until `begun` sets the exact time, rows of the next second count as earlier, as
    /// they may still be about the subject.
    static func keep(
        _ note: Job,
        of subject: Subject,
        for entry: AuditEntry,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            UPDATE erasure_jobs SET names = $4, counts = $5, wanted_by = $6, touched_at = clock_timestamp(),
                started_at = clock_timestamp() + interval '1 second',
                cursor_at = CASE WHEN names = $4 THEN cursor_at END,
                cursor_id = CASE WHEN names = $4 THEN cursor_id END
            WHERE app = $1 AND kind = $2 AND id = $3
            """,
            key(subject) + [
                .json(note.names.json), .json(.object(note.counts.json)), .json(requester(entry)),
            ]
        )
    }

    /// Records the time from which the subject no longer exists. Later rows cannot be about it.
    ///
    /// - Returns: That time; `nil` if another call has finished the erasure.
    static func begun(_ subject: Subject, in database: Database) async throws -> Int64? {
        try await database.execute(
            """
            UPDATE erasure_jobs SET started_at = clock_timestamp()
            WHERE app = $1 AND kind = $2 AND id = $3 RETURNING started_at
            """,
            key(subject)
        ).first?.timestampMicroseconds("started_at")
    }

    /// - Returns: The job, locked; `nil` if another call has finished the erasure.
    static func lock(_ subject: Subject, _ transaction: PostgresTransaction) async throws -> Job? {
        try await transaction.execute(
            """
            SELECT \(columns) FROM erasure_jobs
            WHERE app = $1 AND kind = $2 AND id = $3 FOR UPDATE
            """,
            key(subject)
        ).first.map(Job.init)
    }

    /// Reads the job without a lock.
    static func find(_ subject: Subject, in database: Database) async throws -> Job? {
        try await database.execute(
            "SELECT \(columns) FROM erasure_jobs WHERE app = $1 AND kind = $2 AND id = $3",
            key(subject)
        ).first.map(Job.init)
    }

    static func advance(
        _ note: Job,
        of subject: Subject,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            UPDATE erasure_jobs SET counts = $4, cursor_at = $5, cursor_id = $6,
                touched_at = clock_timestamp()
            WHERE app = $1 AND kind = $2 AND id = $3
            """,
            key(subject) + [
                .json(.object(note.counts.json)), .optional(timestamp: note.cursor.0),
                note.cursor.1.map { .uuid($0) } ?? .null,
            ]
        )
    }

    /// - Returns: The job; `nil` if another call has closed it.
    static func close(_ subject: Subject, _ transaction: PostgresTransaction) async throws -> Job? {
        try await transaction.execute(
            """
            DELETE FROM erasure_jobs WHERE app = $1 AND kind = $2 AND id = $3 RETURNING \(columns)
            """,
            key(subject)
        ).first.map(Job.init)
    }

    /// Claims the job that has been idle longest, for one minute, unless the schema is newer than
    /// this program.
    static func takeAbandoned(in database: Database) async throws -> Abandoned? {
        let found = try await database.execute(
            """
            UPDATE erasure_jobs e SET touched_at = clock_timestamp()
            FROM (SELECT app, kind, id FROM erasure_jobs
                WHERE touched_at < now() - interval '1 minute'
                    AND (SELECT max(version) FROM carillon_schema) <= $1
                ORDER BY touched_at LIMIT 1 FOR UPDATE SKIP LOCKED) a
            WHERE e.app = a.app AND e.kind = a.kind AND e.id = a.id
            RETURNING e.app, e.kind, e.id, e.names, e.wanted_by, e.started_at
            """,
            [.integer(Migration.current)]
        )
        guard let row = found.first, let kind = Subject.Kind(rawValue: try row.text("kind"))
        else { return nil }
        let wanted = try row.json("wanted_by")
        let app = try row.text("app")
        return Abandoned(
            subject: Subject(app: app, kind, try row.text("id")),
            names: SubjectNames(try row.json("names")),
            entry: AuditEntry(
                app: app,
                actor: wanted["actor"]?.string ?? "maintenance",
                action: wanted["action"]?.string ?? "erase",
                address: wanted["address"]?.string,
                status: wanted["status"]?.integer ?? 200
            ),
            until: try row.timestampMicroseconds("started_at")
        )
    }

    /// Returns the requester of an erasure, for the audit if another process finishes it.
    private static func requester(_ entry: AuditEntry) -> JSONValue {
        var object: JSONObject = [
            "actor": .string(entry.actor), "action": .string(entry.action),
            "status": JSONValue(entry.status),
        ]
        object["address"] = entry.address.map(JSONValue.string)
        return .object(object)
    }
}
