import JSON
import Postgres
import PushCore

extension DeliveryStore {
    /// Counts the devices behind the identities of pushes, each up to one beyond the limit.
    static func countMembers(
        of pushes: [NewPush],
        _ transaction: PostgresTransaction
    ) async throws -> MemberCounts {
        var named: [(push: NewPush, identities: [String])] = []
        for push in pushes {
            guard case .installations(let selectors) = push.request.audience,
                let identities = selectors.identities, !selectors.selectsNobody,
                identities.count <= directIdentityLimit
            else { continue }
            named.append((push, identities))
        }
        guard !named.isEmpty else { return MemberCounts(counts: [:]) }
        let rows = try await transaction.execute(
            """
            SELECT w.push_id, (
                SELECT count(*) FROM (
                    SELECT FROM json_array_elements_text(w.identities) AS n(name)
                    CROSS JOIN LATERAL (
                        SELECT FROM installations i
                        WHERE i.app = w.app AND i.identity = n.name LIMIT $4) found
                    LIMIT $4) few) AS members
            FROM unnest($1::uuid[], $2::text[], $3::json[]) AS w(push_id, app, identities)
            """,
            [
                .uuidArray(named.map(\.push.id)), .textArray(named.map(\.push.app)),
                .jsonArray(named.map { .array($0.identities.map(JSONValue.string)) }),
                .integer(MemberCounts.limit + 1),
            ]
        ).rows
        var counts: [String: Int] = [:]
        for row in rows { counts[try row.uuid("push_id")] = try row.integer("members") }
        return MemberCounts(counts: counts)
    }
}
