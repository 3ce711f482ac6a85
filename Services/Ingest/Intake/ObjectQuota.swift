import Observability
import PushCore

/// How many objects each app may have looked at, over all loops of the process: a minute's worth at
/// once, and then at an even rate. Pure but for its lock; usable from anywhere.
///
/// A request is charged before its objects are worked on, whatever becomes of them: one object when it
/// comes, the others when they are counted. A batch is taken whole as long as anything is left, so none is
/// too large for ever; what it takes too much is owed, at most another minute's worth: nobody is shut out
/// for long.
final class ObjectQuota: Sendable {
    private struct Bucket {
        var left: Double
        var at: ContinuousClock.Instant
    }

    /// Only apps with a limit have one.
    private static let maximumApps = 10_000

    private let lock = Lock()
    nonisolated(unsafe) private var buckets: [String: Bucket] = [:]

    /// Charges an app for objects, all of them or none.
    ///
    /// - Parameters:
    ///   - app: Whose.
    ///   - count: What the request is to be charged in all; less than before gives back.
    ///   - charged: What it was charged before.
    ///   - limit: Objects a minute; 0: no limit.
    ///   - now: The steady clock's.
    /// - Returns: `nil`, or how many seconds to wait until there is any left.
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
            // A minute's worth, filled bit by bit, may miss a whole number by a rounding.
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
