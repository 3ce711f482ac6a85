import PushCore

/// The speed of a push and its remaining time, from the samples of the last ten seconds. Pure: no
/// clock, no I/O.
struct ProgressMeter: Equatable {
    private static let windowMilliseconds: Int64 = 10_000

    private struct Sample: Equatable {
        let done: Int
        let at: Instant
    }

    private var samples: [Sample] = []

    /// Adds a sample: the number of deliveries that have ended.
    mutating func take(done: Int, at now: Instant) {
        samples.append(Sample(done: done, at: now))
        // One older sample stays, so that the whole window is covered.
        let limit = now.adding(milliseconds: -Self.windowMilliseconds)
        while samples.count > 2, samples[1].at <= limit { samples.removeFirst() }
    }

    /// Deliveries per second; `nil` before the second sample.
    var rate: Double? {
        guard let first = samples.first, let last = samples.last else { return nil }
        let milliseconds = last.at.milliseconds - first.at.milliseconds
        guard milliseconds > 0 else { return nil }
        return Double(max(0, last.done - first.done)) * 1000 / Double(milliseconds)
    }

    /// Returns the time for the pending deliveries; `nil` if nothing progresses.
    func secondsLeft(pending: Int) -> Int? {
        guard pending > 0 else { return 0 }
        guard let rate, rate > 0 else { return nil }
        return Int((Double(pending) / rate).rounded(.up))
    }

    /// Formats a share for people: `12/40 (30.0 %)`.
    static func share(_ done: Int, of total: Int) -> String {
        guard total > 0 else { return "\(done)/\(total)" }
        let permille = min(done, total) * 1000 / total
        return "\(done)/\(total) (\(permille / 10).\(permille % 10) %)"
    }

    /// Formats a duration for people, by its two largest units.
    static func text(seconds: Int) -> String {
        let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")]
        var rest = max(0, seconds)
        var parts: [String] = []
        for (length, unit) in units {
            if rest >= length || unit == "s" && parts.isEmpty {
                parts.append("\(rest / length) \(unit)")
                rest %= length
            } else if !parts.isEmpty {
                break
            }
            if parts.count == 2 || rest == 0 && !parts.isEmpty { break }
        }
        return parts.joined(separator: " ")
    }
}
