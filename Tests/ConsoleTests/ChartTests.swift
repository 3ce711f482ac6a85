import PushCore
import PushStorage
import Storage
import Testing

@testable import Console

@Suite("Charts", .timeLimit(.minutes(1)))
struct ChartTests {
    @Test("Lines of the grid are at 1, 2 or 5 × 10ⁿ: three or four, from 0, above every value")
    func ticks() {
        let cases = [
            (0, [2, 1, 0]), (1, [2, 1, 0]), (3, [3, 2, 1, 0]), (4, [4, 2, 0]), (7, [10, 5, 0]),
            (11, [15, 10, 5, 0]), (40, [40, 20, 0]), (41, [60, 40, 20, 0]),
            (38_000, [40_000, 20_000, 0]),
        ]
        for (most, ticks) in cases {
            #expect(ChartGeometry(count: 60, most: most).ticks == ticks, "\(most)")
        }
        for power in 0..<62 {
            for most in [1 << power, (1 << power) + 1] {
                let geometry = ChartGeometry(count: 60, most: most)
                #expect((3...4).contains(geometry.ticks.count) && geometry.top >= most)
            }
        }
    }

    @Test("Columns are side by side in 600 units, and stacked without a gap")
    func columns() {
        let geometry = ChartGeometry(count: 60, most: 10)
        let paths = geometry.columns([[5, nil, 10], [5, 0, nil]])
        #expect(paths == ["M0 100V50H9V100ZM20 100V0H29V100Z", "M0 50V0H9V50Z"])
        for count in 1...96 {
            let geometry = ChartGeometry(count: count, most: 1)
            #expect(geometry.x(0) == 0 && geometry.x(count) == 600)
            #expect((0..<count).allSatisfy { geometry.x($0) < geometry.x($0 + 1) })
        }
    }

    @Test("A single failure among many deliveries is one unit high")
    func small() {
        let paths = ChartGeometry(count: 1, most: 40_001).columns([[40_000], [1]])
        let geometry = ChartGeometry(count: 1, most: 40_001)
        let base = ChartGeometry.text(geometry.y(40_000))
        let end = ChartGeometry.text(geometry.y(40_000) - 10)
        #expect(paths[1] == "M0 \(base)V\(end)H599V\(base)Z")
    }

    @Test("A line is interrupted by a gap, and a single value is a short line")
    func lines() {
        let geometry = ChartGeometry(count: 6, most: 10)
        let path = geometry.line([0, 10, nil, 5, nil, nil])
        #expect(path == "M50 100L150 0M348 50h4")
        #expect(geometry.line([nil, nil]) == "")
        #expect(geometry.line([nil, nil, nil, nil, nil, 5]) == "M548 50h4")
    }

    @Test("Areas of one push add up to the devices that it targeted")
    func areas() {
        let geometry = ChartGeometry(count: 2, most: 10)
        let paths = geometry.areas([[4, 8], [0, 0], [1, 2]])
        #expect(paths[0] == "M0 100L300 60L600 20L600 100L300 100L0 100Z")
        #expect(paths[1] == "")
        #expect(paths[2] == "M0 100L300 50L600 0L600 20L300 60L0 100Z")
    }

    private func series(_ points: [(Int, OutcomeCounts)], ran: [Int] = []) -> FigureSeries {
        let now = Instant(iso8601: "2026-11-28T16:47:31Z") ?? .now()
        var series = FigureSeries(FigureBuckets(last: 60, before: now))
        for bucket in ran { series.hadDispatcher(bucket) }
        for (bucket, counts) in points { series.add(counts, of: .fcm, in: bucket) }
        return series
    }

    /// Words of another day, so that times have dates.
    private var words: Words {
        Words(.english, now: Instant(iso8601: "2026-11-30T09:00:00Z") ?? .now())
    }

    private func counts(_ delivered: Int, failed: Int = 0) -> OutcomeCounts {
        var counts = OutcomeCounts()
        (counts.delivered, counts.failed) = (delivered, failed)
        counts.latency.add(milliseconds: 300)
        return counts
    }

