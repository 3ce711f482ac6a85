import InstallationStorage
import Postgres
import PushCore
import Storage

/// Inserts the deliveries of pushes that name their devices one by one.
enum DirectRows {
    /// Inserts deliveries to devices that are named one by one, for all pushes of the batch in a
    /// few statements. The session `owner` owns the rows. Without an owner, the rows wait until
    /// they are due: now, or by `zones` for a device-local push. `isCounted` says that the ledgers
    /// of the pushes already contain the expected numbers.
    ///
    /// - Returns: The rows, and the number of members of shards.
    static func insert(
        _ audience: DirectAudience,
        owner: Int?,
        zones: ZoneTimes? = nil,
        isCounted: Bool = false,
        _ transaction: PostgresTransaction
    ) async throws -> (deliveries: [Delivery], members: Int) {
        var deliveries: [Delivery] = []
        for (makeSQL, list) in [
            (byInstallationSQL, audience.installations), (byIdentitySQL, audience.identities),
        ] where !list.isEmpty {
            var parameters: [PostgresValue] = [
                .uuidArray(list.map(\.pushID)), .textArray(list.map(\.name)),
                .optional(integer: owner), .textArray(list.map(\.templateFields)),
            ]
            let times = RowTimes(zones, zone: "i.time_zone", &parameters)
            let result = try await transaction.execute(makeSQL(times), parameters)
            deliveries += try result.rows.map(Delivery.read)
        }
        if !audience.tokens.isEmpty {
            let (sql, parameters) = insertion(of: audience.tokens, owner: owner, zones: zones)
            let result = try await transaction.execute(sql, parameters)
            deliveries += try result.rows.map(Delivery.read)
        }
        try await BadgeStore.raise(of: &deliveries, audience.badgeChanges, transaction)
        var counts: [String: Int] = [:]
        for delivery in deliveries { counts[delivery.pushID, default: 0] += 1 }
        let pushIDs = audience.direct.sorted().filter {
            !isCounted || counts[$0] ?? 0 != audience.expected[$0]
        }
        let members = try await NamedShards.insert(audience, transaction)
        guard !pushIDs.isEmpty else { return (deliveries, members) }
        _ = try await transaction.execute(
            """
            UPDATE pushes p SET \(LedgerSQL.plannedAtOnce("i.count"))
            FROM unnest($1::uuid[], $2::bigint[]) AS i(id, count) WHERE p.id = i.id
            """,
            [.uuidArray(pushIDs), .integerArray(pushIDs.map { counts[$0] ?? 0 })]
        )
        return (deliveries, members)
    }

    static let columns = """
        day, push_id, target, app, installation_id, provider, environment, environment_explicit,
        token, locale, apns_topic, lane, expires_at, due_at, created_at, template_values, owner
        """

    /// Returns the columns of the delivery of a push `p` to an installation `i`, without the values
    /// of its placeholders and the owner. If an installation does not name its APNs environment,
    /// the push's `prod` decides.
    static func row(_ times: RowTimes) -> String {
        """
        (p.created_at AT TIME ZONE 'UTC')::date, p.id, i.object_id, i.app, i.object_id, i.provider,
        CASE WHEN i.environment <> '' OR i.provider <> 'apns' THEN i.environment
            ELSE p.environment END,
        i.environment <> '', i.token, i.locale, \(InstallationTopic.sql(of: "i")), p.lane,
        \(times.expires), \(times.due), \(times.begins)
        """
    }

    private static let namedValues = TemplateValues.sql(
        "string_to_array(w.template, ',')",
        of: "i"
    )

    /// Returns the statement that inserts the rows of named installations. If one cannot be sent
    /// to, its row has no token, and its owner suppresses it for the reason in the row: so the
    /// outcome reports it.
    private static func byInstallationSQL(_ times: RowTimes) -> String {
        """
        INSERT INTO deliveries AS d (\(columns), last_reason)
        \(byInstallation(times))
        ON CONFLICT DO NOTHING RETURNING \(Delivery.qualified)
        """
    }

    /// The names `w`, each with its push `p`.
    private static let named = """
        unnest($1::uuid[], $2::text[], $4::text[]) AS w(push_id, name, template)
        JOIN pushes p ON p.id = w.push_id
        """

