import JSON
import Postgres
import PushCore

// The transaction of a batch, in two round trips and a commit: lock all keys in one order and read
// what they find; write what came of it.

extension InstallationBatch {
    /// - Returns: An outcome for each, in their order; nothing of it is durable before the commit.
    static func run(
        _ saves: [InstallationSave],
        _ transaction: PostgresTransaction
    ) async throws -> [SaveOutcome] {
        var batch = InstallationBatch(try await read(saves, transaction))
        var outcomes: [SaveOutcome] = []
        var done: [(index: Int, row: RowID, installation: Installation, created: Bool)] = []
        for (index, save) in saves.enumerated() {
            if batch.isFull {
                outcomes.append(.postponed)
                continue
            }
            do {
                if let condition = save.condition {
                    try await batch.check(condition, of: save, transaction)
                }
                switch try batch.apply(save) {
                case .unknownObject: outcomes.append(.unknownObject)
                case .again(let keys): outcomes.append(.again(keys))
                case .done(let row, let created):
                    outcomes.append(.postponed)
                    guard let kept = batch[row] else { continue }
                    done.append((index, row, kept, created))
                }
            } catch let error as PostgresError {
                // The transaction has failed, not this save.
                throw error
            } catch {
                outcomes.append(.failed(error))
            }
        }
        let times = try await batch.write(transaction)
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

    /// Whether the condition holds of the row that the save means.
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
        throw InstallationError(code: 305, "the condition does not hold, nothing was changed")
    }

    // MARK: Reading

    private static func read(
        _ saves: [InstallationSave],
        _ transaction: PostgresTransaction
    ) async throws -> [Installation] {
        var wanted = Wanted()
        for save in saves { wanted.add(save) }
        var statements: [(sql: String, parameters: [PostgresValue])] = [
            (DeliveryStore.planByIndexSQL, []), limits(of: saves),
        ]
        if !wanted.lockNames.isEmpty {
            statements.append((lockSQL, [.textArray(wanted.lockNames.sorted())]))
        }
        let unroutedSQL = wanted.unrouted.isEmpty ? "" : unroutedSQL
        statements.append((readSQL + unroutedSQL + lockRowsSQL, wanted.parameters))
        let results = try await transaction.pipeline(statements)
        return try results[results.count - 1].rows.map(InstallationStore.installation)
    }

    /// Nobody waits for long where others wait behind him. A condition may take the database long,
    /// and holds the row meanwhile.
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
        var lockNames: Set<String> = []
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

    /// Saves that mean the same device wait for each other, whether or not it has a row yet.
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
                WHERE i.app = w.app AND i.token_hash IS NULL
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

    /// One by one, in the order that all who lock installations keep.
    private static let lockRowsSQL = """
        ), ordered AS MATERIALIZED (SELECT * FROM wanted ORDER BY app, object_id)
        SELECT n.* FROM ordered o CROSS JOIN LATERAL (
            SELECT \(InstallationStore.columns) FROM installations i
            WHERE i.app = o.app AND i.object_id = o.object_id FOR UPDATE) AS n
        """

    // MARK: Writing

    private func write(
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
        guard !rows.isEmpty else {
            _ = try await transaction.pipeline(statements)
            return [:]
        }
        let values = rows.compactMap { row in self[row].map { ($0, isNew(row)) } }
        statements.append((Self.upsertSQL, Self.parameters(values)))
        let results = try await transaction.pipeline(statements)
        var times: [RowID: (createdAt: Instant, updatedAt: Instant)] = [:]
        for row in results[results.count - 1].rows {
            let id = RowID(app: try row.text("app"), objectID: try row.text("object_id"))
            times[id] = (try row.instant("created_at"), try row.instant("updated_at"))
        }
        return times
    }

    private static func names(_ rows: [RowID]) -> [PostgresValue] {
        [.textArray(rows.map(\.app)), .textArray(rows.map(\.objectID))]
    }

