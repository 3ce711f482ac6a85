import Postgres

/// What is told by NOTIFY. A notification is a hint to look: whoever waits for one also looks now
/// and then by himself.
package enum StorageChannel: String, Sendable, CaseIterable {
    /// A credential or a setting was changed; the payload is the app.
    case credentials = "carillon_credentials"
    /// A row was put into the outbox.
    case outbox = "carillon_outbox"
    /// A push waits to be planned.
    case planning = "carillon_planning"
    /// A push waits for its time.
    case scheduled = "carillon_scheduled"
    /// Shards of a broadcast wait for a sender.
    case shards = "carillon_shards"
    /// A push was cancelled; the payload is its id.
    case cancelled = "carillon_cancelled"
    /// A template became current, or a version of it was announced; the payload is the app.
    case config = "carillon_config"
    /// Somebody else wrote a template into the table.
    case configRows = "carillon_config_rows"
    /// A version waits to be announced.
    case configPending = "carillon_config_pending"
    /// A dataset changed, and somebody is to be told.
    case syncWindows = "carillon_sync_windows"
    /// A type of objects was declared or changed; the payload is the app.
    case ingestTypes = "carillon_ingest_types"

    func notify(_ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute("SELECT pg_notify('\(rawValue)', '')")
    }
}
