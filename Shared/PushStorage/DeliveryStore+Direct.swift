import Postgres
import PushCore

/// Pushes that name their devices one by one: their deliveries are rows at once.
extension DeliveryStore {
    /// Devices named one by one, for all pushes of the batch in three statements.
    static func insertDirect(
        _ audience: DirectAudience,
        _ session: Int,
        _ transaction: PostgresTransaction
    ) async throws -> [Delivery] {
        var deliveries: [Delivery] = []
        for (sql, list) in [
            (byInstallationSQL, audience.installations), (byIdentitySQL, audience.identities),
        ] where !list.isEmpty {
            let result = try await transaction.execute(
                sql,
                [
                    .uuidArray(list.map(\.pushID)), .textArray(list.map(\.name)),
                    .integer(session),
                ]
            )
            deliveries += try result.rows.map(Delivery.read)
        }
        if !audience.tokens.isEmpty {
            let result = try await transaction.execute(
                tokenSQL,
                tokenParameters(audience.tokens, owner: session)
            )
            deliveries += try result.rows.map(Delivery.read)
        }
        var counts: [String: Int] = [:]
        for delivery in deliveries { counts[delivery.pushID, default: 0] += 1 }
        let pushIDs = audience.direct.sorted()
        _ = try await transaction.execute(
            """
            UPDATE pushes p SET targeted = i.count, pending = i.count,
                status = CASE WHEN i.count = 0 THEN 'done' ELSE 'sending' END,
                finished_at = CASE WHEN i.count = 0 THEN now() END, updated_at = now()
            FROM unnest($1::uuid[], $2::bigint[]) AS i(id, count) WHERE p.id = i.id
            """,
            [.uuidArray(pushIDs), .integerArray(pushIDs.map { counts[$0] ?? 0 })]
        )
        return deliveries
    }

    static let deliveryColumns = """
        day, push_id, target, app, installation_id, provider, environment, environment_explicit,
        token, locale, apns_topic, lane, expires_at, owner
        """

    /// Of an installation `i` and its push `p`: the row of its delivery but for the owner. Where an
    /// installation does not name its APNs environment, the push's `prod` decides.
    static let installationRow = """
        (p.created_at AT TIME ZONE 'UTC')::date, p.id, i.object_id, i.app, i.object_id, i.provider,
        CASE WHEN i.environment <> '' OR i.provider <> 'apns' THEN i.environment
            ELSE p.environment END,
        i.environment <> '', i.token, i.locale, i.apns_topic, p.lane, p.expires_at
        """

    /// Who names an installation is told of it: one that cannot be sent to gets a delivery without
    /// a token, which its owner suppresses for the reason in the row.
    private static let byInstallationSQL = """
        INSERT INTO deliveries AS d (\(deliveryColumns), last_reason)
        SELECT DISTINCT ON (p.id, i.object_id) \(installationRow), $3::bigint,
            CASE WHEN i.reachable THEN NULL
                WHEN i.valid THEN 'the installation has no device token'
                ELSE 'the installation is invalid' || coalesce(': ' || i.invalid_reason, '') END
        FROM unnest($1::uuid[], $2::text[]) AS w(push_id, name)
        JOIN pushes p ON p.id = w.push_id
        CROSS JOIN LATERAL (
            SELECT n.app, n.object_id, n.provider, n.environment, n.locale, n.apns_topic, n.valid,
                n.invalid_reason, n.created_at, n.valid AND n.token IS NOT NULL AS reachable,
                CASE WHEN n.valid THEN coalesce(n.token, '') ELSE '' END AS token
            FROM (
                SELECT * FROM installations m WHERE m.app = p.app AND m.object_id = w.name
                UNION ALL
                SELECT * FROM installations m
                WHERE m.app = p.app AND m.installation_id = w.name) n) i
        WHERE i.provider IS NOT NULL AND i.created_at <= p.planned_until
        ORDER BY p.id, i.object_id
        ON CONFLICT DO NOTHING RETURNING \(qualified)
        """

    private static let byIdentitySQL = """
        INSERT INTO deliveries AS d (\(deliveryColumns))
        SELECT DISTINCT ON (p.id, i.object_id) \(installationRow), $3::bigint
        FROM unnest($1::uuid[], $2::text[]) AS w(push_id, name)
        JOIN pushes p ON p.id = w.push_id
        JOIN installations i ON i.app = p.app AND i.identity = w.name
        WHERE i.valid AND i.token IS NOT NULL AND i.created_at <= p.planned_until
        ORDER BY p.id, i.object_id
        ON CONFLICT DO NOTHING RETURNING \(qualified)
        """

    static let tokenSQL = """
        INSERT INTO deliveries AS d (\(deliveryColumns))
        SELECT DISTINCT ON (p.id, encode(sha256(convert_to(w.token, 'UTF8')), 'hex'))
            (p.created_at AT TIME ZONE 'UTC')::date, p.id,
            encode(sha256(convert_to(w.token, 'UTF8')), 'hex'), p.app, NULL, w.provider,
            CASE WHEN w.environment <> '' OR w.provider <> 'apns' THEN w.environment
                ELSE p.environment END,
            w.environment <> '', w.token, NULL, NULL, p.lane, p.expires_at, $5::bigint
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
            AS w(push_id, provider, token, environment)
        JOIN pushes p ON p.id = w.push_id
        ORDER BY p.id, encode(sha256(convert_to(w.token, 'UTF8')), 'hex')
        ON CONFLICT DO NOTHING RETURNING \(qualified)
        """

    static func tokenParameters(
        _ tokens: [DirectAudience.Token],
        owner: Int?
    ) -> [PostgresValue] {
        [
            .uuidArray(tokens.map(\.pushID)),
            .textArray(tokens.map(\.token.platform.rawValue)),
            .textArray(tokens.map(\.token.token)),
            .textArray(tokens.map(\.token.environment.rawValue)), .optional(integer: owner),
        ]
    }
}
