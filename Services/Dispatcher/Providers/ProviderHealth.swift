import PushCore
import PushStorage

/// The state of one app at one provider, shared by all its deliveries there. `backlog` has the
/// waiting ones.
@DispatchLoop
final class ProviderHealth<Waiting> {
    let client: SendBudget.Client
    var breakers = ProviderBreakers()
    var spread = DueSpread()
    var wave = DeadTokenWave()
    var backlog: ProviderBacklog<Waiting>
    /// Called when a wave of dead tokens has just begun, with whether they belong to another
    /// sender, the number of dead tokens, and the number of answers.
    var onWave: (Bool, Int, Int) -> Void = { _, _, _ in }

    init(_ client: SendBudget.Client, backlog: ProviderBacklog<Waiting>) {
        self.client = client
        self.backlog = backlog
    }
}

/// The circuit breakers by environment: failures of APNs' sandbox say nothing about production.
struct ProviderBreakers {
    private var usual = ProviderBreaker()
    private var sandbox = ProviderBreaker()

    /// The open ones.
    var open: [(isSandbox: Bool, breaker: ProviderBreaker)] {
        [(false, usual), (true, sandbox)].filter(\.1.isOpen)
    }

    subscript(environment: PushEnvironment) -> ProviderBreaker {
        get {
            switch environment {
            case .none, .production: usual
            case .sandbox: sandbox
            }
        }
        set {
            switch environment {
            case .none, .production: usual = newValue
            case .sandbox: sandbox = newValue
            }
        }
    }
}

extension ProviderHealth {
    /// Counts an answer. It counts for the circuit breaker only if its session is still current.
    /// Returns how often in a row nothing could be sent before this answer, and whether its token
    /// must stay enabled even if the answer calls it dead (promise 9).
    func recordAnswer(
        _ outcome: ProviderOutcome,
        about delivery: Delivery,
        isOurs: Bool,
        _ now: MonotonicInstant
    ) -> (unsent: Int, keepsToken: Bool) {
        let environment = delivery.device.environment
        let unsent = breakers[environment].unsentInARow
        if isOurs { breakers[environment].finished(outcome, now: now) }
        let action: DeadTokenWave.Action
        switch outcome {
        case .accepted:
            wave.alive(now: now)
            return (unsent, false)
        case .unregistered where !delivery.isForTopic: action = wave.dead(now: now)
        case .mismatched where !delivery.isForTopic: action = wave.mismatched(now: now)
        case .unregistered, .mismatched, .rejected, .misconfigured, .unavailable, .throttled,
            .noAnswer, .notSent:
            return (unsent, false)
        }
        if case .keepAndAlarm(let dead, let answers) = action {
            onWave(outcome == .mismatched, dead, answers)
        }
        return (unsent, action != .disable)
    }

    /// Returns when a delivery is due again that an open breaker rejects for `wait` milliseconds.
    func dueTime(
        after wait: Int64,
        at time: MonotonicInstant,
        _ now: Instant,
        _ random: inout FastRandom
    ) -> Instant {
        let delay = spread.delay(
            atLeast: wait,
            at: time.milliseconds,
            pace: backlog.pace(time.milliseconds),
            jitter: Double.random(in: 0..<1, using: &random)
        )
        return now.adding(milliseconds: delay)
    }
}

/// A fast generator, only for the jitter of waits: the system's generator costs a system call each
/// time.
struct FastRandom: RandomNumberGenerator {
    private var state = UInt64.random(in: .min ... .max)

    /// SplitMix64.
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
