import Postgres
package import PushCore
import Storage

/// Groups of pushes that are one send for the client. They have the same event id and different
/// event sources.
extension PushStore {
    /// The stored pushes of one send.
    package struct AcceptedGroup: Sendable, Equatable {
        package var eventID: String
        package var pushes: [String]
    }

    /// How long a repeat of an accepted send is recognised.
    package static let repeatsLast = Duration.seconds(600)

    /// Stores the pushes of one send over HTTP, with the records that the relay produces to Kafka:
    /// all or none.
    ///
    /// - Parameters:
    ///   - eventID: The event id of all the pushes.
    ///   - neighbours: The ids that the same send may also have, in earlier or concurrent calls,
    ///     including `eventID`. All callers must use the same order. Empty if it has only one id.
    ///   - app: The app's id.
    ///   - pushes: The pushes with their records.
    ///   - maximumWaiting: The most pushes of the app that may wait for their time.
    /// - Returns: The ids of the event and of its pushes. If pushes of these events were accepted
    ///   within `repeatsLast`, this is a repeat, and the ids are those of the first send.
    /// - Throws: `TooManyScheduled` if more pushes than that would wait.
    package func accept(
        group eventID: String,
        neighbours: [String] = [],
        app: String,
        _ pushes: [(push: NewPush, record: OutgoingRecord)],
        maximumWaiting: Int
    ) async throws -> AcceptedGroup {
        let eventIDs = neighbours.isEmpty ? [eventID] : neighbours
        return try await database.transaction { transaction in
            // A repeat may run at the same time, with other ids.
            for eventID in eventIDs {
                _ = try await transaction.execute(
                    """
                    SELECT pg_advisory_xact_lock(
                        hashtextextended(current_schema() || ' pushes ' || $1 || ' ' || $2, 0))
                    """,
                    [.text(app), .text(eventID)]
                )
            }
            let known = try await transaction.execute(
                """
                SELECT id, event_id FROM pushes WHERE event_id = ANY ($1::text[]) AND app = $2
                    AND event_source LIKE 'carillon/%'
                    AND coalesce(accepted_at, created_at) > now() - $3 * interval '1 second'
                ORDER BY coalesce(accepted_at, created_at), event_id, id LIMIT 1000
                """,
                [
                    .textArray(eventIDs), .text(app),
                    .integer(Int(Self.repeatsLast.components.seconds)),
                ]
            )
            if let first = try known.first?.text("event_id") {
                let pushes = try known.rows.filter { try $0.text("event_id") == first }
                    .map { try $0.uuid("id") }
                return AcceptedGroup(eventID: first, pushes: pushes)
            }
            let waiting = pushes.count { $0.push.releaseAt != nil }
            if waiting > 0, try await Self.waiting(in: app, transaction) + waiting > maximumWaiting
            {
                throw TooManyScheduled()
            }
            for (push, record) in pushes {
                _ = try await Self.insert(push, record, transaction)
            }
            return AcceptedGroup(eventID: eventID, pushes: pushes.map(\.push.id))
        }
    }
}