    @Test("A minute without a dispatcher is a gap, one without outcomes is a zero, on both")
    func gaps() {
        let series = series([(58, counts(1200, failed: 1))], ran: [59])
        let html = FiguresPart(series: series, t: words).html.markup
        #expect(html.contains("<title>16:46 Delivered 0, Failed 0</title>"))
        #expect(html.contains("<title>16:45 Delivered 1,200, Failed 1</title>"))
        #expect(html.contains("class=\"hit gap\""))
        #expect(html.contains("<title>16:44 no dispatcher ran</title>"))
        #expect(
            html.contains(
                "From 2026-11-28 15:47 UTC to 2026-11-28 16:47 UTC: Delivered 1,200, Failed 1"
            )
        )
        #expect(html.contains("data-label=\"Delivered\">1,200</td>"))
        #expect(html.contains("data-label=\"Median\">384 ms</td>"))
        #expect(html.contains("<span>16:47 UTC</span>"))
        #expect(!html.contains("style="))
    }

    @Test("Without any figures the part says so")
    func none() {
        let part = FiguresPart(series: series([]), t: words)
        #expect(part.html.markup.contains("No dispatcher has counted"))
        #expect(part.providers.isEmpty)
    }

    @Test("The outcomes of a push are sums over time; those of one minute are a sentence")
    func push() {
        let start = Instant(iso8601: "2026-11-28T10:00:00Z") ?? .now()
        var series = FigureSeries(
            FigureBuckets(from: start, to: start.adding(milliseconds: 60_000))
        )
        series.add(counts(5, failed: 1), of: .apns, in: 0)
        series.add(counts(4), of: .fcm, in: 1)
        let html = PushFiguresPart(series: series, targeted: 20, t: words).html.markup
        #expect(html.contains("<title>10:00 Delivered 5, Failed 1</title>"))
        #expect(html.contains("<title>10:01 Delivered 9, Failed 1</title>"))
        #expect(html.contains("<span>20</span>"), "the chart reaches the devices targeted")
        let short = FigureSeries(FigureBuckets(from: start, to: start))
        #expect(
            PushFiguresPart(series: short, targeted: 2, t: words).html.markup
                .contains("within one minute, 2026-11-28 10:00 UTC")
        )
    }

    @Test("Reports of an app are lines by the minute; a push's are sums; gaps stay gaps")
    func receipts() {
        var series = series([(58, counts(9))], ran: [59])
        series.add(ReceiptCounts(opened: 1, received: 7), in: 57)
        series.add(ReceiptCounts(opened: 2, received: 3), in: 58)
        series.add(ReceiptCounts(opened: 9, received: 9), in: 60)
        let app = ReceiptsPart(kind: .rates, series: series, t: words).html.markup
        #expect(app.contains("<title>16:44 Received 7, Opened 1</title>"))
        #expect(app.contains("<title>16:45 Received 3, Opened 2</title>"))
        #expect(app.contains("<title>16:46 Received 0, Opened 0</title>"))
        #expect(app.contains("<title>16:43 </title>"))
        #expect(app.contains("16:47 UTC: Received 10, Opened 3"))
        #expect(app.contains("data-label=\"Received\">–</td>"))
        let push = ReceiptsPart(kind: .sums, series: series, t: words).html.markup
        #expect(push.contains("<title>16:45 Received 10, Opened 3</title>"))
        #expect(push.contains("<title>16:46 Received 10, Opened 3</title>"))
        #expect(
            ReceiptsPart(kind: .rates, series: self.series([]), t: words).html.markup
                .contains("No device has reported")
        )
    }

    @Test("Acts are dashed lines at their time, in the title of their column, and a list")
    func events() {
        let series = series([], ran: [0, 59])
        func event(_ kind: AuditEvent.Kind, _ time: String) -> AuditEvent {
            AuditEvent(kind: kind, actor: "<mira>", at: Instant(iso8601: time) ?? .now())
        }
        var part = FiguresPart(
            series: series,
            t: words,
            events: [
                event(.settingsChanged, "2026-11-28T16:47:10Z"),
                event(.credentialSet("apns <b>"), "2026-11-28T16:17:00Z"),
                event(.configPublished(namespace: "firebase", version: 42), "2026-11-28T15:47:30Z"),
                event(.keyRotated, "2026-11-28T15:46:00Z"),
            ]
        )
        let html = part.html.markup
        #expect(html.contains("<path class=\"event\" d=\"M300 0V100M5 0V100\"/>"))
        #expect(html.contains("<title>15:47 Delivered 0, Template firebase 42 published</title>"))
        #expect(html.contains("<title>16:17 no dispatcher ran, Credential apns &lt;b&gt; stored"))
        #expect(html.contains("<summary>2 events</summary>"))
        #expect(html.contains("2026-11-28 16:17 UTC: Credential apns &lt;b&gt; stored"))
        #expect(html.contains("&lt;mira&gt;"))
        #expect(html.contains("<span class=\"shape event\">Events</span>"))
        #expect(!html.contains("Key rotated") && !html.contains("Settings changed"))

        part.events = (0..<30).map { _ in event(.devicesRestored, "2026-11-28T16:17:00Z") }
        let many = part.html.markup
        #expect(many.contains("<summary>20 events</summary>"))
        #expect(many.contains("Only the latest 20 are marked."))
        part.events = []
        #expect(!part.html.markup.contains("event"))
    }
}