    /// Returns the query of the rows, for `columns` and `last_reason`. `$1` to `$4`: the pushes, the
    /// names, the owner, and the fields of the pushes' placeholders.
    private static func byInstallation(_ times: RowTimes) -> String {
        """
        SELECT DISTINCT ON (p.id, i.object_id) \(row(times)), \(namedValues), $3::bigint,
            i.suppression
        FROM \(named)
        CROSS JOIN LATERAL (
            SELECT n.app, n.object_id, n.provider, n.environment, n.locale, n.apns_topic, n.created_at,
                n.time_zone, \(reach(of: "n")), n.fields, n.device_type, n.installation_id, n.vendor,
                n.device_profile
            FROM (
                SELECT * FROM installations m WHERE m.app = p.app AND m.object_id = w.name
                UNION ALL
                SELECT * FROM installations m
                WHERE m.app = p.app AND m.installation_id = w.name) n) i
        WHERE i.provider IS NOT NULL AND i.created_at <= p.planned_until
        ORDER BY p.id, i.object_id
        """
    }

    /// Returns two columns of a named installation: its token, which is empty if it cannot be sent
    /// to, and the reason.
    static func reach(of row: String) -> String {
        """
        CASE WHEN \(row).valid THEN coalesce(\(row).token, '') ELSE '' END AS token,
        CASE WHEN NOT \(row).valid
                THEN 'the installation is invalid' || coalesce(': ' || \(row).invalid_reason, '')
            WHEN \(row).token IS NULL THEN 'the installation has no device token' END AS suppression
        """
    }

    private static func byIdentitySQL(_ times: RowTimes) -> String {
        """
        INSERT INTO deliveries AS d (\(columns))
        \(byIdentity(times))
        ON CONFLICT DO NOTHING RETURNING \(Delivery.qualified)
        """
    }

    /// Returns the query of the rows, for `columns`.
    private static func byIdentity(_ times: RowTimes) -> String {
        """
        SELECT DISTINCT ON (p.id, i.object_id) \(row(times)), \(namedValues), $3::bigint
        FROM \(named)
        JOIN installations i ON i.app = p.app AND i.identity = w.name
        WHERE i.valid AND i.token IS NOT NULL AND i.created_at <= p.planned_until
        ORDER BY p.id, i.object_id
        """
    }

    /// Returns the statement that inserts the deliveries to tokens. A token has no zone: in a
    /// device-local push it is due at the time in UTC. `spread` distributes the due times over that
    /// many milliseconds.
    static func insertion(
        of tokens: [DirectAudience.Token],
        owner: Int?,
        zones: ZoneTimes?,
        spread: Int? = nil
    ) -> (sql: String, parameters: [PostgresValue]) {
        var parameters = Self.parameters(of: tokens, owner: owner)
        var times = RowTimes(zones, zone: "NULL::text", &parameters)
        if let spread {
            times.spreadDueTimes(
                over: spread,
                at: "(w.place - 1)::float8 / \(tokens.count)",
                &parameters
            )
        }
        let sql = """
            INSERT INTO deliveries AS d (\(columns))
            \(byToken(times))
            ON CONFLICT DO NOTHING RETURNING \(Delivery.qualified)
            """
        return (sql, parameters)
    }

    /// Returns the first five parameters of `byToken`.
    private static func parameters(of tokens: [DirectAudience.Token], owner: Int?)
        -> [PostgresValue]
    {
        [
            .uuidArray(tokens.map(\.pushID)),
            .textArray(tokens.map(\.token.platform.rawValue)),
            .textArray(tokens.map(\.token.token)),
            .textArray(tokens.map(\.token.environment.rawValue)), .optional(integer: owner),
        ]
    }

    /// The tokens `w`, each with its push `p`.
    private static let tokens = """
        unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
            WITH ORDINALITY AS w(push_id, provider, token, environment, place)
        JOIN pushes p ON p.id = w.push_id
        """

    /// Returns the query of the rows of tokens, for `columns`.
    private static func byToken(_ times: RowTimes) -> String {
        """
        SELECT DISTINCT ON (p.id, encode(sha256(convert_to(w.token, 'UTF8')), 'hex'))
            (p.created_at AT TIME ZONE 'UTC')::date, p.id,
            encode(sha256(convert_to(w.token, 'UTF8')), 'hex'), p.app, NULL::text, w.provider,
            CASE WHEN w.environment <> '' OR w.provider <> 'apns' THEN w.environment
                ELSE p.environment END,
            w.environment <> '', w.token, NULL::text, NULL::text, p.lane, \(times.expires),
            \(times.due), \(times.begins), NULL::json, $5::bigint
        FROM \(tokens)
        ORDER BY p.id, encode(sha256(convert_to(w.token, 'UTF8')), 'hex')
        """
    }
}
