import Postgres
package import PushCore
import Storage

/// An index of an app's own field, for range queries (such as `$lt`) over values of one type.
package struct FieldIndex: Sendable, Equatable {
    package enum ValueType: String, Sendable, CaseIterable {
        case number, date, text
    }

    package var app: String
    package var path: WherePath
    package var type: ValueType

    package init(app: String, path: WherePath, type: ValueType) {
        self.app = app
        self.path = path
        self.type = type
    }
}

/// The indexes that operators create. Each consists of two indexes over the rows of one app. One
/// has the values, as `WhereCompiler` compares them. The other, mostly empty, has the rows in which
/// the field is an array, as its elements are compared, too. The planner needs both to skip all
/// other rows.
///
/// They are built and dropped `CONCURRENTLY`, while writes continue. An unfinished index is invalid
/// until it is created again. The comment of an index contains the app, the type and the field.
package struct FieldIndexStore: Sendable {
    let database: Database

    package struct FieldIndexStatus: Sendable, Equatable {
        package var index: FieldIndex
        /// Whether queries can use it: false while it is built, and after a failed build.
        package var isUsable: Bool
        package var sizeBytes: Int
    }

    /// Returns the indexes of an app, in the order of their fields.
    package func list(app: String) async throws -> [FieldIndexStatus] {
        let rows = try await database.execute(
            """
            SELECT d.description, bool_and(i.indisvalid) AS usable,
                sum(pg_relation_size(i.indexrelid))::bigint AS size, count(*) AS count
            FROM pg_index i
            JOIN pg_description d ON d.objoid = i.indexrelid AND d.classoid = 'pg_class'::regclass
                AND d.objsubid = 0
            WHERE i.indrelid = 'installations'::regclass AND d.description LIKE 'carillon field %'
            GROUP BY d.description ORDER BY d.description
            """
        ).rows
        return try rows.compactMap { row in
            guard let index = FieldIndex(comment: try row.text("description")), index.app == app
            else { return nil }
            let isWhole = try row.integer("count") == FieldIndex.Part.allCases.count
            return FieldIndexStatus(
                index: index,
                isUsable: try row.boolean("usable") && isWhole,
                sizeBytes: try row.integer("size")
            )
        }
    }

    /// Builds an index, unless it exists, and finishes one that was interrupted. Takes as long as
    /// reading all installations, and waits for older transactions; writes continue.
    ///
    /// - Returns: Whether anything was built.
    /// - Throws: `StorageError` of kind `conflict` if another session is building the index.
    package func create(_ index: FieldIndex) async throws -> Bool {
        var isNew = false
        for part in FieldIndex.Part.allCases {
            let name = try await name(of: part, index)
            switch try await state(name) {
            case .usable: continue
            case .beingBuilt:
                throw StorageError(.conflict, "this index is being built already")
            case .broken:
                try await database.executeAlone("DROP INDEX CONCURRENTLY IF EXISTS \(name)")
            case .untold, .missing: break
            }
            isNew = true
            for sql in try await statements(part, index, name) {
                try await database.executeAlone(sql)
            }
            // The planner has statistics of an expression only after an `ANALYZE`.
            try await database.executeAlone("ANALYZE installations")
            // Comes last: an index with a comment is finished, and is not checked again.
            let comment = try await database.execute(
                "SELECT format('COMMENT ON INDEX %s IS %L', $1::text, $2::text) AS sql",
                [.text(name), .text(index.comment)]
            )
            _ = try await database.execute(try comment.first?.text("sql") ?? "")
        }
        return isNew
    }

    /// - Returns: Whether there was such an index.
    package func drop(_ index: FieldIndex) async throws -> Bool {
        var found = false
        for part in FieldIndex.Part.allCases {
            let name = try await name(of: part, index)
            if try await state(name) == .missing { continue }
            found = true
            try await database.executeAlone("DROP INDEX CONCURRENTLY IF EXISTS \(name)")
            _ = try await database.execute("DROP STATISTICS IF EXISTS \(name)_s")
        }
        return found
    }

    private enum State {
        case missing, beingBuilt, broken
        /// Built, but without its comment: its creator stopped before that.
        case untold
        case usable
    }

    private func state(_ name: String) async throws -> State {
        let found = try await database.execute(
            """
            SELECT i.indisvalid AS valid,
                obj_description(i.indexrelid, 'pg_class') IS NOT NULL AS told, EXISTS (
                SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid)
                AS building
            FROM pg_index i WHERE i.indexrelid = to_regclass($1)
            """,
            [.text(name)]
        )
        guard let row = found.first else { return .missing }
        if try row.boolean("valid") { return try row.boolean("told") ? .usable : .untold }
        return try row.boolean("building") ? .beingBuilt : .broken
    }

    /// Returns a name of letters, digits and underscores, as it is put into statements that take no
    /// parameters.
    private func name(of part: FieldIndex.Part, _ index: FieldIndex) async throws -> String {
        let hash = try await database.execute(
            "SELECT md5($1::text) AS hash",
            [.text(index.comment)]
        ).first?.text("hash")
        guard let hash else { throw StorageError(.corrupt, "the database has no md5") }
        return "installations_field_\(hash)_\(part.rawValue)"
    }

    /// Returns the statements that build a part. The database itself quotes the names of the app and of
    /// the field. The planner ignores the statistics of an expression in a partial index, so they are
    /// created separately.
    private func statements(
        _ part: FieldIndex.Part,
        _ index: FieldIndex,
        _ name: String
    ) async throws -> [String] {
        let quoted = try await database.execute(
            """
            SELECT quote_literal($1::text) AS app, string_agg(quote_literal(name), ' ' ORDER BY place)
                AS path
            FROM unnest($2::text[]) WITH ORDINALITY AS s(name, place)
            """,
            [.text(index.app), .textArray(index.path.segments)]
        )
        guard let row = quoted.first else { throw StorageError(.corrupt, "nothing was quoted") }
        let path = try row.text("path").split(separator: " ").map { "->\($0)::text" }.joined()
        let sql = part.sql(index.type, of: "(fields\(path))")
        let statement = """
            CREATE INDEX CONCURRENTLY IF NOT EXISTS \(name) ON installations (\(sql.columns))
            WHERE app = \(try row.text("app"))\(sql.condition)
            """
        guard part == .values else { return [statement] }
        let statistics = "CREATE STATISTICS IF NOT EXISTS \(name)_s ON (\(sql.columns))"
        return [statement, "\(statistics) FROM installations"]
    }
}

