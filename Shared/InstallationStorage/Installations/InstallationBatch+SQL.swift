import JSON
import Postgres
import PushCore
import Storage

// The transaction of a batch, in two round trips and a commit: lock all keys in one order and read the
// rows that they find; write the changed rows.
//
// Rows are not locked when they are read, as a lock is a second write of each row. If a row has
// another version when it is written than when it was read, the batch runs again, with locks.

extension InstallationBatch {
    /// Thrown if a row was changed since the batch read it, or if the batch writes rows that it has to
    /// lock.
    struct NeedsLocks: Error {}

    /// Thrown if another save was the first to use a field, with another type. Then the batch runs
    /// again with that type.
    struct FieldTypeConflict: Error {
        let fields: DecidedFields
    }

    /// - Returns: The outcome of each save, in order. Nothing is durable before the commit.
    /// - Throws: `NeedsLocks` if it ran without locks, or `FieldTypeConflict`. Then the caller has
    ///   to roll the transaction back, and to run the batch again with locks or with those types.
    static func run(
        _ saves: [InstallationSave],
        locksRows: Bool,
        decided: DecidedFields = DecidedFields(),
        _ transaction: PostgresTransaction
    ) async throws -> [SaveOutcome] {
        var batch = try await read(saves, locksRows: locksRows, transaction)
        var decided = decided
        var learned = DecidedFields()
        var outcomes: [SaveOutcome] = []
        var done: [(index: Int, row: RowID, installation: Installation, created: Bool)] = []
        for (index, save) in saves.enumerated() {
            if batch.isFull {
                outcomes.append(.postponed)
                continue
            }
            do {
                try decided.require(save.fields)
                if let condition = save.condition {
                    try await batch.check(condition, of: save, transaction)
                }
                switch try batch.apply(save) {
                case .unknownObject: outcomes.append(.unknownObject)
                case .again(let keys): outcomes.append(.again(keys))
                case .done(let row, let created):
                    outcomes.append(.postponed)
                    decided.add(save.fields)
                    learned.add(save.fields)
                    guard let kept = batch[row] else { continue }
                    done.append((index, row, kept, created))
                }
            } catch let error as PostgresError {
                // The whole transaction has failed, not only this save.
                throw error
            } catch {
                outcomes.append(.failed(error))
            }
        }
        guard locksRows || (batch.deleted.isEmpty && batch.vacated.isEmpty) else {
            throw NeedsLocks()
        }
        let times = try await batch.write(learning: learned, transaction)
        guard times.count == batch.changed.count else {
            if locksRows {
                throw StorageError(.conflict, "a locked installation changed", isRetryable: true)
            }
            throw NeedsLocks()
        }
        for (index, row, installation, created) in done {
            var installation = installation
            if let (createdAt, updatedAt) = times[row] {
                installation.createdAt = createdAt
                installation.updatedAt = updatedAt
            }
            outcomes[index] = .saved(.init(installation: installation, created: created))
        }
        return outcomes
    }

    /// Throws unless the row that the save is about meets the condition.
    private func check(
        _ condition: Where,
        of save: InstallationSave,
        _ transaction: PostgresTransaction
    ) async throws {
        guard case .update(let objectID) = try decide(save).target else { return }
        var compiler = WhereCompiler(
            app: save.app,
            parameters: [.text(save.app), .text(objectID)]
        )
        let condition = try compiler.installations(condition, as: "n")
        let found = try await transaction.execute(
            """
            SELECT true AS holds FROM installations n
            WHERE n.app = $1 AND n.object_id = $2 AND \(condition)
            """,
            compiler.parameters
        )
        guard found.rows.isEmpty else { return }
        throw InstallationError(code: 305, "the condition is false; nothing was changed")
    }

    // MARK: Reading

    static func read(
        _ saves: [InstallationSave],
        locksRows: Bool,
        locksNames: Bool = true,
        _ transaction: PostgresTransaction
    ) async throws -> InstallationBatch {
        var wanted = Wanted()
        for save in saves { wanted.add(save) }
        var statements: [(sql: String, parameters: [PostgresValue])] = [
            (IndexPlan.sql, []), limits(of: saves),
        ]
        if locksNames, !wanted.lockNames.isEmpty {
            statements.append((lockSQL, [.textArray(wanted.lockNames.sorted())]))
        }
        let unroutedSQL = wanted.unrouted.isEmpty ? "" : unroutedSQL
        let rowsSQL = locksRows ? lockRowsSQL : rowsSQL
        statements.append((readSQL + unroutedSQL + rowsSQL, wanted.parameters))
        let rows = try await transaction.pipeline(statements)[statements.count - 1].rows
        let installations = try rows.map(InstallationRow.read)
        guard !locksRows else { return InstallationBatch(installations) }
        let versions = try zip(installations, rows).map { ($0.rowID, try $1.text("version")) }
        return InstallationBatch(installations, versions: versions)
    }

