package import Postgres

/// The NOTIFY channels. A notification is a hint: every listener also polls.
package enum NotifyChannel: String, Sendable, CaseIterable {
    /// A credential or a setting was changed; the payload is the app.
    case credentials = "carillon_credentials"
    /// A row was written to the outbox.
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
    /// Another system wrote a template into the table.
    case configRows = "carillon_config_rows"
    /// A version waits to be announced.
    case configPending = "carillon_config_pending"
    /// A dataset changed, and devices are to be notified.
    case syncWindows = "carillon_sync_windows"
    /// A type of objects was declared or changed; the payload is the app.
    case ingestTypes = "carillon_ingest_types"
    /// Messages were stored for devices with a connection of their own.
    case connections = "carillon_connections"

    package func notify(_ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute("SELECT pg_notify('\(rawValue)', '')")
    }
}
