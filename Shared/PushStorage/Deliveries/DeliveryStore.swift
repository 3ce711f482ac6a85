import Postgres
package import PushCore
import Storage

/// Deliveries of some pushes that went to one push service and ended the same way.
package struct DeliveryCount: Sendable, Equatable {
    package var platform: Platform
    /// `nil` if they have not ended.
    package var outcome: Outcome?
    /// The status of the last answer.
    package var status: Int?
    package var reason: String?
    package var count: Int
}

/// One delivery, for a report that lists them.
package struct DeliveryRow: Sendable, Equatable {
    package var installationID: String?
    package var token: String
    /// The count of this delivery alone.
    package var count: DeliveryCount
}

/// Devices at which a push failed for one reason.
package struct FailureExample: Sendable, Equatable {
    package var failure: FailureCount
    /// Installations by their object ids; tokens that a push named by their hash.
    package var targets: [String]

    package init(failure: FailureCount, targets: [String]) {
        self.failure = failure
        self.targets = targets
    }
}

/// Reads the ledger's rows, for reports. The stores of `Planning/` and the checkpoints of shards
/// create them, `DueStore` claims them, and `PushLedger` ends them.
package struct DeliveryStore: Sendable {
    let database: Database

    /// Returns the present states of a push's deliveries, for tests and explanations.
    package func states(pushID: String, limit: Int = 1000) async throws -> [DeliveryStatus] {
        try await database.execute(
            """
            SELECT target, installation_id, state, attempts, last_status, last_reason, owner
            FROM all_deliveries WHERE push_id = $1 ORDER BY target LIMIT $2
            """,
            [.uuid(pushID), .integer(limit)]
        ).rows.map { row in
            DeliveryStatus(
                target: try row.text("target"),
                installationID: try row.textOrNil("installation_id"),
                state: DeliveryState(rawValue: try row.integer("state")) ?? .pending,
                attempts: try row.integer("attempts"),
                status: try row.integerOrNil("last_status"),
                reason: try row.textOrNil("last_reason"),
                owner: try row.integerOrNil("owner")
            )
        }
    }

    /// Returns some devices for each failure. They are available until the retention of the
    /// deliveries ends.
    ///
    /// - Parameters:
    ///   - failures: The failures that the record of this push lists.
    ///   - pushID: The push.
    ///   - limit: The most devices for each failure.
    /// - Returns: The failures with their devices, in the given order.
    /// - Throws: `StorageError`.
    package func examples(
        of failures: [FailureCount],
        in pushID: String,
        limit: Int
    ) async throws -> [FailureExample] {
        var found = failures.map { FailureExample(failure: $0, targets: []) }
        let rows = try await database.execute(
            """
            SELECT i.number, e.target
            FROM unnest($2::integer[], $3::text[], $4::text[]) AS i(number, provider, reason)
            JOIN all_pushes p ON p.id = $1
            CROSS JOIN LATERAL (
                SELECT d.target FROM all_deliveries d
                WHERE d.day = (p.created_at AT TIME ZONE 'UTC')::date AND d.push_id = p.id
                    AND d.state = \(DeliveryState.failed.sql) AND d.provider = i.provider
                    AND \(FailureCounts.reasonSQL("d")) = i.reason
                ORDER BY d.target LIMIT $5) e
            ORDER BY i.number, e.target
            """,
            [
                .uuid(pushID), .integerArray(Array(failures.indices)),
                .textArray(failures.map(\.provider.rawValue)),
                .textArray(failures.map(\.reason)), .integer(limit),
            ]
        ).rows
        for row in rows {
            found[try row.integer("number")].targets.append(try row.text("target"))
        }
        return found
    }

    private static let ofPushes = """
        FROM all_pushes p CROSS JOIN LATERAL (
            SELECT d.* FROM all_deliveries d WHERE d.push_id = p.id
                AND d.day = (p.created_at AT TIME ZONE 'UTC')::date OFFSET 0) d
        WHERE p.id = ANY ($1::uuid[])
        """

    /// Counts the outcomes of deliveries that have rows. The deliveries of a broadcast get their
    /// rows while it is sent.
    package func counts(of pushIDs: [String]) async throws -> [DeliveryCount] {
        try await database.execute(
            """
            SELECT d.provider, d.state, d.last_status, d.last_reason, count(*) AS count
            \(Self.ofPushes)
            GROUP BY d.provider, d.state, d.last_status, d.last_reason
            ORDER BY d.provider, count(*) DESC LIMIT 1000
            """,
            [.uuidArray(pushIDs.sorted())]
        ).rows.map(Self.count)
    }

    /// Returns the deliveries of some pushes, at most `limit` of them.
    package func rows(of pushIDs: [String], limit: Int) async throws -> [DeliveryRow] {
        try await database.execute(
            """
            SELECT d.provider, d.state, d.last_status, d.last_reason, 1::bigint AS count, d.token,
                d.installation_id
            \(Self.ofPushes) ORDER BY d.push_id, d.target LIMIT $2
            """,
            [.uuidArray(pushIDs.sorted()), .integer(limit)]
        ).rows.map { row in
            DeliveryRow(
                installationID: try row.textOrNil("installation_id"),
                token: try row.text("token"),
                count: try Self.count(row)
            )
        }
    }

    private static func count(_ row: PostgresRow) throws -> DeliveryCount {
        guard let platform = Platform(rawValue: try row.text("provider")) else {
            throw StorageError(.corrupt, "a delivery has no known provider")
        }
        return DeliveryCount(
            platform: platform,
            outcome: DeliveryState(rawValue: try row.integer("state"))?.outcome,
            status: try row.integerOrNil("last_status"),
            reason: try row.textOrNil("last_reason"),
            count: try row.integer("count")
        )
    }
}
