import Postgres
import PushCore
import Storage

/// A device that reads for an identity by a secret of its own.
package struct StoredReader: Sendable, Equatable {
    package var app: String
    /// The object id.
    package var installation: String
    package var identity: String

    package init(app: String, installation: String, identity: String) {
        self.app = app
        self.installation = installation
        self.identity = identity
    }
}

/// A device to which content can be sealed.
package struct SealingKey: Sendable, Equatable {
    package var installation: String
    /// X25519.
    package var publicKey: [UInt8]

    package init(installation: String, publicKey: [UInt8]) {
        self.installation = installation
        self.publicKey = publicKey
    }
}

/// The result of registering a reader.
package enum ReaderOutcome: Sendable, Equatable {
    /// It reads for this identity; a previous secret is invalid.
    case set(identity: String)
    /// The installation does not exist, or has no identity, or another one.
    case notOwner
    /// The identity has the maximum of devices with a sealing key.
    case tooMany
}

/// The devices that are readers. A reader exists while its installation exists and has the same
/// identity: a trigger on `installations` deletes it with any change.
package struct SecureReaderStore: Sendable {
    let database: Database

    /// The maximum of one identity's devices with a sealing key: content is stored once for each.
    package static let maximumSealingKeys = 100

    /// Makes a device a reader, or gives one a new secret and sealing key.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - installation: The device's object id.
    ///   - identity: The identity that claims the device; `nil`: any.
    ///   - digest: SHA-256 of its new secret.
    ///   - sealingKey: `nil`: nothing is sealed to it from now on.
    /// - Returns: The result.
    /// - Throws: `StorageError`.
    package func set(
        app: String,
        installation: String,
        identity: String?,
        digest: [UInt8],
        sealingKey: [UInt8]?
    ) async throws -> ReaderOutcome {
        guard !installation.utf8.contains(0) else { return .notOwner }
        return try await database.transaction { transaction in
            // The identity must not change meanwhile.
            let found = try await transaction.execute(
                """
                SELECT identity FROM installations
                WHERE app = $1 AND object_id = $2 AND identity IS NOT NULL FOR SHARE
                """,
                [.text(app), .text(installation)]
            )
            guard let owner = try found.first?.text("identity"),
                identity.map({ Array($0.utf8) == Array(owner.utf8) }) ?? true
            else { return .notOwner }
            if sealingKey != nil {
                let others = try await transaction.pipeline([
                    (
                        """
                        SELECT pg_advisory_xact_lock(
                            hashtextextended(current_schema() || $1::text, 0))
                        """,
                        [.text("sealing keys \(app) \(owner)")]
                    ),
                    (
                        """
                        SELECT count(*) AS count FROM secure_readers
                        WHERE app = $1 AND identity = $2 AND sealing_key IS NOT NULL
                            AND installation <> $3
                        """,
                        [.text(app), .text(owner), .text(installation)]
                    ),
                ])[1].first?.integer("count")
                guard others ?? 0 < Self.maximumSealingKeys else { return .tooMany }
            }
            _ = try await transaction.execute(
                """
                INSERT INTO secure_readers (app, installation, identity, digest, sealing_key)
                VALUES ($1, $2, $3, $4, $5)
                ON CONFLICT (app, installation) DO UPDATE SET identity = excluded.identity,
                    digest = excluded.digest, sealing_key = excluded.sealing_key,
                    created_at = excluded.created_at
                """,
                [
                    .text(app), .text(installation), .text(owner), .bytes(digest),
                    .optional(bytes: sealingKey),
                ]
            )
            return .set(identity: owner)
        }
    }

    /// Returns the reader with this SHA-256 of its secret.
    package func find(_ digest: [UInt8]) async throws -> StoredReader? {
        try await database.execute(
            "SELECT app, installation, identity FROM secure_readers WHERE digest = $1",
            [.bytes(digest)]
        ).first.map { row in
            StoredReader(
                app: try row.text("app"),
                installation: try row.text("installation"),
                identity: try row.text("identity")
            )
        }
    }

    /// Removes a reader: its secret becomes invalid, and nothing is sealed to it.
    ///
    /// - Returns: Whether the installation exists and is the identity's, a reader or not.
    package func remove(app: String, installation: String, identity: String?) async throws -> Bool {
        guard !installation.utf8.contains(0), identity?.utf8.contains(0) != true else {
            return false
        }
        return try await database.execute(
            """
            WITH own AS MATERIALIZED (
                SELECT object_id FROM installations
                WHERE app = $1 AND object_id = $2 AND identity IS NOT NULL
                    AND ($3::text IS NULL OR identity = $3)
            ), gone AS (
                DELETE FROM secure_readers r USING own o
                WHERE r.app = $1 AND r.installation = o.object_id
            )
            SELECT object_id FROM own
            """,
            [.text(app), .text(installation), .optional(text: identity)]
        ).first != nil
    }

    /// Returns the devices of an identity to which content can be sealed.
    package func sealing(app: String, identity: String) async throws -> [SealingKey] {
        try await database.execute(
            """
            SELECT installation, sealing_key FROM secure_readers
            WHERE app = $1 AND identity = $2 AND sealing_key IS NOT NULL
            ORDER BY installation LIMIT \(Self.maximumSealingKeys)
            """,
            [.text(app), .text(identity)]
        ).rows.map { row in
            SealingKey(
                installation: try row.text("installation"),
                publicKey: try row.bytes("sealing_key")
            )
        }
    }
}
