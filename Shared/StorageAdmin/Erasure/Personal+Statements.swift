import IngestStorage
import JSON
import Postgres
import PushCore
import SecureStorage
import Storage

/// A subject's values, for the statements of `Personal`.
struct PersonalValues {
    let subject: Subject
    /// The object ids of the installations that exist now. Ids from an earlier pass are left out,
    /// as they may belong to another subject by now.
    let installations: [String]
    let names: SubjectNames
    /// The start of the erasure, in microseconds.
    let until: Int64?

    /// Makes the values. Rows that are deleted after the installations need no installations here.
    init(
        _ subject: Subject,
        _ installations: [Installation] = [],
        names: SubjectNames,
        until: Int64? = nil
    ) {
        self.subject = subject
        self.installations = installations.map(\.objectID)
        self.names = names
        self.until = until
    }

    /// The parameters in the order of `Personal`'s placeholders.
    fileprivate var parameters: [PostgresValue] {
        let identity = subject.kind == .identity ? subject.id : nil
        return [
            .text(subject.app), .textArray(installations), .optional(text: identity),
            .textArray(names.objectIDs.sorted()), .textArray(names.texts.sorted()),
            .optional(timestamp: until),
        ]
    }
}

extension Personal {
    /// Declares the types of the placeholders, as no statement uses all of them. Postgres does not
    /// execute it.
    private static let types = """
        WITH unused AS (SELECT $1::text, $2::text[], $3::text, $4::text[], $5::text[], $6::timestamptz)
        """

    private static func run(
        _ sql: String,
        _ values: PersonalValues,
        and more: [PostgresValue] = [],
        _ transaction: PostgresTransaction
    ) async throws -> PostgresResult {
        try await transaction.execute(
            "\(types) \(sql)",
            values.parameters + more,
            isPrepared: false
        )
    }

    /// Deletes all of the rows.
    func delete(
        _ values: PersonalValues,
        _ note: inout ErasureJobs.Job,
        _ transaction: PostgresTransaction
    ) async throws {
        guard case .delete(let names) = erasure else { return }
        for rows in rows {
            let returning = names.map { " RETURNING \($0) AS name" } ?? ""
            let gone = try await Self.run("DELETE \(rows)\(returning)", values, transaction)
            if let count { note.counts[count] += gone.affectedRows }
            guard names != nil else { continue }
            for row in gone.rows { note.names.add(device: try row.text("name")) }
        }
    }

    /// Deletes a batch of the rows.
    ///
    /// - Returns: Whether there may be more.
    func deleteBatch(
        _ values: PersonalValues,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        guard case .deleteBatches(let size, let time, let key) = erasure else {
            return false
        }
        let own = key ?? "tableoid, ctid"
        let columns = own.split(separator: ", ").map { "t.\($0)" }.joined(separator: ", ")
        let (order, lock) = key == nil ? ("", "") : ("ORDER BY \(columns)", "FOR UPDATE OF t")
        for rows in rows {
            let deleted = try await Self.run(
                """
                DELETE FROM \(table) WHERE (\(own)) IN (
                    SELECT \(columns) \(rows) AND \(time) \(order) LIMIT \(size) \(lock))
                """,
                values,
                transaction
            ).affectedRows
            if let count { counts[count] += deleted }
            if deleted == size { return true }
        }
        return false
    }

    /// Counts the rows that an erasure would affect.
    func count(_ values: PersonalValues, _ transaction: PostgresTransaction) async throws -> Int {
        // A row that is found in two ways counts once.
        let found = rows.map { "SELECT t.tableoid, t.ctid \($0)" }.joined(separator: " UNION ")
        return try await Self.run("SELECT count(*) FROM (\(found)) f", values, transaction)
            .first?.integer("count") ?? 0
    }

    /// Reads a page of objects, the oldest first, after the last one of the previous page: by its time of receipt, in
    /// microseconds, and its id. An object may name the same subject twice, and is returned once.
    func objects(
        after last: (at: Int64, id: String),
        limit: Int,
        _ values: PersonalValues,
        _ transaction: PostgresTransaction
    ) async throws -> PostgresRows {
        let columns = "t.id, t.received_at, t.schema_version, t.object"
        let found = rows.map { "SELECT \(columns) \($0)" }.joined(separator: " UNION ALL ")
        return try await Self.run(
            """
            SELECT DISTINCT ON (received_at, id) * FROM (\(found)) o
            WHERE (received_at, id) > ($7::timestamptz, $8)
            ORDER BY received_at, id LIMIT \(limit)
            """,
            values,
            and: [.timestamp(last.at), .text(last.id)],
            transaction
        ).rows
    }

}

