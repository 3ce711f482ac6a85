package import PushCore

/// Counts of outcomes in some time.
package struct OutcomeCounts: OutcomeCounters, Sendable, Equatable {
    package var delivered = 0
    package var failed = 0
    package var expired = 0
    package var suppressed = 0
    package var inDoubt = 0
    /// The latencies of the answered direct deliveries, from the time when each was due.
    package var latency = LatencyHistogram()

    package init() {}

    package mutating func add(_ other: Self) {
        for outcome in Outcome.allCases { self[outcome] += other[outcome] }
        latency.add(other.latency)
    }
}

/// The subject of figures: one provider of an app, for all pushes or for one to many devices.
package struct FigureKey: Hashable, Sendable {
    package let app: String
    /// `nil`: all pushes.
    package let pushID: String?
    package let provider: Platform

    package init(app: String, pushID: String? = nil, provider: Platform) {
        self.app = app
        self.pushID = pushID
        self.provider = provider
    }
}

/// One row of `push_figures` of one process: its totals of a minute or an hour so far.
package struct PushFigure: Sendable, Equatable {
    package enum Span: Int, Sendable {
        case minute = 1
        case hour = 60

        package func start(of time: Instant) -> Instant { time.start(ofMinutes: rawValue) }
    }

    package let key: FigureKey
    package let span: Span
    /// The beginning of the minute or hour.
    package let at: Instant
    package let counts: OutcomeCounts

    package init(key: FigureKey, span: Span, at time: Instant, counts: OutcomeCounts) {
        self.key = key
        self.span = span
        at = time
        self.counts = counts
    }
}

extension Instant {
    /// Returns the beginning of the span of so many minutes, counted from 1970, that has this time.
    package func start(ofMinutes minutes: Int) -> Instant {
        let span = Int64(minutes) * 60
        let rest = seconds % span
        return Instant(seconds: seconds - (rest < 0 ? rest + span : rest))
    }
}
