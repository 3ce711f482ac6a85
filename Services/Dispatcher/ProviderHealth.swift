/// How one app fares at one provider; all its deliveries there share it. Confined to the loop.
final class ProviderHealth: @unchecked Sendable {
    let client: FlightBudget.Client
    var breaker = ProviderBreaker()
    var wave = DeadTokenWave()
    var backlog: ProviderBacklog<OwnedDelivery>

    init(_ client: FlightBudget.Client, backlog: ProviderBacklog<OwnedDelivery>) {
        self.client = client
        self.backlog = backlog
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
