import Cryptography
import Postgres

/// The fence of erasures: names that were erased a short while ago, by their keyed digests. Services write
/// their audit behind their responses, and longer after them while the database is away; objects and pushes
/// arrive late as well. What names an erased subject then is dropped, or written without its name.
enum ErasedNames {
    /// How far ahead of Postgres' clock a service's may be that says when something was done.
    static let clockDifference = "interval '1 second'"
    static let clockDifferenceMicroseconds: Int64 = 1_000_000
    /// Longer than a service keeps its audit in memory, and than Kafka keeps what devices have sent, where
    /// it does not keep that for longer than its own default of a week.
    static let kept = Duration.seconds(15 * 86_400)

    /// HMAC-SHA256 under the database's `ErasureKey`. No app's id holds a NUL.
    static func digest(_ app: String, _ name: String, key: [UInt8]) -> [UInt8] {
        hmacSHA256(key: key, Array(app.utf8) + [0] + Array(name.utf8))
    }

    /// SQL: the digests that a name may be fenced by. Versions before schema 31 wrote the plain one, which
    /// is honoured until it is as old as `kept`.
    private static func digests(_ app: String, _ name: String, keyed: String) -> String {
        "ANY (ARRAY[\(keyed), sha256(convert_to(\(app) || '/' || \(name), 'UTF8'))])"
    }

    /// From now on, what was done until a moment, in microseconds (`nil`: now), and names one of them
    /// does not name it any more.
    static func note(
        _ names: [String],
        of app: String,
        key: [UInt8],
        until: Int64? = nil,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            INSERT INTO erased_names (app, digest, at)
            SELECT DISTINCT $1, n.digest, coalesce($3::timestamptz, clock_timestamp())
            FROM unnest($2::bytea[]) AS n(digest) ORDER BY 2
            ON CONFLICT (app, digest) DO UPDATE SET at = excluded.at
            """,
            [
                .text(app), .bytesArray(names.map { digest(app, $0, key: key) }),
                .optional(timestamp: until),
            ]
        )
    }

    // MARK: What arrives late

    /// A name in something that was done at a moment.
    struct Candidate {
        /// The caller's number of what holds the name.
        let place: Int
        let app: String
        let name: String
        let atMicroseconds: Int64
    }

    /// Passes the barrier before rows that name subjects are written: an erasure that has noted its names
    /// waits for the transactions that passed before (`closeBarrier`), and then finds their rows.
    ///
    /// - Parameter apps: The apps of the subjects, sorted.
    /// - Returns: A statement of the writing transaction.
    static func passBarrier(of apps: [String]) -> (String, [PostgresValue]) {
        (
            """
            SELECT count(*) FROM (SELECT pg_advisory_xact_lock_shared(\(barrier("i.app")))
                FROM unnest($1::text[]) AS i(app)) AS passed
            """,
            [.textArray(apps)]
        )
    }

    /// The statement after `passBarrier`: which of the apps have a fence at all. Most often none has one,
    /// and no digest is computed.
    static func fencedApps(of apps: [String]) -> (String, [PostgresValue]) {
        (
            """
            SELECT i.app FROM unnest($1::text[]) AS i(app)
            WHERE EXISTS (SELECT FROM erased_names e WHERE e.app = i.app)
            """,
            [.textArray(apps)]
        )
    }

    /// Finds the places whose names were erased after they came in.
    ///
    /// - Parameters:
    ///   - candidates: All names that are to be written.
    ///   - apps: The rows of `fencedApps`.
    ///   - key: Of the database; `nil`: only fences of versions before are seen.
    ///   - transaction: The one that has passed the barrier.
    /// - Returns: Those places.
    /// - Throws: `PostgresError`.
    static func erased(
        _ candidates: [Candidate],
        in apps: PostgresRows,
        key: [UInt8]?,
        _ transaction: PostgresTransaction
    ) async throws -> Set<Int> {
        guard !apps.isEmpty else { return [] }
        let fenced = Set(try apps.map { try $0.text("app") })
        let fencedCandidates = candidates.filter { fenced.contains($0.app) }
        guard !fencedCandidates.isEmpty else { return [] }
        let rows = try await transaction.execute(
            """
            SELECT DISTINCT i.place
            FROM unnest($1::integer[], $2::text[], $3::text[], $4::timestamptz[], $5::bytea[])
                AS i(place, app, name, at, digest)
            JOIN erased_names e ON e.app = i.app
                AND e.digest = \(digests("i.app", "i.name", keyed: "i.digest"))
                AND e.at > i.at - \(clockDifference)
            """,
            [
                .integerArray(fencedCandidates.map(\.place)),
                .textArray(fencedCandidates.map(\.app)),
                .textArray(fencedCandidates.map(\.name)),
                .timestampArray(fencedCandidates.map(\.atMicroseconds)),
                .bytesArray(
                    fencedCandidates.map { candidate in
                        key.map { digest(candidate.app, candidate.name, key: $0) }
                    }
                ),
            ]
        ).rows
        return Set(try rows.map { try $0.integer("place") })
    }

    /// Waits for those that passed the barrier of an app before its names were noted.
    static func closeBarrier(of app: String, _ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(
            "SELECT pg_advisory_xact_lock(\(barrier("$1::text")))",
            [.text(app)]
        )
    }

    private static func barrier(_ app: String) -> String {
        "hashtextextended(current_schema() || ' erasures ' || \(app), 0)"
    }

    /// SQL of a name as it may be written down.
    ///
    /// - Parameters:
    ///   - name: SQL of the name.
    ///   - digest: SQL of its keyed digest; may be null.
    ///   - app: SQL of its app.
    ///   - at: SQL of when that was done which names it.
    /// - Returns: An expression.
    static func withoutErased(
        _ name: String,
        digest: String,
        of app: String,
        at: String
    ) -> String {
        """
        CASE WHEN EXISTS (SELECT FROM erased_names e
                WHERE e.app = \(app) AND e.digest = \(digests(app, name, keyed: digest))
                    AND e.at > \(at) - \(clockDifference))
            THEN '\(Redaction.mark)' ELSE \(name) END
        """
    }
}
