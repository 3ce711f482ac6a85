import PushCore

/// How one app fares at one provider; all its deliveries there share it, and those that
/// wait for it wait here. Confined to the loop.
final class ProviderHealth<Waiting>: @unchecked Sendable {
    let client: FlightBudget.Client
    var breakers = ProviderBreakers()
    var spread = DueSpread()
    var wave = DeadTokenWave()
    var backlog: ProviderBacklog<Waiting>

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
