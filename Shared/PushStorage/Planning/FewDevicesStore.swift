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
        let named = pushes.filter { !$0.request.namesNobody }
        let list: [PostgresValue] = [
            .uuidArray(named.map(\.id)), .textArray(named.map(\.app)),
            .textArray(named.map(\.request.environment.rawValue)),
            .timestampArray(named.map { $0.expiresAt?.microseconds }),
        ]
        var statements: [(String, [PostgresValue])] = []
        for (rows, columns, names) in [
            (
                DirectRows.byInstallation, DirectRows.columns + ", last_reason",
                audience.installations
            ),
            (DirectRows.byIdentity, DirectRows.columns, audience.identities),
        ] where !names.isEmpty {
            var parameters: [PostgresValue] = [
                .uuidArray(names.map(\.pushID)), .textArray(names.map(\.name)), .null,
                .textArray(names.map(\.templateFields)),
            ]
            let times = RowTimes(nil, zone: "NULL::text", &parameters)
            statements.append((select(rows(times), columns, after: 4), parameters + list))
        }
        if !audience.tokens.isEmpty {
            var parameters = DirectRows.parameters(of: audience.tokens, owner: nil)
            let times = RowTimes(nil, zone: "NULL::text", &parameters)
            statements.append(
                (select(DirectRows.byToken(times), DirectRows.columns, after: 5), parameters + list)
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

    /// The rows that `DirectRows` would write, of pushes that have none: they stand in for the table.
    private static func select(_ rows: String, _ columns: String, after last: Int) -> String {
        let reason =
            columns.hasSuffix("last_reason") ? "d.last_reason" : "NULL::text AS last_reason"
        return """
            WITH pushes AS MATERIALIZED (
                SELECT id, app, environment, expires_at, date_trunc('milliseconds', now()) AS created_at,
                    now() AS planned_until, 0 AS lane
                FROM unnest($\(last + 1)::uuid[], $\(last + 2)::text[], $\(last + 3)::text[],
                    $\(last + 4)::timestamptz[]) AS i(id, app, environment, expires_at)
            )
            SELECT d.day::text AS day, d.push_id, d.target, d.app, d.installation_id, d.provider,
                d.environment, d.environment_explicit, d.token, d.locale, d.apns_topic, d.lane,
                0 AS attempts, 0 AS unanswered, d.expires_at, d.created_at, \(reason),
                d.template_values, NULL::integer AS badge
            FROM (\(rows)) AS d(\(columns))
            """
    }
}

extension PushRequest {
    fileprivate var namesNobody: Bool {
        switch audience {
        case .tokens(let tokens): tokens.isEmpty
        case .installations(let selectors): selectors.selectsNobody
        case .topic: true
        }
    }
}
