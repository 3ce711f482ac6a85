import Postgres
package import PushCore
import Storage

/// The counts of outcomes and reports by the minute and the hour (`push_figures`), for charts and
/// rates. Each dispatcher writes rows of its own, every few seconds and when it stops. If a
/// dispatcher is killed, its last seconds are missing here. They are in the ledger, which is the
/// truth. Reports are counted with their rows (`ReceiptFigures`).
package struct PushFigureStore: Sendable {
    let database: Database

    /// How long the minutes of all pushes are stored. Hours, and the minutes of one push, are
    /// stored for `retention`.
    package static let minuteRetention: Duration = .seconds(2 * 86_400)
    package static let retention: Duration = .seconds(8 * 86_400)

    /// The `push_id` of rows of all pushes.
    package static let allPushes = "00000000-0000-0000-0000-000000000000"

    private static let rowsAtOnce = 1000

    // MARK: Writing

    private static let columns = Columns<PushFigure>([
        .text("app") { $0.key.app }, .uuid("push_id") { $0.key.pushID ?? allPushes },
        .smallint("minutes") { $0.span.rawValue }, .time("at") { $0.at },
        .text("provider") { $0.key.provider.rawValue },
        .integer("delivered") { $0.counts.delivered },
        .integer("failed") { $0.counts.failed }, .integer("expired") { $0.counts.expired },
        .integer("suppressed") { $0.counts.suppressed }, .integer("in_doubt") { $0.counts.inDoubt },
        .text("latency") {
            "{" + $0.counts.latency.counts.map(String.init).joined(separator: ",") + "}"
        },
    ])

    private static let counters = "delivered, failed, expired, suppressed, in_doubt, latency"

    // Totals, not differences: after a lost reply, a repeat changes nothing.
    private static let writeSQL = """
        INSERT INTO push_figures (replica, app, push_id, minutes, at, provider, \(counters))
        SELECT $1, i.app, i.push_id, i.minutes, i.at, i.provider, i.delivered, i.failed,
            i.expired, i.suppressed, i.in_doubt, i.latency::integer[]
        FROM \(columns.source(as: "i", after: 1)) JOIN apps a ON a.id = i.app
        ON CONFLICT (app, push_id, minutes, at, provider, replica) DO UPDATE SET
            (\(counters)) = (excluded.delivered, excluded.failed, excluded.expired,
                excluded.suppressed, excluded.in_doubt, excluded.latency)
        """

    /// Writes the totals of a process, in place of those it wrote before, and that it runs. Rows of
    /// deleted apps are left out.
    ///
    /// - Parameters:
    ///   - figures: The totals, at most one of each key, span and time.
    ///   - minute: The present minute.
    ///   - replica: The number of the process.
    /// - Throws: `StorageError`. The same call may be repeated.
    package func write(_ figures: [PushFigure], at minute: Instant, replica: Int) async throws {
        _ = try await database.execute(
            """
            INSERT INTO push_figure_minutes (at, replica) VALUES ($1, $2) ON CONFLICT DO NOTHING
            """,
            [.timestamp(minute.microseconds), .integer(replica)]
        )
        for first in stride(from: 0, to: figures.count, by: Self.rowsAtOnce) {
            let part = Array(figures[first..<min(first + Self.rowsAtOnce, figures.count)])
            _ = try await database.execute(
                Self.writeSQL,
                [.integer(replica)] + Self.columns.parameters(of: part)
            )
        }
    }

    // MARK: Reading

    /// Sums the counters of the rows `f`; the sums of the histogram are one array.
    private static let sums = """
        sum(f.delivered)::bigint AS delivered, sum(f.failed)::bigint AS failed,
        sum(f.expired)::bigint AS expired, sum(f.suppressed)::bigint AS suppressed,
        sum(f.in_doubt)::bigint AS in_doubt,
        ARRAY[\((1...LatencyHistogram.size)
            .map { "coalesce(sum(f.latency[\($0)]), 0)::bigint" }.joined(separator: ", "))] AS latency
        """

    private static func counts(_ row: PostgresRow) throws -> OutcomeCounts {
        var counts = OutcomeCounts()
        counts.delivered = try row.integer("delivered")
        counts.failed = try row.integer("failed")
        counts.expired = try row.integer("expired")
        counts.suppressed = try row.integer("suppressed")
        counts.inDoubt = try row.integer("in_doubt")
        counts.latency = LatencyHistogram(try row.integerArray("latency"))
        return counts
    }

    /// Returns the provider; `nil` for one that a later version has added.
    private static func provider(_ row: PostgresRow) throws -> Platform? {
        Platform(rawValue: try row.text("provider"))
    }

    /// Sums the outcomes of all apps since a time, by app and provider. The last seconds before
    /// `now` are written a few seconds later.
    ///
    /// - Parameter time: The beginning, at most `minuteRetention` ago. It is moved to the beginning
    ///   of its minute.
    /// - Returns: The sums, by app and provider, and the time that they cover.
    /// - Throws: `StorageError`.
    package func rates(since time: Instant) async throws -> PushRates {
        let from = PushFigure.Span.minute.start(of: time)
        let rows = try await database.execute(
            """
            SELECT f.app, f.provider, \(Self.sums) FROM push_figures f
            WHERE f.at >= $1 AND f.minutes = 1 AND f.push_id = '\(Self.allPushes)'
                AND f.provider <> '\(ReceiptFigures.provider)'
            GROUP BY 1, 2 ORDER BY 1, 2
            """,
            [.timestamp(from.microseconds)]
        ).rows
        return PushRates(
            from: from,
            to: database.clock.now(),
            lines: try rows.compactMap { row in
                try Self.provider(row).map { provider in
                    PushRates.Line(
                        app: try row.text("app"),
                        provider: provider,
                        counts: try Self.counts(row)
                    )
                }
            }
        )
    }

    /// Sums the outcomes and reports of an app in buckets of time.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - buckets: The buckets.
    /// - Returns: The sums of each bucket, of outcomes by provider.
    /// - Throws: `StorageError`.
    package func series(app: String, _ buckets: FigureBuckets) async throws -> FigureSeries {
        // Hours are few rows, and are stored longer.
        let span: PushFigure.Span = buckets.minutes % 60 == 0 ? .hour : .minute
        let ran = try await database.execute(
            """
            SELECT \(Self.bucket("at")) AS bucket FROM push_figure_minutes
            WHERE at >= $1 AND at < $2 GROUP BY 1
            """,
            Self.parameters(of: buckets)
        ).rows
        var series = try await series(app: app, pushID: Self.allPushes, buckets, span)
        for row in ran { series.hadDispatcher(try row.integer("bucket")) }
        return series
    }

    /// Sums the outcomes and reports of a push to many devices in buckets of time. Devices report
    /// for days after the last outcome, so both have buckets of their own.
    ///
    /// - Parameters:
    ///   - pushID: The push.
    ///   - app: Its app.
    /// - Returns: The sums; none if the push has no figures: it went to few devices, or longer ago
    ///   than `retention`.
    /// - Throws: `StorageError`.
    package func series(ofPush pushID: String, app: String) async throws -> PushSeries {
        let extent = try await database.execute(
            """
            SELECT min(at) AS first, max(at) FILTER (WHERE provider <> $3) AS last_outcome,
                max(at) FILTER (WHERE provider = $3) AS last_report
            FROM push_figures WHERE app = $1 AND push_id = $2 AND minutes = 1
            """,
            [.text(app), .uuid(pushID), .text(ReceiptFigures.provider)]
        )
        guard let row = extent.first, let first = try row.instantOrNil("first") else {
            return PushSeries(outcomes: nil, receipts: nil)
        }
        func series(to last: Instant?) async throws -> FigureSeries? {
            guard let last else { return nil }
            let buckets = FigureBuckets(from: first, to: last)
            return try await self.series(app: app, pushID: pushID, buckets, .minute)
        }
        let outcomes = try await series(to: try row.instantOrNil("last_outcome"))
        let lastReport = try row.instantOrNil("last_report")
        return PushSeries(
            outcomes: outcomes,
            receipts: lastReport.flatMap { outcomes?.buckets.index(of: $0) } != nil
                ? outcomes : try await series(to: lastReport)
        )
    }

    private func series(
        app: String,
        pushID: String,
        _ buckets: FigureBuckets,
        _ span: PushFigure.Span
    ) async throws -> FigureSeries {
        let rows = try await database.execute(
            """
            SELECT \(Self.bucket("f.at")) AS bucket, f.provider, \(Self.sums),
                sum(f.received)::bigint AS received, sum(f.opened)::bigint AS opened
            FROM push_figures f
            WHERE f.app = $4 AND f.push_id = $5 AND f.minutes = $6 AND f.at >= $1 AND f.at < $2
            GROUP BY 1, 2
            """,
            Self.parameters(of: buckets) + [
                .text(app), .uuid(pushID), .integer(span.rawValue),
            ]
        ).rows
        var series = FigureSeries(buckets)
        for row in rows {
            let bucket = try row.integer("bucket")
            series.add(
                ReceiptCounts(
                    opened: try row.integer("opened"),
                    received: try row.integer("received")
                ),
                in: bucket
            )
            guard let provider = try Self.provider(row) else { continue }
            series.add(try Self.counts(row), of: provider, in: bucket)
        }
        return series
    }

    private static func bucket(_ time: String) -> String {
        "floor(extract(epoch FROM \(time) - $1) / ($3 * 60))::integer"
    }

    private static func parameters(of buckets: FigureBuckets) -> [PostgresValue] {
        [
            .timestamp(buckets.start.microseconds), .timestamp(buckets.end.microseconds),
            .integer(buckets.minutes),
        ]
    }
}
