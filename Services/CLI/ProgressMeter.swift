import PushCore

/// How fast a push goes and how long it will take, from what was seen within the last ten seconds.
/// Pure: no clock, no I/O.
struct ProgressMeter: Equatable {
    private static let windowMilliseconds: Int64 = 10_000

    private struct Sample: Equatable {
        let done: Int
        let at: Instant
    }

    private var samples: [Sample] = []

    /// One look at the push: how many of its deliveries have ended.
    mutating func take(done: Int, at now: Instant) {
        samples.append(Sample(done: done, at: now))
        // One that is older stays, so that the window is covered whole.
        let limit = now.adding(milliseconds: -Self.windowMilliseconds)
        while samples.count > 2, samples[1].at <= limit { samples.removeFirst() }
    }

    /// Deliveries a second; `nil` until it was looked at twice.
    var rate: Double? {
        guard let first = samples.first, let last = samples.last else { return nil }
        let milliseconds = last.at.milliseconds - first.at.milliseconds
        guard milliseconds > 0 else { return nil }
        return Double(max(0, last.done - first.done)) * 1000 / Double(milliseconds)
    }

    /// How long so many deliveries will take; `nil` where nothing moves.
    func secondsLeft(pending: Int) -> Int? {
        guard pending > 0 else { return 0 }
        guard let rate, rate > 0 else { return nil }
        return Int((Double(pending) / rate).rounded(.up))
    }

    /// For people: the two largest units.
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
