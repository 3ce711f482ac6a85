/// The networks that recently sent a wrong secret. Pure: no clock of its own. Bounded: two generations; the
/// older one is dropped when the younger is full or old enough.
struct FailedNetworks {
    /// The lifetime of a generation. An entry lasts for one to two such lifetimes.
    static let lifetime = Duration.seconds(300)

    private var young: Set<[UInt8]> = []
    private var old: Set<[UInt8]> = []
    private var begunAt: ContinuousClock.Instant?
    private let maximum: Int

    /// - Parameter maximum: The networks of one generation.
    init(maximum: Int = 50_000) { self.maximum = max(1, maximum) }

    mutating func insert(_ network: [UInt8], now: ContinuousClock.Instant) {
        turn(now)
        if young.count >= maximum, !young.contains(network) {
            (old, young) = (young, [])
            begunAt = now
        }
        young.insert(network)
    }

    mutating func contains(_ network: [UInt8], now: ContinuousClock.Instant) -> Bool {
        turn(now)
        return young.contains(network) || old.contains(network)
    }

    private mutating func turn(_ now: ContinuousClock.Instant) {
        guard let begunAt else { return self.begunAt = now }
        let age = now - begunAt
        guard age >= Self.lifetime else { return }
        (old, young) = (age >= Self.lifetime * 2 ? [] : young, [])
        self.begunAt = now
    }
}
