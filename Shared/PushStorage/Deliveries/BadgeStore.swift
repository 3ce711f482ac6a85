import Postgres
import PushCore
import Storage

/// The badges that Carillon stores for installations, and that pushes raise.
enum BadgeStore {
    /// One raise of one installation's badge by one push.
    struct Raise {
        var key: DeliveryKey
        var app: String
        var change: BadgeChange
    }

    private struct Row: Hashable {
        var app: String
        var objectID: String
    }

    /// Raises badges in the given order, and returns their new values. The badges' rows are locked
    /// until the transaction ends, by all callers in the same order.
    ///
    /// - Returns: The values by push and installation. Deleted installations are missing.
    static func raise(
        _ raises: [Raise],
        _ transaction: PostgresTransaction
    ) async throws -> [DeliveryKey: Int] {
        var badges = try await lock(
            Set(raises.map { Row(app: $0.app, objectID: $0.key.target) }),
            transaction
        )
        var changed: Set<Row> = []
        var values: [DeliveryKey: Int] = [:]
        for raise in raises {
            let row = Row(app: raise.app, objectID: raise.key.target)
            guard let badge = badges[row] else { continue }
            let raised = raise.change.applied(to: badge.value)
            values[raise.key] = raised
            // A raise by 0 only reads a badge, and must not create it.
            if raised != badge.value || (badge.isAbsent && !raise.change.isNothing) {
                badges[row] = Badge(value: raised, isAbsent: false)
                changed.insert(row)
            }
        }
        if !changed.isEmpty {
            let rows = changed.map { (key: $0, value: badges[$0]?.value ?? 0) }
            _ = try await transaction.execute(
                """
                UPDATE installations i SET badge = w.badge, badge_absent = false
                FROM unnest($1::text[], $2::text[], $3::integer[]) AS w(app, object_id, badge)
                WHERE i.app = w.app AND i.object_id = w.object_id
                """,
                [
                    .textArray(rows.map(\.key.app)), .textArray(rows.map(\.key.objectID)),
                    .integerArray(rows.map(\.value)),
                ]
            )
        }
        return values
    }

    private struct Badge {
        var value: Int
        var isAbsent: Bool
    }

    private static func lock(
        _ rows: Set<Row>,
        _ transaction: PostgresTransaction
    ) async throws -> [Row: Badge] {
        guard !rows.isEmpty else { return [:] }
        let rows = rows.sorted { ($0.app, $0.objectID) < ($1.app, $1.objectID) }
        // Looks them up one by one, in their order. `IndexPlan` makes sorts expensive, so an
        // ordered join would walk through the whole table.
        let found = try await transaction.execute(
            """
            SELECT i.app, i.object_id, i.badge, i.badge_absent
            FROM unnest($1::text[], $2::text[]) AS w(app, object_id)
            CROSS JOIN LATERAL (
                SELECT app, object_id, badge, badge_absent FROM installations
                WHERE app = w.app AND object_id = w.object_id FOR NO KEY UPDATE
            ) AS i
            """,
            [.textArray(rows.map(\.app)), .textArray(rows.map(\.objectID))]
        )
        var badges: [Row: Badge] = [:]
        for row in found.rows {
            let key = Row(app: try row.text("app"), objectID: try row.text("object_id"))
            badges[key] = Badge(
                value: try row.integer("badge"),
                isAbsent: try row.boolean("badge_absent")
            )
        }
        return badges
    }

    /// Stores the new badges in the rows of their deliveries.
    static func keep(
        _ values: [DeliveryKey: Int],
        _ transaction: PostgresTransaction
    ) async throws {
        guard !values.isEmpty else { return }
        let values = Array(values)
        _ = try await transaction.execute(
            """
            UPDATE deliveries d SET badge = w.badge
            FROM unnest($1::text[], $2::uuid[], $3::text[], $4::integer[])
                AS w(day, push_id, target, badge)
            WHERE d.day = w.day::date AND d.push_id = w.push_id AND d.target = w.target
            """,
            [
                .textArray(values.map(\.key.day)), .uuidArray(values.map(\.key.pushID)),
                .textArray(values.map(\.key.target)), .integerArray(values.map(\.value)),
            ]
        )
    }
}

extension BadgeStore {
    /// Raises the badges of the devices that a batch of pushes names one by one. It runs in the
    /// transaction that creates the deliveries, so each badge is raised once, whatever happens to
    /// the sender.
    static func raise(
        of deliveries: inout [Delivery],
        _ changes: [String: [Platform: BadgeChange]],
        _ transaction: PostgresTransaction
    ) async throws {
        guard !changes.isEmpty else { return }
        let raises = deliveries.filter { $0.installationID != nil && $0.suppression == nil }
            .sorted { $0.pushID < $1.pushID }
            .compactMap { delivery in
                changes[delivery.pushID]?[delivery.device.provider].map {
                    Raise(key: delivery.key, app: delivery.app, change: $0)
                }
            }
        let values = try await raise(raises, transaction)
        try await keep(values, transaction)
        for index in deliveries.indices { deliveries[index].badge = values[deliveries[index].key] }
    }

    /// Raises the badges of a page of rows without an owner: the rows with targets greater than
    /// `after` and up to `last`.
    static func raise(
        of push: PlanningPush,
        after: String,
        upTo last: String,
        _ transaction: PostgresTransaction
    ) async throws {
        let changes = push.request.badgeChanges
        guard !changes.isEmpty else { return }
        let rows = try await transaction.execute(
            """
            SELECT d.day::text AS day, d.target, d.provider FROM deliveries d
            JOIN pushes p ON p.id = d.push_id AND d.day = (p.created_at AT TIME ZONE 'UTC')::date
            WHERE d.push_id = $1 AND d.target > $2 AND d.target <= $3 AND d.state = \(DeliveryState.pending.sql)
                AND d.installation_id IS NOT NULL AND d.badge IS NULL
            """,
            [.uuid(push.id), .text(after), .text(last)]
        ).rows
        var raises: [BadgeStore.Raise] = []
        for row in rows {
            guard let platform = Platform(rawValue: try row.text("provider")),
                let change = changes[platform]
            else { continue }
            let key = DeliveryKey(
                day: try row.text("day"),
                pushID: push.id,
                target: try row.text("target")
            )
            raises.append(Raise(key: key, app: push.app, change: change))
        }
        try await keep(try await raise(raises, transaction), transaction)
    }
}