extension FieldIndex {
    enum Part: String, CaseIterable {
        case values = "v"
        case arrays = "a"

        /// Returns the indexed columns, as `WhereCompiler` writes them, and the condition on the rows.
        func sql(_ type: ValueType, of value: String) -> (columns: String, condition: String) {
            switch (self, type) {
            case (.values, .number):
                let number = "jsonb_typeof(\(value)) = 'number' THEN (\(value))::numeric"
                return ("(CASE WHEN \(number) END)", "")
            case (.values, .date): return ("carillon_instant(\(value))", "")
            case (.values, .text):
                let text = "jsonb_typeof(\(value)) = 'string' THEN \(value) #>> '{}'"
                // An index does not accept long values; see `WhereCompiler.indexedCharacters`.
                let length = WhereCompiler.indexedCharacters
                return ("(left((CASE WHEN \(text) END), \(length))) COLLATE \"C\"", "")
            case (.arrays, _): return ("object_id", " AND jsonb_typeof(\(value)) = 'array'")
            }
        }
    }

    private static let prefix = "carillon field "

    /// The comment of the index; none of its three parts contains a space.
    var comment: String { "\(Self.prefix)\(app) \(type.rawValue) \(path.text)" }

    fileprivate init?(comment: String) {
        guard comment.hasPrefix(Self.prefix) else { return nil }
        let parts = comment.dropFirst(Self.prefix.count).split(separator: " ")
        guard parts.count == 3, let type = ValueType(rawValue: String(parts[1])),
            let path = try? WherePath(String(parts[2]))
        else { return nil }
        self.init(app: String(parts[0]), path: path, type: type)
    }

    /// Returns why a field cannot have an index of this kind; `nil` if it can.
    package static func problem(_ path: WherePath) -> String? {
        guard case .json = WhereTable.installations.column(of: path) else {
            return "is a field of Carillon's own, which needs no index of this kind"
        }
        // The path is put into statements and into comments.
        let isPlain = path.segments.allSatisfy { segment in
            segment.utf8.allSatisfy { ASCII.isAlphanumeric($0) || $0 == 0x5f || $0 == 0x2d }
        }
        return isPlain ? nil : "has names in its path that are not letters, digits, '_' and '-'"
    }
}
