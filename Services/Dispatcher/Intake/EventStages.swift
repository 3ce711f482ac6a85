import Observability
import PushCore

/// The durations of the stages of an event for few devices: a histogram for each.
struct EventStages: Sendable {
    enum Stage: Int, CaseIterable {
        /// Begins at the record's own time: two clocks are compared.
        case fetched
        case lookedUp, rendered, handedOver
        /// Waiting for a stream of the provider: a part of `answered`, measured by the connections.
        case onTheWire
        /// Begins at the hand-over.
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

    /// Measures records that were read now.
    func fetched(_ timestamps: some Sequence<Int64>, at now: Instant) {
        for timestamp in timestamps where timestamp > 0 {
            self[.fetched].observe(Double(max(0, now.milliseconds - timestamp)) / 1000)
        }
    }
}

/// The time at which an event ended its last stage. Pure.
struct StageMark {
    private var last: EventStages.Stage?
    private var at: ContinuousClock.Instant

    init(at time: ContinuousClock.Instant) { at = time }

    /// Records the end of a stage. If an event has several deliveries, the first one counts.
    ///
    /// - Returns: The duration of the stage; `nil` if the stage had ended before.
    mutating func reached(
        _ stage: EventStages.Stage,
        at now: ContinuousClock.Instant
    ) -> Duration? {
        guard stage.rawValue > last?.rawValue ?? -1 else { return nil }
        defer { (last, at) = (stage, now) }
        return at.duration(to: now)
    }
}
