/// Limits the failed credentials of an address. Pure: no clock, no database.
///
/// Beyond the limit requests of an address are answered without the database, except for cached
/// apps and a few that may be made up: so a client that makes up ids costs the database at most
/// `searchesPerSecond` queries, and an honest neighbour behind its address still gets in.
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

    /// - Returns: `nil`, or the seconds to wait if there were too many.
    package mutating func look(
        _ subscriber: NetworkAddress,
        now: ContinuousClock.Instant
    ) -> Int? {
        failures.look(subscriber, now: now)
    }

    package mutating func failed(_ subscriber: NetworkAddress, now: ContinuousClock.Instant) {
        _ = failures.take(subscriber, now: now)
    }

    /// Whether the database may be queried for an app that may be made up.
    package mutating func maySearch(
        _ subscriber: NetworkAddress,
        now: ContinuousClock.Instant
    ) -> Bool {
        failures.look(subscriber, now: now) == nil || searches.take(subscriber, now: now) == nil
    }
}
