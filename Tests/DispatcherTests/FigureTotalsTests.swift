import PushCore
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("The counts of outcomes by minute and hour", .timeLimit(.minutes(1)))
struct FigureTotalsTests {
    /// A beginning of an hour, and times after it.
    private static let hour = Instant(seconds: 1_790_000_000).start(ofMinutes: 60)

    private func at(_ minute: Int64, _ second: Int64 = 0) -> Instant {
        Self.hour.adding(milliseconds: (minute * 60 + second) * 1000)
    }

    private func add(
        _ outcome: Outcome = .delivered,
        to totals: FigureTotals,
        app: String = "shop",
        push: String? = nil,
        latency: Int64? = nil,
        at time: Instant
    ) {
        totals.add(
            outcome,
            app: app,
            provider: .apns,
            pushID: push,
            latency: latency,
            at: time
        )
    }

    /// The rows as a table stores them: the last of each key.
    private struct Stored {
        var rows: [String: Int] = [:]

        mutating func write(_ figures: [PushFigure]) {
            for row in figures {
                let minute = (row.at.seconds - FigureTotalsTests.hour.seconds) / 60
                let name = "\(row.key.app) \(row.key.pushID ?? "all") \(row.span) \(minute)"
                rows[name] = row.counts.total
            }
            #expect(
                Set(figures.map { [$0.key.hashValue, $0.span.rawValue, Int($0.at.seconds)] })
                    .count == figures.count,
                "a row twice in one statement"
            )
        }
    }

    @Test("An outcome counts in its minute and its hour, and for its push if that is for many")
    func counts() {
        let totals = FigureTotals(at: at(0))
        var stored = Stored()
        add(to: totals, at: at(0, 1))
        add(.failed, to: totals, push: "p", at: at(0, 59))
        add(to: totals, app: "other", at: at(1, 0))
        stored.write(totals.take())
        #expect(
            stored.rows == [
                "shop all minute 0": 2, "shop p minute 0": 1, "shop all hour 0": 2,
                "other all minute 1": 1, "other all hour 0": 1,
            ]
        )
        #expect(totals.take().isEmpty, "nothing has changed since")
        add(to: totals, at: at(2))
        stored.write(totals.take())
        #expect(stored.rows["shop all minute 2"] == 1 && stored.rows["shop all hour 0"] == 3)
    }

    @Test("Rows are totals, so that a write whose reply was lost may be repeated")
    func totals() {
        let totals = FigureTotals(at: at(0))
        var stored = Stored()
        add(to: totals, at: at(0, 1))
        let lost = totals.take()
        stored.write(lost)
        totals.putBack(lost)
        add(to: totals, at: at(0, 2))
        stored.write(totals.take())
        #expect(stored.rows == ["shop all minute 0": 2, "shop all hour 0": 2])
    }

    @Test("Rows that could not be written are written later, unless newer ones wait")
    func failures() {
        let totals = FigureTotals(at: at(58))
        var stored = Stored()
        add(to: totals, at: at(58))
        let first = totals.take()
        add(to: totals, at: at(58, 30))
        // The hour ends while the first rows are being written.
        add(to: totals, at: at(60))
        totals.putBack(first)
        let second = totals.take()
        totals.putBack(second)
        totals.advance(to: at(70))
        stored.write(totals.take())
        #expect(
            stored.rows == [
                "shop all minute 58": 2, "shop all hour 0": 2, "shop all minute 60": 1,
                "shop all hour 60": 1,
            ]
        )
    }

    @Test("A minute never goes back: a late outcome counts in the present minute")
    func late() {
        let totals = FigureTotals(at: at(5))
        var stored = Stored()
        add(to: totals, at: at(5))
        stored.write(totals.take())
        totals.advance(to: at(6))
        add(to: totals, at: at(5, 59))
        stored.write(totals.take())
        #expect(
            stored.rows == [
                "shop all minute 5": 1, "shop all minute 6": 1, "shop all hour 0": 2,
            ]
        )
    }

    @Test("Every outcome and latency is in the sums, whatever the order of apps and pushes")
    func sums() {
        let totals = FigureTotals(at: at(0))
        var expected = OutcomeCounts()
        for index in 0..<600 {
            let outcome = Outcome.allCases[index % 5]
            expected[outcome] += 1
            expected.latency.add(milliseconds: Int64(index))
            add(
                outcome,
                to: totals,
                app: "app\(index % 3)",
                push: index % 2 == 0 ? "push\(index % 7)" : nil,
                latency: Int64(index),
                at: at(Int64(index / 10))
            )
        }
        let rows = totals.take().filter { $0.key.pushID == nil }
        for span in [PushFigure.Span.minute, .hour] {
            let sum = rows.filter { $0.span == span }
                .reduce(into: OutcomeCounts()) { $0.add($1.counts) }
            #expect(sum == expected)
        }
        #expect(totals.take().isEmpty)
    }
}

@Suite("The spans of time of a chart", .timeLimit(.minutes(1)))
struct FigureBucketsTests {
    private let now = Instant(iso8601: "2026-11-28T16:47:31Z") ?? .now()

    @Test("At most 96: minutes up to 90 minutes, then 5, 15 and 60 minutes and more hours")
    func steps() {
        let cases = [
            (1, 1, 1), (60, 1, 60), (90, 1, 90), (91, 5, 19), (480, 5, 96), (481, 15, 33),
            (1440, 15, 96), (1441, 60, 25), (5760, 60, 96), (5761, 120, 49), (10_080, 120, 84),
        ]
        for (total, minutes, count) in cases {
            let buckets = FigureBuckets(last: total, before: now)
            #expect(buckets.minutes == minutes && buckets.count == count, "\(total)")
        }
        for total in 1...20_000 {
            #expect(FigureBuckets(last: total, before: now).count <= FigureBuckets.most)
        }
    }

    @Test("The present span is left out, and spans begin at full ones")
    func ends() {
        #expect(FigureBuckets(last: 60, before: now).end.iso8601 == "2026-11-28T16:47:00.000Z")
        let day = FigureBuckets(last: 1440, before: now)
        #expect(day.end.iso8601 == "2026-11-28T16:45:00.000Z")
        #expect(day.start.iso8601 == "2026-11-27T16:45:00.000Z")
        #expect(day.index(of: day.start) == 0)
        #expect(day.index(of: day.end) == nil && day.index(of: .earliest) == nil)
        #expect(day.index(of: day.end.adding(milliseconds: -1)) == 95)
    }

    @Test("The spans of a push have its first minute and its last, and are at most 96")
    func ofPush() {
        for minutes in [0, 1, 59, 89, 90, 91, 479, 480, 1439, 1500, 5759, 5760, 11_519] {
            let first = now.start(ofMinutes: 1)
            let last = first.adding(milliseconds: Int64(minutes) * 60_000)
            let buckets = FigureBuckets(from: first, to: last)
            #expect(buckets.index(of: first) == 0, "\(minutes)")
            #expect(buckets.index(of: last) == buckets.count - 1, "\(minutes)")
            #expect(buckets.count <= FigureBuckets.most, "\(minutes): \(buckets.count)")
        }
    }
}
