import PushCore
import PushStorage

/// A chart over time that the server draws: one path for each series. The labels are HTML around it,
/// so that they keep their size at any width. `ChartTable` has the same numbers.
struct Chart {
    enum Kind { case columns, lines, areas }

    struct Series {
        /// The class: an outcome's name, `median`, `slowest`, `received` or `opened`.
        let name: String
        let title: String
        /// A value for each bucket; `nil` for a gap.
        let values: [Int?]
    }

    let kind: Kind
    let buckets: FigureBuckets
    let series: [Series]
    /// Describes the chart in one sentence.
    let label: String
    /// Writes a value.
    let text: (Int) -> String
    let t: Words
    /// A value that the chart reaches at least.
    var least = 0
    /// Acts to mark.
    var events: ChartEvents?

    private var most: Int {
        switch kind {
        case .lines: max(least, series.flatMap(\.values).compactMap(\.self).max() ?? 0)
        case .columns, .areas:
            (0..<buckets.count).map { bucket in
                series.reduce(0) { $0 + ($1.values[bucket] ?? 0) }
            }.reduce(least, max)
        }
    }

    private var geometry: ChartGeometry { ChartGeometry(count: buckets.count, most: most) }

    private var paths: [String] {
        let geometry = geometry
        switch kind {
        case .columns: return geometry.columns(series.map(\.values))
        case .lines: return series.map { geometry.line($0.values) }
        case .areas: return geometry.areas(series.map { $0.values.map { $0 ?? 0 } })
        }
    }

    var html: HTML {
        let geometry = geometry
        let drawn = zip(series, paths).filter { !$1.isEmpty }.map { series, path -> HTML in
            "<path class=\"\(kind == .lines ? "line s" : "f")-\(series.name)\" d=\"\(path)\"/>"
        }
        let heights = geometry.ticks.map { tick -> HTML in "<span>\(text(tick))</span>" }
        return """
            <figure class="chart">
            <div class="y" aria-hidden="true">\(heights)</div>
            <svg class="plot" viewBox="0 0 600 100" preserveAspectRatio="none" role="img" \
            aria-label="\(label)"><path class="grid" d="\(geometry.grid)"/>\(drawn)\(marks)\
            \((0..<buckets.count).map { title(of: $0, geometry) })</svg>
            <div class="x" aria-hidden="true">\(times)</div>
            </figure>
            <ul class="keys">\(keys)</ul>\(events?.list)
            """
    }

    private var marks: HTML {
        guard let events, !events.isEmpty else { return .empty }
        return "<path class=\"event\" d=\"\(events.path)\"/>"
    }

    private var keys: [HTML] {
        let named = series.map { ($0.name, $0.title) }
        let marked = events?.isEmpty == false ? [("event", t("Events"))] : []
        return (named + marked).map { name, title in
            "<li><span class=\"shape \(name)\">\(title)</span></li>"
        }
    }

    /// An invisible rectangle with a bucket's numbers; a visible one for a gap.
    private func title(of bucket: Int, _ geometry: ChartGeometry) -> HTML {
        let values = series.compactMap { series in
            series.values[bucket].map { "\(series.title) \(text($0))" }
        }
        let isGap = values.isEmpty && kind == .columns
        let shown = isGap ? [t("no dispatcher ran")] : values
        let numbers = (shown + (events?.texts(in: bucket) ?? [])).joined(separator: ", ")
        let x = geometry.x(bucket)
        return """
            <rect class="hit\(isGap ? " gap" : "")" x="\(x)" width="\(geometry.x(bucket + 1) - x)" \
            height="100"><title>\(buckets.name(of: bucket, t)) \(numbers)</title></rect>
            """
    }

    /// The times below the chart, an odd number: a phone leaves out half of them.
    private var times: [HTML] {
        let parts = buckets.count.isMultiple(of: 4) || buckets.count > 8 ? 4 : 2
        return (0...parts).map { part in
            let time = buckets.start.adding(
                milliseconds: (buckets.end.milliseconds - buckets.start.milliseconds)
                    * Int64(part) / Int64(parts)
            )
            let zone = part == parts ? " UTC" : ""
            return "<span>\(buckets.text(of: time, t))\(zone)</span>"
        }
    }
}

extension FigureBuckets {
    /// Names a bucket by its beginning.
    func name(of bucket: Int, _ t: Words) -> String { text(of: time(of: bucket), t) }

    /// Writes a time of the chart: with its date if the chart shows more than a day.
    fileprivate func text(of time: Instant, _ t: Words) -> String {
        let hour = String(t.clock(time).prefix(5))
        guard count * minutes > 1440 else { return hour }
        return "\(time.day.dropFirst(5)) \(hour)"
    }
}

/// A line without labels, for a row of a table whose numbers say the rest.
struct Sparkline {
    /// `nil` for a gap.
    let values: [Int?]
    let label: String

    var html: HTML {
        let most = values.compactMap(\.self).max() ?? 0
        let path = ChartGeometry(count: values.count, most: most).line(values)
        return """
            <svg class="spark" viewBox="0 0 600 100" preserveAspectRatio="none" role="img" \
            aria-label="\(label)"><path d="\(path)"/></svg>
            """
    }
}
