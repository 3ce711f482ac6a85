package import InstallationStorage
import Postgres
package import PushCore
import Storage

/// Pushes as clients see them: clients query them like objects of a class. A client may hide a
/// push; its deliveries stay in the ledger until their retention ends.
extension PushStore {
    /// The columns that `WhereTable.pushRecords` names, in addition to those of a push.
    private static let records = """
        SELECT p.id, p.app, p.event_source, p.event_id, p.request, p.status, p.error, p.notes,
            p.lane, p.targeted, p.delivered, p.failed, p.expired, p.suppressed, p.in_doubt,
            p.pending, p.invalid_tokens, p.confirmed, p.failures, p.expires_at, p.release_at,
            p.schedule_id, p.created_at, p.updated_at, p.finished_at, p.id::text AS object_id,
            coalesce(p.accepted_at, p.created_at) AS accepted_at,
            coalesce(p.release_at, p.accepted_at, p.created_at) AS push_time,
            coalesce(p.notes->>'notificationId', p.id::text) AS notification_id,
            CASE p.environment WHEN 'sandbox' THEN 'dev' ELSE 'prod' END AS prod,
            'push'::text AS from_service,
            CASE WHEN p.status = \(PushStatus.scheduled.sql) OR p.is_waiting THEN 'scheduled'
                WHEN p.status IN \(PushStatus.sql { !$0.isFinal }) THEN 'in-queue'
                WHEN p.status = \(PushStatus.failed.sql) THEN coalesce(p.error, 'failed')
                ELSE p.status END AS status_text
        FROM all_pushes p WHERE p.app = $1 AND p.hidden_at IS NULL
        """

    private struct Selection {
        var compiler: WhereCompiler
        let source: String
        let condition: String

        /// Returns `nil` if nothing can match.
        init?(app: String, _ condition: Where) throws(WhereError) {
            compiler = WhereCompiler(app: app, parameters: [.text(app)])
            self.condition = try compiler.pushRecords(condition, as: "n")
            guard let id = condition.onlyObjectID else {
                source = PushStore.records
                return
            }
            guard PushIdentity.isUUID(id) else { return nil }
            source = PushStore.records + " AND p.id = \(compiler.bind(.uuid(id)))::uuid"
        }
    }

    /// Returns the records that a condition selects. Without an `order` they come in order of
    /// arrival.
    ///
    /// - Throws: `WhereError` for a field that push records cannot be queried by; `PageTooLarge`.
    package func query(
        app: String,
        where condition: Where,
        order: [SortKey] = [],
        limit: Int = 100,
        skip: Int = 0
    ) async throws -> [StoredPush] {
        try await page(app: app, where: condition, order: order, limit: limit, skip: skip).whole()
    }

    /// Returns the records like `query`, up to the size of one response, or up to `bytes`.
    package func page(
        app: String,
        where condition: Where,
        order: [SortKey] = [],
        limit: Int = 100,
        skip: Int = 0,
        bytes: Int = PageBound.bytes
    ) async throws -> ObjectPage<StoredPush> {
        let rows = try await rows(app, condition, order, limit, skip, .whole(bytes: bytes))
        return try PageBound.read(rows, bytes: bytes, Self.push)
    }

    /// Returns only the ids of the records, up to the size of one response.
    package func places(
        app: String,
        where condition: Where,
        order: [SortKey],
        limit: Int,
        skip: Int
    ) async throws -> ObjectLocations {
        try PageBound.places(try await rows(app, condition, order, limit, skip, .places("id")))
    }

    /// Returns the records of these ids that exist, in the order of the ids. Returns at least one,
    /// and no more than fit in `PageBound.partBytes`.
    package func part(of ids: [String]) async throws -> ObjectPage<StoredPush> {
        try await PageBound.part(
            of: """
                SELECT \(Self.columns) FROM all_pushes WHERE id = ANY ($1::uuid[])
                ORDER BY array_position($1::uuid[], id)
                """,
            weight: Self.weight,
            [.uuidArray(ids)],
            in: database,
            Self.push
        )
    }

    private func rows(
        _ app: String,
        _ condition: Where,
        _ order: [SortKey],
        _ limit: Int,
        _ skip: Int,
        _ pageRows: PageRows
    ) async throws -> [PostgresRow] {
        guard var selection = try Selection(app: app, condition) else { return [] }
        let came = try WherePath("createdAt")
        let order = try selection.compiler.order(
            order.isEmpty ? [SortKey(path: came, isDescending: false)] : order,
            of: condition,
            in: .pushRecords,
            as: "n"
        )
        let limit = selection.compiler.bind(.integer(min(max(limit, 0), 1000)))
        let skip = selection.compiler.bind(.integer(max(skip, 0)))
        let page = """
            SELECT \(Self.columns) FROM (\(selection.source)) n WHERE \(selection.condition)
            ORDER BY \(order) LIMIT \(limit) OFFSET \(skip)
            """
        return try await Array(
            database.ask(
                PageBound.statement(page, weight: Self.weight, pageRows),
                selection.compiler.parameters
            ).rows
        )
    }

    /// SQL for the bytes of one record in a response, which contains its data twice.
    static let weight = "2 * octet_length(request::text) + octet_length(notes::text)"

    package func count(app: String, where condition: Where) async throws -> Int {
        guard let selection = try Selection(app: app, condition) else { return 0 }
        return try await database.ask(
            "SELECT count(*) AS count FROM (\(selection.source)) n WHERE \(selection.condition)",
            selection.compiler.parameters
        ).first?.integer("count") ?? 0
    }

    /// Returns the pushes with this label that no client has hidden, the latest first. Only the
    /// latest has its request; the others are only counted.
    package func find(app: String, label: String) async throws -> [StoredPush] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM (
                SELECT id, app, event_source, event_id,
                    CASE WHEN row_number() OVER (ORDER BY created_at DESC, id) = 1 THEN request
                        ELSE '{}' END AS request,
                    status, error, notes, lane, targeted, delivered, failed, expired, suppressed,
                    in_doubt, pending, invalid_tokens, confirmed, failures, expires_at,
                    release_at, schedule_id, accepted_at, created_at, updated_at, finished_at, hidden_at
                FROM all_pushes
                WHERE app = $1 AND notes->>'notificationId' = $2 AND hidden_at IS NULL) pushes
            ORDER BY pushes.created_at DESC, id LIMIT 1000
            """,
            [.text(app), .text(label)]
        ).rows.map(Self.push)
    }

    /// Hides records from the app's clients.
    ///
    /// - Returns: The number of these records that exist.
    package func hide(app: String, ids: [String]) async throws -> Int {
        let ids = Set(ids.filter(PushIdentity.isUUID)).sorted()
        return try await database.transaction { transaction in
            let own = try await transaction.execute(
                "SELECT id FROM all_pushes WHERE app = $1 AND id = ANY ($2::uuid[])",
                [.text(app), .uuidArray(ids)]
            ).rows.map { try $0.uuid("id") }
            try await EventPushes.unpack(own, transaction)
            return try await transaction.execute(
                """
                UPDATE pushes SET hidden_at = now()
                WHERE app = $1 AND id = ANY ($2::uuid[]) AND hidden_at IS NULL
                """,
                [.text(app), .uuidArray(own)]
            ).affectedRows
        }
    }

    /// Whether a client has hidden the push.
    package func isHidden(_ id: String) async throws -> Bool {
        try await database.execute(
            "SELECT hidden_at IS NOT NULL AS hidden FROM pushes WHERE id = $1",
            [.uuid(id)]
        ).first?.boolean("hidden") ?? false
    }
}
