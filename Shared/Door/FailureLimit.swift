/// What wrong credentials cost those who send them. Pure: no clock, no database.
///
/// Beyond the limit an address is answered without the database, but for apps that are known already
/// and for a few that may be made up: so whoever makes up ids asks no more of the database than
/// `searchesPerSecond`, and an honest neighbour behind his address still gets in.
package struct FailureLimit: Sendable {
    package static let searchesPerSecond = 1.0
    package static let searchesAtOnce = 10

    private var failures: TokenBuckets<NetworkAddress>
    private var searches = TokenBuckets<NetworkAddress>(
        perSecond: Self.searchesPerSecond,
        burst: Double(Self.searchesAtOnce)
    )

    package init(perSecond: Double, burst: Double) {
        failures = TokenBuckets(perSecond: perSecond, burst: burst)
    }

    /// - Returns: `nil`, or, where there were too many, the seconds to wait.
    package mutating func look(
        _ subscriber: NetworkAddress,
        now: ContinuousClock.Instant
    ) -> Int? {
        failures.look(subscriber, now: now)
    }

    package mutating func failed(_ subscriber: NetworkAddress, now: ContinuousClock.Instant) {
        _ = failures.take(subscriber, now: now)
    }

    /// Whether the database may be asked about an app that may be made up.
    package mutating func maySearch(
        _ subscriber: NetworkAddress,
        now: ContinuousClock.Instant
    ) -> Bool {
        failures.look(subscriber, now: now) == nil || searches.take(subscriber, now: now) == nil
    }
}
