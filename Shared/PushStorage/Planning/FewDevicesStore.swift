import Postgres
import PushCore

/// Pushes that name few devices (`NewPush.isForFewDevices`): looked up in one transaction for the batch,
/// sent, and written down as they ended, in one transaction for the batch (`FewDevicesStore+Writing`).
///
/// Between the two nothing of a push is in Postgres, but for the row of one that HTTP accepted. Who writes
/// locks its id, and looks once more whether it is known.
package struct FewDevicesStore: Sendable {
    let database: Database

    /// Which pushes are new, and whom they go to.
    ///
    /// - Parameter pushes: Each `isForFewDevices`, and each once.
    /// - Returns: What was found, in their order.
    /// - Throws: `StorageError`.
    package func lookUp(_ pushes: [NewPush]) async throws -> [LookedUpPush] {
        guard !pushes.isEmpty else { return [] }
        return try await database.transaction { transaction in
            let known = try await transaction.pipeline([
                (IndexPlan.sql, []), (Self.knownSQL, [.uuidArray(pushes.map(\.id))]),
            ])[1]
            var (waiting, rows): ([String: Bool], Int64) = ([:], 0)
            for row in known.rows {
                rows = try row.instant("now").milliseconds
                if try row.boolean("is_known") { continue }
                waiting[try row.uuid("id")] = try row.boolean("has_row")
            }
            let time = Instant(milliseconds: rows)
            let fresh = pushes.filter { waiting[$0.id] != nil }
            let members = try await MemberCounts.count(
                of: fresh,
                upTo: NewPush.fewDevices,
                transaction
            )
            let few = fresh.filter { members.counts[$0.id] ?? 0 <= NewPush.fewDevices }
            var deliveries = try await Self.audience(of: few, members, transaction)
            let isFew = Set(few.map(\.id))
            return pushes.map { push in
                guard let hasRow = waiting[push.id] else { return .known }
                guard isFew.contains(push.id) else { return .many }
                return .new(
                    deliveries.removeValue(forKey: push.id) ?? [],
                    at: time,
                    hasRow: hasRow
                )
            }
        }
    }

    // One that HTTP accepted waits for its record, as long as nobody has planned or cancelled it.
    private static let knownSQL = """
        SELECT i.id, now() AS now, p.id IS NOT NULL AS has_row,
            EXISTS (SELECT FROM event_pushes e WHERE e.id = i.id)
                OR p.id IS NOT NULL AND NOT (p.status = \(PushStatus.queued.sql)
                    AND p.planned_until IS NULL AND p.release_at IS NULL) AS is_known
        FROM unnest($1::uuid[]) AS i(id) LEFT JOIN pushes p ON p.id = i.id
        """

    /// By push.
    private static func audience(
        of pushes: [NewPush],
        _ members: MemberCounts,
        _ transaction: PostgresTransaction
    ) async throws -> [String: [Delivery]] {
        let audience = DirectAudience(pushes, members)
        let byID = Dictionary(pushes.map { ($0.id, $0) }) { first, _ in first }
        var statements: [(String, [PostgresValue])] = []
        let (installations, identities) = (audience.installations, audience.identities)
        if !installations.isEmpty {
            let sql = DirectRows.byInstallation(times(), of: named)
            statements.append(
                (select(sql, DirectRows.columns + ", last_reason"), parameters(installations, byID))
            )
        }
        if !identities.isEmpty {
            let sql = DirectRows.byIdentity(times(), of: named)
            statements.append((select(sql, DirectRows.columns), parameters(identities, byID)))
        }
        if !audience.tokens.isEmpty {
            let sql = DirectRows.byToken(times(), of: tokens)
            let parameters = DirectRows.parameters(of: audience.tokens, owner: nil)
            statements.append(
                (
                    select(sql, DirectRows.columns),
                    parameters + pushColumns(audience.tokens.map(\.pushID), byID)
                )
            )
        }
        guard !statements.isEmpty else { return [:] }
        var found: [String: [Delivery]] = [:]
        for result in try await transaction.pipeline(statements) {
            for row in result.rows {
                let delivery = try Delivery.read(row)
                found[delivery.pushID, default: []].append(delivery)
            }
        }
        return found
    }

    // Each name comes with its push, as its columns: a table of the pushes would be joined to the names by
    // reading it once for each, as `IndexPlan` leaves no other way.
    private static let named = """
        unnest($1::uuid[], $2::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
            AS w(push_id, name, template, app, push_environment, push_expires_at)
        \(push)
        """
    private static let tokens = """
        unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $6::text[], $7::text[], $8::timestamptz[])
            WITH ORDINALITY AS w(push_id, provider, token, environment, app, push_environment,
                push_expires_at, place)
        \(push)
        """
    private static let push = """
        CROSS JOIN LATERAL (
            SELECT w.push_id AS id, w.app, w.push_environment AS environment,
                w.push_expires_at AS expires_at, date_trunc('milliseconds', now()) AS created_at,
                now() AS planned_until, 0 AS lane) p
        """

    /// No push here waits for a time.
    private static func times() -> RowTimes {
        var nothing: [PostgresValue] = []
        return RowTimes(nil, zone: "NULL::text", &nothing)
    }

    private static func parameters(
        _ names: [DirectAudience.Named],
        _ pushes: [String: NewPush]
    ) -> [PostgresValue] {
        [
            .uuidArray(names.map(\.pushID)), .textArray(names.map(\.name)), .null,
            .textArray(names.map(\.templateFields)),
        ] + pushColumns(names.map(\.pushID), pushes)
    }

    private static func pushColumns(
        _ ids: [String],
        _ pushes: [String: NewPush]
    ) -> [PostgresValue] {
        [
            .textArray(ids.map { pushes[$0]?.app }),
            .textArray(ids.map { pushes[$0]?.request.environment.rawValue }),
            .timestampArray(ids.map { pushes[$0]?.expiresAt?.microseconds }),
        ]
    }

    /// The rows that `DirectRows` would write, of pushes that have none.
    private static func select(_ rows: String, _ columns: String) -> String {
        let reason =
            columns.hasSuffix("last_reason") ? "d.last_reason" : "NULL::text AS last_reason"
        return """
            SELECT d.day::text AS day, d.push_id, d.target, d.app, d.installation_id, d.provider,
                d.environment, d.environment_explicit, d.token, d.locale, d.apns_topic, d.lane,
                0 AS attempts, 0 AS unanswered, d.expires_at, d.created_at, \(reason),
                d.template_values, NULL::integer AS badge
            FROM (\(rows)) AS d(\(columns))
            """
    }
}
