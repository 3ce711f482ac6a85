import JSON
import Postgres
package import PushCore
import Storage

/// The number of a push's deliveries on one platform, either delivered or not.
package struct PlatformCount: Sendable, Equatable {
    package let platform: Platform
    /// Whether the provider accepted them; otherwise they had another outcome.
    package let isDelivered: Bool
    package let count: Int

    package init(platform: Platform, isDelivered: Bool, count: Int) {
        self.platform = platform
        self.isDelivered = isDelivered
        self.count = count
    }
}

extension PushStore {
    /// The note that stores the counts of a push that has ended, so that its deliveries are read
    /// only once.
    package static let platformsNote = "platforms"

    /// The most deliveries that one call reads. If the only push of a call has ended, it is read
    /// whatever its size.
    private static let maximumRead = 200_000

    /// Counts the ended deliveries of each push, by platform. A push is missing if its deliveries
    /// are deleted (`DELIVERY_RETENTION`), or if it is too large to be counted with others or
    /// before it has ended.
    package func platforms(
        of pushes: [StoredPush]
    ) async throws -> [String: [PlatformCount]] {
        var counts: [String: [PlatformCount]] = [:]
        var counted: [StoredPush] = []
        var read = 0
        for push in pushes {
            if let kept = push.notes[Self.platformsNote]?.object {
                counts[push.id] = Self.counts(kept)
            } else if push.ledger.targeted == 0 {
                counts[push.id] = []
            } else if read + push.ledger.targeted <= Self.maximumRead
                || pushes.count == 1 && push.isOver
            {
                read += push.ledger.targeted
                counted.append(push)
            }
        }
        guard !counted.isEmpty else { return counts }
        var found: [String: [PlatformCount]] = [:]
        // The deliveries of a push that waited for its time are in the partition of its release.
        let sql = """
            SELECT p.id, d.provider, d.state = $2 AS delivered, count(*) AS count
            FROM all_pushes p CROSS JOIN LATERAL (
                SELECT d.provider, d.state FROM all_deliveries d WHERE d.push_id = p.id
                    AND d.day = (p.created_at AT TIME ZONE 'UTC')::date AND d.state <> $3 OFFSET 0) d
            WHERE p.id = ANY ($1::uuid[])
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
            """
        let parameters: [PostgresValue] = [
            .uuidArray(counted.map(\.id)), .integer(DeliveryState.delivered.rawValue),
            .integer(DeliveryState.pending.rawValue),
        ]
        // A single push that has ended is read only once, so without the time limit of queries.
        let isLast = counted.count == 1 && counted[0].isOver
        let rows =
            try await isLast
            ? database.execute(sql, parameters).rows : database.ask(sql, parameters).rows
        for row in rows {
            guard let platform = Platform(rawValue: try row.text("provider")) else { continue }
            found[try row.uuid("id"), default: []].append(
                PlatformCount(
                    platform: platform,
                    isDelivered: try row.boolean("delivered"),
                    count: try row.integer("count")
                )
            )
        }
        for push in counted {
            let found = found[push.id] ?? []
            if found.isEmpty, push.isOver { continue }
            counts[push.id] = found
            // All deliveries are counted, and none changes any more: stores the counts.
            let sum = found.reduce(0) { $0 + $1.count }
            if push.isOver, sum == push.ledger.targeted { try await keep(found, of: push.id) }
        }
        return counts
    }

    private func keep(_ counts: [PlatformCount], of id: String) async throws {
        var note: JSONObject = [:]
        for count in counts {
            var kept = note[count.platform.rawValue]?.object ?? [:]
            kept[count.isDelivered ? "delivered" : "other"] = JSONValue(count.count)
            note[count.platform.rawValue] = .object(kept)
        }
        _ = try await database.execute(
            "UPDATE pushes SET notes = notes || $2::jsonb WHERE id = $1",
            [.uuid(id), .json(.object(JSONObject([(Self.platformsNote, .object(note))])))]
        )
    }

    private static func counts(_ note: JSONObject) -> [PlatformCount] {
        note.flatMap { name, kept -> [PlatformCount] in
            guard let platform = Platform(rawValue: name) else { return [] }
            return [("delivered", true), ("other", false)].compactMap { key, isDelivered in
                kept[key]?.integer.map {
                    PlatformCount(platform: platform, isDelivered: isDelivered, count: $0)
                }
            }
        }
    }
}

extension StoredPush {
    /// Whether all its deliveries have ended.
    fileprivate var isOver: Bool { status.isFinal && ledger.isSettled }
}
