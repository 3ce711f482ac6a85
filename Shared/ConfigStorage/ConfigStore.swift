import JSON
import Postgres
package import PushCore
import Storage

/// The store of remote config templates, by app and namespace: the current version, and earlier ones.
///
/// A transaction that changes the current version locks its row of `config_heads`, and last of all takes the next
/// revision of `config_clock`, whose single row it then locks until it commits: so revisions are in the order of
/// commits, and a reader that has seen one has seen all before it.
package struct ConfigStore: Sendable {
    let database: Database

    /// The number of stored versions per namespace, with the current one.
    package static let maximumVersions = 300
    /// The highest number a version may have: every client reads it exactly.
    package static let maximumVersion = 1 << 53
    /// The time that a publish waits for another of the same app.
    private static let lockTimeout = "SET LOCAL lock_timeout = '2s'"
    /// The time that a transaction with a contended lock may be idle: a stopped process, or a
    /// vanished host, would hold it until Postgres' system notices.
    static let idleTimeout = "SET LOCAL idle_in_transaction_session_timeout = '3s'"

    // MARK: Reading

    /// Returns the head; all zeros if nothing was published.
    package func head(_ app: String, _ namespace: String) async throws -> ConfigHead {
        try await database.execute(
            "SELECT \(ConfigHead.columns) FROM config_heads WHERE app = $1 AND namespace = $2",
            [.text(app), .text(namespace)]
        ).first.map(ConfigHead.init) ?? ConfigHead(app: app, namespace: namespace)
    }

    /// Returns a valid version, with its template.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - namespace: `firebase` or `firebase-server`.
    ///   - version: `nil`: the current one.
    /// - Returns: `nil` if it does not exist.
    /// - Throws: `StorageError`.
    package func version(
        _ app: String,
        _ namespace: String,
        _ version: Int? = nil
    ) async throws -> StoredConfigVersion? {
        try await database.execute(
            """
            SELECT \(StoredConfigVersion.columns), template FROM config_versions
            WHERE app = $1 AND namespace = $2 AND state = \(ConfigVersionState.good.sql)
                AND version = coalesce($3, (SELECT current_version FROM config_heads
                    WHERE app = $1 AND namespace = $2))
            """,
            [.text(app), .text(namespace), .optional(integer: version)]
        ).first.map { try StoredConfigVersion($0, withTemplate: true) }
    }

    /// Returns the current versions of an app's namespaces, by namespace, without their templates.
    package func current(of app: String) async throws -> [StoredConfigVersion] {
        try await database.execute(
            """
            SELECT \(StoredConfigVersion.columns) FROM config_versions
            WHERE app = $1 AND (namespace, version) IN (
                SELECT h.namespace, h.current_version FROM config_heads h WHERE h.app = $1)
            ORDER BY namespace
            """,
            [.text(app)]
        ).rows.map { try StoredConfigVersion($0, withTemplate: false) }
    }

    /// Returns versions without their templates, newest first. Their times are compared as they are
    /// shown, in milliseconds.
    package func versions(
        _ app: String,
        _ namespace: String,
        _ filter: ConfigVersionFilter
    ) async throws -> [StoredConfigVersion] {
        try await database.execute(
            """
            SELECT \(StoredConfigVersion.columns) FROM config_versions
            WHERE app = $1 AND namespace = $2
                AND ($3 OR state = \(ConfigVersionState.good.sql))
                AND ($4::bigint IS NULL OR version <= $4)
                AND ($5::bigint IS NULL OR version < $5)
                AND ($6::timestamptz IS NULL OR date_trunc('milliseconds', published_at) >= $6)
                AND ($7::timestamptz IS NULL OR date_trunc('milliseconds', published_at) <= $7)
            ORDER BY version DESC LIMIT $8
            """,
            [
                .text(app), .text(namespace), .boolean(filter.includesRefused),
                .optional(integer: filter.endVersion), .optional(integer: filter.before),
                .optional(timestamp: filter.startTime?.microseconds),
                .optional(timestamp: filter.endTime?.microseconds), .integer(filter.limit),
            ]
        ).rows.map { try StoredConfigVersion($0, withTemplate: false) }
    }

    // MARK: Revisions

    /// Returns the latest revision. A reader of all revisions up to it knows all current versions.
    package func revision() async throws -> Int {
        let row = try await database.execute("SELECT revision FROM config_clock").first
        return try row?.integer("revision") ?? 0
    }

    /// Returns the heads that changed in a namespace after a revision, oldest first.
    ///
    /// - Parameters:
    ///   - namespace: `firebase` or `firebase-server`.
    ///   - revision: A known revision; 0: everything.
    ///   - limit: The maximum; fewer mean that none are left.
    /// - Returns: Heads without templates.
    /// - Throws: `StorageError`.
    package func heads(
        of namespace: String,
        after revision: Int,
        limit: Int = 1000
    ) async throws -> [ConfigHead] {
        try await database.execute(
            """
            SELECT \(ConfigHead.columns) FROM config_heads
            WHERE namespace = $1 AND revision > $2 ORDER BY revision LIMIT $3
            """,
            [.text(namespace), .integer(revision), .integer(limit)]
        ).rows.map(ConfigHead.init)
    }

    // MARK: Origin

    // A server gets its identifier from initdb, and its standbys share it.
    private static let originSQL = """
        SELECT 'carillon/' || c.system_identifier || '/' || d.oid || '/' || current_schema() AS origin
        FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()
        """

    /// Returns the unique name of this database: the records of its own versions carry it as `RecordHeader.origin`.
    /// Records of another Carillon have another one, even if they are mirrored here.
    package func origin() async throws -> String? {
        try await database.execute(Self.originSQL).first?.text("origin")
    }

    // MARK: Writing

    /// Makes a template current, with the record that announces it.
    ///
    /// - Parameters:
    ///   - new: The template.
    ///   - expected: The version that its publisher considers current.
    ///   - record: Makes the announcement from its number and kind.
    /// - Returns: The stored version.
    /// - Throws: `ConfigVersionMismatch`, `ConfigVersionsExhausted`; `StorageError`, retryable while another publishes.
    package func publish(
        _ new: NewConfigVersion,
        expecting expected: ExpectedConfigVersion,
        record: @escaping @Sendable (Int, ConfigUpdateType) -> OutgoingRecord
    ) async throws -> StoredConfigVersion {
        try await changing(new.app, new.namespace) { head, transaction in
            let type: ConfigUpdateType
            switch expected {
            case .any: type = .forced
            case .version(head.currentVersion): type = .incremental
            case .version(let version):
                throw ConfigVersionMismatch(expected: version, found: head.currentVersion)
            }
            return try await Self.append(new, type, after: head, record, transaction)
        }
    }

    /// Makes an older version's content current again, as a new version.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - namespace: `firebase` or `firebase-server`.
    ///   - version: The older version.
    ///   - user: The requester.
    ///   - expected: The version that the requester considers current.
    ///   - record: Makes the announcement from its number and kind.
    /// - Returns: The stored version.
    /// - Throws: `ConfigVersionMismatch`, `ConfigRollbackError`, `ConfigVersionsExhausted`; `StorageError`,
    ///   retryable while another publishes.
    package func rollBack(
        _ app: String,
        _ namespace: String,
        to version: Int,
        by user: ConfigUser,
        expecting expected: ExpectedConfigVersion = .any,
        record: @escaping @Sendable (Int, ConfigUpdateType) -> OutgoingRecord
    ) async throws -> StoredConfigVersion {
        try await changing(app, namespace) { head, transaction in
            if case .version(let known) = expected, known != head.currentVersion {
                throw ConfigVersionMismatch(expected: known, found: head.currentVersion)
            }
            guard version < head.currentVersion else {
                guard head.currentVersion > 0 else { throw ConfigRollbackError.notFound }
                throw ConfigRollbackError.notOlder(current: head.currentVersion)
            }
            let found = try await transaction.execute(
                """
                SELECT template FROM config_versions WHERE app = $1 AND namespace = $2
                    AND version = $3 AND state = \(ConfigVersionState.good.sql)
                """,
                [.text(app), .text(namespace), .integer(version)]
            )
            guard let template = try found.first?.json("template").object else {
                throw ConfigRollbackError.notFound
            }
            let new = NewConfigVersion(
                app: app,
                namespace: namespace,
                template: template,
                description: "Rollback to version \(version)",
                user: user
            )
            return try await Self.append(
                new,
                .rollback,
                source: version,
                after: head,
                record,
                transaction
            )
        }
    }

    /// Runs one transaction that locks the head.
    private func changing(
        _ app: String,
        _ namespace: String,
        _ body:
            @escaping @Sendable (ConfigHead, PostgresTransaction) async throws ->
            StoredConfigVersion
    ) async throws -> StoredConfigVersion {
        try await database.transaction { transaction in
            let head = try await transaction.pipeline([
                (Self.lockTimeout, []), (Self.idleTimeout, []),
                (
                    """
                    INSERT INTO config_heads (app, namespace) VALUES ($1, $2)
                    ON CONFLICT DO NOTHING
                    """,
                    [.text(app), .text(namespace)]
                ),
                (
                    """
                    SELECT \(ConfigHead.columns) FROM config_heads
                    WHERE app = $1 AND namespace = $2 FOR UPDATE
                    """,
                    [.text(app), .text(namespace)]
                ),
            ])[3].first.map(ConfigHead.init)
            return try await body(
                head ?? ConfigHead(app: app, namespace: namespace),
                transaction
            )
        }
    }

    /// Appends a version to those of a locked head.
    private static func append(
        _ new: NewConfigVersion,
        _ type: ConfigUpdateType,
        source: Int? = nil,
        after head: ConfigHead,
        _ record: (Int, ConfigUpdateType) -> OutgoingRecord,
        _ transaction: PostgresTransaction
    ) async throws -> StoredConfigVersion {
        // Another system may have announced versions of its own before the template was stored here,
        // or may be about to.
        let announced = try await transaction.execute(
            """
            SELECT greatest(
                (SELECT announced_version FROM config_announcements
                    WHERE app = $1 AND namespace = $2),
                (SELECT max(version) FROM config_pending
                    WHERE app = $1 AND namespace = $2)) AS version
            """,
            [.text(new.app), .text(new.namespace)]
        ).first?.integerOrNil("version")
        let version = max(head.lastVersion, head.currentVersion, announced ?? 0) + 1
        guard version <= maximumVersion else { throw ConfigVersionsExhausted() }
        let added = try await transaction.execute(
            """
            INSERT INTO config_versions AS v (app, namespace, version, template, description,
                update_type, user_name, user_email, rollback_source, state)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \(ConfigVersionState.good.sql))
            RETURNING \(StoredConfigVersion.columns)
            """,
            [
                .text(new.app), .text(new.namespace), .integer(version),
                .json(.object(new.template)), .text(new.description), .text(type.rawValue),
                .text(new.user.name), .text(new.user.email), .optional(integer: source),
            ]
        )
        guard let row = added.first else {
            throw StorageError(.corrupt, "a version was written and is not there")
        }
        var stored = try StoredConfigVersion(row, withTemplate: false)
        stored.template = .object(new.template)
        try await makeCurrent(stored, record(version, type), transaction)
        return stored
    }

    /// Makes a version current that is higher than the current one, deletes versions beyond the
    /// limit, and announces it. The head must be locked.
    static func makeCurrent(
        _ stored: StoredConfigVersion,
        _ record: OutgoingRecord,
        _ transaction: PostgresTransaction
    ) async throws {
        let place: [PostgresValue] = [.text(stored.app), .text(stored.namespace)]
        var record = record
        let origin = try await transaction.pipeline([
            (
                """
                DELETE FROM config_versions WHERE app = $1 AND namespace = $2 AND version < $3
                    AND version <= (SELECT version FROM config_versions
                        WHERE app = $1 AND namespace = $2
                        ORDER BY version DESC OFFSET \(maximumVersions) LIMIT 1)
                """,
                place + [.integer(stored.version)]
            ), (originSQL, []),
        ])[1]
        // The Kafka record is for other systems: the announcement does not wait for its round trip, and
        // the consumer recognises and ignores it by its origin.
        if let row = origin.first {
            record.headers.append(RecordHeader(RecordHeader.origin, try row.text("origin")))
        }
        try await OutboxStore.append([record], transaction)
        if stored.namespace == ConfigAnnouncementStore.announcedNamespace {
            _ = try await transaction.execute(
                """
                INSERT INTO config_pending (app, namespace, version, update_type)
                VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
                """,
                place + [.integer(stored.version), .text(stored.updateType)]
            )
            try await NotifyChannel.configPending.notify(transaction)
        }
        // The clock comes last: all other writers wait for it.
        _ = try await transaction.pipeline([
            (
                "SELECT pg_notify('\(NotifyChannel.config.rawValue)', $1)",
                [.text(stored.app)]
            ),
            (
                """
                WITH tick AS (UPDATE config_clock SET revision = revision + 1 RETURNING revision)
                UPDATE config_heads h SET current_version = $3,
                    last_version = greatest(last_version, $3), revision = tick.revision
                FROM tick WHERE app = $1 AND namespace = $2
                """,
                place + [.integer(stored.version)]
            ),
        ])
    }
}
