import Door

/// How many wrong secrets somebody may try. Pure: no clock of its own.
///
/// A secret takes its place before it is looked at, so that many at once are not one; those that come
/// with the same one meanwhile share it. One that was right gives it back.
struct Guesses {
    private struct Trial {
        var count: Int
        var wasWrong = false
    }

    private var buckets: TokenBuckets<[UInt8]>?
    private var trials: [[UInt8]: Trial] = [:]

    /// - Parameter perMinute: 0: no limit.
    init(perMinute: Int) {
        guard perMinute > 0 else { return }
        buckets = TokenBuckets(perSecond: Double(perMinute) / 60, burst: Double(perMinute))
    }

    /// How many secrets are being looked at.
    var count: Int { trials.count }

    /// - Parameters:
    ///   - who: Whose guesses are counted together.
    ///   - secret: Another for each secret of each `who`.
    ///   - now: The time.
    /// - Returns: `nil`, or the seconds to wait. Where it is `nil`, `end` must follow.
    mutating func begin(
        _ who: [UInt8],
        _ secret: [UInt8],
        now: ContinuousClock.Instant
    ) -> Int? {
        if trials[secret] != nil {
            trials[secret]?.count += 1
            return nil
        }
        if let wait = buckets?.take(who, now: now) { return wait }
        trials[secret] = Trial(count: 1)
        return nil
    }

    mutating func end(
        _ who: [UInt8],
        _ secret: [UInt8],
        wasWrong: Bool,
        now: ContinuousClock.Instant
    ) {
        guard var trial = trials[secret] else { return }
        trial.count -= 1
        trial.wasWrong = trial.wasWrong || wasWrong
        trials[secret] = trial.count > 0 ? trial : nil
        if trial.count == 0, !trial.wasWrong { buckets?.giveBack(who, now: now) }
    }
}
