package import JSON
import Postgres
package import PushCore
import Storage

/// A push that a person is writing.
package struct PushDraft: Sendable, Equatable {
    package var id: String
    package var app: String
    /// The name in the audit.
    package var author: String
    /// The fields of the form, as they were typed.
    package var form: JSONObject
    package var updatedAt: Instant
}

/// Drafts of pushes. They are deleted seven days after their last change.
package struct DraftStore: Sendable {
    let database: Database

    /// How long a draft is stored after its last change.
    package static let retention = Duration.seconds(7 * 86_400)
    /// The most drafts of one app. Beyond this, the oldest one makes room.
    static let maximumDrafts = 1000

    /// Stores a draft, or replaces the fields of a stored one.
    ///
    /// - Returns: `false` if another app has a draft with this id.
    package func save(_ id: String, app: String, author: String, form: JSONObject) async throws
        -> Bool
    {
        let results = try await database.transaction { transaction in
            try await transaction.pipeline([
                (
                    """
                    INSERT INTO push_drafts AS d (id, app, author, form) VALUES ($1, $2, $3, $4)
                    ON CONFLICT (id) DO UPDATE SET form = excluded.form, updated_at = now(),
                        author = excluded.author
                        WHERE d.app = excluded.app
                    """,
                    [.uuid(id), .text(app), .text(author), .json(.object(form))]
                ),
                (
                    """
                    DELETE FROM push_drafts WHERE app = $1 AND id IN (
                        SELECT id FROM push_drafts WHERE app = $1
                        ORDER BY updated_at DESC OFFSET \(Self.maximumDrafts))
                    """,
                    [.text(app)]
                ),
            ])
        }
        return results[0].affectedRows == 1
    }

    package func find(_ id: String, app: String) async throws -> PushDraft? {
        guard PushIdentity.isUUID(id) else { return nil }
        return try await database.execute(
            """
            SELECT id::text AS id, app, author, form, updated_at FROM push_drafts
            WHERE id = $1 AND app = $2
            """,
            [.uuid(id), .text(app)]
        ).first.map { row in
            PushDraft(
                id: try row.text("id"),
                app: try row.text("app"),
                author: try row.text("author"),
                form: try row.json("form").object ?? [:],
                updatedAt: try row.instant("updated_at")
            )
        }
    }
}
