import JSON
import Postgres
package import PushCore

package struct InstallationStore: Sendable {
    let database: PushDatabase

    package struct Saved: Sendable {
        package let installation: Installation
        /// False where an installation that was there already took the save.
        package let created: Bool
    }

    package func find(app: String, objectID: String) async throws -> Installation? {
        try await database.execute(
            "SELECT \(Self.columns) FROM installations WHERE app = $1 AND object_id = $2",
            [.text(app), .text(objectID)]
        ).first.map(Self.installation)
    }

    /// Saves an installation that names no object id. One that holds the same `installationId` or
    /// the same token is meant, and is updated; concurrent saves of one token give one row.
    ///
    /// `make` gets the installation that is there, or `nil`, and returns the one to keep; it may be
    /// called again. Other rows with the same token, or the same `installationId`, are deleted: a
    /// token is one device.
    package func save(
        app: String,
        keys: Installation.Keys,
        make: @escaping @Sendable (Installation?) throws -> Installation
    ) async throws -> Saved {
        try await database.transaction { transaction in
            try await Self.lock(app: app, keys: keys, transaction)
            let rows = try await Self.matching(app: app, keys: keys, transaction)
            let existing = Self.survivor(of: rows, keys: keys)
            var kept = try make(existing)
            kept.app = app
            if let existing { kept.objectID = existing.objectID }
            let stored = try await Self.store(kept, isNew: existing == nil, transaction)
            return Saved(installation: stored, created: existing == nil)
        }
    }

    /// Changes one installation under a lock on its row.
    ///
    /// - Returns: What is kept, or `nil` where there is none of that id.
    package func update(
        app: String,
        objectID: String,
        change: @escaping @Sendable (inout Installation) throws -> Void
    ) async throws -> Installation? {
        try await database.transaction { transaction in
            let rows = try await transaction.execute(
                """
                SELECT \(Self.columns) FROM installations WHERE app = $1 AND object_id = $2
                FOR UPDATE
                """,
                [.text(app), .text(objectID)]
            )
            guard var installation = try rows.first.map(Self.installation) else { return nil }
            try change(&installation)
            installation.app = app
            installation.objectID = objectID
            return try await Self.store(installation, isNew: false, transaction)
        }
    }

    /// - Returns: How many there were.
    package func delete(app: String, objectIDs: [String]) async throws -> Int {
        try await database.execute(
            "DELETE FROM installations WHERE app = $1 AND object_id = ANY ($2::text[])",
            [.text(app), .textArray(Array(Set(objectIDs)).sorted())]
        ).affectedRows
    }

    /// Conditions on an installation, all of which must hold.
    package struct Filter: Sendable {
        package var objectIDs: [String]?
        package var installationID: String?
        package var deviceType: String?
        /// In its canonical form, see `DeviceToken`.
        package var token: String?
        package var identity: String?
        package var channel: String?
        package var isValid: Bool?
        /// Only those behind this object id: the next page, in the order of the ids.
        package var after: String?

        package init() {}
    }

    package enum Order: Sendable {
        case objectID, createdAt, createdAtDescending, updatedAt, updatedAtDescending

        fileprivate var sql: String {
            switch self {
            case .objectID: "object_id"
            case .createdAt: "created_at, object_id"
            case .createdAtDescending: "created_at DESC, object_id DESC"
            case .updatedAt: "updated_at, object_id"
            case .updatedAtDescending: "updated_at DESC, object_id DESC"
            }
        }
    }

    package func query(
        app: String,
        _ filter: Filter = Filter(),
        order: Order = .objectID,
        limit: Int = 100,
        skip: Int = 0
    ) async throws -> [Installation] {
        var conditions = Conditions(app: app, filter)
        let limit = conditions.bind(.integer(min(max(limit, 0), 1000)))
        let skip = conditions.bind(.integer(max(skip, 0)))
        return try await database.execute(
            """
            SELECT \(Self.columns) FROM installations WHERE \(conditions.sql)
            ORDER BY \(order.sql) LIMIT \(limit) OFFSET \(skip)
            """,
            conditions.parameters
        ).rows.map(Self.installation)
    }

    package func count(app: String, _ filter: Filter = Filter()) async throws -> Int {
        let conditions = Conditions(app: app, filter)
        return try await database.execute(
            "SELECT count(*) AS count FROM installations WHERE \(conditions.sql)",
            conditions.parameters
        ).first?.integer("count") ?? 0
    }

    private struct Conditions {
        private(set) var sql = "app = $1"
        private(set) var parameters: [PostgresValue]

        init(app: String, _ filter: Filter) {
            parameters = [.text(app)]
            if let ids = filter.objectIDs { add("object_id = ANY (%::text[])", .textArray(ids)) }
            if let id = filter.installationID { add("installation_id = %", .text(id)) }
            if let type = filter.deviceType { add("device_type = %", .text(type)) }
            if let token = filter.token {
                add("token_hash = sha256(convert_to(%, 'UTF8'))", .text(token))
            }
            if let identity = filter.identity { add("identity = %", .text(identity)) }
            if let channel = filter.channel { add("channels @> ARRAY[%::text]", .text(channel)) }
            if let isValid = filter.isValid { add("valid = %", .boolean(isValid)) }
            if let after = filter.after { add("object_id > %", .text(after)) }
        }

        mutating func bind(_ value: PostgresValue) -> String {
            parameters.append(value)
            return "$\(parameters.count)"
        }

        private mutating func add(_ condition: String, _ value: PostgresValue) {
            let name = bind(value)
            sql +=
                " AND "
                + condition.split(separator: "%", omittingEmptySubsequences: false)
                .joined(separator: name)
        }
    }
}

