import Postgres

/// Names that were erased a short while ago, by their digests. Services write their audit behind their
/// answers, and longer after them while the database is away: what names an erased subject then is written
/// without its name.
enum ErasedNames {
    /// How far ahead of Postgres' clock a service's may be that says when something was done.
    static let clockDifference = "interval '1 second'"
    /// Longer than a service keeps its audit in memory, and than Kafka keeps what devices have sent, where
    /// it does not keep that for longer than its own default of a week.
    static let kept = Duration.seconds(15 * 86_400)

    static func digest(_ app: String, _ name: String) -> String {
        "sha256(convert_to(\(app) || '/' || \(name), 'UTF8'))"
    }

    /// From now on, what was done until a moment, in microseconds (`nil`: now), and names one of them
    /// does not name it any more.
    static func note(
        _ names: [String],
        of app: String,
        until: Int64? = nil,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            INSERT INTO erased_names (app, digest, at)
            SELECT DISTINCT $1, \(digest("$1", "n.name")),
                coalesce($3::timestamptz, clock_timestamp())
            FROM unnest($2::text[]) AS n(name) ORDER BY 2
            ON CONFLICT (app, digest) DO UPDATE SET at = excluded.at
            """,
            [.text(app), .textArray(names), .optional(timestamp: until)]
        )
    }

    /// Whoever writes down what was done before it begins passes here first, and sees from then on what was
    /// erased: an erasure that has noted its names waits for those that passed before (`closeBarrier`).
    ///
    /// - Parameter apps: Whose subjects are named, in their order.
    /// - Returns: A statement of his transaction.
    static func passBarrier(of apps: [String]) -> (String, [PostgresValue]) {
        (
            """
            SELECT count(*) FROM (SELECT pg_advisory_xact_lock_shared(\(barrier("i.app")))
                FROM unnest($1::text[]) AS i(app)) AS passed
            """,
            [.textArray(apps)]
        )
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
    ///   - app: SQL of its app.
    ///   - at: SQL of when that was done which names it.
    /// - Returns: An expression.
    static func withoutErased(_ name: String, of app: String, at: String) -> String {
        """
        CASE WHEN EXISTS (SELECT FROM erased_names e
                WHERE e.app = \(app) AND e.digest = \(digest(app, name))
                    AND e.at > \(at) - \(clockDifference))
            THEN '\(Redaction.mark)' ELSE \(name) END
        """
    }
}
