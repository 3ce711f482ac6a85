import JSON
import Postgres
package import Storage

extension PushDatabase {
    package var importUploads: ImportUploadStore { ImportUploadStore(database: database) }
}

/// The uploaded files of imports. A file is stored in parts as it arrives; once it is whole, the operator
/// gives it a task, and a replica claims the task by a lease.
package struct ImportUploadStore: Sendable {
    let database: Database

    /// How long a claim is valid without renewal: after a crash another replica continues this
    /// long after the last heartbeat.
    static let lease = Duration.seconds(15)
    static let heartbeat = Duration.seconds(3)

    // MARK: Uploading

    /// The most files that an app has stored at a time.
    package static let mostFiles = 5

    /// Begins an upload, with a job that is paused.
    ///
    /// - Returns: The job's id; `nil` if the app has `mostFiles` files.
    package func begin(
        app: String,
        format: ImportFormat,
        fileName: String,
        options: ImportOptions,
        author: String
    ) async throws -> Int? {
        try await database.execute(
            """
            WITH job AS (
                INSERT INTO imports (app, format, file_name, options, state, author)
                SELECT $1, $2, $3, $4::jsonb, 'paused', $5
                WHERE (SELECT count(*) FROM import_uploads WHERE app = $1) < $6
                RETURNING id, app)
            INSERT INTO import_uploads (import, app) SELECT id, app FROM job RETURNING import
            """,
            [
                .text(app), .text(format.rawValue), .text(fileName),
                .json(.object(options.json)), .text(author), .integer(Self.mostFiles),
            ]
        ).first?.integer("import")
    }

    /// Stores the next part: `ImportParts.partBytes`, or less if it is the last.
    package func append(_ bytes: [UInt8], number: Int, to id: Int) async throws {
        _ = try await database.execute(
            "INSERT INTO import_parts (import, number, bytes) VALUES ($1, $2, $3)",
            [.integer(id), .integer(number), .bytes(bytes)]
        )
    }

    /// Marks an upload as whole.
    package func finish(_ id: Int, parts: Int, bytes: Int, isGzip: Bool) async throws {
        _ = try await database.transaction(of: [
            (
                """
                UPDATE import_uploads SET parts = $2, is_whole = true, is_gzip = $3, updated_at = now()
                WHERE import = $1
                """,
                [.integer(id), .integer(parts), .boolean(isGzip)]
            ),
            (
                "UPDATE imports SET file_bytes = $2, updated_at = now() WHERE id = $1",
                [.integer(id), .integer(bytes)]
            ),
        ])
    }

    /// Deletes an upload that did not become whole, with its job.
    package func abandon(_ id: Int) async throws {
        _ = try await database.execute(
            """
            DELETE FROM imports WHERE id = (
                SELECT import FROM import_uploads WHERE import = $1 AND NOT is_whole)
            """,
            [.integer(id)]
        )
    }

    // MARK: The operator's acts

    package func find(_ id: Int, app: String) async throws -> ImportUpload? {
        try await database.execute(
            "SELECT \(ImportUpload.columns) FROM import_uploads WHERE import = $1 AND app = $2",
            [.integer(id), .text(app)]
        ).first.map(ImportUpload.init)
    }

    /// The parts of a file, for `ImportInput`.
    package func parts(of upload: ImportUpload) -> ImportParts {
        ImportParts(count: upload.parts) { [database] number in
            try await database.execute(
                "SELECT bytes FROM import_parts WHERE import = $1 AND number = $2",
                [.integer(upload.id), .integer(number)]
            ).first?.bytes("bytes")
        }
    }

    /// Gives a whole file a task. The options are set if nothing is imported yet: an import has one
    /// mapping. A replica that still ends an earlier task loses its claim, so that it does not end this one.
    ///
    /// - Returns: Whether it has the task: not if it has one already, is not whole, or is to be tried and
    ///   has been imported in part, as its first parts are deleted then.
    package func order(
        _ task: ImportUpload.Task,
        _ id: Int,
        app: String,
        options: ImportOptions?
    ) async throws -> Bool {
        let results = try await database.transaction(of: [
            (
                """
                UPDATE import_uploads SET task = $3, runner = NULL, leased_until = NULL,
                    updated_at = now(),
                    dry_run = CASE WHEN $3 = 'dry_run' THEN NULL ELSE dry_run END
                WHERE import = $1 AND app = $2 AND is_whole AND task IS NULL
                    AND import IN (SELECT id FROM imports WHERE state IN ('paused', 'failed')
                        AND ($3 = 'run' OR records = 0))
                """,
                [.integer(id), .text(app), .text(task.rawValue)]
            ),
            (
                """
                UPDATE imports SET options = coalesce($3::jsonb, options), updated_at = now()
                WHERE id = $1 AND app = $2 AND records = 0
                    AND id IN (SELECT import FROM import_uploads WHERE task = $4)
                """,
                [
                    .integer(id), .text(app), options.map { .json(.object($0.json)) } ?? .null,
                    .text(task.rawValue),
                ]
            ),
        ])
        return results[0].affectedRows > 0
    }

    /// Takes the task back: a run ends after its current batch, and can continue.
    ///
    /// - Returns: Whether there was one.
    package func pause(_ id: Int, app: String) async throws -> Bool {
        try await database.transaction(of: [
            (
                """
                UPDATE import_uploads SET task = NULL, updated_at = now()
                WHERE import = $1 AND app = $2 AND task IS NOT NULL
                """,
                [.integer(id), .text(app)]
            ),
            (
                """
                UPDATE imports SET state = 'paused', updated_at = now()
                WHERE id = $1 AND app = $2 AND state = 'running'
                    AND id IN (SELECT import FROM import_uploads)
                """,
                [.integer(id), .text(app)]
            ),
        ])[0].affectedRows > 0
    }

    /// Stops an import for good, and deletes its file.
    ///
    /// - Returns: Whether it was not finished or stopped before.
    package func stop(_ id: Int, app: String) async throws -> Bool {
        try await database.transaction(of: [
            (
                """
                UPDATE imports SET state = 'stopped', updated_at = now(),
                    finished_at = clock_timestamp()
                WHERE id = $1 AND app = $2 AND state NOT IN ('finished', 'stopped')
                    AND id IN (SELECT import FROM import_uploads)
                """,
                [.integer(id), .text(app)]
            ),
            (
                "DELETE FROM import_uploads WHERE import = $1 AND app = $2",
                [.integer(id), .text(app)]
            ),
        ])[0].affectedRows > 0
    }

    // MARK: Replicas

    /// Claims the oldest task that no replica works on, of an app none of whose tasks is worked on.
    func claim(_ runner: String) async throws -> ImportUpload? {
        try await database.transaction(of: [
            // Two replicas must not claim two tasks of one app.
            (
                """
                SELECT pg_advisory_xact_lock(
                    hashtextextended('carillon imports ' || current_schema(), 0))
                """, []
            ),
            (
                """
                UPDATE import_uploads SET runner = $1::uuid, leased_until = now() + \(Self.leaseSQL),
                    started_at = clock_timestamp(),
                    started_records = (SELECT records FROM imports WHERE id = import)
                WHERE import = (
                    SELECT u.import FROM import_uploads u
                    WHERE u.task IS NOT NULL AND (u.leased_until IS NULL OR u.leased_until < now())
                        AND NOT EXISTS (SELECT FROM import_uploads o
                            WHERE o.app = u.app AND o.import <> u.import AND o.leased_until > now())
                    ORDER BY u.import LIMIT 1 FOR UPDATE SKIP LOCKED)
                RETURNING \(ImportUpload.columns)
                """,
                [.uuid(runner)]
            ),
        ])[1].first.map(ImportUpload.init)
    }

    /// Renews a claim, and deletes the parts of a plain file that are imported. The first part stays, as it
    /// has the header line; a gzip file is read from its beginning.
    ///
    /// - Returns: Whether the replica may continue.
    func renew(_ id: Int, _ runner: String) async throws -> Bool {
        try await database.execute([
            (
                """
                UPDATE import_uploads SET leased_until = now() + \(Self.leaseSQL), updated_at = now()
                WHERE import = $1 AND runner = $2::uuid AND task IS NOT NULL
                """,
                [.integer(id), .uuid(runner)]
            ),
            (
                """
                DELETE FROM import_parts p USING import_uploads u, imports i
                WHERE p.import = $1 AND u.import = $1 AND i.id = $1 AND NOT u.is_gzip
                    AND p.number > 0 AND p.number < i.position / \(ImportParts.partBytes)
                """,
                [.integer(id)]
            ),
        ])[0].affectedRows > 0
    }

    /// Ends a claim. A task that is not done is claimed again.
    func release(
        _ id: Int,
        _ runner: String,
        isDone: Bool,
        dryRun: ImportDryRun? = nil
    ) async throws {
        _ = try await database.execute(
            """
            UPDATE import_uploads SET runner = NULL, leased_until = NULL, updated_at = now(),
                task = CASE WHEN $3 THEN NULL ELSE task END, dry_run = coalesce($4::jsonb, dry_run)
            WHERE import = $1 AND runner = $2::uuid
            """,
            [
                .integer(id), .uuid(runner), .boolean(isDone),
                dryRun.map { .json($0.json) } ?? .null,
            ]
        )
    }

    /// Deletes the file of a finished import.
    func delete(_ id: Int, _ runner: String) async throws {
        _ = try await database.execute(
            "DELETE FROM import_uploads WHERE import = $1 AND runner = $2::uuid",
            [.integer(id), .uuid(runner)]
        )
    }

    private static let leaseSQL = "interval '\(lease.components.seconds) seconds'"
}