// MARK: One transaction's steps

extension InstallationStore {
    /// Saves that mean the same device wait for each other, whether or not it has a row yet.
    private static func lock(
        app: String,
        keys: Installation.Keys,
        _ transaction: PostgresTransaction
    ) async throws {
        var names: [String] = []
        if let id = keys.installationID { names.append("installation \(app) \(id)") }
        if let platform = keys.platform, let token = keys.token {
            names.append("token \(app) \(platform.rawValue) \(token)")
        }
        guard !names.isEmpty else { return }
        _ = try await transaction.execute(
            """
            SELECT pg_advisory_xact_lock(key) FROM (
                SELECT DISTINCT hashtextextended(current_schema() || name, 0) AS key
                FROM unnest($1::text[]) AS name ORDER BY 1) AS keys
            """,
            [.textArray(names)]
        )
    }

    private static func matching(
        app: String,
        keys: Installation.Keys,
        _ transaction: PostgresTransaction
    ) async throws -> [Installation] {
        try await transaction.execute(
            """
            SELECT \(columns) FROM installations WHERE app = $1 AND (installation_id = $2
                OR provider = $3 AND token_hash = sha256(convert_to($4, 'UTF8')))
            ORDER BY object_id FOR UPDATE
            """,
            [
                .text(app), .optional(text: keys.installationID),
                .optional(text: keys.platform?.rawValue), .optional(text: keys.token),
            ]
        ).rows.map(installation)
    }

    /// Which of the rows that match is the device (the rule of Parse Server, section 10 of its
    /// sheet): the one of the `installationId`; but a row that holds the token without any
    /// `installationId` is the older record of the same device, and survives.
    static func survivor(of rows: [Installation], keys: Installation.Keys) -> Installation? {
        let byID = rows.first {
            $0.installationID != nil && $0.installationID == keys.installationID
        }
        let byToken = rows.filter {
            $0.token != nil && $0.token == keys.token && $0.platform == keys.platform
        }
        if let byID {
            let others = byToken.filter { $0.objectID != byID.objectID }
            if byID.token == nil, others.count == 1, let other = others.first,
                other.installationID == nil
            {
                return other
            }
            return byID
        }
        let sameEnvironment = byToken.first { $0.environment == keys.environment }
        guard let holder = sameEnvironment ?? byToken.first else { return nil }
        // Another device's `installationId`: the token has moved, the old row goes.
        return holder.installationID == nil || keys.installationID == nil ? holder : nil
    }

