import IngestStorage
import Postgres
import PushCore
import PushStorage
import Storage

/// The counts of everything that was erased with an app.
package struct AppDeletion: Sendable, Equatable {
    package enum Refusal: Error {
        /// A dispatcher still owns deliveries of the app.
        case isBeingSent
    }

    package var installations = 0
    package var pushes = 0
    package var deliveries = 0
    package var eventKeys = 0
    package var configVersions = 0
    package var configFetches = 0
    package var configTokens = 0
    package var links = 0
    package var securePayloads = 0
    package var secureReaders = 0
    package var secureSecrets = 0
    package var connectionMessages = 0
    package var syncDatasets = 0
    package var ingestObjects = 0

    package var counts: [(name: String, count: Int)] {
        [
            ("installations", installations), ("pushes", pushes), ("deliveries", deliveries),
            ("event keys", eventKeys), ("config versions", configVersions),
            ("config fetches", configFetches), ("config tokens", configTokens), ("links", links),
            ("secure payloads", securePayloads), ("device readers", secureReaders),
            ("identity secrets", secureSecrets), ("connection messages", connectionMessages),
            ("datasets", syncDatasets),
            ("ingested objects", ingestObjects),
        ]
    }
}

/// Erases an app with all its data, in batches, each in a transaction of its own. One statement
/// over a million installations would end at the statement timeout, and hold its locks until then.
/// An interrupted call leaves the app partly deleted, and must be repeated. It can be, as the app's
/// row is deleted last. The audit stays: it must
/// outlive the app.
extension AppStore {
    private static let rowsAtOnce = 2000
    /// Each row has some hundred deliveries.
    private static let chunksAtOnce = 100
    /// A template may have some MiB.
    private static let templatesAtOnce = 20
    /// A payload has up to 64 KiB, and as much for each device that it was sealed to.
    private static let payloadsAtOnce = 200
    /// A dataset has up to 1 MiB.
    private static let datasetsAtOnce = 50
    /// A part of an uploaded file has 1 MiB.
    private static let partsAtOnce = 50
    /// The number of checks whether a dispatcher has released its rows, a tenth of a second apart.
    private static let looks = 300

