import Observability
import PushCore

/// How many objects each app may have taken in, over all loops of the process: a minute's worth at
/// once, and then at an even rate. Pure but for its lock; usable from anywhere.
///
/// A batch is taken whole as long as anything is left, and what it takes too much is owed, at
/// most another minute's worth: so no batch is too large for ever, and nobody is shut out for long.
final class ObjectQuota: Sendable {
    private struct Bucket {
        var left: Double
        var at: ContinuousClock.Instant
    }

    /// Only apps with a limit have one.
    private static let maximumApps = 10_000

    private let lock = Lock()
    nonisolated(unsafe) private var buckets: [String: Bucket] = [:]

    /// - Parameters:
    ///   - app: Whose.
    ///   - limit: Objects a minute; 0: no limit.
    ///   - now: The steady clock's.
    /// - Returns: `nil`, or how many seconds to wait until there is any left.
    func wait(
        _ app: String,
        limit: Int,
        now: ContinuousClock.Instant = .now
    ) -> Int? {
        guard limit > 0 else { return nil }
        return lock.withLock {
            let bucket = filled(app, limit, now)
            guard bucket.left < 1 else { return nil }
            return max(1, Int(((1 - bucket.left) * 60 / Double(limit)).rounded(.up)))
        }
    }

    /// Counts objects that are taken in.
    func take(
        _ app: String,
        _ count: Int,
        limit: Int,
        now: ContinuousClock.Instant = .now
    ) {
        guard limit > 0, count > 0 else { return }
        lock.withLock {
            var bucket = filled(app, limit, now)
            bucket.left = max(-Double(limit), bucket.left - Double(count))
            if unsafe buckets.count >= Self.maximumApps { unsafe buckets = [:] }
            unsafe buckets[app] = bucket
        }
    }

    private func filled(_ app: String, _ limit: Int, _ now: ContinuousClock.Instant) -> Bucket {
        guard let bucket = unsafe buckets[app] else { return Bucket(left: Double(limit), at: now) }
        let passed = max(0, (now - bucket.at) / .seconds(1))
        return Bucket(
            left: min(Double(limit), bucket.left + passed * Double(limit) / 60),
            at: max(now, bucket.at)
        )
    }
}
