package import Postgres
import PushCore
import Storage

/// The operations of backends and operators.
extension SecurePayloadStore {
    /// The most that one page holds.
    package static let maximumPage = 1000

    /// Returns a payload of an app, in any state; `nil` if it never existed, or its row was deleted.
    package func find(_ id: String, app: String) async throws -> SecureEntry? {
        guard SecureID.isWellFormed(id) else { return nil }
        return try await database.execute(
            "SELECT \(SecureEntry.columns) FROM secure_payloads p WHERE p.id = $1 AND p.app = $2",
            [.text(id), .text(app)]
        ).first.map(SecureEntry.init)
    }

    /// Deletes content for its app.
    ///
    /// - Returns: Whether the row exists, with content or without.
    package func delete(_ id: String, app: String) async throws -> Bool {
        guard SecureID.isWellFormed(id) else { return false }
        return try await database.execute(
            """
            WITH held AS MATERIALIZED (
                SELECT p.id FROM secure_payloads p WHERE p.id = $1 AND p.app = $2
                FOR NO KEY UPDATE
            ), \(Self.emptied)
            SELECT id FROM held
            """,
            [.text(id), .text(app)]
        ).first != nil
    }

    /// Returns a page of an app's payloads, the newest first.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - identity: The identity; `nil`: all.
    ///   - limit: 1...`maximumPage`.
    ///   - after: The end of the previous page.
    /// - Returns: The page, and its end; `nil` after the last page.
    /// - Throws: `StorageError`.
    package func list(
        app: String,
        identity: String? = nil,
        limit: Int = 100,
        after: SecureCursor? = nil
    ) async throws -> (entries: [SecureEntry], next: SecureCursor?) {
        let limit = min(max(limit, 1), Self.maximumPage)
        var parameters: [PostgresValue] = [.text(app)]
        var condition = "p.app = $1"
        // Each form has its index, so each is a statement of its own.
        if let identity {
            guard !identity.utf8.contains(0) else { return ([], nil) }
            parameters.append(.text(identity))
            condition += " AND p.identity = $\(parameters.count)"
        }
        if let after {
            parameters += [.timestamp(after.createdAt.microseconds), .text(after.id)]
            condition += """
                 AND (p.created_at, p.id)
                    < ($\(parameters.count - 1)::timestamptz, $\(parameters.count)::text)
                """
        }
        parameters.append(.integer(limit + 1))
        let rows = try await database.execute(
            """
            SELECT \(SecureEntry.columns) FROM secure_payloads p WHERE \(condition)
            ORDER BY p.created_at DESC, p.id DESC LIMIT $\(parameters.count)
            """,
            parameters
        ).rows
        let entries = try rows.prefix(limit).map(SecureEntry.init)
        return (entries, rows.count > limit ? entries.last?.cursor : nil)
    }
}

extension SecureEntry {
    /// The columns of `secure_payloads p`.
    package static let columns = """
        p.id, p.app, p.identity, p.push_id, p.read_at, p.created_at, p.expires_at, p.read_once,
        p.is_sealed, CASE WHEN p.deleted_at IS NOT NULL THEN '\(SecureState.deleted.rawValue)'
            WHEN p.ends_at <= now() AND p.ends_at < p.expires_at
                THEN '\(SecureState.deleted.rawValue)'
            WHEN p.ends_at <= now() THEN '\(SecureState.expired.rawValue)'
            WHEN p.read_at IS NOT NULL THEN '\(SecureState.read.rawValue)'
            ELSE '\(SecureState.waiting.rawValue)' END AS state
        """

    package init(_ row: PostgresRow) throws {
        let name = try row.text("state")
        guard let state = SecureState(rawValue: name) else {
            throw StorageError(.corrupt, "a secure payload is in the unknown state \(name)")
        }
        self.state = state
        id = try row.text("id")
        app = try row.text("app")
        identity = try row.text("identity")
        pushID = try row.uuid("push_id")
        readAt = try row.instantOrNil("read_at")
        createdAt = try row.instant("created_at")
        expiresAt = try row.instant("expires_at")
        readOnce = try row.boolean("read_once")
        isSealed = try row.boolean("is_sealed")
    }
}
