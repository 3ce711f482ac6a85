import Observability
import PushCore
package import ServiceKit

/// How much one caller may ask. What is counted by address and by key is counted by each loop for
/// itself: a connection stays on its loop, so one connection is held to the limit, and callers with
/// many may come to the limit times the loops times the replicas.
package struct RateLimits: Sendable, Equatable {
    /// `RATE_LIMIT_PER_ADDRESS`: requests a second of one address (of IPv6, one /64), 0...1000000.
    /// Default 0, no limit: behind a load balancer all callers may have one address.
    package var perAddress = 0
    /// `RATE_LIMIT_PER_KEY`: requests a second with one key of an app, 0...1000000. Default 0, no
    /// limit: all devices of an app share its app key.
    package var perKey = 0
    /// `RATE_LIMIT_FAILURES_PER_ADDRESS`: requests a second with wrong credentials of one address,
    /// 0...1000000; beyond, nothing from there is looked at. Default 10: nobody guesses a key at that
    /// rate, and a fleet of apps with an old key does not lock its neighbours out. 0: no limit.
    package var failuresPerAddress = 10
    /// `RATE_LIMIT_BURST`: how many seconds' worth may come at once, 1...3600. Default 10.
    package var burstSeconds = 10
    /// `HTTP_TRUSTED_PROXIES`: addresses or ranges (`10.0.0.0/8`) whose `X-Forwarded-For` says where
    /// a request came from. Default none: the peer is the caller. A range that callers are in
    /// themselves lets them choose their address.
    package var trustedProxies: [AddressRange] = []

    package init() {}

    package init(reader: ConfigurationReader) throws(ConfigurationError) {
        let range = 0...1_000_000
        perAddress = try reader.integer("RATE_LIMIT_PER_ADDRESS", in: range, default: perAddress)
        perKey = try reader.integer("RATE_LIMIT_PER_KEY", in: range, default: perKey)
        failuresPerAddress = try reader.integer(
            "RATE_LIMIT_FAILURES_PER_ADDRESS",
            in: range,
            default: failuresPerAddress
        )
        burstSeconds = try reader.integer("RATE_LIMIT_BURST", in: 1...3600, default: burstSeconds)
        for text in reader.list("HTTP_TRUSTED_PROXIES") {
            guard let range = AddressRange(text) else {
                throw ConfigurationError(
                    "HTTP_TRUSTED_PROXIES",
                    "holds \"\(text)\"; it takes addresses and ranges such as 10.0.0.0/8"
                )
            }
            trustedProxies.append(range)
        }
    }

    /// Where a request came from: the peer, or, where that is a trusted proxy, the last address in
    /// `X-Forwarded-For` that is none.
    package func caller(peer: String, forwardedFor: String?) -> NetworkAddress? {
        guard var caller = NetworkAddress(peer) else { return nil }
        guard isProxy(caller), let forwardedFor else { return caller }
        for part in forwardedFor.split(separator: ",").reversed() {
            let text = part.drop { $0 == " " || $0 == "\t" }.prefix { $0 != " " && $0 != "\t" }
            guard let address = NetworkAddress(String(text)) else { return caller }
            caller = address
            if !isProxy(address) { break }
        }
        return caller
    }

    private func isProxy(_ address: NetworkAddress) -> Bool {
        trustedProxies.contains { $0.contains(address) }
    }
}

/// What an app's own settings allow it a minute, counted for all loops of a process together.
package final class AppLimits: Sendable {
    private struct Kept {
        let limit: Int
        var buckets: TokenBuckets<String>
    }

    private let lock = Lock()
    nonisolated(unsafe) private var kept: [String: Kept] = [:]
    private static let maximumEntries = 20_000

    package init() {}

    /// - Parameters:
    ///   - what: Which limit, of whom.
    ///   - limit: A minute; 0: none.
    ///   - now: The time.
    /// - Returns: `nil`, or the seconds to wait.
    func take(_ what: String, limit: Int, now: ContinuousClock.Instant) -> Int? {
        guard limit > 0 else { return nil }
        return lock.withLock {
            if unsafe kept.count >= Self.maximumEntries { unsafe kept = [:] }
            var entry: Kept
            if let known = unsafe kept[what], known.limit == limit {
                entry = known
            } else {
                entry = Kept(
                    limit: limit,
                    buckets: TokenBuckets(perSecond: Double(limit) / 60, burst: Double(limit))
                )
            }
            let wait = entry.buckets.take("", now: now)
            unsafe kept[what] = entry
            return wait
        }
    }
}
