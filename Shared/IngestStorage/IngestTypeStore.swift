package import JSON
package import Postgres
package import PushCore
import Storage

/// The type of a view's column.
package enum IngestColumnType: String, Sendable {
    case text, bigint, double, boolean, timestamptz, jsonb
}

/// A type of objects that devices send, declared or built in.
package struct StoredIngestType: Sendable, Equatable {
    /// The number of its table.
    package var number: Int
    /// Its app; `nil` for a built-in type, which every app has.
    package var app: String?
    package var name: String
    package var version: Int
    /// The schema as it was declared; `nil` for a built-in type.
    package var schema: JSONValue?
    /// `nil`: its objects do not expire.
    package var retentionDays: Int?
    /// The properties that name an object's subject.
    package var subjects: [String]
    package var createdAt: Instant
    package var updatedAt: Instant

    package init(
        number: Int,
        app: String?,
        name: String,
        version: Int,
        schema: JSONValue?,
        retentionDays: Int?,
        subjects: [String],
        createdAt: Instant,
        updatedAt: Instant
    ) {
        self.number = number
        self.app = app
        self.name = name
        self.version = version
        self.schema = schema
        self.retentionDays = retentionDays
        self.subjects = subjects
        self.createdAt = createdAt
        self.updatedAt = updatedAt
    }
}

/// The declaration of a type.
package struct NewIngestType: Sendable {
    package var app: String
    package var name: String
    package var schema: JSONValue
    package var columns: [(name: String, type: IngestColumnType)]
    package var retentionDays: Int?
    package var subject: String?

    package init(
        app: String,
        name: String,
        schema: JSONValue,
        columns: [(name: String, type: IngestColumnType)],
        retentionDays: Int? = nil,
        subject: String? = nil
    ) {
        self.app = app
        self.name = name
        self.schema = schema
        self.columns = columns
        self.retentionDays = retentionDays
        self.subject = subject
    }
}

/// The reason why a declaration is refused. Safe to show.
package struct IngestTypeConflict: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

