/// Limits the failed credentials of an address. Pure: no clock, no database.
///
/// Beyond the limit, requests of an address reach the database only for known apps, and rarely for
/// apps that may be made up. So a client that makes up ids costs the database at most
/// `searchesPerSecond` queries a second, and an honest client behind the same address still gets
/// in.
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

    /// - Returns: `nil`, or the seconds to wait if there were too many failures.
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
