import Postgres
package import PushCore

/// Several pushes that are one to whoever asked for them: they share their event's id, and differ in
/// its source.
extension PushStore {
    /// What is kept of one send.
    package struct AcceptedGroup: Sendable, Equatable {
        package var eventID: String
        package var pushes: [String]
    }

    /// How long a send that comes again is taken for the one that was accepted.
    package static let repeatsLast = Duration.seconds(600)

    /// Keeps pushes that came over HTTP as one, with the records that will carry them to Kafka:
    /// all of them, or none.
    ///
    /// - Parameters:
    ///   - eventID: Of all the pushes.
    ///   - neighbours: The ids that the same send may have had, or may be getting elsewhere, in
    ///     the one order in which all that name them do, `eventID` among them; none: it has but one.
    ///   - app: The app's id.
    ///   - pushes: With their records.
    ///   - maximumWaiting: How many pushes of the app may wait for their time.
    /// - Returns: The event's id and its pushes'. Where pushes of these events were accepted within
    ///   `repeatsLast`, which makes it a repeat, those of the first time.
    /// - Throws: `TooManyWaiting` where more of the app would have to wait for their time than may.
    package func accept(
        group eventID: String,
        neighbours: [String] = [],
        app: String,
        _ pushes: [(push: NewPush, record: OutgoingRecord)],
        maximumWaiting: Int
    ) async throws -> AcceptedGroup {
        let eventIDs = neighbours.isEmpty ? [eventID] : neighbours
        return try await database.transaction { transaction in
            // A repeat may be under way at the same time, with other members.
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
                throw TooManyWaiting()
            }
            for (push, record) in pushes {
                _ = try await Self.insert(push, record, transaction)
            }
            return AcceptedGroup(eventID: eventID, pushes: pushes.map(\.push.id))
        }
    }
}
