import PushCore
import PushStorage
import Storage

/// The charts of an app's outcomes over time, and the same numbers as a table.
struct FiguresPart {
    /// How far the charts go back: a value of the query `range`.
    enum Range: String, CaseIterable {
        case hour = "1h"
        case day = "24h"
        case week = "7d"

        var minutes: Int {
            switch self {
            case .hour: 60
            case .day: 1440
            case .week: 10_080
            }
        }

        func title(_ t: Words) -> String {
            switch self {
            case .hour: t("1 hour")
            case .day: t("24 hours")
            case .week: t("7 days")
            }
        }

        /// Returns the range of a page's address; an hour if it has none.
        static func of(_ visit: Visit) -> Range {
            visit.query("range").flatMap(Range.init) ?? .hour
        }
    }

    let series: FigureSeries
    let t: Words
    /// Acts to mark, the newest first.
    var events: [AuditEvent] = []

    private var counts: [OutcomeCounts?] {
        series.points.map { $0.isCounted ? $0.counts : nil }
    }

    /// The outcomes that are shown: delivered, and those that occur.
    private var outcomes: [Outcome] {
        let total = series.total
        return Outcome.allCases.filter { $0 == .delivered || total[$0] > 0 }
    }

    /// Two charts, and a table with their numbers.
    var html: HTML {
        guard series.points.contains(where: \.isCounted) else {
            return "<p class=\"empty\">\(t("No dispatcher has counted in this time."))</p>"
        }
        let width = t.count(
            series.buckets.minutes,
            one: "Each column is {count} minute.",
            other: "Each column is {count} minutes."
        )
        return """
            <p class="hint">\(width) \(t("The present one is left out."))</p>
            \(deliveries.html)
            \(latencies)
            <details><summary>\(t("As a table"))</summary>\(table.html)</details>
            """
    }

    private var deliveries: Chart {
        Chart(
            kind: .columns,
            buckets: series.buckets,
            series: outcomes.map { outcome in
                Chart.Series(
                    name: outcome.style,
                    title: outcome.title(t),
                    values: counts.map { $0?[outcome] }
                )
            },
            label: label(series.total.sentence(t)),
            text: t.number,
            t: t,
            events: ChartEvents(events, series.buckets, t)
        )
    }

    private var latencies: HTML {
        let total = series.total.latency
        guard let median = total.percentile(0.5), let slowest = total.percentile(0.99) else {
            return .empty
        }
        let chart = Chart(
            kind: .lines,
            buckets: series.buckets,
            series: [
                latency(0.5, "median", t("Median")),
                latency(0.99, "slowest", t("99th percentile")),
            ],
            label: label(
                t(
                    "Median {median}, 99th percentile {slowest}",
                    [
                        "median": t.duration(milliseconds: Int(median)),
                        "slowest": t.duration(milliseconds: Int(slowest)),
                    ]
                )
            ),
            text: t.duration(milliseconds:),
            t: t
        )
        return """
            <h3>\(t("Time to the provider's answer"))</h3>
            <p class="hint">\(t("Devices that a push names, from the time when each was due."))</p>
            \(chart.html)
            """
    }

    private func latency(_ share: Double, _ name: String, _ title: String) -> Chart.Series {
        Chart.Series(
            name: name,
            title: title,
            values: counts.map { $0?.latency.percentile(share).map { Int($0) } }
        )
    }

    private func label(_ numbers: String) -> String {
        t(
            "From {from} to {to}: {numbers}",
            [
                "from": t.moment(series.buckets.start), "to": t.moment(series.buckets.end),
                "numbers": numbers,
            ]
        )
    }

    private var table: Table {
        let outcomes = outcomes
        let rows = counts.enumerated().map { bucket, counts -> [HTML] in
            let time = HTML(text: series.buckets.name(of: bucket, t))
            let numbers = outcomes.map { outcome in
                HTML(text: counts.map { t.number($0[outcome]) } ?? "–")
            }
            return [time] + numbers + [0.5, 0.99].map { text(of: counts?.latency, $0) }
        }
        return Table(
            caption: t("Deliveries"),
            columns: [.init(t("Time (UTC)"))] + outcomes.map { .init($0.title(t), .number) }
                + [.init(t("Median"), .number), .init(t("99th percentile"), .number)],
            rows: rows
        )
    }

