import Gateway

/// Limits the wrong secrets of one identity and address. Pure: no clock of its own.
///
/// A secret takes a token of the limit before it is verified, so that concurrent guesses all count;
/// concurrent requests with the same secret share that token. A right secret returns it.
struct FailedAttempts {
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

    /// The number of secrets that are being verified.
    var count: Int { trials.count }

    /// Begins the verification of a secret.
    ///
    /// - Parameters:
    ///   - who: The key whose wrong secrets are counted together.
    ///   - secret: A key that differs for each secret of each `who`.
    ///   - now: The time.
    /// - Returns: `nil`, or the seconds to wait. After `nil`, `end` must follow.
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
