import Postgres
import PushCore
import Storage

/// Devices of identities, and their subscriptions.
///
/// A device is an id of (pool, identity, platform, token); it is linked to the installation that has
/// the token.
package struct SyncDeviceStore: Sendable {
    let database: Database

    /// Checks that a pool pushes, before a device is registered.
    ///
    /// - Throws: `SyncRefusal.unknownPool`, `.pushSyncOff`; `StorageError`.
    package func requirePushing(pool: String, app: String) async throws {
        let row = try await database.execute(
            "SELECT p.is_pushing FROM \(SyncDatasetStore.pool)",
            [.text(pool), .text(app)]
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        guard try row.boolean("is_pushing") else { throw SyncRefusal.pushSyncOff }
    }

    /// Stores a device, or moves it to another installation.
    ///
    /// - Parameters:
    ///   - deviceID: Always the same for the same identity, platform and token.
    ///   - owner: The identity.
    ///   - platform: The client's name of the platform.
    ///   - installation: The object id of the installation that has the token.
    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`, with SQLSTATE 23503 if the installation was
    ///   deleted.
    package func register(
        _ deviceID: String,
        of owner: SyncIdentity,
        platform: String,
        installation: String
    ) async throws {
        let kept = try await database.execute(
            """
            INSERT INTO sync_devices (pool, app, identity, device_id, platform, installation)
            SELECT p.id, $2, $3, $4, $5, $6 FROM \(SyncDatasetStore.pool)
            ON CONFLICT (pool, identity, device_id) DO UPDATE
                SET installation = excluded.installation, registered_at = now()
            """,
            SyncDatasetStore.parameters(owner) + [
                .text(deviceID), .text(platform), .text(installation),
            ]
        )
        guard kept.affectedRows == 1 else { throw SyncRefusal.unknownPool }
    }

    /// Subscribes a device to later changes of a dataset; a repeat changes nothing.
    ///
    /// - Parameters:
    ///   - deviceID: The id that `register` stored, or the object id of an installation of this identity.
    ///   - dataset: An existing dataset.
    /// - Throws: `SyncRefusal`; `StorageError`.
    package func subscribe(_ deviceID: String, to dataset: SyncDatasetName) async throws {
        do {
            try await insert(deviceID, dataset)
        } catch SyncRefusal.unknownDevice {
            try await adopt(deviceID, of: dataset.owner)
            try await insert(deviceID, dataset)
        }
    }

    private func insert(_ deviceID: String, _ dataset: SyncDatasetName) async throws {
        let row = try await database.execute(
            """
            WITH pool AS MATERIALIZED (SELECT p.id, p.is_pushing FROM \(SyncDatasetStore.pool)),
            dataset AS MATERIALIZED (
                SELECT d.id, d.sync_count FROM sync_datasets d
                WHERE d.pool = (SELECT id FROM pool) AND d.identity = $3 AND d.name = $4
                    AND d.is_there FOR KEY SHARE),
            device AS MATERIALIZED (
                SELECT v.id FROM sync_devices v WHERE v.pool = (SELECT id FROM pool)
                    AND v.identity = $3 AND v.device_id = $5),
            kept AS (
                INSERT INTO sync_subscriptions (dataset, device, told)
                SELECT dataset.id, device.id, dataset.sync_count FROM dataset, device
                WHERE (SELECT is_pushing FROM pool)
                ON CONFLICT DO NOTHING)
            SELECT is_pushing, EXISTS (SELECT FROM dataset) AS has_dataset,
                EXISTS (SELECT FROM device) AS has_device FROM pool
            """,
            SyncDatasetStore.parameters(dataset) + [.text(deviceID)]
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        guard try row.boolean("is_pushing") else { throw SyncRefusal.pushSyncOff }
        guard try row.boolean("has_dataset") else { throw SyncRefusal.unknownDataset }
        guard try row.boolean("has_device") else { throw SyncRefusal.unknownDevice }
    }

    /// Registers an installation of this identity that did not use `register`, for example on Windows.
    private func adopt(_ objectID: String, of owner: SyncIdentity) async throws {
        _ = try await database.execute(
            """
            INSERT INTO sync_devices (pool, app, identity, device_id, platform, installation)
            SELECT p.id, $2, $3, i.object_id, coalesce(i.provider, ''), i.object_id
            FROM \(SyncDatasetStore.pool.replacing("WHERE", with: ", installations i WHERE"))
                AND i.app = $2 AND i.object_id = $4 AND i.identity = $3
            ON CONFLICT DO NOTHING
            """,
            SyncDatasetStore.parameters(owner) + [.text(objectID)]
        )
    }

    /// - Throws: `SyncRefusal`; `StorageError`.
    package func unsubscribe(_ deviceID: String, from dataset: SyncDatasetName) async throws {
        let row = try await database.execute(
            """
            WITH pool AS MATERIALIZED (SELECT p.id, p.is_pushing FROM \(SyncDatasetStore.pool)),
            gone AS (
                DELETE FROM sync_subscriptions s USING sync_datasets d, sync_devices v
                WHERE d.pool = (SELECT id FROM pool) AND d.identity = $3 AND d.name = $4
                    AND v.pool = (SELECT id FROM pool) AND v.identity = $3 AND v.device_id = $5
                    AND s.dataset = d.id AND s.device = v.id
                RETURNING 1)
            SELECT is_pushing, EXISTS (SELECT FROM gone) AS was_there FROM pool
            """,
            SyncDatasetStore.parameters(dataset) + [.text(deviceID)]
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        guard try row.boolean("is_pushing") else { throw SyncRefusal.pushSyncOff }
        guard try row.boolean("was_there") else { throw SyncRefusal.notSubscribed }
    }
}