    /// Returns the statement that sets the time limits. A save must not wait for a lock for long if
    /// others wait behind it. A condition must be tested soon, as the row is locked meanwhile.
    private static func limits(
        of saves: [InstallationSave]
    ) -> (sql: String, parameters: [PostgresValue]) {
        let hasCondition = saves.contains { $0.condition != nil }
        let mayWait = hasCondition || saves.contains(where: \.hasToWait)
        return (
            """
            SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)
            """,
            [.text(mayWait ? "10s" : "1s"), .text(hasCondition ? "2s" : "30s")]
        )
    }

    /// All keys of a batch.
    private struct Wanted {
        var lockNames: ExactStringSet = []
        private var objects: [(app: String, id: String)] = []
        private var ids: [(app: String, id: String)] = []
        private var routes: [(app: String, route: DeviceKeys.Route)] = []
        private(set) var unrouted: [(app: String, token: String)] = []

        mutating func add(_ save: InstallationSave) {
            let app = save.app
            if let id = save.request.objectID { objects.append((app, id)) }
            let keys = save.keys
            for id in keys.installationIDs {
                lockNames.insert("installation \(app) \(id)")
                ids.append((app, id))
            }
            for route in keys.routes {
                lockNames.insert("token \(app) \(route.token)")
                routes.append((app, route))
            }
            for token in keys.unroutedTokens {
                lockNames.insert("token \(app) \(token)")
                unrouted.append((app, token))
            }
        }

        var parameters: [PostgresValue] {
            let keys: [PostgresValue] = [
                .textArray(objects.map(\.app)), .textArray(objects.map(\.id)),
                .textArray(ids.map(\.app)), .textArray(ids.map(\.id)),
                .textArray(routes.map(\.app)), .textArray(routes.map(\.route.platform.rawValue)),
                .textArray(routes.map(\.route.token)),
            ]
            guard !unrouted.isEmpty else { return keys }
            return keys + [.textArray(unrouted.map(\.app)), .textArray(unrouted.map(\.token))]
        }
    }

    /// Locks the names of all keys, so that saves of one device wait for each other, even before it
    /// has a row.
    private static let lockSQL = """
        SELECT count(pg_advisory_xact_lock(key)) FROM (
            SELECT DISTINCT hashtextextended(current_schema() || name, 0) AS key
            FROM unnest($1::text[]) AS name ORDER BY 1) AS keys
        """

    private static let readSQL = """
        WITH wanted AS (
            SELECT w.app COLLATE "C" AS app, w.id COLLATE "C" AS object_id
            FROM unnest($1::text[], $2::text[]) AS w(app, id)
            UNION
            SELECT n.app, n.object_id FROM unnest($3::text[], $4::text[]) AS w(app, id)
            CROSS JOIN LATERAL (
                SELECT i.app, i.object_id FROM installations i
                WHERE i.app = w.app AND i.installation_id = w.id) AS n
            UNION
            SELECT n.app, n.object_id
            FROM unnest($5::text[], $6::text[], $7::text[]) AS w(app, provider, token)
            CROSS JOIN LATERAL (
                SELECT i.app, i.object_id FROM installations i
                WHERE i.app = w.app AND i.provider = w.provider
                    AND i.token_hash = sha256(convert_to(w.token, 'UTF8'))) AS n

        """

    private static let unroutedSQL = """
            UNION
            SELECT n.app, n.object_id FROM unnest($8::text[], $9::text[]) AS w(app, token)
            CROSS JOIN LATERAL (
                SELECT i.app, i.object_id FROM installations i
                WHERE i.app = w.app AND i.token_hash IS NULL AND NOT i.template_only
                    AND i.fields->>'deviceToken' IS NOT NULL
                    AND hashtextextended(i.fields->>'deviceToken', 0)
                        = hashtextextended(w.token, 0)
                LIMIT \(SaveRequest.maximumHolders + 1)) AS n
            UNION
            SELECT n.app, n.object_id FROM unnest($8::text[], $9::text[]) AS w(app, token)
            CROSS JOIN unnest(ARRAY['apns', 'fcm', 'wns', 'mpns']) AS p(provider)
            CROSS JOIN LATERAL (
                SELECT i.app, i.object_id FROM installations i
                WHERE i.app = w.app AND i.provider = p.provider
                    AND i.token_hash = sha256(convert_to(w.token, 'UTF8'))) AS n

        """

    private static let rowsSQL = """
        ), ordered AS MATERIALIZED (SELECT * FROM wanted)
        SELECT n.* FROM ordered o CROSS JOIN LATERAL (
            SELECT \(InstallationRow.columns), i.xmin::text AS version FROM installations i
            WHERE i.app = o.app AND i.object_id = o.object_id) AS n
        """

