import PushCore
import PushStorage

/// The chart of devices' reports over time, and the same numbers as a table.
struct ReceiptsPart {
    enum Kind {
        /// The reports of each bucket. A time without a dispatcher is a gap.
        case rates
        /// The sums until the end of each bucket, for one push.
        case sums
    }

    let kind: Kind
    let series: FigureSeries
    let t: Words

    /// A chart with two lines, and a table.
    var html: HTML {
        guard series.receipts.total > 0 else {
            return "<p class=\"empty\">\(t("No device has reported in this time."))</p>"
        }
        if kind == .sums, series.buckets.count == 1 {
            return """
                <p>\(t(
                    "All reports came within one minute, {time}.",
                    ["time": t.moment(series.buckets.start)]
                ))</p>
                """
        }
        let counts = counts
        return """
            \(chart(of: counts).html)
            <details><summary>\(t("As a table"))</summary>\(table(of: counts).html)</details>
            """
    }

    private var counts: [ReceiptCounts?] {
        switch kind {
        case .rates:
            return series.points.map { point in
                point.isCounted || point.receipts.total > 0 ? point.receipts : nil
            }
        case .sums:
            var sum = ReceiptCounts()
            return series.points.map { point in
                sum += point.receipts
                return sum
            }
        }
    }

    private func chart(of counts: [ReceiptCounts?]) -> Chart {
        let total = series.receipts
        return Chart(
            kind: .lines,
            buckets: series.buckets,
            series: [
                Chart.Series(
                    name: "received",
                    title: t("Received"),
                    values: counts.map { $0?.received }
                ),
                Chart.Series(
                    name: "opened",
                    title: t("Opened"),
                    values: counts.map { $0?.opened }
                ),
            ],
            label: t(
                "From {from} to {to}: {numbers}",
                [
                    "from": t.moment(series.buckets.start), "to": t.moment(series.buckets.end),
                    "numbers": "\(t("Received")) \(t.number(total.received)), "
                        + "\(t("Opened")) \(t.number(total.opened))",
                ]
            ),
            text: t.number,
            t: t
        )
    }

    private func table(of counts: [ReceiptCounts?]) -> Table {
        // A sum is named by the end of its bucket.
        let (time, shift) = kind == .sums ? (t("Until (UTC)"), 1) : (t("Time (UTC)"), 0)
        return Table(
            caption: t("Received and opened"),
            columns: [.init(time), .init(t("Received"), .number), .init(t("Opened"), .number)],
            rows: counts.enumerated().map { bucket, counts in
                [
                    HTML(text: series.buckets.name(of: bucket + shift, t)),
                    HTML(text: counts.map { t.number($0.received) } ?? "–"),
                    HTML(text: counts.map { t.number($0.opened) } ?? "–"),
                ]
            }
        )
    }
}