    private func text(of latency: LatencyHistogram?, _ share: Double) -> HTML {
        HTML(
            text: latency?.percentile(share).map { t.duration(milliseconds: Int($0)) } ?? "–"
        )
    }

    /// A table of the providers with outcomes.
    var providers: HTML {
        let rows = series.providers.map { provider, counts -> [HTML] in
            let line = Sparkline(
                values: series.points.map { point in
                    point.isCounted ? point.providers[provider]?.total ?? 0 : nil
                },
                label: t("Deliveries of {provider} over time", ["provider": provider.title])
            )
            return [
                HTML(text: provider.title), line.html, HTML(text: t.number(counts.delivered)),
                HTML(text: t.number(counts.failed)),
                HTML(text: t.share(counts.failed, of: counts.total)),
                text(of: counts.latency, 0.5), text(of: counts.latency, 0.99),
            ]
        }
        guard !rows.isEmpty else { return .empty }
        return Part.card(
            t("Providers"),
            Table(
                caption: t("Providers"),
                columns: [
                    .init(t("Provider")), .init(t("Deliveries"), width: 1),
                    .init(t("Delivered"), .number), .init(t("Failed"), .number),
                    .init(t("Failure rate"), .number), .init(t("Median"), .number, width: 1),
                    .init(t("99th percentile"), .number, width: 1),
                ],
                rows: rows
            ).html
        )
    }
}

/// The outcomes of one push over time, which add up to its devices.
struct PushFiguresPart {
    let series: FigureSeries
    /// The devices that the push targeted.
    let targeted: Int
    let t: Words
    /// Acts to mark, the newest first.
    var events: [AuditEvent] = []

    var html: HTML {
        guard series.buckets.count > 1 else {
            return """
                <p>\(t(
                    "All outcomes came within one minute, {time}.",
                    ["time": t.moment(series.buckets.start)]
                ))</p>
                """
        }
        let sums = sums
        let outcomes = Outcome.allCases.filter { series.total[$0] > 0 }
        let chart = Chart(
            kind: .areas,
            buckets: series.buckets,
            series: outcomes.map { outcome in
                Chart.Series(
                    name: outcome.style,
                    title: outcome.title(t),
                    values: sums.map { $0[outcome] }
                )
            },
            label: t(
                "From {from} to {to}: {numbers}",
                [
                    "from": t.moment(series.buckets.start), "to": t.moment(series.buckets.end),
                    "numbers": series.total.sentence(t),
                ]
            ),
            text: t.number,
            t: t,
            least: targeted,
            events: ChartEvents(events, series.buckets, t)
        )
        let table = Table(
            caption: t("Outcomes over time"),
            columns: [.init(t("Until (UTC)"))] + outcomes.map { .init($0.title(t), .number) },
            rows: sums.enumerated().map { bucket, counts in
                [HTML(text: series.buckets.name(of: bucket + 1, t))]
                    + outcomes.map { HTML(text: t.number(counts[$0])) }
            }
        )
        return """
            \(chart.html)
            <details><summary>\(t("As a table"))</summary>\(table.html)</details>
            """
    }

    /// The sums until the end of each bucket.
    private var sums: [OutcomeCounts] {
        var sum = OutcomeCounts()
        return series.points.map { point in
            sum.add(point.counts)
            return sum
        }
    }
}

extension OutcomeCounts {
    /// The outcomes that occur, as `Delivered 12, Failed 1`.
    fileprivate func sentence(_ t: Words) -> String {
        let shown = Outcome.allCases.filter { $0 == .delivered || self[$0] > 0 }
        return shown.map { "\($0.title(t)) \(t.number(self[$0]))" }.joined(separator: ", ")
    }
}

extension Outcome {
    /// The class of its shape and colour.
    var style: String {
        switch self {
        case .inDoubt: "doubt"
        case .delivered, .failed, .expired, .suppressed: rawValue
        }
    }

    func title(_ t: Words) -> String {
        switch self {
        case .delivered: t("Delivered")
        case .failed: t("Failed")
        case .expired: t("Expired")
        case .suppressed: t("Suppressed")
        case .inDoubt: t("In doubt")
        }
    }
}
