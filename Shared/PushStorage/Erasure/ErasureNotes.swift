import JSON
import Postgres
import PushCore

/// What is kept of an erasure until it is over: the names that are looked for, how far it is, what it has
/// come to, and who wants it. Each call of one subject goes on where the note stands.
enum ErasureNotes {
    struct Note {
        var names: SubjectNames
        var counts: ErasureCounts
        /// The last push that was looked at; `nil`: none was.
        var cursor: (Int64?, String?)
        /// What came in later has to do with somebody else, whatever he is called: in microseconds.
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

    /// An erasure that nobody has worked at for a minute.
    struct Abandoned {
        let subject: Subject
        let names: SubjectNames
        let entry: AuditEntry
        /// As of the note.
        let until: Int64
    }

    private static let columns = "names, counts, cursor_at, cursor_id, started_at"

    private static func key(_ subject: Subject) -> [PostgresValue] {
        [.text(subject.app), .text(subject.kind.rawValue), .text(subject.id)]
    }

    /// Refuses to erase where the schema is newer than this program: what newer services store would stay.
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

    /// Locks the note, or makes it. Who comes second waits here, and goes on with the names that the
    /// first has found.
    static func open(_ subject: Subject, _ transaction: PostgresTransaction) async throws -> Note {
        let rows = try await transaction.execute(
            """
            INSERT INTO erasure_jobs (app, kind, id, names) VALUES ($1, $2, $3, '{}')
            ON CONFLICT (app, kind, id) DO UPDATE SET touched_at = clock_timestamp()
            RETURNING \(columns)
            """,
            key(subject)
        )
        guard let row = rows.first else {
            throw StorageError(.corrupt, "the note of an erasure was not kept")
        }
        return try Note(row)
    }

    /// The names that were found, for whom; a name that is new begins the walk again. Until `begun`
    /// says better, what comes in within a second counts as of before: it may have met the subject.
    static func keep(
        _ note: Note,
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
                .json(note.names.json), .json(.object(note.counts.json)), .json(wish(entry)),
            ]
        )
    }

    /// The subject is gone: what comes in from now on cannot meet it.
    ///
    /// - Returns: That moment; `nil` where another call has brought the erasure to its end.
    static func begun(_ subject: Subject, in database: Database) async throws -> Int64? {
        try await database.execute(
            """
            UPDATE erasure_jobs SET started_at = clock_timestamp()
            WHERE app = $1 AND kind = $2 AND id = $3 RETURNING started_at
            """,
            key(subject)
        ).first?.timestampMicroseconds("started_at")
    }

    /// - Returns: The note, locked; `nil` where another call has brought the erasure to its end.
    static func lock(_ subject: Subject, _ transaction: PostgresTransaction) async throws -> Note? {
        try await transaction.execute(
            """
            SELECT \(columns) FROM erasure_jobs
            WHERE app = $1 AND kind = $2 AND id = $3 FOR UPDATE
            """,
            key(subject)
        ).first.map(Note.init)
    }

    /// The same without a lock.
    static func find(_ subject: Subject, in database: Database) async throws -> Note? {
        try await database.execute(
            "SELECT \(columns) FROM erasure_jobs WHERE app = $1 AND kind = $2 AND id = $3",
            key(subject)
        ).first.map(Note.init)
    }

    static func advance(
        _ note: Note,
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

    /// - Returns: What the note said; `nil` where another call has closed it.
    static func close(_ subject: Subject, _ transaction: PostgresTransaction) async throws -> Note?
    {
        try await transaction.execute(
            """
            DELETE FROM erasure_jobs WHERE app = $1 AND kind = $2 AND id = $3 RETURNING \(columns)
            """,
            key(subject)
        ).first.map(Note.init)
    }

    /// The one that was left alone longest, unless the schema is newer than this program. It is the caller's
    /// for the next minute.
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

    /// Who wants an erasure, for the audit of one that others finish.
    private static func wish(_ entry: AuditEntry) -> JSONValue {
        var object: JSONObject = [
            "actor": .string(entry.actor), "action": .string(entry.action),
            "status": JSONValue(entry.status),
        ]
        object["address"] = entry.address.map(JSONValue.string)
        return .object(object)
    }
}
