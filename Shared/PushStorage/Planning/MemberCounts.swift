import JSON
import Postgres
import PushCore
import Storage

/// The number of devices of the identities that pushes name, counted up to one above `limit`. A
/// push with more devices is planned like a broadcast, page by page.
struct MemberCounts {
    /// The most devices behind the identities of one push that are planned at once.
    static let limit = 1000
    /// The most identities of one batch that are looked up at once.
    static let identityLimit = 1000
    /// The most devices that are planned in one transaction.
    static let together = 2000

    /// The counts by push. Pushes that name no identities, or too many, are missing.
    let counts: [String: Int]

    /// Divides the pushes into those of this transaction and the rest. The first push is always in
    /// this one.
    func firstPortion(of pushes: [NewPush]) -> (now: [NewPush], later: [NewPush]) {
        var (now, later): ([NewPush], [NewPush]) = ([], [])
        var total = 0
        for push in pushes {
            let count = counts[push.id] ?? 0
            // A push that is planned page by page costs nothing here.
            let weight = count <= Self.limit ? count : 0
            if total + weight > Self.together {
                later.append(push)
            } else {
                total += weight
                now.append(push)
            }
        }
        return (now, later)
    }
}

extension MemberCounts {
    /// Counts the devices of the identities of each push, up to one above `limit`.
    static func count(
        of pushes: [NewPush],
        _ transaction: PostgresTransaction
    ) async throws -> MemberCounts {
        var named: [(push: NewPush, identities: [String])] = []
        for push in pushes {
            guard case .installations(let selectors) = push.request.audience,
                let identities = selectors.identities, !selectors.selectsNothing,
                identities.count <= identityLimit
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
                .integer(limit + 1),
            ]
        ).rows
        var counts: [String: Int] = [:]
        for row in rows { counts[try row.uuid("push_id")] = try row.integer("members") }
        return MemberCounts(counts: counts)
    }
}
