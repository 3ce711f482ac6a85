import Postgres
import PushCore

/// An additional name of an app, or a key for its clients. The raw values are those of the table,
/// and of `carillon app link`.
package enum AppLinkKind: String, Sendable, CaseIterable {
    /// A Firebase project's id or number.
    case fcmProject = "fcm-project"
    /// The digest of a Google API key, as hex: it lets clients fetch remote config.
    case firebaseAPIKey = "firebase-api-key"
    /// An identity pool of Amazon Cognito, whose clients sync here.
    case cognitoPool = "cognito-identity-pool"
    /// The id that the app had at Atlas App Services, which its Realm clients carry.
    case atlasApp = "atlas-app"
}

package struct AppLink: Sendable, Equatable {
    package var kind: AppLinkKind
    package var name: String
    package var app: String

    package init(_ kind: AppLinkKind, _ name: String, app: String) {
        self.kind = kind
        self.name = name
        self.app = app
    }

    /// Whether it is an identity pool's id, in Cognito's form: `us-east-1:<guid>`.
    package static func isPoolName(_ name: String) -> Bool { SyncID.isWellFormed(name) }

    /// Whether it is an app's id of Atlas, as `tasktracker-abcde`.
    package static func isAtlasAppID(_ name: String) -> Bool {
        (1...128).contains(name.utf8.count)
            && name.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }

    /// Whether it is a Firebase project's id, which may have a domain as its prefix, or its number.
    package static func isProjectName(_ name: String) -> Bool {
        (1...128).contains(name.utf8.count)
            && name.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
                    UInt8(ascii: "-"), UInt8(ascii: ":"):
                    true
                default: false
                }
            }
    }
}

package struct AppLinkStore: Sendable {
    let database: Database

    /// The limit of an app's links of one kind.
    package static let maximumLinks = 100

    /// The lock of a transaction that gives an app a name or an id, so that no name belongs to two
    /// apps.
    package static let lock = "LOCK TABLE app_links IN SHARE ROW EXCLUSIVE MODE"

    package func link(_ link: AppLink) async throws { try await self.link([link]) }

    /// Links names to an app, all of them or none. A repeat changes nothing.
    ///
    /// - Throws: `StorageError` of kind `conflict` if a name is linked to another app, or is
    ///   another app's id, or if there are too many links.
    package func link(_ links: [AppLink]) async throws {
        try await database.transaction { transaction in
            _ = try await transaction.execute(Self.lock)
            for link in links {
                try await Self.add(link, transaction)
                try await notifyAppChanged(link.app, transaction)
            }
        }
    }

    private static func add(_ link: AppLink, _ transaction: PostgresTransaction) async throws {
        let known = try await transaction.execute(
            """
            SELECT (SELECT app FROM app_links WHERE kind = $1 AND name = $2) AS owner,
                EXISTS (SELECT FROM apps WHERE id = $2 AND id <> $3) AS names_other,
                (SELECT count(*) FROM app_links WHERE kind = $1 AND app = $3) AS links
            """,
            [.text(link.kind.rawValue), .text(link.name), .text(link.app)]
        ).first
        guard let known else { throw StorageError(.corrupt, "a query without rows") }
        let label =
            switch link.kind {
            case .fcmProject: "the project \(link.name)"
            case .firebaseAPIKey: "this API key"
            case .cognitoPool: "the identity pool \(link.name)"
            case .atlasApp: "the Atlas app \(link.name)"
            }
        if let owner = try known.textOrNil("owner") {
            guard owner == link.app else {
                throw StorageError(.conflict, "\(label) is linked to the app \(owner)")
            }
            return
        }
        switch link.kind {
        case .fcmProject, .atlasApp:
            guard try !known.boolean("names_other") else {
                throw StorageError(.conflict, "\(link.name) is the id of another app")
            }
        case .cognitoPool: try await linkPool(link, transaction)
        case .firebaseAPIKey: break
        }
        guard try known.integer("links") < maximumLinks else {
            throw StorageError(
                .conflict,
                "the app has \(maximumLinks) links of this kind: unlink some first"
            )
        }
        _ = try await transaction.execute(
            "INSERT INTO app_links (kind, name, app) VALUES ($1, $2, $3)",
            [.text(link.kind.rawValue), .text(link.name), .text(link.app)]
        )
    }

    /// Links a pool. A pool that was unlinked still has its data, and can only be linked to the
    /// same app again.
    private static func linkPool(
        _ link: AppLink,
        _ transaction: PostgresTransaction
    ) async throws {
        let kept = try await transaction.execute(
            """
            INSERT INTO sync_pools (name, app) VALUES ($1, $2)
            ON CONFLICT (name) DO UPDATE SET is_linked = true WHERE sync_pools.app = excluded.app
            RETURNING id
            """,
            [.text(link.name), .text(link.app)]
        )
        guard kept.first != nil else {
            throw StorageError(
                .conflict,
                "the identity pool \(link.name) holds data of another app, which must erase it first"
            )
        }
    }

    /// Removes a link. An identity pool keeps its data unless `isErasing`.
    ///
    /// - Returns: Whether there was such a link, or data of the pool to erase.
    package func unlink(_ link: AppLink, isErasing: Bool = false) async throws -> Bool {
        try await database.transaction { transaction in
            let removed = try await transaction.execute(
                "DELETE FROM app_links WHERE kind = $1 AND name = $2 AND app = $3",
                [.text(link.kind.rawValue), .text(link.name), .text(link.app)]
            ).affectedRows
            var erased = 0
            if link.kind == .cognitoPool {
                let own: [PostgresValue] = [.text(link.name), .text(link.app)]
                erased = try await transaction.execute(
                    isErasing
                        ? "DELETE FROM sync_pools WHERE name = $1 AND app = $2"
                        : "UPDATE sync_pools SET is_linked = false WHERE name = $1 AND app = $2",
                    own
                ).affectedRows
            }
            try await notifyAppChanged(link.app, transaction)
            return removed > 0 || isErasing && erased > 0
        }
    }

    /// Returns an app's links, by kind and name.
    package func list(_ app: String) async throws -> [AppLink] {
        try await database.execute(
            "SELECT kind, name, app FROM app_links WHERE app = $1 ORDER BY kind, name",
            [.text(app)]
        ).rows.compactMap(Self.link)
    }

    /// Returns the links of these names; names that no app has are left out.
    package func apps(_ kind: AppLinkKind, names: [String]) async throws -> [AppLink] {
        try await database.execute(
            "SELECT kind, name, app FROM app_links WHERE kind = $1 AND name = ANY ($2::text[])",
            [.text(kind.rawValue), .textArray(names)]
        ).rows.compactMap(Self.link)
    }

    /// Reads a link; `nil` if its kind is of a later version.
    private static func link(_ row: PostgresRow) throws -> AppLink? {
        guard let kind = AppLinkKind(rawValue: try row.text("kind")) else { return nil }
        return AppLink(kind, try row.text("name"), app: try row.text("app"))
    }
}
