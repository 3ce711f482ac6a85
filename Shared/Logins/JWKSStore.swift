package import JSON
import Postgres
import Storage

/// An issuer's stored keys, with their ages by Postgres' clock.
package struct StoredJWKS: Sendable, Equatable {
    package var url: String
    /// `nil`: none were ever fetched.
    package var keys: JSONValue?
    /// The version of the keys: microseconds since 1970 when they were fetched; 0 if they never
    /// were.
    package var stamp: Int
    /// The time since they were fetched.
    package var age: Duration
    /// How long they are still fresh; below zero: for how long they have been stale.
    package var freshFor: Duration
    /// The time since the issuer was last asked, whatever the result.
    package var askedAgo: Duration?
    /// Whether a request to the issuer is outstanding.
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

    /// Returns SQL for milliseconds, clamped, so that a changed clock does not produce a number
    /// that is not a valid interval.
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

/// The logins whose keys a service renews: those that it has a use for.
package enum JWKSUse: Sendable, CaseIterable {
    /// `logins`: tokens of readers.
    case readers
    /// `console_logins`: tokens of operators.
    case operators

    fileprivate var table: String {
        switch self {
        case .readers: "logins"
        case .operators: "console_logins"
        }
    }
}

package struct JWKSStore: Sendable {
    let database: Database

    /// The least interval of requests to an issuer, over all processes.
    package static let askInterval = Duration.seconds(60)

    static let forgetUnused = """
        DELETE FROM jwks WHERE NOT EXISTS (SELECT FROM logins WHERE jwks_url = jwks.url)
            AND NOT EXISTS (SELECT FROM console_logins WHERE jwks_url = jwks.url)
        """

    package func find(_ url: String) async throws -> StoredJWKS? {
        try await database.execute(
            "SELECT \(StoredJWKS.columns) FROM jwks WHERE url = $1",
            [.text(url)]
        ).first.map(StoredJWKS.init)
    }

    /// Returns the changed keys of these addresses.
    ///
    /// - Parameter known: Stamps by address.
    /// - Returns: The keys with another stamp that were ever fetched.
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

    /// Returns all addresses that logins use, including those without keys yet.
    package func all() async throws -> [(url: String, stored: StoredJWKS?)] {
        let urls = try await database.execute(
            """
            SELECT jwks_url FROM logins WHERE jwks_url IS NOT NULL
            UNION SELECT jwks_url FROM console_logins ORDER BY 1
            """
        ).rows.map { try $0.text("jwks_url") }
        let stored = try await database.execute(
            "SELECT \(StoredJWKS.columns) FROM jwks"
        ).rows.map(StoredJWKS.init)
        return urls.map { url in (url, stored.first { $0.url.isSame(as: url) }) }
    }

    /// Claims the next request to the issuer.
    ///
    /// - Returns: Whether the caller may send it: no request was sent within the last minute.
    package func claim(_ url: String) async throws -> Bool {
        // Not now(): the claim of a later transaction would be in the future of one that waited for it.
        try await database.execute(
            """
            INSERT INTO jwks AS j (url, asked_at) VALUES ($1, clock_timestamp())
            ON CONFLICT (url) DO UPDATE SET asked_at = clock_timestamp()
                WHERE j.asked_at IS NULL OR j.asked_at > clock_timestamp()
                    OR j.asked_at < clock_timestamp() - $2 * interval '1 second'
            """,
            [.text(url), .integer(Int(Self.askInterval.components.seconds))]
        ).affectedRows == 1
    }

    /// Stores the issuer's answer. `login set` fetches without a claim, so that a token with a
    /// newer key can cause the next request at once.
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

    /// Notes that no useful answer came. The stored keys stay.
    package func recordFailure(_ url: String) async throws {
        _ = try await database.execute(
            "UPDATE jwks SET answered_at = clock_timestamp() WHERE url = $1",
            [.text(url)]
        )
    }

    /// Returns the addresses whose keys must be renewed before they are stale, and whose issuers
    /// may be asked now.
    ///
    /// - Returns: At most `limit`, the most urgent first.
    package func due(_ use: JWKSUse = .readers, limit: Int = 20) async throws -> [String] {
        try await database.execute(
            """
            SELECT u.url FROM (SELECT DISTINCT jwks_url AS url FROM \(use.table)
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

    /// Returns the greatest age of the keys that logins use; zero if there are none.
    package func oldestAge(_ use: JWKSUse = .readers) async throws -> Duration {
        let age = try await database.execute(
            """
            SELECT max(least(extract(epoch FROM now() - fetched_at), 31536000))::bigint AS age
            FROM jwks WHERE EXISTS (SELECT FROM \(use.table) WHERE jwks_url = jwks.url)
            """
        ).first?.integerOrNil("age")
        return .seconds(max(0, age ?? 0))
    }

    /// Deletes the keys that no login uses any more, such as those of deleted apps.
    package func prune() async throws { _ = try await database.execute(Self.forgetUnused) }
}
