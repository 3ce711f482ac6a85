import JSON
import Postgres
import PushCore
import Storage

/// A view of an app's objects of one type for people, with a column for each property.
///
/// A property has no column of its own, and is read from `_object`, if its name is one of the four that
/// every view has, is empty, or contains NUL, and beyond the first 1,500. A name over 63 bytes is cut, and
/// ends with eight digits of its hash.
enum IngestView {
    struct Column: Equatable, Sendable {
        var name: String
        var property: String
        var type: IngestColumnType

        var json: JSONValue {
            [.string(name), .string(property), .string(type.rawValue)]
        }

        init(name: String, property: String, type: IngestColumnType) {
            self.name = name
            self.property = property
            self.type = type
        }

        init?(_ json: JSONValue) {
            guard let parts = json.array, parts.count == 3, let name = parts[0].string,
                let property = parts[1].string,
                let type = parts[2].string.flatMap(IngestColumnType.init(rawValue:))
            else { return nil }
            self.init(name: name, property: property, type: type)
        }
    }

    private static let fixed: Set<String> = ["_id", "_received_at", "_schema_version", "_object"]
    private static let maximumColumns = 1500
    static let maximumNameBytes = 63

    /// Creates or changes the view of a stream; the caller holds the lock of the types. Privileges to read it are
    /// preserved. Throws `IngestTypeConflict` if other views depend on one that must be created again.
    static func make(
        type: Int,
        typeName: String,
        app: String,
        isBuiltIn: Bool,
        properties: [(name: String, type: IngestColumnType)],
        _ transaction: PostgresTransaction
    ) async throws {
        let row = try await transaction.execute(
            """
            INSERT INTO ingest_streams (type, app) VALUES ($1, $2)
            ON CONFLICT (type, app) DO UPDATE SET app = excluded.app
            RETURNING number, view, columns
            """,
            [.integer(type), .text(app)]
        ).first
        guard let row else { throw StorageError(.corrupt, "no stream was made") }
        let stream = try row.integer("number")
        let old = (try row.json("columns").array ?? []).compactMap(Column.init)
        let wanted = try await columns(of: properties, transaction)
        if let view = try row.textOrNil("view") {
            let kept = old.filter { was in wanted.contains(was) }
            let all = kept + wanted.filter { column in !old.contains(column) }
            guard all != old else { return }
            if kept == old {
                try await transaction.script(
                    "CREATE OR REPLACE "
                        + definition(view, type, app: isBuiltIn ? app : nil, all)
                )
                try await note(stream, view, all, transaction)
                return
            }
            let grants = try await grants(of: view, transaction)
            do {
                try await transaction.script("DROP VIEW IF EXISTS \(quotedIdentifier(view))")
            } catch let error as PostgresError where error.sqlState == "2BP01" {
                throw IngestTypeConflict(
                    "a column of the view \(view) changes its type, and other views depend on it"
                )
            }
            try await transaction.script(
                "CREATE " + definition(view, type, app: isBuiltIn ? app : nil, wanted)
            )
            for grant in grants { try await transaction.script(grant) }
            try await note(stream, view, wanted, transaction)
            return
        }
        let view = try await unusedViewName(of: typeName, app, transaction)
        try await transaction.script(
            "CREATE " + definition(view, type, app: isBuiltIn ? app : nil, wanted)
        )
        try await note(stream, view, wanted, transaction)
    }

    private static func note(
        _ stream: Int,
        _ view: String,
        _ columns: [Column],
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            "UPDATE ingest_streams SET view = $2, columns = $3 WHERE number = $1",
            [.integer(stream), .text(view), .json(.array(columns.map(\.json)))]
        )
    }

    private static func definition(
        _ view: String,
        _ type: Int,
        app: String?,
        _ columns: [Column]
    ) -> String {
        let own = columns.map { column in
            let value = "object->\(quotedLiteral(column.property))"
            let read =
                switch column.type {
                case .jsonb: value
                case .text, .bigint, .double, .boolean, .timestamptz:
                    "carillon_\(column.type.rawValue)(\(value))"
                }
            return ", \(read) AS \(quotedIdentifier(column.name))"
        }
        let condition = app.map { " WHERE app = \(quotedLiteral($0))" } ?? ""
        return """
            VIEW \(quotedIdentifier(view)) AS SELECT id AS "_id", received_at AS "_received_at",
                schema_version AS "_schema_version", object AS "_object"\(own.joined())
            FROM \(IngestTable(number: type).name)\(condition)
            """
    }

    private static func columns(
        of properties: [(name: String, type: IngestColumnType)],
        _ transaction: PostgresTransaction
    ) async throws -> [Column] {
        var columns: [Column] = []
        var taken = ExactStringSet()
        for (property, type) in properties where columns.count < maximumColumns {
            guard !property.isEmpty, !property.utf8.contains(0), !fixed.contains(property) else {
                continue
            }
            var name = property
            if name.utf8.count > maximumNameBytes {
                name = try await cut(property, hashing: property, transaction)
            }
            guard taken.insert(name).inserted else { continue }
            columns.append(Column(name: name, property: property, type: type))
        }
        return columns
    }

    /// Returns a free name, which becomes the stream's permanently.
    private static func unusedViewName(
        of type: String,
        _ app: String,
        _ transaction: PostgresTransaction
    ) async throws -> String {
        let plain = "ingest_" + folded(app) + "_" + folded(type)
        if plain.utf8.count <= maximumNameBytes, try await isFree(plain, transaction) {
            return plain
        }
        let name = try await cut(plain, hashing: app + "/" + type, transaction)
        guard try await isFree(name, transaction) else {
            throw IngestTypeConflict(
                "there is something called \(name) already, as the view would be"
            )
        }
        return name
    }

    private static func isFree(
        _ name: String,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        try await transaction.execute(
            """
            SELECT NOT EXISTS (SELECT FROM pg_class WHERE relname = $1
                    AND relnamespace = current_schema()::regnamespace)
                AND NOT EXISTS (SELECT FROM pg_type WHERE typname = $1
                    AND typnamespace = current_schema()::regnamespace)
                AND NOT EXISTS (SELECT FROM ingest_streams WHERE view = $1) AS free
            """,
            [.text(name)]
        ).first?.boolean("free") == true
    }

    /// Cuts a string so that eight digits of a hash fit.
    private static func cut(
        _ text: String,
        hashing input: String,
        _ transaction: PostgresTransaction
    ) async throws -> String {
        let digits = try await transaction.execute(
            "SELECT left(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 8) AS digits",
            [.text(input)]
        ).first?.text("digits")
        var head = String.UnicodeScalarView()
        var bytes = 0
        for scalar in text.unicodeScalars {
            bytes += UTF8.width(scalar)
            guard bytes <= maximumNameBytes - 9 else { break }
            head.append(scalar)
        }
        return String(head) + "_" + (digits ?? "")
    }

    private static func folded(_ name: String) -> String {
        String(name.lowercased().map { $0.isASCII && ($0.isLetter || $0.isNumber) ? $0 : "_" })
    }

    private static func grants(
        of view: String,
        _ transaction: PostgresTransaction
    ) async throws -> [String] {
        try await transaction.execute(
            """
            SELECT format('GRANT %s ON %I TO %s%s', a.privilege_type, c.relname,
                CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) AS sql
            FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
            WHERE c.relname = $1 AND c.relnamespace = current_schema()::regnamespace
                AND a.grantee <> c.relowner
            """,
            [.text(view)]
        ).rows.map { try $0.text("sql") }
    }
}
