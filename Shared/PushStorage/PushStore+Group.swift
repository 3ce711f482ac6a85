import Postgres

/// Several pushes that are one to whoever asked for them: they share their event's id, and differ in
/// its source.
extension PushStore {
    /// Keeps pushes that came over HTTP as one, with the records that will carry them to Kafka: all
    /// of them, or none.
    ///
    /// - Returns: The pushes' ids. Where pushes of that event are known already, which makes it a
    ///   repeat, those of the first time.
    /// - Throws: `TooManyWaiting` where more of the app would have to wait for their time than may.
    package func accept(
        group eventID: String,
        app: String,
        _ pushes: [(push: NewPush, record: OutboxRecord)],
        maximumWaiting: Int
    ) async throws -> [String] {
        try await database.transaction { transaction in
            // A repeat may be under way at the same time, with other members.
            _ = try await transaction.execute(
                """
                SELECT pg_advisory_xact_lock(
                    hashtextextended(current_schema() || ' pushes ' || $1 || ' ' || $2, 0))
                """,
                [.text(app), .text(eventID)]
            )
            let known = try await transaction.execute(
                """
                SELECT id FROM pushes WHERE event_id = $1 AND app = $2
                    AND event_source LIKE 'carillon/%' ORDER BY id LIMIT 1000
                """,
                [.text(eventID), .text(app)]
            )
            if !known.isEmpty { return try known.rows.map { try $0.uuid("id") } }
            let waiting = pushes.count { $0.push.releaseAt != nil }
            if waiting > 0, try await Self.waiting(in: app, transaction) + waiting > maximumWaiting
            {
                throw TooManyWaiting()
            }
            for (push, record) in pushes {
                _ = try await Self.insert(push, record, transaction)
            }
            return pushes.map(\.push.id)
        }
    }
}
