import PushCore
import Storage
import StorageAdmin
import Support
import Testing

@testable import PushStorage

@Suite(
    "Stored counts of outcomes",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct PushFigureTests {
    private static let app = StorageFixture.app
    private static let push = "0b5d4b1c-9d7e-4c55-8a43-1d8f6f6f2f10"

    private static func counts(_ delivered: Int, failed: Int = 0, latency: [Int64] = [])
        -> OutcomeCounts
    {
        var counts = OutcomeCounts()
        (counts.delivered, counts.failed) = (delivered, failed)
        for milliseconds in latency { counts.latency.add(milliseconds: milliseconds) }
        return counts
    }

    private static func row(
        _ counts: OutcomeCounts,
        at time: Instant,
        _ span: PushFigure.Span = .minute,
        app: String = app,
        push: String? = nil,
        of provider: Platform = .apns
    ) -> PushFigure {
        PushFigure(
            key: FigureKey(app: app, pushID: push, provider: provider),
            span: span,
            at: time,
            counts: counts
        )
    }

    @Test("Rows of several processes add up; a row that is written again replaces itself")
    func sums() async throws {
        try await StorageFixture.run { fixture in
            let figures = fixture.database.figures
            let buckets = FigureBuckets(last: 60, before: .now())
            let minute = buckets.time(of: 58)
            try await figures.write([Self.row(Self.counts(1), at: minute)], at: minute, replica: 1)
            for _ in 0..<2 {
                try await figures.write(
                    [
                        Self.row(Self.counts(5, failed: 2, latency: [3, 900]), at: minute),
                        Self.row(Self.counts(7), at: minute, of: .fcm),
                        // An app that is gone counts nothing.
                        Self.row(Self.counts(9), at: minute, app: "gone"),
                    ],
                    at: minute,
                    replica: 1
                )
            }
            let last = buckets.time(of: 59)
            try await figures.write(
                [Self.row(Self.counts(10, latency: [3]), at: minute)],
                at: last,
                replica: 2
            )
            let series = try await figures.series(app: Self.app, buckets)
            #expect(
                series.points[58].providers[.apns]
                    == Self.counts(15, failed: 2, latency: [3, 3, 900])
            )
            #expect(series.points[58].counts.delivered == 22)
            #expect(series.total.total == 24)
            #expect(series.providers.map(\.provider) == [.apns, .fcm])
            // Nothing was sent in the last minute, but a dispatcher ran. Before, none did.
            #expect(series.points[59].isCounted && series.points[59].counts.total == 0)
            #expect(!series.points[57].isCounted)

            let rates = try await figures.rates(since: minute)
            #expect(rates.lines.map(\.app) == [Self.app, Self.app])
            #expect(rates.lines.map(\.provider) == [.apns, .fcm])
            #expect(rates.lines.map(\.counts.total) == [17, 7])
            #expect(rates.from == minute && rates.seconds > 59)
            #expect(try await figures.rates(since: last).lines.isEmpty)
        }
    }

    @Test("A long time is read from hours, and a push has its own minutes")
    func spans() async throws {
        try await StorageFixture.run { fixture in
            let figures = fixture.database.figures
            let week = FigureBuckets(last: 10_080, before: .now())
            let (first, second) = (week.time(of: 3), week.time(of: 3).adding(.seconds(3600)))
            let minute = week.time(of: 4)
            try await figures.write(
                [
                    Self.row(Self.counts(2), at: first, .hour),
                    Self.row(Self.counts(3), at: second, .hour),
                    Self.row(Self.counts(1), at: minute),
                    Self.row(Self.counts(1), at: minute, push: Self.push),
                    Self.row(Self.counts(4), at: minute.adding(.seconds(60)), push: Self.push),
                ],
                at: minute,
                replica: 1
            )
            let series = try await figures.series(app: Self.app, week)
            #expect(series.points[3].counts.delivered == 5 && series.total.total == 5)
            let own = try #require(
                try await figures.series(ofPush: Self.push, app: Self.app).outcomes
            )
            #expect(own.points.map(\.counts.delivered) == [1, 4])
            #expect(own.buckets.start == minute)
            let other = try await figures.series(ofPush: Self.push, app: "other")
            #expect(other == PushSeries(outcomes: nil, receipts: nil))
        }
    }

    @Test("Minutes are deleted after two days, the rest after eight, and all with the app")
    func expiry() async throws {
        try await StorageFixture.run { fixture in
            let figures = fixture.database.figures
            let now = Instant.now().start(ofMinutes: 60)
            let rows = [1, 3, 9].flatMap { days -> [PushFigure] in
                let time = now.adding(.seconds(-Int64(days) * 86_400))
                return [
                    Self.row(Self.counts(1), at: time),
                    Self.row(Self.counts(1), at: time, .hour),
                    Self.row(Self.counts(1), at: time, push: Self.push),
                ]
            }
            try await figures.write(rows, at: now, replica: 1)
            try await figures.write([], at: now.adding(.seconds(-9 * 86_400)), replica: 1)
            func stored() async throws -> [String] {
                try await fixture.server.query(
                    """
                    select minutes, push_id = '\(PushFigureStore.allPushes)', count(*)
                    from push_figures group by 1, 2 order by 1, 2
                    """
                )
            }
            #expect(try await stored() == ["1|f|3", "1|t|3", "60|t|3"])
            _ = try await fixture.database.maintenance.maintain(now: .now())
            #expect(try await stored() == ["1|f|2", "1|t|1", "60|t|2"])
            let ran = try await fixture.server.query("select count(*) from push_figure_minutes")
            #expect(ran == ["1"])
            _ = try await fixture.database.apps.delete(Self.app)
            #expect(try await stored().isEmpty)
        }
    }
}
