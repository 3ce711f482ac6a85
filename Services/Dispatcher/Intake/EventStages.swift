import Observability
import PushCore

/// Where the time of an event for few devices goes: a histogram of each of its stages.
struct EventStages: Sendable {
    enum Stage: Int, CaseIterable {
        /// From the record's own time, by two clocks.
        case fetched
        case lookedUp, rendered, handedOver
        /// Waited for a stream of the provider: a part of `answered`, and told by the connections.
        case onTheWire
        /// From the hand-over on.
        case answered
        case acknowledged, written

        var label: String {
            switch self {
            case .fetched: "fetched"
            case .lookedUp: "looked_up"
            case .rendered: "rendered"
            case .handedOver: "handed_over"
            case .onTheWire: "on_the_wire"
            case .answered: "answered"
            case .acknowledged: "acknowledged"
            case .written: "written"
            }
        }
    }

    private let histograms: [Histogram]

    init(_ metrics: Metrics) {
        histograms = Stage.allCases.map { stage in
            metrics.histogram(
                .pushEventStages,
                bounds: [0.0002, 0.0005] + Histogram.latencyBounds,
                ["stage": stage.label]
            )
        }
    }

    subscript(_ stage: Stage) -> Histogram { histograms[stage.rawValue] }

    /// Records that were read now.
    func fetched(_ timestamps: some Sequence<Int64>, at now: Instant) {
        for timestamp in timestamps where timestamp > 0 {
            self[.fetched].observe(Double(max(0, now.milliseconds - timestamp)) / 1000)
        }
    }
}

/// When an event came to the end of its last stage. Pure.
struct StageMark {
    private var last: EventStages.Stage?
    private var at: ContinuousClock.Instant

    init(at time: ContinuousClock.Instant) { at = time }

    /// It came to the end of a stage. Where it has several deliveries, the first that does counts.
    ///
    /// - Returns: How long that took; `nil`: it was there before.
    mutating func reached(
        _ stage: EventStages.Stage,
        at now: ContinuousClock.Instant
    ) -> Duration? {
        guard stage.rawValue > last?.rawValue ?? -1 else { return nil }
        defer { (last, at) = (stage, now) }
        return at.duration(to: now)
    }
}
