import Postgres
package import PushCore
package import Storage

/// The types of the fields that apps add to their objects. The first value decides the type for all
/// replicas, until an operator deletes it.
///
/// At the end of its transaction, a save stores the types of the fields that it is the first to
/// use. So a failed save decides nothing, and of two concurrent first saves the later one finds the
/// types of the earlier one.
package struct FieldStore: Sendable {
    let database: Database
    let types: FieldTypeCache

    package struct StoredField: Sendable, Equatable {
        package let className: String
        package let name: String
        package let type: FieldType
        package let since: Instant
    }

    /// Returns all fields of an app, by class and name.
    package func list(app: String) async throws -> [StoredField] {
        try await database.execute(
            """
            SELECT class, name, type, created_at FROM app_fields WHERE app = $1
            ORDER BY class, name
            """,
            [.text(app)]
        ).rows.map { row in
            StoredField(
                className: try row.text("class"),
                name: try row.text("name"),
                type: try Self.type(row),
                since: try row.instant("created_at")
            )
        }
    }

    /// Deletes the type of a field: the next value decides. Stored values stay as they are. Replicas
    /// are notified.
    ///
    /// - Returns: Whether there was such a field.
    package func drop(app: String, className: String, name: String) async throws -> Bool {
        try await database.transaction { transaction in
            // The app is locked first, as a save does.
            _ = try await transaction.execute(
                "UPDATE apps SET fields_version = fields_version + 1 WHERE id = $1",
                [.text(app)]
            )
            let dropped = try await transaction.execute(
                "DELETE FROM app_fields WHERE app = $1 AND class = $2 AND name = $3",
                [.text(app), .text(className), .text(name)]
            )
            _ = try await transaction.execute(
                "SELECT pg_notify('\(NotifyChannel.credentials.rawValue)', $1)",
                [.text(app)]
            )
            return dropped.affectedRows > 0
        }
    }

    /// Checks the types of a save's fields against the cached types.
    ///
    /// - Parameters:
    ///   - uses: The fields that it gives values.
    ///   - app: The app's id.
    ///   - className: `_Installation` or `_User`.
    ///   - version: The version of the app's fields that the caller knows: a cache entry of another
    ///     version is reloaded.
    /// - Returns: The types that the save has to store when it is written; usually none.
    /// - Throws: `FieldMismatch`; `InstallationError` for a name that no field may have.
    package func check(
        _ uses: [FieldUse],
        app: String,
        className: String,
        version: FieldsVersion
    ) async throws -> NewFields {
        var own: [FieldUse] = []
        for use in uses {
            // From here on, names are ASCII, so `==` compares their bytes.
            if let problem = FieldName.problem(use.name) { throw problem }
            guard let type = FieldType.fixed(use.name, of: className) else {
                own.append(use)
                continue
            }
            try use.require(type, of: className)
        }
        let owner = FieldOwner(app: app, className: className)
        guard !own.isEmpty else { return NewFields(owner, version) }
        var known = try await known(of: owner, version)
        var room = FieldTypeCache.maximumFields - known.count
        var new = NewFields(owner, version)
        for use in own {
            if let type = known[use.name] {
                try use.require(type, of: className)
            } else if room > 0 {
                room -= 1
                known[use.name] = use.type
                new.fields.append(use)
            }
        }
        return new
    }

    private func known(
        of owner: FieldOwner,
        _ version: FieldsVersion
    ) async throws -> [String: FieldType] {
        if let known = self.types.known(of: owner, version) { return known }
        let rows = try await database.execute(
            "SELECT name, type FROM app_fields WHERE app = $1 AND class = $2",
            [.text(owner.app), .text(owner.className)]
        ).rows
        var types: [String: FieldType] = [:]
        for row in rows { types[try row.text("name")] = try Self.type(row) }
        self.types.remember(types, of: owner, version)
        return types
    }

    // MARK: Learning

    /// Returns two statements: one inserts the types, one reads the stored types. They come last in
    /// a transaction, so that a transaction that waits for them waits only for the commit.
    static func statements(
        learning fields: [DecidedField]
    ) -> [(sql: String, parameters: [PostgresValue])] {
        let fields = fields.sorted { $0.key < $1.key }
        let parameters: [PostgresValue] = [
            .textArray(fields.map(\.key.owner.app)), .textArray(fields.map(\.key.owner.className)),
            .textArray(fields.map(\.key.name)),
        ]
        return [
            (
                """
                WITH w AS (
                    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                        AS w(app, class, name, type)
                ), owners AS (
                    SELECT o.app, o.class, \(FieldTypeCache.maximumFields) - (SELECT count(*) FROM (
                        SELECT FROM app_fields f WHERE f.app = o.app AND f.class = o.class
                        LIMIT \(FieldTypeCache.maximumFields)) AS c) AS room
                    FROM (SELECT DISTINCT app, class FROM w) AS o
                ), numbered AS (
                    SELECT w.*, o.room, row_number() OVER (PARTITION BY w.app, w.class
                        ORDER BY w.name COLLATE "C") AS number
                    FROM w JOIN owners o ON o.app = w.app AND o.class = w.class
                )
                INSERT INTO app_fields (app, class, name, type)
                SELECT app, class, name, type FROM numbered WHERE number <= room
                ORDER BY app COLLATE "C", class COLLATE "C", name COLLATE "C"
                ON CONFLICT DO NOTHING
                """, parameters + [.textArray(fields.map(\.type.text))]
            ),
            (
                """
                SELECT f.app, f.class, f.name, f.type
                FROM unnest($1::text[], $2::text[], $3::text[]) AS w(app, class, name)
                CROSS JOIN LATERAL (SELECT * FROM app_fields f WHERE f.app = w.app
                    AND f.class = w.class AND f.name = w.name) AS f
                """, parameters
            ),
        ]
    }

    /// Returns the result of the second statement.
    static func decided(_ rows: PostgresRows) throws -> [DecidedField] {
        try rows.map { row in
            DecidedField(
                key: FieldKey(
                    owner: FieldOwner(
                        app: try row.text("app"),
                        className: try row.text("class")
                    ),
                    name: try row.text("name")
                ),
                type: try type(row)
            )
        }
    }

    /// Stores the types in the transaction of one save.
    ///
    /// - Throws: `FieldMismatch` if another save stored another type.
    static func insertTypes(_ new: NewFields, _ transaction: PostgresTransaction) async throws {
        guard !new.fields.isEmpty else { return }
        let results = try await transaction.pipeline(statements(learning: new.decided))
        let types = Dictionary(
            try decided(results[1].rows).map { ($0.key.name, $0.type) },
            uniquingKeysWith: { first, _ in first }
        )
        for use in new.fields {
            if let type = types[use.name] { try use.require(type, of: new.owner.className) }
        }
    }

    private static func type(_ row: PostgresRow) throws -> FieldType {
        guard let type = FieldType(text: try row.text("type")) else {
            throw StorageError(.corrupt, "a field has a type that is not known")
        }
        return type
    }
}