// MARK: Types of objects

extension Personal {
    /// Returns an app's object types that name subjects.
    static func ingestTypes(
        of app: String,
        in database: Database
    ) async throws -> [(name: String, objects: Personal)] {
        try await database.execute(
            """
            SELECT number, name, subjects FROM ingest_types
            WHERE (app = $1 OR app IS NULL) AND subjects <> '{}' ORDER BY number
            """,
            [.text(app)]
        ).rows.map { row in
            let table = IngestTable(number: try row.integer("number"))
            return (try row.text("name"), ingestObjects(table, by: try row.textArray("subjects")))
        }
    }

    /// Returns all tables that are deleted in batches, in the order of deletion.
    static func batches(of app: String, in database: Database) async throws -> [Personal] {
        secure + (try await ingestTypes(of: app, in: database).map(\.objects)) + reports
    }
}

// MARK: Export

extension Personal {
    /// The list of an export that shows the rows, and their members.
    struct Export: Sendable {
        /// A member of the object that is shown: its key, and SQL of its value.
        enum Member: Sendable {
            case text(String, String)
            case integer(String, String)
            case boolean(String, String)
            case instant(String, String)
            case json(String, String)
            /// An object whose members are shown as the row's own.
            case fields(String)

            fileprivate var column: String {
                switch self {
                case .text(let key, let sql), .integer(let key, let sql),
                    .boolean(let key, let sql), .instant(let key, let sql),
                    .json(let key, let sql):
                    "\(sql) AS \"\(key)\""
                case .fields(let sql): "\(sql) AS fields"
                }
            }

            fileprivate func add(to object: inout JSONObject, _ row: PostgresRow) throws {
                switch self {
                case .text(let key, _): object[key] = .string(try row.text(.name(key)))
                case .integer(let key, _): object[key] = JSONValue(try row.integer(.name(key)))
                case .boolean(let key, _): object[key] = .bool(try row.boolean(.name(key)))
                case .instant(let key, _):
                    object[key] = .string(try row.instant(.name(key)).iso8601)
                case .json(let key, _): object[key] = try row.json(.name(key))
                case .fields: object = try row.json("fields").object ?? [:]
                }
            }
        }

        let list: SubjectExport.List
        /// The function that makes the statement from the rows.
        let query: @Sendable (_ rows: String) -> String
        let show: @Sendable (PostgresRow) throws -> JSONValue
        /// Whether at most `ErasureStore.exportLimit` rows are shown.
        let isLimited: Bool

        init(
            _ list: SubjectExport.List,
            _ members: [Member],
            order: String = "1",
            isLimited: Bool = false
        ) {
            self.list = list
            self.isLimited = isLimited
            let columns = members.map(\.column).joined(separator: ", ")
            query = { "SELECT \(columns) \($0) ORDER BY \(order)" }
            show = { row in
                var object: JSONObject = [:]
                for member in members { try member.add(to: &object, row) }
                return .object(object)
            }
        }

        /// Exports secure payloads by their ids, without content, secret or key; the newest first.
        init(payloads ids: String) {
            list = .securePayloads
            isLimited = true
            query = { _ in
                """
                SELECT \(SecureEntry.columns) FROM secure_payloads p WHERE p.id IN (\(ids))
                ORDER BY p.created_at DESC, p.id DESC
                """
            }
            show = { .object(try SecureEntry($0).json) }
        }
    }

    func export(
        _ values: PersonalValues,
        into result: inout SubjectExport,
        _ transaction: PostgresTransaction
    ) async throws {
        guard let export, let rows = rows.first else { return }
        let limit = ErasureStore.exportLimit
        var shown = try await Self.run(
            export.query(rows) + (export.isLimited ? " LIMIT \(limit + 1)" : ""),
            values,
            transaction
        ).rows.map(export.show)
        if export.isLimited, shown.count > limit {
            shown.removeLast()
            result.isTruncated = true
        }
        result[export.list] += shown
    }
}
