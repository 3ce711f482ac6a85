import Observability
import PushCore
import PushEvents
import PushStorage

/// The dispatcher's counters, looked up once.
struct DeliveryMeters: Sendable {
    let inFlight: Gauge
    let tokensDisabled: Counter
    let deadTokenWaves: Counter
    let handedBack: Counter
    private let attempts: [Platform: [String: Counter]]
    private let durations: [Platform: Histogram]
    private let ends: [Platform: [Outcome: Counter]]

    private static let answers: [ProviderOutcome] = [
        .accepted, .unregistered(since: nil), .rejected, .misconfigured,
        .unavailable(retryAfter: nil), .noAnswer, .notSent,
    ]

    init(_ metrics: Metrics) {
        inFlight = metrics.gauge(.pushInFlight)
        tokensDisabled = metrics.counter(.pushTokensDisabled)
        deadTokenWaves = metrics.counter(.pushDeadTokenWaves)
        handedBack = metrics.counter(.pushHandedBack)
        var attempts: [Platform: [String: Counter]] = [:]
        var durations: [Platform: Histogram] = [:]
        var ends: [Platform: [Outcome: Counter]] = [:]
        for platform in Platform.allCases {
            for answer in Self.answers {
                attempts[platform, default: [:]][answer.metricLabel] = metrics.counter(
                    .pushAttempts,
                    ["provider": platform.rawValue, "outcome": answer.metricLabel]
                )
            }
            durations[platform] = metrics.histogram(
                .pushAttemptDuration,
                ["provider": platform.rawValue]
            )
            for outcome in Outcome.allCases {
                ends[platform, default: [:]][outcome] = metrics.counter(
                    .pushDeliveries,
                    ["provider": platform.rawValue, "outcome": outcome.rawValue]
                )
            }
        }
        self.attempts = attempts
        self.durations = durations
        self.ends = ends
    }

    func answered(_ platform: Platform, _ outcome: ProviderOutcome, _ duration: Duration) {
        inFlight.add(-1)
        attempts[platform]?[outcome.metricLabel]?.add()
        durations[platform]?.observe(duration)
    }

    func settled(_ batch: [FinishedDelivery]) {
        for item in batch {
            if case .settleAndDisable = item.decision { tokensDisabled.add() }
            if let outcome = item.decision.outcome {
                ends[item.owned.delivery.device.provider]?[outcome]?.add()
            } else if case .handBack = item.decision {
                handedBack.add()
            }
        }
    }
}
