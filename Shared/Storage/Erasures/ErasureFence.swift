import Cryptography
package import Postgres

/// The fence of erasures: names that were erased recently, stored as keyed digests. Some rows are
/// written late: services write their audit after their responses, and much later if the database
/// was unavailable; objects and pushes arrive late as well. A late row that names an erased subject
/// is dropped, or written without the name.
package enum ErasureFence {
    /// The replacement of an erased name.
    package static let mark = "[erased]"
    /// How far a service's clock, which timestamps operations, may be ahead of Postgres' clock.
    package static let clockDifference = "interval '1 second'"
    package static let clockDifferenceMicroseconds: Int64 = 1_000_000
    /// The lifetime of a fence. It is longer than a service holds its audit in memory, and longer
    /// than Kafka's default retention of device objects, a week.
    package static let kept = Duration.seconds(15 * 86_400)

    /// Returns HMAC-SHA256 under the database's `ErasureKey`. No app's id contains a NUL.
    static func digest(_ app: String, _ name: String, key: [UInt8]) -> [UInt8] {
        hmacSHA256(key: key, Array(app.utf8) + [0] + Array(name.utf8))
    }

    /// Returns SQL for the digests that may fence a name. Versions before schema 31 wrote the plain
    /// digest, which is valid until it is as old as `kept`.
    private static func digests(_ app: String, _ name: String, keyed: String) -> String {
        "ANY (ARRAY[\(keyed), sha256(convert_to(\(app) || '/' || \(name), 'UTF8'))])"
    }

    /// Fences names: late records of operations up to `until`, in microseconds (`nil`: now), lose
    /// these names.
    package static func note(
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

    // MARK: Late rows

    /// A name in a record, with the time of its operation.
    package struct Candidate {
        /// The caller's number of the record that contains the name.
        let place: Int
        let app: String
        let name: String
        let atMicroseconds: Int64

        package init(
            place: Int,
            app: String,
            name: String,
            atMicroseconds: Int64
        ) {
            self.place = place
            self.app = app
            self.name = name
            self.atMicroseconds = atMicroseconds
        }
    }

    /// Returns the statement by which a transaction takes its apps' shared locks before it writes
    /// rows that name subjects. An erasure first notes its names, then waits for the transactions
    /// that have the lock (`closeBarrier`), and so finds their rows.
    ///
    /// - Parameter apps: The apps of the subjects, sorted.
    /// - Returns: A statement of the writing transaction.
    package static func passBarrier(of apps: [String]) -> (String, [PostgresValue]) {
        (
            """
            SELECT count(*) FROM (SELECT pg_advisory_xact_lock_shared(\(barrier("i.app")))
                FROM unnest($1::text[]) AS i(app)) AS passed
            """,
            [.textArray(apps)]
        )
    }

    /// Returns the statement after `passBarrier`, which selects the apps that have a fence. Usually
    /// no app has a fence, and then no digest is computed.
    package static func fencedApps(of apps: [String]) -> (String, [PostgresValue]) {
        (
            """
            SELECT i.app FROM unnest($1::text[]) AS i(app)
            WHERE EXISTS (SELECT FROM erased_names e WHERE e.app = i.app)
            """,
            [.textArray(apps)]
        )
    }

    /// Finds the places whose names were erased after they were received.
    ///
    /// - Parameters:
    ///   - candidates: All names that are to be written.
    ///   - apps: The rows of `fencedApps`.
    ///   - key: The database's key; `nil`: only fences of older versions are seen.
    ///   - transaction: A transaction after `passBarrier`.
    /// - Returns: The places.
    /// - Throws: `PostgresError`.
    package static func erased(
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

    /// Waits for the transactions that took an app's shared lock (`passBarrier`) before the names
    /// were noted.
    package static func closeBarrier(of app: String, _ transaction: PostgresTransaction)
        async throws
    {
        _ = try await transaction.execute(
            "SELECT pg_advisory_xact_lock(\(barrier("$1::text")))",
            [.text(app)]
        )
    }

    private static func barrier(_ app: String) -> String {
        "hashtextextended(current_schema() || ' erasures ' || \(app), 0)"
    }

    /// Returns SQL that replaces a name by `mark` if it was erased.
    ///
    /// - Parameters:
    ///   - name: SQL of the name.
    ///   - digest: SQL of its keyed digest; may be null.
    ///   - app: SQL of its app.
    ///   - at: SQL of the time of the operation that names it.
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
            THEN '\(ErasureFence.mark)' ELSE \(name) END
        """
    }
}
