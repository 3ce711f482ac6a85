import Observability
import PushCore

/// The quota of objects of each app, over all loops of the process: a minute's worth at once, then an even
/// rate. Pure except for its lock; thread-safe.
///
/// A request is charged before its objects are checked, whatever their result: one object when it
/// arrives, the others when they are counted. While any quota is left, a batch of any size is
/// accepted whole, so that no batch is too large for ever. The excess is owed, at most another
/// minute's worth, so that no app is refused for long.
final class ObjectQuota: Sendable {
    private struct Bucket {
        var left: Double
        var at: ContinuousClock.Instant
    }

    /// Only apps with a limit have a bucket.
    private static let maximumApps = 10_000

    private let lock = Lock()
    nonisolated(unsafe) private var buckets: [String: Bucket] = [:]

    /// Charges an app for objects, all of them or none.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - count: The new total charge of the request. If it is lower than before, the difference
    ///     is returned.
    ///   - charged: The request's charge before.
    ///   - limit: Objects a minute; 0: no limit.
    ///   - now: The monotonic clock's time.
    /// - Returns: `nil`, or the seconds to wait until some quota is left.
    func charge(
        _ app: String,
        _ count: Int,
        insteadOf charged: Int = 0,
        limit: Int,
        now: ContinuousClock.Instant = .now
    ) -> Int? {
        guard limit > 0, count != charged else { return nil }
        return lock.withLock {
            var bucket = filled(app, limit, now)
            let left = bucket.left + Double(charged)
            // A minute's worth, refilled in small steps, may miss a whole number by a rounding error.
            guard count <= charged || left > 1 - 1e-6 else {
                return max(1, Int(((1 - left) * 60 / Double(limit)).rounded(.up)))
            }
            bucket.left = min(Double(limit), max(-Double(limit), left - Double(count)))
            if unsafe buckets.count >= Self.maximumApps { unsafe buckets = [:] }
            unsafe buckets[app] = bucket
            return nil
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