    private static func store(
        _ installation: Installation,
        isNew: Bool,
        _ transaction: PostgresTransaction
    ) async throws -> Installation {
        _ = try await transaction.execute(
            """
            DELETE FROM installations WHERE app = $1 AND object_id <> $2 AND (installation_id = $3
                OR provider = $4 AND token_hash = sha256(convert_to($5, 'UTF8')))
            """,
            [
                .text(installation.app), .text(installation.objectID),
                .optional(text: installation.installationID),
                .optional(text: installation.platform?.rawValue),
                .optional(text: installation.token),
            ]
        )
        let assignments = """
            device_type = $3, provider = $4, token = $5,
            token_hash = sha256(convert_to($5, 'UTF8')), environment = $6, identity = $7,
            channels = $8, installation_id = $9, badge = $10, time_zone = $11, locale = $12,
            apns_topic = $13, vendor = $14, device_profile = $15, fields = $16, valid = $17,
            invalid_reason = $18, token_updated_at = $19,
            invalidated_at = CASE WHEN $18::text IS NOT NULL THEN invalidated_at END,
            updated_at = date_trunc('milliseconds', clock_timestamp())
            """
        // Its times are the database's: "created before the push" must not depend on two clocks.
        let sql =
            isNew
            ? """
            INSERT INTO installations (app, object_id, device_type, provider, token, token_hash,
                environment, identity, channels, installation_id, badge, time_zone, locale,
                apns_topic, vendor, device_profile, fields, valid, invalid_reason,
                token_updated_at, created_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, sha256(convert_to($5, 'UTF8')), $6, $7, $8, $9, $10, $11,
                $12, $13, $14, $15, $16, $17, $18, $19, date_trunc('milliseconds', now()),
                date_trunc('milliseconds', now()))
            RETURNING \(columns)
            """
            : """
            UPDATE installations SET \(assignments) WHERE app = $1 AND object_id = $2
            RETURNING \(columns)
            """
        let result = try await transaction.execute(sql, parameters(installation))
        guard let row = result.first else {
            throw StorageError(.corrupt, "an installation went away under its lock")
        }
        return try self.installation(row)
    }

    private static func parameters(_ installation: Installation) -> [PostgresValue] {
        [
            .text(installation.app), .text(installation.objectID), .text(installation.deviceType),
            .optional(text: installation.platform?.rawValue), .optional(text: installation.token),
            .text(installation.environment.rawValue), .optional(text: installation.identity),
            .textArray(installation.channels), .optional(text: installation.installationID),
            .integer(installation.badge), .optional(text: installation.timeZone),
            .optional(text: installation.locale), .optional(text: installation.apnsTopic),
            .optional(text: installation.vendor), .optional(text: installation.deviceProfile),
            .json(.object(installation.fields)), .boolean(installation.isValid),
            .optional(text: installation.invalidReason),
            .optional(timestamp: installation.tokenUpdatedAt?.microseconds),
        ]
    }

    static let columns = """
        app, object_id, device_type, provider, token, environment, identity, channels,
        installation_id, badge, time_zone, locale, apns_topic, vendor, device_profile, fields,
        valid, invalid_reason, token_updated_at, created_at, updated_at
        """

    static func installation(_ row: PostgresRow) throws -> Installation {
        var installation = Installation(
            app: try row.text("app"),
            objectID: try row.text("object_id"),
            at: try row.instant("created_at")
        )
        installation.deviceType = try row.text("device_type")
        installation.platform = try row.textOrNil("provider").flatMap(Platform.init(rawValue:))
        installation.token = try row.textOrNil("token")
        installation.environment =
            PushEnvironment(rawValue: try row.text("environment")) ?? .none
        installation.identity = try row.textOrNil("identity")
        installation.channels = try row.textArray("channels")
        installation.installationID = try row.textOrNil("installation_id")
        installation.badge = try row.integer("badge")
        installation.timeZone = try row.textOrNil("time_zone")
        installation.locale = try row.textOrNil("locale")
        installation.apnsTopic = try row.textOrNil("apns_topic")
        installation.vendor = try row.textOrNil("vendor")
        installation.deviceProfile = try row.textOrNil("device_profile")
        installation.fields = try row.json("fields").object ?? [:]
        installation.isValid = try row.boolean("valid")
        installation.invalidReason = try row.textOrNil("invalid_reason")
        installation.tokenUpdatedAt = try row.instantOrNil("token_updated_at")
        installation.updatedAt = try row.instant("updated_at")
        return installation
    }
}
