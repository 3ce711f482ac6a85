/// Tells a peer that makes work from one that wants something: a bucket of tokens for each kind of
/// frame that is cheap to send and not to take. Pure: the caller brings the clock.
///
/// What has a bound elsewhere is not counted here: requests (by the streams that may be open),
/// bodies (by the windows). `WINDOW_UPDATE` is, beside control frames, by a bucket of its own, as
/// an honest reader sends one for each few frames that it gets.
struct FloodGuard {
    enum Kind: CaseIterable {
        /// A stream that ended in an error which was not our own decision: `RST_STREAM`, or a
        /// frame that made the library send one. The request behind it was work for nothing.
        case reset
        /// PING, SETTINGS, PRIORITY, empty DATA and frames of unknown types: each is answered, or
        /// looked at, and carries nothing.
        case control
        case windowUpdate

        /// What may come at once. A browser that leaves a page resets all it has open; nothing
        /// honest sends hundreds of control frames in a row.
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

    /// False when there was too much of it.
    mutating func admit(_ kind: Kind, at now: ContinuousClock.Instant) -> Bool {
        var bucket = buckets[kind] ?? Bucket(tokens: kind.burst, filledAt: now)
        let seconds = (now - bucket.filledAt) / .seconds(1)
        bucket.tokens = min(kind.burst, bucket.tokens + seconds * kind.perSecond) - 1
        bucket.filledAt = now
        buckets[kind] = bucket
        return bucket.tokens >= 0
    }
}