    /// Locks the rows one by one, in the order in which all transactions lock installations.
    private static let lockRowsSQL = """
        ), ordered AS MATERIALIZED (SELECT * FROM wanted ORDER BY app, object_id)
        SELECT n.* FROM ordered o CROSS JOIN LATERAL (
            SELECT \(InstallationRow.columns) FROM installations i
            WHERE i.app = o.app AND i.object_id = o.object_id FOR UPDATE) AS n
        """

    // MARK: Writing

    private func write(
        learning learned: DecidedFields,
        _ transaction: PostgresTransaction
    ) async throws -> [RowID: (createdAt: Instant, updatedAt: Instant)] {
        var statements: [(sql: String, parameters: [PostgresValue])] = []
        if !deleted.isEmpty {
            statements.append((Self.deleteSQL, Self.names(deleted.sorted())))
        }
        let vacated = vacated
        if !vacated.isEmpty {
            statements.append((Self.vacateSQL, Self.names(vacated.sorted())))
        }
        let rows = changed.sorted()
        guard !rows.isEmpty || !learned.isEmpty else {
            _ = try await transaction.pipeline(statements)
            return [:]
        }
        for (sql, rows) in [
            (Self.updateSQL, rows.filter { !isNew($0) }), (Self.insertSQL, rows.filter(isNew)),
        ] where !rows.isEmpty {
            statements.append((sql, parameters(rows)))
        }
        let writes = statements.count
        if !learned.isEmpty { statements += FieldStore.statements(learning: learned.fields) }
        let all = try await transaction.pipeline(statements)
        if !learned.isEmpty {
            let stored = DecidedFields(try FieldStore.decided(all[writes + 1].rows))
            guard learned.agrees(with: stored) else { throw FieldTypeConflict(fields: stored) }
        }
        let results = all[..<writes]
        var times: [RowID: (createdAt: Instant, updatedAt: Instant)] = [:]
        for row in results.flatMap(\.rows) {
            let id = RowID(app: try row.text("app"), objectID: try row.text("object_id"))
            times[id] = (try row.instant("created_at"), try row.instant("updated_at"))
        }
        return times
    }

    static func names(_ rows: [RowID]) -> [PostgresValue] {
        [.textArray(rows.map(\.app)), .textArray(rows.map(\.objectID))]
    }

    static let deleteSQL = """
        DELETE FROM installations i USING unnest($1::text[], $2::text[]) AS w(app, object_id)
        WHERE i.app = w.app AND i.object_id = w.object_id
        """

    /// Postgres checks unique keys row by row, so a row must give up a key before another row gets
    /// it.
    static let vacateSQL = """
        UPDATE installations i SET token = NULL, token_hash = NULL, installation_id = NULL
        FROM unnest($1::text[], $2::text[]) AS w(app, object_id)
        WHERE i.app = w.app AND i.object_id = w.object_id
        """

    /// The times are the database's, so that "created before the push" compares times of one clock.
    private static let insertSQL = """
        INSERT INTO installations (app, object_id, device_type, provider, token, token_hash,
            environment, identity, channels, installation_id, badge, time_zone, locale,
            apns_topic, vendor, device_profile, fields, valid, invalid_reason, token_updated_at,
            channels_absent, badge_absent, template_only, created_at, updated_at, invalidated_at)
        SELECT app, object_id, device_type, provider, token,
            CASE WHEN NOT template_only THEN sha256(convert_to(token, 'UTF8')) END,
            environment, identity, channels::text[], installation_id, badge, time_zone, locale,
            apns_topic, vendor, device_profile, fields, valid, invalid_reason, token_updated_at,
            channels_absent, badge_absent, template_only, date_trunc('milliseconds', now()),
            date_trunc('milliseconds', now()),
            CASE WHEN NOT valid AND invalid_reason IS NULL
                THEN date_trunc('milliseconds', now()) END
        FROM \(written)
        RETURNING app, object_id, created_at, updated_at
        """

    /// A column that is written with its old value changes no index. A large unchanged value is not
    /// sent. `invalidated_at` is also the time at which the client muted its installation.
    private static let updateSQL = """
        UPDATE installations i SET device_type = w.device_type, provider = w.provider,
            token = w.token,
            token_hash = CASE WHEN w.template_only THEN NULL
                WHEN i.token = w.token AND i.token_hash IS NOT NULL THEN i.token_hash
                ELSE sha256(convert_to(w.token, 'UTF8')) END,
            template_only = w.template_only,
            environment = w.environment, identity = w.identity,
            channels = coalesce(w.channels::text[], i.channels),
            installation_id = w.installation_id, badge = w.badge, time_zone = w.time_zone,
            locale = w.locale, apns_topic = w.apns_topic, vendor = w.vendor,
            device_profile = w.device_profile, fields = coalesce(w.fields, i.fields),
            valid = w.valid, invalid_reason = w.invalid_reason,
            token_updated_at = w.token_updated_at,
            channels_absent = w.channels_absent, badge_absent = w.badge_absent,
            updated_at = date_trunc('milliseconds', clock_timestamp()),
            invalidated_at = CASE WHEN w.invalid_reason IS NOT NULL THEN i.invalidated_at
                WHEN w.valid THEN NULL
                WHEN i.valid OR i.invalid_reason IS NOT NULL
                    THEN date_trunc('milliseconds', clock_timestamp())
                ELSE i.invalidated_at END
        FROM \(written)
        WHERE i.app = w.app AND i.object_id = w.object_id
            AND (w.version IS NULL OR i.xmin = w.version::xid)
        RETURNING i.app, i.object_id, i.created_at, i.updated_at
        """

