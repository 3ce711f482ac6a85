import Cryptography
package import JSON
package import Postgres
package import PushCore

/// The record of one operation with an app's master key, or by an operator. Never contains the
/// operation's content.
package struct AuditEntry: Sendable, Equatable {
    package var app: String
    /// `master-key`, or `cli:<user of the operating system>`.
    package var actor: String
    /// `PUT /1.1/installations/:id`, or a command's words.
    package var action: String
    /// The ids of the affected objects, bounded.
    package private(set) var targets: [String]
    /// The address of the request.
    package var address: String?
    /// The status of the HTTP answer, or a command's exit code.
    package var status: Int
    /// An erasure's receipt.
    package var detail: JSONObject
    package var at: Instant

    package static let maximumTargets = 100
    package static let maximumTargetBytes = 512

    package init(
        app: String,
        actor: String,
        action: String,
        targets: [String] = [],
        address: String? = nil,
        status: Int,
        detail: JSONObject = [:],
        at: Instant = .now()
    ) {
        self.app = app
        self.actor = actor
        self.action = action
        self.targets = targets.prefix(Self.maximumTargets).map(Self.bounded)
        self.address = address
        self.status = status
        self.detail = detail
        self.at = at
    }

    /// Returns the target without NUL characters, cut to `maximumTargetBytes`.
    private static func bounded(_ target: String) -> String {
        var kept = ""
        var count = 0
        for scalar in target.unicodeScalars where scalar != "\0" {
            count += UTF8.width(scalar)
            guard count <= maximumTargetBytes else { break }
            kept.unicodeScalars.append(scalar)
        }
        return kept
    }
}

package struct AuditStore: Sendable {
    let database: Database

    /// Stores entries, in one statement.
    package func append(_ entries: [AuditEntry]) async throws {
        guard !entries.isEmpty else { return }
        let key = try await database.erasureKey.bytes(in: database)
        let (sql, parameters) = Self.insertion(of: entries, key: key)
        _ = try await database.execute(sql, parameters)
    }

    /// - Parameters:
    ///   - entries: The entries.
    ///   - key: The database's `ErasureKey`, to recognise erased targets.
    /// - Returns: One statement.
    package static func insertion(
        of entries: [AuditEntry],
        key: [UInt8]?
    ) -> (sql: String, parameters: [PostgresValue]) {
        let columns = Columns<AuditEntry>([
            .text("app", \.app), .text("actor", \.actor), .text("action", \.action),
            .jsonb("targets") { entry in
                .array(entry.targets.map { target($0, of: entry.app, key) })
            },
            .text("address", \.address), .integer("status", \.status),
            .jsonb("detail") { .object($0.detail) }, .time("at", \.at),
        ])
        return (
            """
            INSERT INTO audit (app, actor, action, targets, address, status, detail, at)
            SELECT i.app, i.actor, i.action, ARRAY(
                    SELECT \(ErasureFence.withoutErased(
                        "t.target",
                        digest: "decode(t.digest, 'hex')",
                        of: "i.app",
                        at: "i.at"
                    ))
                    FROM jsonb_to_recordset(i.targets) AS t(target text, digest text)),
                i.address, i.status, i.detail, i.at
            FROM \(columns.source(as: "i"))
            """,
            columns.parameters(of: entries)
        )
    }

    private static func target(_ name: String, of app: String, _ key: [UInt8]?) -> JSONValue {
        var object: JSONObject = ["target": .string(name)]
        if let key {
            object["digest"] = .string(Hex.encode(ErasureFence.digest(app, name, key: key)))
        }
        return .object(object)
    }

    /// Removes erased names from stored entries. No entry is written meanwhile: later writers check
    /// `ErasureFence`.
    ///
    /// - Returns: How many entries contained one of the names.
    package static func forget(
        _ names: [String],
        of app: String,
        until: Int64?,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        try await transaction.pipeline([
            ("LOCK TABLE audit IN SHARE ROW EXCLUSIVE MODE", []),
            (
                """
                UPDATE audit SET targets = ARRAY(SELECT CASE WHEN t = ANY ($2::text[])
                    THEN $3 ELSE t END FROM unnest(targets) AS t)
                WHERE app = $1 AND targets && $2::text[]
                    AND ($4::timestamptz IS NULL
                        OR at <= $4::timestamptz + \(ErasureFence.clockDifference))
                """,
                [
                    .text(app), .textArray(names), .text(ErasureFence.mark),
                    .optional(timestamp: until),
                ]
            ),
        ])[1].affectedRows
    }

    /// Returns the entries of an app, the latest first.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - since: The earliest time.
    ///   - limit: 1...100,000 entries.
    /// - Returns: At most `limit` entries.
    /// - Throws: `StorageError`.
    package func list(app: String, since: Instant?, limit: Int) async throws -> [AuditEntry] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM audit
            WHERE app = $1 AND ($2::timestamptz IS NULL OR at >= $2)
            ORDER BY at DESC, id DESC LIMIT $3
            """,
            [
                .text(app), .optional(timestamp: since?.microseconds),
                .integer(min(max(limit, 1), 100_000)),
            ]
        ).rows.map(Self.entry)
    }

    package static let columns = "app, actor, action, targets, address, status, detail, at"

    package static func entry(_ row: PostgresRow) throws -> AuditEntry {
        AuditEntry(
            app: try row.text("app"),
            actor: try row.text("actor"),
            action: try row.text("action"),
            targets: try row.textArray("targets"),
            address: try row.textOrNil("address"),
            status: try row.integer("status"),
            detail: try row.json("detail").object ?? [:],
            at: try row.instant("at")
        )
    }
}
