import Postgres
package import PushCore
package import Storage

/// The installations of one platform that a push would go to, and those that it cannot reach because a
/// credential is missing.
package struct InstallationsWithoutCredential: Sendable, Equatable {
    package var platform: Platform
    /// The installations that a push would go to.
    package var total = 0
    /// The installations for whose provider the app has no credential.
    package var withoutCredential = 0
    /// The installations whose APNs topic has no credential.
    package var ofOtherTopics = 0
    /// The installations without an APNs topic, if none of several credentials is the default.
    package var withoutTopic = 0

    package var count: Int { withoutCredential + ofOtherTopics + withoutTopic }
}

extension InstallationStore {
    /// Counts all installations of an app.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - credentials: The credentials of the app.
    /// - Returns: The counts for each platform of which the app has installations.
    /// - Throws: `StorageError`, whose `isStatementTimeout` means that the app has too many
    ///   installations.
    package func unfit(
        app: String,
        _ credentials: [StoredCredential]
    ) async throws -> [InstallationsWithoutCredential] {
        let topics = credentials.filter { $0.platform == .apns }
        let hasDefault = topics.count == 1 || topics.contains(where: \.isDefault)
        // Some channels of MPNS need no credential, and connections never need one.
        let platforms = Set(credentials.map(\.platform.rawValue))
            .union([Platform.mpns, .connection].map(\.rawValue))
        return try await database.execute(
            """
            SELECT n.provider, count(*) AS total,
                count(*) FILTER (WHERE n.provider <> ALL ($2::text[])) AS without_credential,
                count(*) FILTER (WHERE n.provider = 'apns' AND n.provider = ANY ($2::text[])
                    AND t.topic <> ALL ($3::text[])) AS of_other_topics,
                count(*) FILTER (WHERE n.provider = 'apns' AND n.provider = ANY ($2::text[])
                    AND t.topic IS NULL AND NOT $4::boolean) AS without_topic
            FROM installations n
            CROSS JOIN LATERAL (SELECT \(InstallationTopic.sql(of: "n")) AS topic) t
            WHERE n.app = $1 AND n.valid AND n.token IS NOT NULL
            GROUP BY n.provider ORDER BY n.provider
            """,
            [
                .text(app), .textArray(platforms.sorted()), .textArray(topics.map(\.name)),
                .boolean(hasDefault),
            ]
        ).rows.compactMap { row in
            guard let platform = Platform(rawValue: try row.text("provider")) else { return nil }
            return InstallationsWithoutCredential(
                platform: platform,
                total: try row.integer("total"),
                withoutCredential: try row.integer("without_credential"),
                ofOtherTopics: try row.integer("of_other_topics"),
                withoutTopic: try row.integer("without_topic")
            )
        }
    }
}