    private static let deleteSQL = """
        DELETE FROM installations i USING unnest($1::text[], $2::text[]) AS w(app, object_id)
        WHERE i.app = w.app AND i.object_id = w.object_id
        """

    /// Unique keys are checked row by row: who gives one away does so before another takes it.
    private static let vacateSQL = """
        UPDATE installations i SET token = NULL, token_hash = NULL, installation_id = NULL
        FROM unnest($1::text[], $2::text[]) AS w(app, object_id)
        WHERE i.app = w.app AND i.object_id = w.object_id
        """

    /// Its times are the database's: "created before the push" must not depend on two clocks. A
    /// column that is written as it was costs no index anything.
    private static let upsertSQL = """
        INSERT INTO installations (app, object_id, device_type, provider, token, token_hash,
            environment, identity, channels, installation_id, badge, time_zone, locale,
            apns_topic, vendor, device_profile, fields, valid, invalid_reason, token_updated_at,
            created_at, updated_at)
        SELECT app, object_id, device_type, provider, token, sha256(convert_to(token, 'UTF8')),
            environment, identity, channels::text[], installation_id, badge, time_zone, locale,
            apns_topic, vendor, device_profile, fields, valid, invalid_reason, token_updated_at,
            date_trunc('milliseconds', now()),
            date_trunc('milliseconds', CASE WHEN is_new THEN now() ELSE clock_timestamp() END)
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::integer[], $11::text[], $12::text[],
            $13::text[], $14::text[], $15::text[], $16::jsonb[], $17::boolean[], $18::text[],
            $19::timestamptz[], $20::boolean[])
            AS w(app, object_id, device_type, provider, token, environment, identity, channels,
                installation_id, badge, time_zone, locale, apns_topic, vendor, device_profile,
                fields, valid, invalid_reason, token_updated_at, is_new)
        ON CONFLICT (app, object_id) DO UPDATE SET device_type = EXCLUDED.device_type,
            provider = EXCLUDED.provider, token = EXCLUDED.token,
            token_hash = EXCLUDED.token_hash, environment = EXCLUDED.environment,
            identity = EXCLUDED.identity, channels = EXCLUDED.channels,
            installation_id = EXCLUDED.installation_id, badge = EXCLUDED.badge,
            time_zone = EXCLUDED.time_zone, locale = EXCLUDED.locale,
            apns_topic = EXCLUDED.apns_topic, vendor = EXCLUDED.vendor,
            device_profile = EXCLUDED.device_profile, fields = EXCLUDED.fields,
            valid = EXCLUDED.valid, invalid_reason = EXCLUDED.invalid_reason,
            token_updated_at = EXCLUDED.token_updated_at, updated_at = EXCLUDED.updated_at,
            invalidated_at = CASE WHEN EXCLUDED.invalid_reason IS NOT NULL
                THEN installations.invalidated_at END
        RETURNING app, object_id, created_at, updated_at
        """

    private static func parameters(_ rows: [(Installation, isNew: Bool)]) -> [PostgresValue] {
        let values = rows.map(\.0)
        func texts(_ value: (Installation) -> String?) -> PostgresValue {
            .textArray(values.map(value))
        }
        return [
            texts(\.app), texts(\.objectID), texts(\.deviceType), texts(\.platform?.rawValue),
            texts(\.token), texts(\.environment.rawValue), texts(\.identity),
            texts { arrayLiteral($0.channels) }, texts(\.installationID),
            .integerArray(values.map(\.badge)), texts(\.timeZone), texts(\.locale),
            texts(\.apnsTopic), texts(\.vendor), texts(\.deviceProfile),
            .jsonArray(values.map { .object($0.fields) }), .booleanArray(values.map(\.isValid)),
            texts(\.invalidReason),
            .timestampArray(values.map { $0.tokenUpdatedAt?.microseconds }),
            .booleanArray(rows.map(\.isNew)),
        ]
    }

    /// An array of arrays would be one rectangle: each travels as the text that it is read from.
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
    /// About as many bytes as it takes when it is written.
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
