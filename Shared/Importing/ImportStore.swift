import Cryptography
import InstallationStorage
import JSON
import Postgres
import PushCore
package import Storage

extension PushDatabase {
    package var imports: ImportStore { ImportStore(database: database) }
}

/// The imports of all apps.
package struct ImportStore: Sendable {
    let database: Database

    /// Creates a job. It runs once `ImportRun` has begun it.
    ///
    /// - Parameters:
    ///   - app: An existing app.
    ///   - format: The format of the file.
    ///   - file: The file; `nil` for a pipe, whose job cannot be continued.
    ///   - options: The choices.
    ///   - author: The name for the list of imports.
    /// - Returns: The stored job, which is paused.
    /// - Throws: `StorageError`.
    package func create(
        app: String,
        format: ImportFormat,
        file: ImportSource.Fingerprint?,
        options: ImportOptions,
        author: String
    ) async throws -> ImportJob {
        let rows = try await database.execute(
            """
            INSERT INTO imports (app, format, file_name, file_bytes, fingerprint, options, state,
                author)
            VALUES ($1, $2, $3, $4::bigint, $5::bytea, $6::jsonb, 'paused', $7)
            RETURNING \(ImportJob.columns)
            """,
            [
                .text(app), .text(format.rawValue), .text(file?.name ?? "-"),
                file.map { .integer($0.bytes) } ?? .null, file.map { .bytes($0.digest) } ?? .null,
                .json(.object(options.json)), .text(author),
            ]
        ).rows
        guard let row = rows.first else {
            throw StorageError(.corrupt, "the import was not stored")
        }
        return try ImportJob(row)
    }

    /// Returns the last job of a file that is unfinished; `nil` if there is none.
    package func unfinished(
        app: String,
        format: ImportFormat,
        file: ImportSource.Fingerprint
    ) async throws -> ImportJob? {
        try await database.execute(
            """
            SELECT \(ImportJob.columns) FROM (
                SELECT * FROM imports WHERE app = $1 AND format = $2 AND fingerprint = $3
                ORDER BY id DESC LIMIT 1) AS last
            WHERE state <> 'finished'
            """,
            [.text(app), .text(format.rawValue), .bytes(file.digest)]
        ).first.map(ImportJob.init)
    }

    /// Returns the imports of an app, newest first.
    package func list(app: String, limit: Int) async throws -> [ImportJob] {
        try await database.execute(
            "SELECT \(ImportJob.columns) FROM imports WHERE app = $1 ORDER BY id DESC LIMIT $2",
            [.text(app), .integer(limit)]
        ).rows.map(ImportJob.init)
    }

    package func find(app: String, id: Int) async throws -> ImportJob? {
        try await database.execute(
            "SELECT \(ImportJob.columns) FROM imports WHERE app = $1 AND id = $2",
            [.text(app), .integer(id)]
        ).first.map(ImportJob.init)
    }

    /// Returns the reasons of an import, the most frequent first.
    package func reasons(_ id: Int) async throws -> [ImportReason] {
        try await database.execute(
            """
            SELECT reason, lines, examples FROM import_reasons WHERE import = $1
            ORDER BY lines DESC, reason
            """,
            [.integer(id)]
        ).rows.map { row in
            ImportReason(
                reason: try row.text("reason"),
                lines: try row.integer("lines"),
                examples: try row.integerArray("examples")
            )
        }
    }

    /// Returns the stored rejections of an import after a line, in order: the first 1,000 of the import
    /// are stored.
    package func rejections(
        _ id: Int,
        after line: Int = 0,
        limit: Int
    ) async throws -> [ImportRejection] {
        try await database.execute(
            """
            SELECT line, reason FROM import_rejections WHERE import = $1 AND line > $2
            ORDER BY line LIMIT $3
            """,
            [.integer(id), .integer(line), .integer(limit)]
        ).rows.map { ImportRejection(line: try $0.integer("line"), reason: try $0.text("reason")) }
    }

    /// Pauses or stops a running job: it ends after its current batch.
    ///
    /// - Returns: Whether it was running or paused.
    package func end(_ id: Int, as state: ImportJob.State) async throws -> Bool {
        try await database.execute(
            """
            UPDATE imports SET state = $2, updated_at = now()
            WHERE id = $1 AND state IN ('running', 'paused') AND $2 IN ('paused', 'stopped')
            """,
            [.integer(id), .text(state.rawValue)]
        ).affectedRows > 0
    }

    // MARK: Running

    /// Takes a job over: it runs here, and nowhere else any more.
    ///
    /// - Returns: The job, with the runner's name.
    /// - Throws: `ImportError` if the job has finished or does not exist, or may not run again.
    func begin(
        _ id: Int,
        app: String,
        evenIfStopped: Bool = true
    ) async throws -> (ImportJob, runner: String) {
        let runner = PushIdentity.uuidText(randomBytes(16))
        let row = try await database.execute(
            """
            UPDATE imports SET state = 'running', failure = NULL, runner = $2::uuid,
                updated_at = now()
            WHERE id = $1 AND app = $3 AND state <> 'finished' AND ($4 OR state <> 'stopped')
            RETURNING \(ImportJob.columns)
            """,
            [.integer(id), .uuid(runner), .text(app), .boolean(evenIfStopped)]
        ).first
        guard let row else {
            throw ImportError(.taken, "the import has finished already, or was deleted")
        }
        return (try ImportJob(row), runner)
    }

    /// Locks a job in a batch's transaction.
    ///
    /// - Throws: `ImportError` of kind `taken` if this runner may not continue it.
    static func lock(
        _ job: ImportJob,
        _ runner: String,
        _ transaction: PostgresTransaction
    ) async throws {
        let row = try await transaction.execute(
            """
            SELECT state, runner = $2::uuid AS mine, position FROM imports WHERE id = $1 FOR UPDATE
            """,
            [.integer(job.id), .uuid(runner)]
        ).first
        guard let row else { throw ImportError(.taken, "the import was deleted") }
        guard try row.booleanOrNil("mine") == true else {
            throw ImportError(.taken, "another process continues this import")
        }
        let state = try row.text("state")
        guard state == ImportJob.State.running.rawValue else {
            throw ImportError(.taken, "the import is \(state)")
        }
        guard try row.integer("position") == job.position.bytes else {
            throw ImportError(.taken, "the import is at another place of the file")
        }
    }

    /// Stores a batch's progress in its transaction.
    static func advance(
        _ job: ImportJob,
        by progress: ImportProgress,
        _ transaction: PostgresTransaction
    ) async throws {
        var statements: [(sql: String, parameters: [PostgresValue])] = [
            (
                """
                UPDATE imports SET position = $2, line = $3, consumed = $4,
                    records = records + $5, imported = imported + $6, updated = updated + $7,
                    skipped = skipped + $8, rejected = rejected + $9, state = $10,
                    updated_at = clock_timestamp(),
                    finished_at = CASE WHEN $10 = 'finished' THEN clock_timestamp() END
                WHERE id = $1
                """,
                [
                    .integer(job.id), .integer(progress.position.bytes),
                    .integer(progress.position.line), .integer(progress.position.consumed),
                    .integer(progress.counts.records), .integer(progress.counts.imported),
                    .integer(progress.counts.updated), .integer(progress.counts.skipped),
                    .integer(progress.counts.rejected),
                    .text(progress.isLast ? "finished" : "running"),
                ]
            )
        ]
        if !progress.reasons.isEmpty {
            let reasons = progress.reasons.sortedByKey()
            statements.append(
                (
                    """
                    INSERT INTO import_reasons AS r (import, reason, lines, examples)
                    SELECT $1::bigint, w.reason, w.lines, w.examples::bigint[]
                    FROM unnest($2::text[], $3::bigint[], $4::text[]) AS w(reason, lines, examples)
                    ON CONFLICT (import, reason) DO UPDATE SET lines = r.lines + excluded.lines,
                        examples = (r.examples || excluded.examples)[1:\(ImportLimits.examples)]
                    """,
                    [
                        .integer(job.id), .textArray(reasons.map(\.key)),
                        .integerArray(reasons.map(\.value.lines)),
                        .textArray(
                            reasons.map { _, value in
                                "{\(value.examples.map(String.init).joined(separator: ","))}"
                            }
                        ),
                    ]
                )
            )
            let room = max(0, ImportLimits.storedRejections - job.counts.rejected)
            let stored = progress.rejections.prefix(room)
            statements.append(
                (
                    """
                    INSERT INTO import_rejections (import, line, reason)
                    SELECT $1::bigint, w.line, w.reason FROM unnest($2::bigint[], $3::text[]) AS w(line, reason)
                    ON CONFLICT DO NOTHING
                    """,
                    [
                        .integer(job.id), .integerArray(stored.map(\.line)),
                        .textArray(stored.map(\.reason)),
                    ]
                )
            )
        }
        _ = try await transaction.pipeline(statements)
    }

    /// Ends a run of a job: with a failure, or paused.
    func leave(
        _ job: ImportJob,
        _ runner: String,
        as state: ImportJob.State,
        failure: String? = nil
    ) async throws {
        _ = try await database.execute(
            """
            UPDATE imports SET state = $3, failure = $4, updated_at = now()
            WHERE id = $1 AND runner = $2::uuid AND state = 'running'
            """,
            [
                .integer(job.id), .uuid(runner), .text(state.rawValue),
                failure.map { .text($0) } ?? .null,
            ]
        )
    }
}

/// The progress of one batch.
struct ImportProgress: Sendable {
    struct Reason: Sendable {
        var lines = 0
        var examples: [Int] = []
    }

    var position: ImportPosition
    var counts = ImportCounts()
    var isLast: Bool
    var reasons: ExactStringMap<Reason> = [:]
    var rejections: [ImportRejection] = []

    /// The reason under which further reasons are counted, once there are too many.
    static let otherReasons = "other reasons"

    /// Counts an outcome. `known` has the reasons of the import before this batch.
    mutating func add(_ outcome: ImportOutcome, line: Int, known: ExactStringSet) {
        counts.add(outcome)
        guard case .rejected(let reason) = outcome else { return }
        rejections.append(ImportRejection(line: line, reason: reason))
        let isNew = !known.contains(reason) && reasons[reason] == nil
        let isFull = isNew && known.count + reasons.count >= ImportLimits.reasons
        let counted = isFull ? Self.otherReasons : reason
        var entry = reasons[counted] ?? Reason()
        entry.lines += 1
        if entry.examples.count < ImportLimits.examples { entry.examples.append(line) }
        reasons[counted] = entry
    }
}
