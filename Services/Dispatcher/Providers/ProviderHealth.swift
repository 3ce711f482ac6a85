import PushCore
import PushStorage

/// How one app fares at one provider; all its deliveries there share it, and those that
/// wait for it wait here. Confined to the loop.
final class ProviderHealth<Waiting>: @unchecked Sendable {
    let client: FlightBudget.Client
    var breakers = ProviderBreakers()
    var spread = DueSpread()
    var wave = DeadTokenWave()
    var backlog: ProviderBacklog<Waiting>
    /// Hears of a wave of dead tokens that has just begun: whether they are another sender's, how many
    /// are dead, and of how many answers.
    var onWave: (Bool, Int, Int) -> Void = { _, _, _ in }

    init(_ client: FlightBudget.Client, backlog: ProviderBacklog<Waiting>) {
        self.client = client
        self.backlog = backlog
    }
}

/// By environment: what ails APNs' sandbox says nothing about those who wait for production.
struct ProviderBreakers {
    private var usual = ProviderBreaker()
    private var sandbox = ProviderBreaker()

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
    /// Takes an answer in, for the circuit breaker if the session that it was sent under is ours still.
    /// Returns how many tries before it never left this process, in a row, and whether its token lives
    /// whatever it says (promise 9).
    func heard(
        _ outcome: ProviderOutcome,
        about delivery: Delivery,
        isOurs: Bool,
        _ now: SteadyInstant
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

    /// When one comes due again that an open breaker does not let through for so long.
    func dueTime(
        after wait: Int64,
        at time: SteadyInstant,
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

/// Spreads waits and nothing else: the system's generator costs a call of the kernel each time.
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
