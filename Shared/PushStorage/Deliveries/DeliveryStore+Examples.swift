import Postgres
package import PushCore

/// Devices at which a push failed for one reason.
package struct FailureExample: Sendable, Equatable {
    package var failure: FailureCount
    /// Installations by their object ids; tokens that a push named by their hash.
    package var targets: [String]
}

extension DeliveryStore {
    /// For each of the failures some devices that it happened to, as long as the deliveries are kept.
    ///
    /// - Parameters:
    ///   - failures: Of this push, as its record has them.
    ///   - pushID: Which push.
    ///   - limit: Devices for each.
    /// - Returns: The failures in their order.
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
            JOIN pushes p ON p.id = $1
            CROSS JOIN LATERAL (
                SELECT d.target FROM deliveries d
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
}
