import JSON
import Postgres
import PushCore

/// What push sync keeps of a subject: an identity's datasets, records, devices and subscriptions; of a
/// device, by whomever it was registered, itself and what it wants to hear of.
enum SubjectSync {
    /// The pools of `$1`, and what is the subject's in them: `$2` its installations, `$3` the identity.
    private static let devices = """
        SELECT v.id, v.device_id FROM sync_devices v
        WHERE v.app = $1 AND (v.installation = ANY ($2::text[])
            OR v.identity = $3 AND v.pool IN (SELECT p.id FROM sync_pools p WHERE p.app = $1))
        """
    private static let datasets = """
        SELECT d.id FROM sync_datasets d
        WHERE d.identity = $2 AND d.pool IN (SELECT p.id FROM sync_pools p WHERE p.app = $1)
        """

    static func erase(
        _ subject: Subject,
        installations: [String],
        _ note: inout ErasureNotes.Note,
        _ transaction: PostgresTransaction
    ) async throws {
        if let identity = identity(of: subject) {
            let own: [PostgresValue] = [.text(subject.app), identity]
            for (name, sql) in [
                ("syncRecords", "DELETE FROM sync_records WHERE dataset IN (\(datasets))"),
                (
                    "syncSubscriptions",
                    "DELETE FROM sync_subscriptions WHERE dataset IN (\(datasets))"
                ), ("syncDatasets", "DELETE FROM sync_datasets WHERE id IN (\(datasets))"),
            ] {
                note.counts[name] += try await transaction.execute(sql, own).affectedRows
            }
        }
        let own = parameters(subject, installations)
        note.counts["syncSubscriptions"] += try await transaction.execute(
            "DELETE FROM sync_subscriptions WHERE device IN (SELECT id FROM (\(devices)) v)",
            own
        ).affectedRows
        let gone = try await transaction.execute(
            "DELETE FROM sync_devices WHERE id IN (SELECT id FROM (\(devices)) v) RETURNING device_id",
            own
        )
        note.counts["syncDevices"] += gone.affectedRows
        for row in gone.rows { note.names.add(device: try row.text("device_id")) }
    }

    /// What `erase` would count.
    static func count(
        of subject: Subject,
        installations: [String],
        _ counts: inout ErasureCounts,
        in database: Database
    ) async throws {
        let identity = identity(of: subject) ?? .null
        let row = try await database.execute(
            """
            SELECT (SELECT count(*) FROM sync_datasets WHERE id IN (\(datasets))) AS datasets,
                (SELECT count(*) FROM sync_records WHERE dataset IN (\(datasets))) AS records
            """,
            [.text(subject.app), identity]
        ).first
        counts["syncDatasets"] += try row?.integer("datasets") ?? 0
        counts["syncRecords"] += try row?.integer("records") ?? 0
        let ofDevices = try await database.execute(
            """
            SELECT (SELECT count(*) FROM (\(devices)) v) AS devices,
                (SELECT count(*) FROM sync_subscriptions
                    WHERE device IN (SELECT id FROM (\(devices)) v) OR dataset IN (
                        SELECT d.id FROM sync_datasets d WHERE d.identity = $3
                            AND d.pool IN (SELECT p.id FROM sync_pools p WHERE p.app = $1)))
                    AS subscriptions
            """,
            parameters(subject, installations)
        ).first
        counts["syncDevices"] += try ofDevices?.integer("devices") ?? 0
        counts["syncSubscriptions"] += try ofDevices?.integer("subscriptions") ?? 0
    }

    /// Everything of it, by pool.
    static func export(
        _ subject: Subject,
        installations: [String],
        into export: inout SubjectExport,
        _ database: Database
    ) async throws {
        if let identity = identity(of: subject) {
            let rows = try await database.execute(
                """
                SELECT p.name AS pool, \(SyncDatasetStore.columns), coalesce((
                    SELECT json_agg(json_build_object('key', r.key, 'value', r.value,
                        'syncCount', r.sync_count) ORDER BY r.sync_count, r.key)
                    FROM sync_records r WHERE r.dataset = d.id), '[]') AS all_records
                FROM sync_datasets d JOIN sync_pools p ON p.id = d.pool
                WHERE p.app = $1 AND d.identity = $2 ORDER BY p.name, d.name
                """,
                [.text(subject.app), identity]
            ).rows
            export.syncDatasets = try rows.map { row in
                let dataset = try SyncDatasetStore.dataset(row)
                return [
                    "identityPoolId": .string(try row.text("pool")),
                    "datasetName": .string(dataset.name),
                    "syncCount": JSONValue(dataset.syncCount),
                    "createdAt": .string(dataset.createdAt.iso8601),
                    "updatedAt": .string(dataset.modifiedAt.iso8601),
                    "records": try row.json("all_records"),
                ]
            }
        }
        export.syncDevices = try await database.execute(
            """
            SELECT p.name AS pool, v.identity, v.device_id, v.platform, v.installation,
                v.registered_at, coalesce((SELECT json_agg(json_build_object('datasetName', d.name,
                    'told', s.told) ORDER BY d.name) FROM sync_subscriptions s
                    JOIN sync_datasets d ON d.id = s.dataset WHERE s.device = v.id), '[]')
                    AS subscriptions
            FROM sync_devices v JOIN sync_pools p ON p.id = v.pool
            WHERE v.id IN (SELECT id FROM (\(devices)) v) ORDER BY p.name, v.device_id
            """,
            parameters(subject, installations)
        ).rows.map { row in
            [
                "identityPoolId": .string(try row.text("pool")),
                "identityId": .string(try row.text("identity")),
                "deviceId": .string(try row.text("device_id")),
                "platform": .string(try row.text("platform")),
                "installation": .string(try row.text("installation")),
                "registeredAt": .string(try row.instant("registered_at").iso8601),
                "subscriptions": try row.json("subscriptions"),
            ]
        }
    }

    private static func identity(of subject: Subject) -> PostgresValue? {
        switch subject.kind {
        case .identity: .text(subject.id)
        case .installation: nil
        }
    }

    private static func parameters(
        _ subject: Subject,
        _ installations: [String]
    ) -> [PostgresValue] {
        [.text(subject.app), .textArray(installations), identity(of: subject) ?? .null]
    }
}