    private static let written = RowChange.columns.source(as: "w")

    private func parameters(_ rows: [RowID]) -> [PostgresValue] {
        RowChange.columns.parameters(
            of: rows.compactMap { row in
                self[row].map { RowChange(before: was(row), now: $0, version: version(row)) }
            }
        )
    }

    /// A row before and after the batch.
    private struct RowChange {
        let before: Installation?
        let now: Installation
        /// The version of the row that was read.
        let version: String?

        static let columns = Columns<RowChange>([
            .text("app", \.now.app), .text("object_id", \.now.objectID),
            .text("device_type", \.now.deviceType),
            .text("provider") { $0.now.platform?.rawValue }, .text("token", \.now.token),
            .text("environment") { $0.now.environment.rawValue },
            .text("identity", \.now.identity),
            .text("channels") { change in
                change.before?.channels.areSame(as: change.now.channels) == true
                    ? nil : arrayLiteral(change.now.channels)
            },
            .text("installation_id", \.now.installationID), .integer("badge", \.now.badge),
            .text("time_zone", \.now.timeZone), .text("locale", \.now.locale),
            .text("apns_topic", \.now.apnsTopic), .text("vendor", \.now.vendor),
            .text("device_profile", \.now.deviceProfile),
            .jsonb("fields") { change in
                change.before?.fields.isIdentical(to: change.now.fields) == true
                    ? nil : .object(change.now.fields)
            },
            .boolean("valid", \.now.isValid), .text("invalid_reason", \.now.invalidReason),
            .time("token_updated_at", \.now.tokenUpdatedAt), .text("version", \.version),
            .boolean("channels_absent") { !$0.now.hasChannels },
            .boolean("badge_absent") { !$0.now.hasBadge },
            .boolean("template_only", \.now.isTemplateOnly),
        ])
    }

    /// Returns an array as a literal. Postgres requires an array of arrays to be rectangular, so
    /// each inner array is sent as a literal.
    private static func arrayLiteral(_ texts: [String]) -> String {
        var bytes = [UInt8(ascii: "{")]
        for (index, text) in texts.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            bytes.append(UInt8(ascii: "\""))
            for byte in text.utf8 {
                if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") {
                    bytes.append(UInt8(ascii: "\\"))
                }
                bytes.append(byte)
            }
            bytes.append(UInt8(ascii: "\""))
        }
        bytes.append(UInt8(ascii: "}"))
        return String(decoding: bytes, as: UTF8.self)
    }
}

extension InstallationBatch.RowID: Comparable {
    static func < (a: Self, b: Self) -> Bool { (a.app, a.objectID) < (b.app, b.objectID) }
}

extension JSONObject {
    /// The approximate size of its JSON.
    var approximateBytes: Int {
        reduce(2) { $0 + $1.key.utf8.count + 4 + $1.value.approximateBytes }
    }
}

extension JSONValue {
    fileprivate var approximateBytes: Int {
        switch self {
        case .null, .bool: 5
        case .integer, .double: 12
        case .number(let text): text.utf8.count
        case .string(let text): text.utf8.count + 3
        case .array(let elements): elements.reduce(2) { $0 + $1.approximateBytes + 1 }
        case .object(let object): object.approximateBytes
        }
    }
}

// Strings are compared byte by byte everywhere; objects here also by the order of their members.

extension JSONObject {
    /// The same members in the same order, byte by byte.
    fileprivate func isIdentical(to other: JSONObject) -> Bool {
        count == other.count
            && zip(self, other).allSatisfy { mine, others in
                mine.key.isSame(as: others.key) && mine.value.isIdentical(to: others.value)
            }
    }
}

extension JSONValue {
    fileprivate func isIdentical(to other: JSONValue) -> Bool {
        switch (self, other) {
        case (.array(let mine), .array(let others)):
            mine.count == others.count
                && zip(mine, others).allSatisfy { $0.isIdentical(to: $1) }
        case (.object(let mine), .object(let others)): mine.isIdentical(to: others)
        default: self == other
        }
    }
}