/// The types of objects: declared ones of apps, and the built-in ones.
package struct IngestTypeStore: Sendable {
    let database: Database

    private static let columns = """
        t.number, t.app, t.name, t.version, t.schema, t.retention_days, t.subjects, t.created_at,
        t.updated_at
        """

    /// The lock for creating types and views: names are checked, then used.
    private static let lock = """
        SELECT pg_advisory_xact_lock(
            hashtextextended('carillon ingest types ' || current_schema(), 0))
        """

    /// Returns an app's declared types by name, then the built-in ones.
    package func list(of app: String) async throws -> [StoredIngestType] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM ingest_types t WHERE t.app = $1 OR t.app IS NULL
            ORDER BY t.app IS NULL, CASE WHEN t.app IS NULL THEN t.number END, t.name
            """,
            [.text(app)]
        ).rows.map(Self.type)
    }

    /// - Returns: The type of exactly this name; `nil` if the app does not have it, or does not exist.
    package func find(_ name: String, of app: String) async throws -> StoredIngestType? {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM ingest_types t WHERE t.name = $1 AND (t.app = $2
                OR t.app IS NULL AND EXISTS (SELECT FROM apps a WHERE a.id = $2))
            """,
            [.text(name), .text(app)]
        ).first.map(Self.type)
    }

    /// - Returns: The existing ones of these types, each with the app that it was requested for.
    /// - Throws: `StorageError`.
    package func find(
        _ wanted: [(app: String, name: String)]
    ) async throws -> [(app: String, type: StoredIngestType)] {
        try await database.execute(
            """
            SELECT w.app AS wanted, \(Self.columns)
            FROM unnest($1::text[], $2::text[]) AS w(app, name) JOIN ingest_types t ON t.name = w.name
                AND (t.app = w.app OR t.app IS NULL AND EXISTS (SELECT FROM apps a WHERE a.id = w.app))
            """,
            [.textArray(wanted.map(\.app)), .textArray(wanted.map(\.name))]
        ).rows.map { (try $0.text("wanted"), try Self.type($0)) }
    }

    /// Returns the names of all types that any app has declared.
    package func names() async throws -> [String] {
        try await database.execute(
            "SELECT DISTINCT name FROM ingest_types WHERE app IS NOT NULL ORDER BY name"
        ).rows.map { try $0.text("name") }
    }

    /// Returns the name of the view of an app's objects.
    package func view(of type: StoredIngestType, app: String) async throws -> String {
        let view = try await database.execute(
            "SELECT view FROM ingest_streams WHERE type = $1 AND app = $2",
            [.integer(type.number), .text(app)]
        ).first?.textOrNil("view")
        guard let view else {
            throw StorageError(.corrupt, "there is no view of these objects: run carillon migrate")
        }
        return view
    }

    /// Declares a type, or the next version of one, with its table and its view.
    ///
    /// - Parameters:
    ///   - new: The declaration. An equivalent schema makes no version.
    ///   - version: The version that the caller has compared it with; 0: there was none.
    /// - Returns: The stored type.
    /// - Throws: `IngestTypeConflict`; `StorageError`.
    package func put(
        _ new: NewIngestType,
        expecting version: Int
    ) async throws -> StoredIngestType {
        try await database.transaction { transaction in
            try await Self.setTimeouts(transaction)
            _ = try await transaction.execute(Self.lock)
            try await Self.check(new, transaction)
            let known = try await transaction.execute(
                "SELECT \(Self.columns) FROM ingest_types t WHERE t.app = $1 AND t.name = $2",
                [.text(new.app), .text(new.name)]
            ).first.map(Self.type)
            guard (known?.version ?? 0) == version else {
                throw IngestTypeConflict(
                    known.map { "\($0.name) is at version \($0.version) meanwhile" }
                        ?? "there is no \(new.name) any more"
                )
            }
            if let known {
                // The lock order of the sink: first the stream, then the table.
                _ = try await transaction.execute(
                    "SELECT number FROM ingest_streams WHERE type = $1 FOR UPDATE",
                    [.integer(known.number)]
                )
            }
            let stored = try await Self.write(new, over: known, transaction)
            try await IngestView.make(
                type: stored.number,
                typeName: stored.name,
                app: new.app,
                isBuiltIn: false,
                properties: new.columns,
                transaction
            )
            _ = try await transaction.execute(
                "SELECT pg_notify('\(NotifyChannel.ingestTypes.rawValue)', $1)",
                [.text(new.app)]
            )
            return stored
        }
    }

    private static func check(
        _ new: NewIngestType,
        _ transaction: PostgresTransaction
    ) async throws {
        let app = try await transaction.execute(
            "SELECT id FROM apps WHERE id = $1 AND app_key_sealed <> '' FOR SHARE",
            [.text(new.app)]
        ).first
        guard app != nil else { throw IngestTypeConflict("there is no app \(new.app)") }
        let other = try await transaction.execute(
            """
            SELECT name FROM ingest_types
            WHERE replace(lower(name), '.', '_') = $1 AND name <> $2 ORDER BY name LIMIT 1
            """,
            [.text(IngestTypeName.folded(new.name)), .text(new.name)]
        ).first?.text("name")
        if let other {
            throw IngestTypeConflict(
                "there is a type \(other): names must differ in more than case and '.' for '_'"
            )
        }
        let builtIn = try await transaction.execute(
            "SELECT name FROM ingest_types WHERE app IS NULL AND name = $1",
            [.text(new.name)]
        ).first
        guard builtIn == nil else { throw IngestTypeConflict("\(new.name) is built in") }
    }

    private static func write(
        _ new: NewIngestType,
        over known: StoredIngestType?,
        _ transaction: PostgresTransaction
    ) async throws -> StoredIngestType {
        let subjects = new.subject.map { [$0] } ?? []
        let isSame = known?.schema?.text == new.schema.text
        let version = (known?.version ?? 0) + (isSame ? 0 : 1)
        let row = try await transaction.execute(
            """
            INSERT INTO ingest_types AS t (app, name, version, schema, columns, retention_days, subjects)
            VALUES ($1, $2, $3, $4, $5, $6, $7::text[])
            ON CONFLICT (app, name) DO UPDATE SET version = excluded.version,
                schema = excluded.schema, columns = excluded.columns,
                retention_days = excluded.retention_days, subjects = excluded.subjects,
                updated_at = now()
            RETURNING \(columns)
            """,
            [
                .text(new.app), .text(new.name), .integer(version), .json(new.schema),
                .json(.array(new.columns.map { [.string($0.name), .string($0.type.rawValue)] })),
                .optional(integer: new.retentionDays), .textArray(subjects),
            ]
        ).first
        guard let row else { throw StorageError(.corrupt, "a type was not stored") }
        let stored = try type(row)
        if !isSame {
            _ = try await transaction.execute(
                "INSERT INTO ingest_schemas (type, version, schema) VALUES ($1, $2, $3)",
                [.integer(stored.number), .integer(version), .json(new.schema)]
            )
        }
        let table = IngestTable(number: stored.number)
        if let known {
            guard known.subjects != subjects else { return stored }
            for statement in table.replacementIndexes(subjects, instead: known.subjects) {
                try await transaction.script(statement)
            }
        } else {
            for statement in table.creation(subjects: subjects) {
                try await transaction.script(statement)
            }
            let now = try await transaction.execute("SELECT clock_timestamp() AS now")
            _ = try await table.makeDays(
                around: try now.first?.instant("now") ?? .now(),
                transaction
            )
        }
        return stored
    }

    /// Sets the timeouts: an index of many rows takes its time, but waiting for a table's lock blocks others.
    private static func setTimeouts(_ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(
            """
            SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '10s', true)
            """
        )
    }

    // MARK: Built-in types

    /// Creates the views of the built-in types for all apps that have none yet. Safe to repeat.
    package func makeBuiltInViews() async throws {
        let apps = try await database.execute(
            """
            SELECT a.id FROM apps a WHERE a.app_key_sealed <> '' AND EXISTS (
                SELECT FROM ingest_types t WHERE t.app IS NULL AND NOT EXISTS (
                    SELECT FROM ingest_streams s
                    WHERE s.type = t.number AND s.app = a.id AND s.view IS NOT NULL))
            ORDER BY a.id
            """
        ).rows
        for row in apps { try await makeBuiltInViews(of: try row.text("id")) }
    }

    /// Creates the views of one app, if it exists.
    package func makeBuiltInViews(of app: String) async throws {
        try await database.transaction { transaction in
            let known = try await transaction.execute(
                "SELECT id FROM apps WHERE id = $1 AND app_key_sealed <> '' FOR SHARE",
                [.text(app)]
            ).first
            guard known != nil else { return }
            try await Self.makeBuiltInViews(of: app, transaction)
        }
    }

    package static func makeBuiltInViews(
        of app: String,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(lock)
        for row in try await transaction.execute(
            "SELECT number, name FROM ingest_types WHERE app IS NULL ORDER BY number"
        ).rows {
            let name = try row.text("name")
            guard let type = BuiltInIngestType(rawValue: name) else { continue }
            try await IngestView.make(
                type: try row.integer("number"),
                typeName: name,
                app: app,
                isBuiltIn: true,
                properties: type.columns,
                transaction
            )
        }
    }

    static func type(_ row: PostgresRow) throws -> StoredIngestType {
        StoredIngestType(
            number: try row.integer("number"),
            app: try row.textOrNil("app"),
            name: try row.text("name"),
            version: try row.integer("version"),
            schema: try row.jsonOrNil("schema"),
            retentionDays: try row.integerOrNil("retention_days"),
            subjects: try row.textArray("subjects"),
            createdAt: try row.instant("created_at"),
            updatedAt: try row.instant("updated_at")
        )
    }
}

extension BuiltInIngestType {
    /// The columns of its views.
    package var columns: [(name: String, type: IngestColumnType)] {
        let own: [(name: String, type: IngestColumnType)]
        switch self {
        case .segmentTrack: own = [("event", .text), ("properties", .jsonb)]
        case .segmentIdentify: own = [("traits", .jsonb)]
        case .segmentGroup: own = [("groupId", .text), ("traits", .jsonb)]
        case .segmentPage, .segmentScreen:
            own = [("name", .text), ("category", .text), ("properties", .jsonb)]
        case .segmentAlias: own = [("previousId", .text)]
        case .pushOpened, .pushReceived:
            return [
                ("pushId", .text), ("eventId", .text), ("source", .text),
                ("installationId", .text), ("at", .timestamptz), ("action", .text),
            ]
        }
        return [
            ("type", .text), ("messageId", .text), ("userId", .text), ("anonymousId", .text),
            ("timestamp", .timestamptz), ("originalTimestamp", .timestamptz),
            ("sentAt", .timestamptz),
        ] + own + [("context", .jsonb), ("integrations", .jsonb)]
    }
}
