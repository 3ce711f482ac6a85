/// Detects a peer that floods the connection: a token bucket for each kind of frame that costs more to
/// process than to send. Pure: the caller passes the time.
///
/// Requests (limited by the streams that may be open) and bodies (by the windows) are not counted
/// here. `WINDOW_UPDATE` has a bucket of its own beside control frames, as an honest reader sends
/// one for each few frames that it receives.
struct FloodGuard {
    enum Kind: CaseIterable {
        /// A stream that the peer reset, or that the library reset because of an invalid frame. The work for its request was wasted.
        case reset
        /// PING, SETTINGS, PRIORITY, empty DATA and frames of unknown types: each is answered, or
        /// parsed, and carries nothing.
        case control
        case windowUpdate

        /// The frames allowed at once. A browser that leaves a page resets all its open streams; no
        /// honest peer sends hundreds of control frames in a row.
        var burst: Double {
            switch self {
            case .reset: 500
            case .control: 500
            case .windowUpdate: 20_000
            }
        }

        var perSecond: Double {
            switch self {
            case .reset: 100
            case .control: 50
            case .windowUpdate: 10_000
            }
        }
    }

    private struct Bucket {
        var tokens: Double
        var filledAt: ContinuousClock.Instant
    }

    private var buckets: [Kind: Bucket] = [:]

    /// Takes a token; false if there was none.
    mutating func admit(_ kind: Kind, at now: ContinuousClock.Instant) -> Bool {
        var bucket = buckets[kind] ?? Bucket(tokens: kind.burst, filledAt: now)
        let seconds = (now - bucket.filledAt) / .seconds(1)
        bucket.tokens = min(kind.burst, bucket.tokens + seconds * kind.perSecond) - 1
        bucket.filledAt = now
        buckets[kind] = bucket
        return bucket.tokens >= 0
    }
}
