import Postgres
package import PushCore

/// Of one platform's installations that a push would go to, those that it cannot reach for want of
/// a credential.
package struct UnfitInstallations: Sendable, Equatable {
    package var platform: Platform
    /// That a push would go to.
    package var total = 0
    /// The app has no credential for their provider.
    package var withoutCredential = 0
    /// They name an APNs topic that no credential is for.
    package var ofOtherTopics = 0
    /// They name no APNs topic, and of several credentials none is the default.
    package var withoutTopic = 0

    package var count: Int { withoutCredential + ofOtherTopics + withoutTopic }
}

extension InstallationStore {
    /// Looks at all installations of an app.
    ///
    /// - Parameters:
    ///   - app: Whose.
    ///   - credentials: Those of the app.
    /// - Returns: A count for each platform that it has installations of.
    /// - Throws: `StorageError`, of which `isStatementTimeout` says that they are too many.
    package func unfit(
        app: String,
        _ credentials: [StoredCredential]
    ) async throws -> [UnfitInstallations] {
        let topics = credentials.filter { $0.platform == .apns }
        let hasDefault = topics.count == 1 || topics.contains(where: \.isDefault)
        // MPNS has channels that need none.
        let platforms = Set(credentials.map(\.platform.rawValue)).union([Platform.mpns.rawValue])
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
            return UnfitInstallations(
                platform: platform,
                total: try row.integer("total"),
                withoutCredential: try row.integer("without_credential"),
                ofOtherTopics: try row.integer("of_other_topics"),
                withoutTopic: try row.integer("without_topic")
            )
        }
    }
}
