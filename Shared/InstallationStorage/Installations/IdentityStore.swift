package import JSON
import Postgres
package import PushCore
import Storage

/// Identities with fields of their own: LeanCloud's and Parse's `_User`.
package struct IdentityStore: Sendable {
    let database: Database
    let fieldTypes: FieldTypeCache

    private static let columns = "app, id, fields, created_at, updated_at"

    /// Stores a new identity. Calls that name the same user, phone or address wait for each other.
    ///
    /// - Throws: `InstallationError` 202, 203 or 214 if another identity has its name, address or
    ///   number; `FieldMismatch` if another save was the first to use a field of `fields` with another
    ///   type; `StorageError`, of kind `conflict` if the id exists already.
    package func create(_ identity: Identity, fields: NewFields? = nil) async throws -> Identity {
        let kept = try await database.transaction { transaction in
            try await Self.requireUnique(identity, transaction)
            let rows = try await transaction.execute(
                """
                INSERT INTO identities (app, id, fields, created_at, updated_at)
                VALUES ($1, $2, $3, date_trunc('milliseconds', now()),
                    date_trunc('milliseconds', now()))
                RETURNING \(Self.columns)
                """,
                [
                    .text(identity.app), .text(identity.objectID),
                    .json(.object(identity.fields)),
                ]
            )
            guard let row = rows.first else {
                throw StorageError(.corrupt, "an identity was not stored")
            }
            if let fields { try await FieldStore.insertTypes(fields, transaction) }
            return try Self.identity(row)
        }
        if let fields { fieldTypes.learned(fields) }
        return kept
    }

    package func find(app: String, objectID: String) async throws -> Identity? {
        try await find(app: app, objectIDs: [objectID]).first
    }

    /// Returns the existing identities of the ids.
    package func find(app: String, objectIDs: [String]) async throws -> [Identity] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM identities WHERE app = $1 AND id = ANY ($2::text[])
            ORDER BY id
            """,
            [.text(app), .textArray(ExactStringSet(objectIDs).sorted())]
        ).rows.map(Self.identity)
    }

    /// Whether an identity with any of the ids exists.
    package func isAny(app: String, of objectIDs: [String]) async throws -> Bool {
        try await database.execute(
            """
            SELECT 1 AS found FROM identities WHERE app = $1 AND id = ANY ($2::text[]) LIMIT 1
            """,
            [.text(app), .textArray(ExactStringSet(objectIDs).sorted())]
        ).first != nil
    }

    package enum Change: Sendable {
        case changed(Identity)
        case unknown
        /// The identity exists, but does not match the condition.
        case unmatched
    }

    /// Changes one identity under a lock on its row: `change` returns its new fields.
    package func update(
        app: String,
        objectID: String,
        where condition: Where = .everything,
        fields: NewFields? = nil,
        change: @escaping @Sendable (JSONObject) throws -> JSONObject
    ) async throws -> Change {
        var compiler = WhereCompiler(app: app, parameters: [.text(app), .text(objectID)])
        let matches = try compiler.identities(condition, as: "n")
        let parameters = compiler.parameters
        let changed: Change = try await database.transaction { transaction in
            // The lock comes first: the condition must be tested on the locked row.
            let rows = try await transaction.execute(
                "SELECT \(Self.columns) FROM identities WHERE app = $1 AND id = $2 FOR UPDATE",
                [.text(app), .text(objectID)]
            )
            guard var identity = try rows.first.map(Self.identity) else { return .unknown }
            if condition != .everything {
                let matching = try await transaction.execute(
                    """
                    SELECT 1 AS matches FROM identities n
                    WHERE n.app = $1 AND n.id = $2 AND \(matches)
                    """,
                    parameters
                )
                guard matching.first != nil else { return .unmatched }
            }
            identity.fields = try change(identity.fields)
            try await Self.requireUnique(identity, transaction)
            let stored = try await transaction.execute(
                """
                UPDATE identities SET fields = $3,
                    updated_at = date_trunc('milliseconds', clock_timestamp())
                WHERE app = $1 AND id = $2 RETURNING \(Self.columns)
                """,
                [.text(app), .text(objectID), .json(.object(identity.fields))]
            )
            guard let row = stored.first else {
                throw StorageError(.corrupt, "an identity went away under its lock")
            }
            if let fields { try await FieldStore.insertTypes(fields, transaction) }
            return .changed(try Self.identity(row))
        }
        if case .changed = changed, let fields { fieldTypes.learned(fields) }
        return changed
    }

    /// - Returns: How many matched and were deleted.
    package func delete(
        app: String,
        objectIDs: [String],
        where condition: Where = .everything
    ) async throws -> Int {
        var compiler = WhereCompiler(
            app: app,
            parameters: [.text(app), .textArray(ExactStringSet(objectIDs).sorted())]
        )
        let matches = try compiler.identities(condition, as: "n")
        return try await database.ask(
            """
            DELETE FROM identities n WHERE n.app = $1 AND n.id = ANY ($2::text[]) AND \(matches)
            """,
            compiler.parameters
        ).affectedRows
    }

    /// Returns the identities that a condition selects.
    ///
    /// - Throws: `PageTooLarge`, `WhereError`, `StorageError`.
    package func query(
        app: String,
        where condition: Where = .everything,
        order: [SortKey] = [],
        limit: Int = 100,
        skip: Int = 0
    ) async throws -> [Identity] {
        try await page(app: app, where: condition, order: order, limit: limit, skip: skip).whole()
    }

    /// Returns the same identities, cut at `bytes`: by default the size of one response.
    package func page(
        app: String,
        where condition: Where = .everything,
        order: [SortKey] = [],
        limit: Int = 100,
        skip: Int = 0,
        bytes: Int = PageBound.bytes
    ) async throws -> ObjectPage<Identity> {
        let rows = try await rows(app, condition, order, limit, skip, .whole(bytes: bytes))
        return try PageBound.read(rows, bytes: bytes, Self.identity)
    }

    /// Returns the ids of the identities, up to the size of one response.
    package func places(
        app: String,
        where condition: Where,
        order: [SortKey],
        limit: Int,
        skip: Int
    ) async throws -> ObjectLocations {
        let rows = try await rows(app, condition, order, limit, skip, .places("id"))
        return try PageBound.places(rows)
    }

    /// Returns the identities of these ids that still exist, in the same order: as many as fit into
    /// `PageBound.partBytes`, at least one.
    package func part(app: String, of ids: [String]) async throws -> ObjectPage<Identity> {
        try await PageBound.part(
            of: """
                SELECT \(Self.columns) FROM identities WHERE app = $1 AND id = ANY ($2::text[])
                ORDER BY array_position($2::text[], id)
                """,
            weight: Self.weight,
            [.text(app), .textArray(ids)],
            in: database,
            Self.identity
        )
    }

    private func rows(
        _ app: String,
        _ condition: Where,
        _ order: [SortKey],
        _ limit: Int,
        _ skip: Int,
        _ pageRows: PageRows
    ) async throws -> [PostgresRow] {
        let (limit, skip) = (min(max(limit, 0), 1000), max(skip, 0))
        if condition.isIndexed(in: .identities) {
            var compiler = WhereCompiler(app: app, parameters: [.text(app)])
            let statement = try compiler.few(
                condition,
                order,
                limit: limit,
                skip: skip,
                in: .identities,
                columns: Self.columns,
                weight: Self.weight,
                pageRows
            )
            let rows = try await database.ask(statement, compiler.parameters).rows
            if let few = try WhereCompiler.few(in: rows) { return few }
        }
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let selected = try compiler.identities(condition, as: "n")
        let order = try compiler.order(order, of: condition, in: .identities, as: "n")
        let limitName = compiler.bind(.integer(limit))
        let skipName = compiler.bind(.integer(skip))
        let page = """
            SELECT \(Self.columns) FROM identities n WHERE n.app = $1 AND \(selected)
            ORDER BY \(order) LIMIT \(limitName) OFFSET \(skipName)
            """
        return try await Array(
            database.ask(
                PageBound.statement(page, weight: Self.weight, pageRows),
                compiler.parameters
            ).rows
        )
    }

    /// The bytes of one identity in a response.
    private static let weight = "octet_length(fields::text)"

    package func count(app: String, where condition: Where = .everything) async throws -> Int {
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let condition = try compiler.identities(condition, as: "n")
        return try await database.ask(
            "SELECT count(*) AS count FROM identities n WHERE n.app = $1 AND \(condition)",
            compiler.parameters
        ).first?.integer("count") ?? 0
    }

    private static func requireUnique(
        _ identity: Identity,
        _ transaction: PostgresTransaction
    ) async throws {
        let fields = identity.uniqueFields
        guard !fields.isEmpty else { return }
        _ = try await transaction.execute(
            """
            SELECT pg_advisory_xact_lock(key) FROM (
                SELECT DISTINCT hashtextextended(current_schema() || name, 0) AS key
                FROM unnest($1::text[]) AS name ORDER BY 1) AS keys
            """,
            [.textArray(fields.map { "identity \(identity.app) \($0.name) \($0.value)" })]
        )
        for (name, value) in fields {
            let others = try await transaction.execute(
                """
                SELECT 1 AS taken FROM identities
                WHERE app = $1 AND id <> $2 AND fields @> $3::jsonb LIMIT 1
                """,
                [
                    .text(identity.app), .text(identity.objectID),
                    .json(.object(JSONObject([(name, .string(value))]))),
                ]
            )
            if others.first != nil { throw Identity.taken(name) }
        }
    }

    private static func identity(_ row: PostgresRow) throws -> Identity {
        Identity(
            app: try row.text("app"),
            objectID: try row.text("id"),
            fields: try row.json("fields").object ?? [:],
            createdAt: try row.instant("created_at"),
            updatedAt: try row.instant("updated_at")
        )
    }
}
