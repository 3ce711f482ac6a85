import JSON
import Postgres
package import PushCore

/// The processes of the services, as they report themselves. The times are Postgres'.
package struct ServiceInstanceStore: Sendable {
    let database: Database

    /// The most processes of a listing.
    private static let maximum = 1000

    /// Stores a process' report, and deletes those of processes that were not seen for a day.
    package func report(_ instance: ServiceInstance) async throws {
        _ = try await database.execute([
            (
                """
                INSERT INTO service_instances (id, service, host, version, state)
                VALUES ($1, $2, $3, $4, $5::jsonb)
                ON CONFLICT (id) DO UPDATE SET seen_at = now(), state = excluded.state
                """,
                [
                    .uuid(instance.id), .text(instance.service), .text(instance.host),
                    .text(instance.version), .json(.object(instance.state.json)),
                ]
            ),
            ("DELETE FROM service_instances WHERE seen_at < now() - interval '1 day'", []),
        ])
    }

    /// Removes a process that stops by itself: it is not missed.
    package func remove(_ id: String) async throws {
        _ = try await database.execute(
            "DELETE FROM service_instances WHERE id = $1",
            [.uuid(id)]
        )
    }

    /// Returns the processes of all services.
    ///
    /// - Throws: `StorageError`; `isStatementTimeout` if Postgres takes longer than 300 ms.
    package func fleet() async throws -> ServiceFleet {
        let found = try await database.briefly([
            ("SELECT now() AS now", []), (Self.fleetSQL, []),
        ])
        return ServiceFleet(
            try found[1].rows.map(Self.instance),
            asOf: try found[0].first?.instant("now") ?? database.clock.now()
        )
    }

    private static let fleetSQL = """
        SELECT id, service, host, version, started_at, seen_at, state,
            greatest(0, extract(epoch FROM now() - seen_at) * 1000)::bigint AS silence
        FROM service_instances WHERE seen_at > now() - interval '1 day'
        ORDER BY service, host, id LIMIT \(maximum)
        """

    private static func instance(_ row: PostgresRow) throws -> ServiceInstance {
        var instance = ServiceInstance(
            id: try row.uuid("id"),
            service: try row.text("service"),
            host: try row.text("host"),
            version: try row.text("version"),
            startedAt: try row.instant("started_at"),
            seenAt: try row.instant("seen_at"),
            state: ServiceState(try row.json("state"))
        )
        instance.silence = .milliseconds(try row.integer("silence"))
        return instance
    }

    /// Finds the open breaker of an app at a provider, as a dispatcher has reported it within 30
    /// seconds.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - platform: The provider.
    ///   - isSandbox: Whether it is of APNs' sandbox.
    /// - Returns: The breaker that is open for the longest time; `nil` if none is.
    /// - Throws: `StorageError`.
    package func breaker(
        of app: String,
        at platform: Platform,
        isSandbox: Bool
    ) async throws -> OpenBreaker? {
        let rows = try await database.execute(
            """
            SELECT b.breaker FROM service_instances,
                jsonb_array_elements(coalesce(state->'breakers', '[]')) b(breaker)
            WHERE seen_at > now() - $3::bigint * interval '1 ms'
                AND b.breaker->>'app' = $1 AND b.breaker->>'provider' = $2
                AND coalesce(b.breaker->>'sandbox' = 'true', false) = $4
            ORDER BY b.breaker->>'since' LIMIT 1
            """,
            [
                .text(app), .text(platform.rawValue),
                .integer(Int(ServiceInstance.silentAfter / .milliseconds(1))), .boolean(isSandbox),
            ]
        )
        return try rows.first.flatMap { OpenBreaker(try $0.json("breaker")) }
    }
}

extension Database {
    /// Executes statements of a page that shows its other parts without them, in one round trip:
    /// 300 ms each at most.
    ///
    /// - Throws: `StorageError`; `isStatementTimeout` if one takes longer.
    func briefly(
        _ statements: [(sql: String, parameters: [PostgresValue])]
    ) async throws -> [PostgresResult] {
        let limit = ("SELECT set_config('statement_timeout', '300', true)", [PostgresValue]())
        return Array(try await transaction(of: [limit] + statements).dropFirst())
    }
}
