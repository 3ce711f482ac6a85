import Gateway

/// Limits the wrong secrets of one identity and address. Pure: no clock of its own.
///
/// A secret takes a token of the limit before it is verified, so that concurrent guesses all count;
/// concurrent requests with the same secret share that token. A right secret returns it.
struct FailedAttempts {
    private struct Attempt {
        var count: Int
        var hasFailed = false
    }

    private var buckets: TokenBuckets<[UInt8]>?
    private var attempts: [[UInt8]: Attempt] = [:]

    /// - Parameter perMinute: 0: no limit.
    init(perMinute: Int) {
        guard perMinute > 0 else { return }
        buckets = TokenBuckets(perSecond: Double(perMinute) / 60, burst: Double(perMinute))
    }

    /// The number of secrets that are being verified.
    var count: Int { attempts.count }

    /// Begins the verification of a secret.
    ///
    /// - Parameters:
    ///   - subject: The key whose wrong secrets are counted together.
    ///   - secret: A key that differs for each secret of each `subject`.
    ///   - now: The time.
    /// - Returns: `nil`, or the seconds to wait. After `nil`, `end` must follow.
    mutating func begin(
        _ subject: [UInt8],
        _ secret: [UInt8],
        now: ContinuousClock.Instant
    ) -> Int? {
        if attempts[secret] != nil {
            attempts[secret]?.count += 1
            return nil
        }
        if let wait = buckets?.take(subject, now: now) { return wait }
        attempts[secret] = Attempt(count: 1)
        return nil
    }

    mutating func end(
        _ subject: [UInt8],
        _ secret: [UInt8],
        hasFailed: Bool,
        now: ContinuousClock.Instant
    ) {
        guard var attempt = attempts[secret] else { return }
        attempt.count -= 1
        attempt.hasFailed = attempt.hasFailed || hasFailed
        attempts[secret] = attempt.count > 0 ? attempt : nil
        if attempt.count == 0, !attempt.hasFailed { buckets?.giveBack(subject, now: now) }
    }
}
