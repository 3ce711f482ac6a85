import Observability
import PushCore
package import Settings

/// The request limits of one caller. Each loop counts separately, by address and by key. A
/// connection stays on its loop, so one connection is held to the limit; a caller with many
/// connections may reach the limit times the loops times the replicas.
package struct RateLimits: Sendable, Equatable {
    /// 0: no limit.
    package var perAddress = 0
    /// 0: no limit.
    package var perKey = 0
    /// The rate is too low to guess a key. A fleet of apps with an old key does not lock its
    /// neighbours out, as valid long keys are always accepted. 0: no limit.
    package var failuresPerAddress = 10
    package var burstSeconds = 10
    package var trustedProxies: [AddressRange] = []

    package init() {}

    package enum Variable {
        private static let usual = RateLimits()
        private static let range = 0...1_000_000

        static let perAddress = Setting<Int>(
            "RATE_LIMIT_PER_ADDRESS",
            in: range,
            default: usual.perAddress,
            "requests a second of one address (of IPv6, one /64), 0: no limit; behind a load"
                + " balancer"
                + " all callers may have one"
        )
        static let perKey = Setting<Int>(
            "RATE_LIMIT_PER_KEY",
            in: range,
            default: usual.perKey,
            "requests a second with one key of an app, 0: no limit; all devices of an app share its"
                + " app key"
        )
        static let failuresPerAddress = Setting<Int>(
            "RATE_LIMIT_FAILURES_PER_ADDRESS",
            in: range,
            default: usual.failuresPerAddress,
            "requests a second with wrong credentials of one address, 0: no limit; beyond it short"
                + " keys from there are not looked at"
        )
        static let burstSeconds = Setting<Int>(
            "RATE_LIMIT_BURST",
            in: 1...3600,
            default: usual.burstSeconds,
            "how many seconds' worth of the three above may come at once"
        )
        static let trustedProxies = Setting<[AddressRange]>(
            "HTTP_TRUSTED_PROXIES",
            takes: "addresses and ranges such as 10.0.0.0/8, comma-separated",
            default: [],
            shown: "",
            "proxies whose X-Forwarded-For is trusted; callers in such a range choose their"
                + " address themselves"
        ) { text in
            let texts = commaList(text)
            let ranges = texts.compactMap { AddressRange($0) }
            return ranges.count == texts.count ? ranges : nil
        }

        package static let all: [SettingEntry] = [
            perAddress.entry, perKey.entry, failuresPerAddress.entry, burstSeconds.entry,
            trustedProxies.entry,
        ]
    }

    package init(reader: ConfigurationReader) throws(ConfigurationError) {
        perAddress = try reader.value(of: Variable.perAddress)
        perKey = try reader.value(of: Variable.perKey)
        failuresPerAddress = try reader.value(of: Variable.failuresPerAddress)
        burstSeconds = try reader.value(of: Variable.burstSeconds)
        trustedProxies = try reader.value(of: Variable.trustedProxies)
    }

    /// Returns the origin of a request: the peer, or, if that is a trusted proxy, the last address
    /// in `X-Forwarded-For` that is not a proxy.
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

/// The per-minute limits of apps' own settings, counted over all loops of a process.
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
    ///   - what: The limit and its subject.
    ///   - limit: Requests a minute; 0: no limit.
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
