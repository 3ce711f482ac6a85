import Postgres
import PushCore
import Storage

/// An audience topic at FCM: one message and one delivery, which belongs to no installation. It
/// waits neither for a broadcast nor for the push's pace.
enum TopicRows {
    /// - Returns: The number of rows that were written: 0 if the app has no credential for FCM.
    static func insert(
        _ push: PlanningPush,
        _ topic: AudienceTopic,
        _ zones: ZoneTimes?,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        var parameters: [PostgresValue] = [
            .uuid(push.id), .text(topic.target), .text(topic.name), .integer(Lane.direct.rawValue),
        ]
        // A topic has no zone, like a token.
        let times = RowTimes(zones, zone: "NULL::text", &parameters)
        return try await transaction.execute(
            """
            INSERT INTO deliveries AS d (\(DirectRows.columns))
            SELECT (p.created_at AT TIME ZONE 'UTC')::date, p.id, $2, p.app, NULL,
                '\(Platform.fcm.rawValue)', '', false, $3, NULL, NULL, $4, \(times.expires),
                \(times.due), \(times.begins), NULL::json, NULL::bigint
            FROM pushes p WHERE p.id = $1 AND \(hasCredential(of: "p.app"))
            ON CONFLICT DO NOTHING RETURNING d.target
            """,
            parameters
        ).count
    }

    /// Returns the SQL condition that an app has a credential for FCM.
    static func hasCredential(of app: String) -> String {
        """
        EXISTS (SELECT FROM credentials c
            WHERE c.app = \(app) AND c.provider = '\(Platform.fcm.rawValue)')
        """
    }
}
