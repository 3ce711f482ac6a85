import Observability
import PushCore
import PushEvents
import PushStorage

/// The dispatcher's counters, looked up once.
struct DeliveryMetrics: Sendable {
    let inFlight: Gauge
    let tokensDisabled: Counter
    let deadTokenWaves: Counter
    let handedBack: Counter
    let slotExcess: Counter
    let shardsHeld: Gauge
    let checkpoints: Counter
    let membersSent: Counter
    let eventsPlanned: Counter
    let eventsKnown: Counter
    private let eventsErased: Counter
    let stages: EventStages
    /// The events for few devices in a look-up and in a write.
    let lookUps: BatchMeters
    let writes: BatchMeters
    private let platforms: [PlatformMeters]

    private struct PlatformMeters {
        /// The counters by `ProviderOutcome.ordinal`.
        let attempts: [Counter]
        let duration: Histogram
        /// The counters by `Outcome.ordinal`.
        let ends: [Counter]
    }

    private static let answers: [ProviderOutcome] = [
        .accepted, .unregistered(since: nil), .rejected, .misconfigured,
        .unavailable(retryAfter: nil), .throttled(retryAfter: nil), .noAnswer, .notSent,
        .mismatched,
    ]

    init(_ metrics: Metrics) {
        inFlight = metrics.gauge(.pushInFlight)
        tokensDisabled = metrics.counter(.pushTokensDisabled)
        deadTokenWaves = metrics.counter(.pushDeadTokenWaves)
        handedBack = metrics.counter(.pushHandedBack)
        slotExcess = metrics.counter(.pushSlotExcess)
        shardsHeld = metrics.gauge(.pushShardsHeld)
        checkpoints = metrics.counter(.pushCheckpoints)
        membersSent = metrics.counter(.pushMembersSent)
        eventsPlanned = metrics.counter(.pushEvents, ["result": "planned"])
        eventsKnown = metrics.counter(.pushEvents, ["result": "repeated"])
        eventsErased = metrics.counter(.pushEvents, ["result": "erased"])
        stages = EventStages(metrics)
        lookUps = BatchMeters(metrics, step: "looked_up")
        writes = BatchMeters(metrics, step: "written")
        platforms = Platform.allCases.map { platform in
            PlatformMeters(
                attempts: Self.answers.map { answer in
                    metrics.counter(
                        .pushAttempts,
                        ["provider": platform.rawValue, "outcome": answer.metricLabel]
                    )
                },
                duration: metrics.histogram(
                    .pushAttemptDuration,
                    ["provider": platform.rawValue]
                ),
                ends: DeliveryState.allCases.compactMap(\.outcome).map { outcome in
                    metrics.counter(
                        .pushDeliveries,
                        ["provider": platform.rawValue, "outcome": outcome.rawValue]
                    )
                }
            )
        }
    }

    func answered(_ platform: Platform, _ outcome: ProviderOutcome, _ duration: Duration) {
        inFlight.add(-1)
        platforms[platform.ordinal].attempts[outcome.ordinal].add()
        platforms[platform.ordinal].duration.observe(duration)
    }

    /// Counts an event of the fast path: recorded, already stored by another process, or erased.
    func written(isNew: Bool, isErased: Bool) {
        if isErased {
            eventsErased.add()
        } else if isNew {
            eventsPlanned.add()
        } else {
            eventsKnown.add()
        }
    }

    func settled(_ end: DeliveryEnd, at platform: Platform) {
        if end.tokenDiedAt != nil { tokensDisabled.add() }
        if let outcome = end.outcome {
            platforms[platform.ordinal].ends[DeliveryState(outcome).rawValue - 1].add()
        } else if case .release = end.decision {
            handedBack.add()
        }
    }
}

/// Counts batches and their events, from which the average follows.
struct BatchMeters: Sendable {
    private let batches: Counter
    private let events: Counter

    init(_ metrics: Metrics, step: String) {
        batches = metrics.counter(.pushEventBatches, ["step": step])
        events = metrics.counter(.pushBatchedEvents, ["step": step])
    }

    func add(_ count: Int) {
        batches.add()
        events.add(count)
    }
}

extension Platform {
    /// The index in `allCases`: an index instead of a hash, as it is used for every delivery.
    var ordinal: Int {
        switch self {
        case .apns: 0
        case .fcm: 1
        case .wns: 2
        case .mpns: 3
        case .connection: 4
        }
    }
}

extension ProviderOutcome {
    fileprivate var ordinal: Int {
        switch self {
        case .accepted: 0
        case .unregistered: 1
        case .rejected: 2
        case .misconfigured: 3
        case .unavailable: 4
        case .throttled: 5
        case .noAnswer: 6
        case .notSent: 7
        case .mismatched: 8
        }
    }
}
