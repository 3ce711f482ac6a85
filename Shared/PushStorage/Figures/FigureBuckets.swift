package import PushCore

/// The equal spans of time that a chart shows, at most 96: minutes for up to 90 minutes, then spans
/// of 5, 15 and 60 minutes, and of 2, 3 and more hours.
package struct FigureBuckets: Sendable, Equatable {
    /// The beginning of the first.
    package let start: Instant
    /// The minutes of each.
    package let minutes: Int
    package let count: Int

    package static let most = 96

    /// Makes the last complete buckets before a time: the present one would look like a drop.
    ///
    /// - Parameters:
    ///   - total: The minutes to show.
    ///   - now: The time.
    package init(last total: Int, before now: Instant) {
        minutes = Self.step(for: total)
        count = max(1, (total + minutes - 1) / minutes)
        let end = now.start(ofMinutes: minutes)
        start = end.adding(milliseconds: -Int64(count * minutes) * 60_000)
    }

    /// Makes the buckets from the one with `first` to the one with `last`.
    package init(from first: Instant, to last: Instant) {
        let total = max(0, last.seconds - first.seconds) / 60 + 1
        // One more, as the first bucket may begin before `first`.
        minutes = Self.step(for: Int(total), spare: 1)
        start = first.start(ofMinutes: minutes)
        count = Int(max(0, last.seconds - start.seconds)) / (minutes * 60) + 1
    }

    /// The end of the last, exclusive.
    package var end: Instant { time(of: count) }

    /// Returns the beginning of a bucket.
    package func time(of index: Int) -> Instant {
        start.adding(milliseconds: Int64(index * minutes) * 60_000)
    }

    /// Returns the bucket with a time; `nil` if none has it.
    package func index(of time: Instant) -> Int? {
        guard time >= start, time < end else { return nil }
        return Int(time.seconds - start.seconds) / (minutes * 60)
    }

    private static func step(for total: Int, spare: Int = 0) -> Int {
        if total <= 90 { return 1 }
        let step = [5, 15, 60].first { (total + $0 - 1) / $0 + spare <= most }
        let hours = (total + (most - spare) * 60 - 1) / ((most - spare) * 60)
        return step ?? hours * 60
    }
}
