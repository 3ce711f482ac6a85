/// A token bucket for each key: it holds at most `burst` tokens, fills at an even rate, and each
/// request takes one. Pure: no clock of its own.
///
/// At most `maximumKeys` buckets are stored, in two generations. When the young generation is full,
/// it becomes the old one, and the previous old one is dropped; a bucket that is used moves to the
/// young generation. A dropped bucket begins full, so a client with more keys than that is not
/// limited here.
package struct TokenBuckets<Key: Hashable & Sendable>: Sendable {
    private struct Bucket {
        var tokens: Double
        var at: ContinuousClock.Instant
    }

    private let perSecond: Double
    private let burst: Double
    private let keysOfGeneration: Int
    private var young: [Key: Bucket] = [:]
    private var old: [Key: Bucket] = [:]

    /// - Parameters:
    ///   - perSecond: Tokens added a second, more than 0.
    ///   - burst: The capacity of a bucket, 1 or more.
    ///   - maximumKeys: 2 or more.
    package init(perSecond: Double, burst: Double, maximumKeys: Int = 20_000) {
        self.perSecond = perSecond
        self.burst = max(1, burst)
        keysOfGeneration = max(1, maximumKeys / 2)
    }

    package var count: Int { young.count + old.count }

    /// Takes a token.
    ///
    /// - Returns: `nil` if there was a token; else the seconds until there is one, 1 or more.
    package mutating func take(_ key: Key, now: ContinuousClock.Instant) -> Int? {
        var bucket = filled(key, now)
        guard bucket.tokens >= 1 else {
            keep(bucket, key)
            return wait(for: bucket)
        }
        bucket.tokens -= 1
        keep(bucket, key)
        return nil
    }

    /// Returns the result of `take`, without taking a token.
    package mutating func look(_ key: Key, now: ContinuousClock.Instant) -> Int? {
        guard young[key] != nil || old[key] != nil else { return nil }
        let bucket = filled(key, now)
        return bucket.tokens >= 1 ? nil : wait(for: bucket)
    }

    /// Gives back a token that was taken for a request that does not count.
    package mutating func giveBack(_ key: Key, now: ContinuousClock.Instant) {
        guard young[key] != nil || old[key] != nil else { return }
        var bucket = filled(key, now)
        bucket.tokens = min(burst, bucket.tokens + 1)
        keep(bucket, key)
    }

    private func filled(_ key: Key, _ now: ContinuousClock.Instant) -> Bucket {
        guard var bucket = young[key] ?? old[key] else { return Bucket(tokens: burst, at: now) }
        let passed = (now - bucket.at) / .seconds(1)
        bucket.tokens = min(burst, bucket.tokens + max(0, passed) * perSecond)
        bucket.at = max(now, bucket.at)
        return bucket
    }

    private mutating func keep(_ bucket: Bucket, _ key: Key) {
        if young[key] == nil, young.count >= keysOfGeneration {
            old = young
            young = [:]
        }
        young[key] = bucket
        old[key] = nil
    }

    private func wait(for bucket: Bucket) -> Int {
        max(1, Int(((1 - bucket.tokens) / perSecond).rounded(.up)))
    }
}
