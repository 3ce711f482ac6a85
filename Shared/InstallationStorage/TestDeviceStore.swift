import Postgres
package import PushCore
import Storage

/// A device that people of an app use for tests, by a name of their own.
package struct TestDevice: Sendable, Equatable {
    package let name: String
    /// The installation's object id.
    package let installation: String
    /// The name in the audit of the person who added it.
    package let author: String
    package let createdAt: Instant
}

/// The test devices of the console. One is deleted with its installation.
package struct TestDeviceStore: Sendable {
    let database: Database

    /// The most test devices of one app.
    package static let maximum = 50

    package enum Saved: Sendable, Equatable {
        case done
        /// Another device of the app has the name.
        case nameIsTaken
        case tooMany
        /// There is no such installation.
        case noDevice
    }

    /// Returns an app's test devices, by name.
    package func list(app: String) async throws -> [TestDevice] {
        try await database.execute(
            """
            SELECT name, installation, author, created_at FROM test_devices WHERE app = $1
            ORDER BY name LIMIT \(Self.maximum)
            """,
            [.text(app)]
        ).rows.map { row in
            TestDevice(
                name: try row.text("name"),
                installation: try row.text("installation"),
                author: try row.text("author"),
                createdAt: try row.instant("created_at")
            )
        }
    }

    /// Stores a device under a name, or renames it.
    package func save(
        _ name: String,
        installation: String,
        app: String,
        author: String
    ) async throws -> Saved {
        do {
            let results = try await database.transaction { transaction in
                try await transaction.pipeline([
                    // Of two concurrent calls the second counts the first one's device.
                    ("SELECT FROM apps WHERE id = $1 FOR NO KEY UPDATE", [.text(app)]),
                    (
                        """
                        INSERT INTO test_devices AS d (app, name, installation, author)
                        SELECT $1, $2, $3, $4 WHERE (SELECT count(*) FROM test_devices
                            WHERE app = $1 AND installation <> $3) < \(Self.maximum)
                        ON CONFLICT (app, installation) DO UPDATE SET name = excluded.name,
                            author = excluded.author, created_at = now()
                        """,
                        [.text(app), .text(name), .text(installation), .text(author)]
                    ),
                ])
            }
            return results[1].affectedRows == 1 ? .done : .tooMany
        } catch let error as StorageError where error.kind == .conflict {
            return .nameIsTaken
        } catch let error as StorageError where error.sqlState == "23503" {
            return .noDevice
        }
    }

    /// - Returns: Whether the device was one.
    package func remove(installation: String, app: String) async throws -> Bool {
        try await database.execute(
            "DELETE FROM test_devices WHERE app = $1 AND installation = $2",
            [.text(app), .text(installation)]
        ).affectedRows > 0
    }
}
