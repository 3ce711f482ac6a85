package import JSON
import Postgres

/// An issuer's keys as they are kept, with their ages by Postgres' clock.
package struct StoredJWKS: Sendable, Equatable {
    package var url: String
    /// `nil`: none were ever fetched.
    package var keys: JSONValue?
    /// Tells one state of the keys from another: microseconds since 1970 when they were fetched; 0 where
    /// they never were.
    package var stamp: Int
    /// Since they were fetched.
    package var age: Duration
    /// How long they are fresh yet; below zero: for how long they have not been.
    package var freshFor: Duration
    /// Since the issuer was asked last, whatever came of it.
    package var askedAgo: Duration?
    /// Whether he was, and nobody has said yet what came of it.
    package var isBeingAsked: Bool

    package init(
        url: String,
        keys: JSONValue?,
        stamp: Int,
        age: Duration,
        freshFor: Duration,
        askedAgo: Duration?,
        isBeingAsked: Bool
    ) {
        self.url = url
        self.keys = keys
        self.stamp = stamp
        self.age = age
        self.freshFor = freshFor
        self.askedAgo = askedAgo
        self.isBeingAsked = isBeingAsked
    }

    static let columns = """
        url, keys, coalesce((extract(epoch FROM fetched_at) * 1000000)::bigint, 0) AS stamp,
        \(milliseconds("now() - fetched_at")) AS age,
        \(milliseconds("fresh_until - now()")) AS fresh_for,
        \(milliseconds("now() - asked_at")) AS asked_ago,
        asked_at IS NOT NULL AND (answered_at IS NULL OR answered_at < asked_at)
            AS is_being_asked
        """

    /// Bounded, so that a clock that was set does not make a number of which no span can be made.
    private static func milliseconds(_ span: String) -> String {
        """
        least(greatest((extract(epoch FROM \(span)) * 1000), -31536000000), 31536000000)::bigint
        """
    }

    init(_ row: PostgresRow) throws {
        url = try row.text("url")
        keys = try row.jsonOrNil("keys")
        stamp = try row.integer("stamp")
        age = .milliseconds(try row.integerOrNil("age") ?? 0)
        freshFor = .milliseconds(try row.integerOrNil("fresh_for") ?? 0)
        askedAgo = try row.integerOrNil("asked_ago").map { .milliseconds($0) }
        isBeingAsked = try row.boolean("is_being_asked")
    }
}

package struct JWKSStore: Sendable {
    let database: Database

    /// No issuer is asked more often, however many processes there are.
    package static let askInterval = Duration.seconds(60)

    static let forgetUnused =
        "DELETE FROM jwks WHERE NOT EXISTS (SELECT FROM logins WHERE jwks_url = jwks.url)"

    package func find(_ url: String) async throws -> StoredJWKS? {
        try await database.execute(
            "SELECT \(StoredJWKS.columns) FROM jwks WHERE url = $1",
            [.text(url)]
        ).first.map(StoredJWKS.init)
    }

    /// Those of the addresses whose keys are not the ones that are known.
    ///
    /// - Parameter known: Stamps by address.
    /// - Returns: Those that were ever fetched.
    /// - Throws: `StorageError`.
    package func changed(_ known: [(url: String, stamp: Int)]) async throws -> [StoredJWKS] {
        try await database.execute(
            """
            SELECT \(StoredJWKS.columns) FROM jwks
            JOIN unnest($1::text[], $2::bigint[]) AS k (known, last) ON k.known = url
            WHERE fetched_at IS NOT NULL
                AND (extract(epoch FROM fetched_at) * 1000000)::bigint <> k.last
            """,
            [.textArray(known.map(\.url)), .integerArray(known.map(\.stamp))]
        ).rows.map(StoredJWKS.init)
    }

    /// All that logins are checked by, with what is not there yet.
    package func all() async throws -> [(url: String, stored: StoredJWKS?)] {
        let urls = try await database.execute(
            "SELECT DISTINCT jwks_url FROM logins WHERE jwks_url IS NOT NULL ORDER BY 1"
        ).rows.map { try $0.text("jwks_url") }
        let stored = try await database.execute(
            "SELECT \(StoredJWKS.columns) FROM jwks"
        ).rows.map(StoredJWKS.init)
        return urls.map { url in (url, stored.first { $0.url.isSame(as: url) }) }
    }

    /// Says that the issuer is about to be asked.
    ///
    /// - Returns: Whether the caller is who asks: nobody has within the last minute.
    package func claim(_ url: String) async throws -> Bool {
        try await database.execute(
            """
            INSERT INTO jwks AS j (url, asked_at) VALUES ($1, now())
            ON CONFLICT (url) DO UPDATE SET asked_at = now()
                WHERE j.asked_at IS NULL OR j.asked_at > now()
                    OR j.asked_at < now() - $2 * interval '1 second'
            """,
            [.text(url), .integer(Int(Self.askInterval.components.seconds))]
        ).affectedRows == 1
    }

    /// Keeps what the issuer answered. Where a login is set, which asks him without a claim, whoever comes
    /// with a key that he has made since may have him asked at once.
    package func keep(_ url: String, _ keys: JSONValue, freshFor: Duration) async throws {
        _ = try await database.execute(
            """
            INSERT INTO jwks AS j (url, keys, fetched_at, fresh_until, asked_at, answered_at)
            VALUES ($1, $2, clock_timestamp(), now() + $3 * interval '1 second', NULL,
                clock_timestamp())
            ON CONFLICT (url) DO UPDATE SET keys = EXCLUDED.keys,
                fetched_at = EXCLUDED.fetched_at, fresh_until = EXCLUDED.fresh_until,
                answered_at = EXCLUDED.answered_at
            """,
            [.text(url), .json(keys), .integer(Int(freshFor.components.seconds))]
        )
    }

    /// Says that no answer of use came. The keys stay.
    package func gaveUp(_ url: String) async throws {
        _ = try await database.execute(
            "UPDATE jwks SET answered_at = clock_timestamp() WHERE url = $1",
            [.text(url)]
        )
    }

    /// Those whose keys are to be renewed before they are stale, and may be asked now.
    ///
    /// - Returns: At most `limit`, the most urgent first.
    package func due(limit: Int = 20) async throws -> [String] {
        try await database.execute(
            """
            SELECT u.url FROM (SELECT DISTINCT jwks_url AS url FROM logins
                WHERE jwks_url IS NOT NULL) u
            LEFT JOIN jwks j ON j.url = u.url
            WHERE (j.fetched_at IS NULL
                    OR now() > j.fetched_at + 0.8 * (j.fresh_until - j.fetched_at))
                AND (j.asked_at IS NULL OR j.asked_at > now()
                    OR j.asked_at < now() - $1 * interval '1 second')
            ORDER BY j.fresh_until NULLS FIRST LIMIT $2
            """,
            [.integer(Int(Self.askInterval.components.seconds)), .integer(limit)]
        ).rows.map { try $0.text("url") }
    }

    /// Of the keys that logins are checked by; zero where there are none.
    package func oldestAge() async throws -> Duration {
        let age = try await database.execute(
            """
            SELECT max(least(extract(epoch FROM now() - fetched_at), 31536000))::bigint AS age
            FROM jwks WHERE EXISTS (SELECT FROM logins WHERE jwks_url = jwks.url)
            """
        ).first?.integerOrNil("age")
        return .seconds(max(0, age ?? 0))
    }

    /// Deletes the keys that no login is checked by any more, as those of apps that were deleted.
    package func prune() async throws { _ = try await database.execute(Self.forgetUnused) }
}