    /// - Parameter id: The app.
    /// - Returns: The counts of erased rows.
    /// - Throws: `AppDeletion.Refusal` if a dispatcher does not release its deliveries;
    ///   `StorageError`.
    package func delete(_ id: String) async throws -> AppDeletion {
        var deletion = AppDeletion()
        try await close(id, &deletion)
        try await deleteSecure(of: id, &deletion)
        _ = try await deleteRows(
            """
            DELETE FROM import_parts WHERE (import, number) IN (
                SELECT p.import, p.number FROM import_parts p JOIN import_uploads u ON u.import = p.import
                WHERE u.app = $1 ORDER BY p.import, p.number LIMIT $2)
            """,
            of: id,
            atOnce: Self.partsAtOnce
        )
        deletion.syncDatasets = try await deleteRows(
            """
            DELETE FROM sync_datasets WHERE id IN (
                SELECT d.id FROM sync_datasets d JOIN sync_pools p ON p.id = d.pool
                WHERE p.app = $1 ORDER BY d.id LIMIT $2 FOR UPDATE OF d)
            """,
            of: id,
            atOnce: Self.datasetsAtOnce
        )
        deletion.ingestObjects = try await IngestRemoval(database: database, app: id).run()
        try await cancelAll(of: id)
        try await waitUntilIdle(id)
        repeat {
            try await deletePushes(of: id, &deletion)
            // Pushes may have been accepted meanwhile.
            try await cancelAll(of: id)
        } while try await hasPushes(id)
        deletion.connectionMessages = try await deleteRows(
            """
            DELETE FROM connection_messages WHERE seq IN (
                SELECT seq FROM connection_messages WHERE app = $1
                ORDER BY target, seq LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        deletion.configFetches = try await deleteRows(
            """
            DELETE FROM config_fetched WHERE app = $1 AND installation IN (
                SELECT installation FROM config_fetched WHERE app = $1
                ORDER BY installation LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        deletion.installations = try await deleteRows(
            """
            DELETE FROM installations WHERE app = $1 AND object_id IN (
                SELECT object_id FROM installations WHERE app = $1
                ORDER BY object_id LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        deletion.eventKeys = try await deleteRows(
            """
            DELETE FROM event_keys WHERE app = $1 AND (source, id) IN (
                SELECT source, id FROM event_keys WHERE app = $1
                ORDER BY source, id LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        deletion.configVersions = try await deleteRows(
            """
            DELETE FROM config_versions WHERE app = $1 AND (namespace, version) IN (
                SELECT namespace, version FROM config_versions WHERE app = $1
                ORDER BY namespace, version LIMIT $2 FOR UPDATE)
            """,
            of: id,
            atOnce: Self.templatesAtOnce
        )
        // The last outcomes of the app may come later; they go with the app.
        _ = try await deleteRows(
            """
            DELETE FROM push_figures WHERE ctid IN (
                SELECT ctid FROM push_figures WHERE app = $1 LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        _ = try await deleteRows(
            """
            DELETE FROM identities WHERE app = $1 AND id IN (
                SELECT id FROM identities WHERE app = $1 ORDER BY id LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        try await database.transaction { transaction in
            _ = try await transaction.execute("DELETE FROM apps WHERE id = $1", [.text(id)])
            try await Self.notifyAppDeleted(id, transaction)
        }
        // Processes that still saw the app may have planned pushes.
        try await deletePushes(of: id, &deletion)
        return deletion
    }

    /// Deletes the contents, and the secrets and keys for reading them.
    private func deleteSecure(of id: String, _ deletion: inout AppDeletion) async throws {
        deletion.securePayloads = try await deleteRows(
            """
            DELETE FROM secure_payloads WHERE id IN (
                SELECT id FROM secure_payloads WHERE app = $1
                ORDER BY created_at, id LIMIT $2 FOR UPDATE)
            """,
            of: id,
            atOnce: Self.payloadsAtOnce
        )
        deletion.secureReaders = try await deleteRows(
            """
            DELETE FROM secure_readers WHERE app = $1 AND installation IN (
                SELECT installation FROM secure_readers WHERE app = $1
                ORDER BY installation LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        deletion.secureSecrets = try await deleteRows(
            """
            DELETE FROM identity_secrets WHERE app = $1 AND identity IN (
                SELECT identity FROM identity_secrets WHERE app = $1
                ORDER BY identity LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
        _ = try await deleteRows(
            """
            DELETE FROM secure_keys WHERE app = $1 AND key IN (
                SELECT key FROM secure_keys WHERE app = $1 ORDER BY key LIMIT $2 FOR UPDATE)
            """,
            of: id
        )
    }

    /// Closes the app: from here on its keys are invalid, and nothing can be sent for it.
    private func close(_ id: String, _ deletion: inout AppDeletion) async throws {
        let counts = try await database.transaction { transaction in
            _ = try await transaction.execute(
                """
                UPDATE apps SET app_key_sealed = '', master_key_sealed = '',
                    app_key_digest = sha256(uuid_send(gen_random_uuid())),
                    master_key_digest = sha256(uuid_send(gen_random_uuid())) WHERE id = $1
                """,
                [.text(id)]
            )
            _ = try await transaction.execute(
                "UPDATE sync_pools SET is_linked = false WHERE app = $1",
                [.text(id)]
            )
            // A running import ends with its batch, and no other begins.
            _ = try await transaction.execute(
                "UPDATE import_uploads SET task = NULL, is_whole = false WHERE app = $1",
                [.text(id)]
            )
            try await IngestRemoval.close(id, transaction)
            var counts: [String: Int] = [:]
            let tables = [
                "retired_keys", "credentials", "config_tokens", "app_links", "console_logins",
                "realm_figures",
            ]
            for table in tables {
                counts[table] = try await transaction.execute(
                    "DELETE FROM \(table) WHERE app = $1",
                    [.text(id)]
                ).affectedRows
            }
            try await Self.notifyAppDeleted(id, transaction)
            return counts
        }
        deletion.configTokens = counts["config_tokens"] ?? 0
        deletion.links = counts["app_links"] ?? 0
    }

    private static func notifyAppDeleted(_ id: String, _ transaction: PostgresTransaction)
        async throws
    {
        _ = try await transaction.execute(
            "SELECT pg_notify('\(NotifyChannel.credentials.rawValue)', $1)",
            [.text(id)]
        )
    }

    private func cancelAll(of id: String) async throws {
        let pushes = PushStore(database: database)
        var last: (createdAt: Int64, id: String) = (0, "00000000-0000-0000-0000-000000000000")
        while true {
            let waiting = try await database.execute(
                """
                SELECT id, created_at FROM pushes
                WHERE app = $1 AND status NOT IN \(PushStatus.sql(where: \.isFinal))
                    AND (created_at, id) > ($2, $3)
                ORDER BY created_at, id LIMIT 100
                """,
                [.text(id), .timestamp(last.createdAt), .uuid(last.id)]
            ).rows
            guard let end = waiting.last else { return }
            for row in waiting { try await pushes.cancelWithoutOutcomes(try row.uuid("id")) }
            last = (try end.timestampMicroseconds("created_at"), try end.uuid("id"))
        }
    }

    /// Waits until no dispatcher owns a row of the app. A dispatcher records a delivery in flight
    /// only after the provider's answer, and owns the row until then.
    private func waitUntilIdle(_ id: String) async throws {
        for _ in 0..<Self.looks {
            let isBusy = try await database.transaction { transaction in
                // Shards that a dispatcher has released after the cancellation are ended here: no
                // session needs to claim them.
                let left = try await transaction.execute(
                    """
                    SELECT DISTINCT push_id FROM shards
                    WHERE app = $1 AND NOT finished AND owner IS NULL
                    ORDER BY push_id
                    """,
                    [.text(id)]
                ).rows
                for row in left {
                    try await PushLedger.endUnfinished(of: try row.uuid("push_id"), transaction)
                }
                try await IndexPlan.require(transaction)
                // The owned rows of all apps are few, and indexed.
                return try await transaction.execute(
                    """
                    SELECT EXISTS (SELECT FROM shards WHERE owner IS NOT NULL AND app = $1)
                        OR EXISTS (SELECT FROM deliveries
                            WHERE state = \(DeliveryState.pending.sql) AND owner IS NOT NULL AND app = $1) AS busy
                    """,
                    [.text(id)]
                ).first?.boolean("busy") == true
            }
            guard isBusy else { return }
            try await Task.sleep(for: .milliseconds(100))
        }
        throw AppDeletion.Refusal.isBeingSent
    }

    private func hasPushes(_ id: String) async throws -> Bool {
        try await database.execute(
            "SELECT EXISTS (SELECT FROM pushes WHERE app = $1) AS has",
            [.text(id)]
        ).first?.boolean("has") ?? false
    }

    /// Deletes all pushes of the app: first those that are stored as one row, then the others, some
    /// at a time, after their deliveries.
    private func deletePushes(of id: String, _ deletion: inout AppDeletion) async throws {
        try await deleteEventPushes(of: id, &deletion)
        while true {
            let found = try await database.execute(
                """
                SELECT id, (created_at AT TIME ZONE 'UTC')::date::text AS day FROM pushes
                WHERE app = $1 ORDER BY created_at, id LIMIT 100
                """,
                [.text(id)]
            ).rows
            guard !found.isEmpty else { return }
            var ids: [String] = []
            for row in found {
                let (push, day) = (try row.uuid("id"), try row.text("day"))
                ids.append(push)
                var count = Self.rowsAtOnce
                while count == Self.rowsAtOnce {
                    count = try await database.transaction { transaction in
                        try await IndexPlan.require(transaction)
                        return try await transaction.execute(
                            """
                            DELETE FROM deliveries
                            WHERE day = $2::date AND push_id = $1 AND target IN (
                                SELECT target FROM deliveries
                                WHERE day = $2::date AND push_id = $1 ORDER BY target LIMIT $3)
                            """,
                            [.uuid(push), .text(day), .integer(Self.rowsAtOnce)]
                        ).affectedRows
                    }
                    deletion.deliveries += count
                }
                deletion.deliveries += try await deleteChunks(of: push, day)
            }
            deletion.pushes += try await database.execute(
                "DELETE FROM pushes WHERE id = ANY ($1::uuid[])",
                [.uuidArray(ids)]
            ).affectedRows
        }
    }

    /// - Returns: The number of deliveries in them.
    private func deleteChunks(of pushID: String, _ day: String) async throws -> Int {
        var deliveries = 0
        while true {
            let gone = try await database.execute(
                """
                WITH gone AS (
                    DELETE FROM delivery_chunks WHERE day = $2::date AND push_id = $1 AND ctid IN (
                        SELECT ctid FROM delivery_chunks
                        WHERE day = $2::date AND push_id = $1 LIMIT $3 FOR UPDATE)
                    RETURNING cardinality(targets) AS deliveries)
                SELECT count(*) AS chunks, coalesce(sum(deliveries), 0)::bigint AS deliveries FROM gone
                """,
                [.uuid(pushID), .text(day), .integer(Self.chunksAtOnce)]
            )
            deliveries += try gone.first?.integer("deliveries") ?? 0
            guard try gone.first?.integer("chunks") == Self.chunksAtOnce else { return deliveries }
        }
    }

    /// Deletes the pushes that are stored as one row with their deliveries.
    private func deleteEventPushes(of id: String, _ deletion: inout AppDeletion) async throws {
        while true {
            let gone = try await database.execute(
                """
                WITH gone AS (
                    DELETE FROM event_pushes WHERE app = $1 AND (id, day) IN (
                        SELECT id, day FROM event_pushes WHERE app = $1
                        ORDER BY created_at, id LIMIT $2 FOR UPDATE)
                    RETURNING jsonb_array_length(deliveries) AS deliveries)
                SELECT count(*) AS pushes, coalesce(sum(deliveries), 0)::bigint AS deliveries FROM gone
                """,
                [.text(id), .integer(Self.rowsAtOnce)]
            )
            guard let row = gone.first, case let pushes = try row.integer("pushes"), pushes > 0
            else {
                return
            }
            deletion.pushes += pushes
            deletion.deliveries += try row.integer("deliveries")
        }
    }

    /// Repeats a statement, whose parameters are the app and a number of rows, until no rows are
    /// left.
    private func deleteRows(
        _ sql: String,
        of id: String,
        atOnce limit: Int = rowsAtOnce
    ) async throws -> Int {
        var total = 0
        while true {
            let count = try await database.execute(
                sql,
                [.text(id), .integer(limit)]
            ).affectedRows
            total += count
            if count == 0 { return total }
        }
    }
}
