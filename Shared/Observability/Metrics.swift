internal import Synchronization

/// A metric that only rises.
package final class Counter: Sendable {
    private let total = Atomic<Int>(0)

    package func add(_ amount: Int = 1) { total.add(amount, ordering: .relaxed) }
    package var value: Int { total.load(ordering: .relaxed) }
}

/// A metric that rises and falls.
package final class Gauge: Sendable {
    private let current = Atomic<Int>(0)

    package func set(_ value: Int) { current.store(value, ordering: .relaxed) }
    package func add(_ amount: Int) { current.add(amount, ordering: .relaxed) }
    package var value: Int { current.load(ordering: .relaxed) }
}

/// Counts durations into buckets; stored in nanoseconds, shown in seconds.
package final class Histogram: Sendable {
    package static let latencyBounds: [Double] = [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30,
    ]

    private struct State {
        var counts: [Int]
        var sum = 0.0
    }

    private let bounds: [Double]
    private let lock = Lock()
    nonisolated(unsafe) private var state: State

    init(bounds: [Double]) {
        self.bounds = bounds
        unsafe state = State(counts: Array(repeating: 0, count: bounds.count + 1))
    }

    package func observe(_ seconds: Double) {
        let bucket = bounds.firstIndex { seconds <= $0 } ?? bounds.count
        lock.withLock {
            unsafe state.counts[bucket] += 1
            unsafe state.sum += seconds
        }
    }

    package func observe(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        observe(Double(seconds) + Double(attoseconds) * 1e-18)
    }

    /// Returns each bound with the count at or below it, then the total count, then the sum.
    fileprivate func snapshot() -> (cumulative: [(Double, Int)], count: Int, sum: Double) {
        let state = lock.withLock { unsafe self.state }
        var total = 0
        var cumulative: [(Double, Int)] = []
        for (bound, count) in zip(bounds, state.counts) {
            total += count
            cumulative.append((bound, total))
        }
        return (cumulative, total + (state.counts.last ?? 0), state.sum)
    }
}

/// The metrics of a process, as Prometheus' text. Look a metric up once and retain it: the look-up
/// takes a lock. Label values must come from closed sets.
package final class Metrics: Sendable {
    private enum Instrument {
        case counter(Counter)
        case gauge(Gauge)
        case histogram(Histogram)
    }

    private let lock = Lock()
    /// The metrics by name, then by their labels as printed.
    nonisolated(unsafe) private var instruments: [Metric: [String: Instrument]] = [:]

    package init() {}

    package func counter(
        _ metric: Metric,
        _ labels: KeyValuePairs<String, String> = [:]
    ) -> Counter {
        let found = instrument(metric, labels) { .counter(Counter()) }
        guard case .counter(let counter) = found else { return Counter() }
        return counter
    }

    package func gauge(
        _ metric: Metric,
        _ labels: KeyValuePairs<String, String> = [:]
    ) -> Gauge {
        let found = instrument(metric, labels) { .gauge(Gauge()) }
        guard case .gauge(let gauge) = found else { return Gauge() }
        return gauge
    }

    package func histogram(
        _ metric: Metric,
        bounds: [Double] = Histogram.latencyBounds,
        _ labels: KeyValuePairs<String, String> = [:]
    ) -> Histogram {
        let found = instrument(metric, labels) { .histogram(Histogram(bounds: bounds)) }
        guard case .histogram(let histogram) = found else { return Histogram(bounds: bounds) }
        return histogram
    }

    private func instrument(
        _ metric: Metric,
        _ labels: KeyValuePairs<String, String>,
        make: () -> Instrument
    ) -> Instrument {
        let key = labels.map { name, value in "\(name)=\"\(escapedLabel(value))\"" }
            .joined(separator: ",")
        return lock.withLock {
            if let known = unsafe instruments[metric]?[key] { return known }
            let made = make()
            unsafe instruments[metric, default: [:]][key] = made
            return made
        }
    }

    /// Renders the text of `GET /metrics`: `text/plain; version=0.0.4`.
    package func exposition() -> String {
        let all = lock.withLock { unsafe instruments }
        var text = ""
        for (metric, series) in all.sorted(by: { $0.key.name < $1.key.name }) {
            text += "# HELP \(metric.name) \(metric.help)\n"
            text += "# TYPE \(metric.name) \(metric.kind.rawValue)\n"
            for (labels, instrument) in series.sorted(by: { $0.key < $1.key }) {
                switch instrument {
                case .counter(let counter):
                    text += line(metric.name, labels, "\(counter.value)")
                case .gauge(let gauge):
                    text += line(metric.name, labels, "\(gauge.value)")
                case .histogram(let histogram):
                    text += lines(of: histogram, metric.name, labels)
                }
            }
        }
        return text
    }

    private func lines(of histogram: Histogram, _ name: String, _ labels: String) -> String {
        let (cumulative, count, sum) = histogram.snapshot()
        let comma = labels.isEmpty ? "" : ","
        var text = ""
        for (bound, below) in cumulative {
            text += line("\(name)_bucket", "\(labels)\(comma)le=\"\(bound)\"", "\(below)")
        }
        text += line("\(name)_bucket", "\(labels)\(comma)le=\"+Inf\"", "\(count)")
        text += line("\(name)_sum", labels, "\(sum)")
        text += line("\(name)_count", labels, "\(count)")
        return text
    }

    private func line(_ name: String, _ labels: String, _ value: String) -> String {
        labels.isEmpty ? "\(name) \(value)\n" : "\(name){\(labels)} \(value)\n"
    }
}

private func escapedLabel(_ value: String) -> String {
    var escaped = ""
    for character in value {
        switch character {
        case "\\": escaped += "\\\\"
        case "\"": escaped += "\\\""
        case "\n": escaped += "\\n"
        default: escaped.append(character)
        }
    }
    return escaped
}
