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
        let first: [(String, [PostgresValue])] = [
            (IndexPlan.sql, []), (Self.knownSQL, [.uuidArray(pushes.map(\.id))]),
        ]
        guard pushes.contains(where: \.namesIdentities) else {
            // Whom they go to is asked before it is said which of them are new: it takes one round trip.
            let results = try await database.transaction(
                of: first + Self.audience(of: pushes, MemberCounts(counts: [:]))
            )
            return try KnownPushes(results[1]).found(
                pushes,
                few: Set(pushes.map(\.id)),
                try Self.deliveries(results.dropFirst(first.count))
            )
        }
        return try await database.transaction { transaction in
            let known = try KnownPushes(try await transaction.pipeline(first)[1])
            let fresh = pushes.filter { known.hasRow[$0.id] != nil }
            let members = try await MemberCounts.count(
                of: fresh,
                upTo: NewPush.fewDevices,
                transaction
            )
            let few = fresh.filter { members.counts[$0.id] ?? 0 <= NewPush.fewDevices }
            return known.found(
                pushes,
                few: Set(few.map(\.id)),
                try Self.deliveries(
                    await transaction.pipeline(Self.audience(of: few, members))[...]
                )
            )
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

    /// The statements that say whom pushes go to.
    private static func audience(
        of pushes: [NewPush],
        _ members: MemberCounts
    ) -> [(String, [PostgresValue])] {
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
        return statements
    }

    /// By push.
    private static func deliveries(
        _ results: ArraySlice<PostgresResult>
    ) throws -> [String: [Delivery]] {
        var found: [String: [Delivery]] = [:]
        for result in results {
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

/// Which of some pushes are new.
private struct KnownPushes {
    /// Of those that are new, whether HTTP accepted them.
    private(set) var hasRow: [String: Bool] = [:]
    /// Postgres' time.
    private var now = Instant(milliseconds: 0)

    /// - Parameter result: `FewDevicesStore.knownSQL`'s.
    /// - Throws: `PostgresError` where a column is missing or of another type.
    init(_ result: PostgresResult) throws {
        for row in result.rows {
            now = try row.instant("now")
            if try row.boolean("is_known") { continue }
            hasRow[try row.uuid("id")] = try row.boolean("has_row")
        }
    }

    /// - Parameters:
    ///   - pushes: All that were asked for.
    ///   - few: Those of them that are not too many.
    ///   - deliveries: Theirs.
    /// - Returns: What was found, in their order.
    func found(
        _ pushes: [NewPush],
        few: Set<String>,
        _ deliveries: [String: [Delivery]]
    ) -> [LookedUpPush] {
        pushes.map { push in
            guard let hasRow = hasRow[push.id] else { return .known }
            guard few.contains(push.id) else { return .many }
            return .new(deliveries[push.id] ?? [], at: now, hasRow: hasRow)
        }
    }
}

extension NewPush {
    fileprivate var namesIdentities: Bool {
        guard case .installations(let selectors) = request.audience else { return false }
        return selectors.identities != nil
    }
}
