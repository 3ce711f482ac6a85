package import PushCore

/// Times in headers, in the formats of Azure's clients. A time without a zone is in UTC.
package enum HubTime {
    /// Parses ISO 8601, or .NET's invariant format `12/25/2026 06:30:00`, with or without `AM` or `PM`.
    ///
    /// The Java SDK writes hours of a 12-hour clock without `AM` and `PM`. So a time in the morning
    /// that has passed is read as the afternoon's, if that is in the future.
    ///
    /// - Returns: `nil` for any other string.
    package static func instant(_ text: String, now: Instant) -> Instant? {
        if let time = HubJSON.instant(text) { return time }
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard (2...3).contains(parts.count),
            let day = numbers(parts[0], "/"), day.count == 3, (1000...9999).contains(day[2]),
            let clock = numbers(parts[1], ":"), clock.count == 3
        else { return nil }
        var hour = clock[0]
        if parts.count == 3 {
            let half = parts[2].lowercased()
            guard half == "am" || half == "pm", (1...12).contains(hour) else { return nil }
            hour = hour % 12 + (half == "pm" ? 12 : 0)
        }
        func time(_ hour: Int) -> Instant? {
            let date = "\(day[2])-\(two(day[0]))-\(two(day[1]))"
            return Instant(iso8601: "\(date)T\(two(hour)):\(two(clock[1])):\(two(clock[2]))Z")
        }
        let morning = time(hour)
        guard parts.count == 2, hour < 12, let morning, morning <= now,
            let afternoon = time(hour + 12), afternoon > now
        else { return morning }
        return afternoon
    }

    private static func numbers(_ text: Substring, _ separator: Character) -> [Int]? {
        let parts = text.split(separator: separator, omittingEmptySubsequences: false)
        let numbers = parts.compactMap { part -> Int? in
            guard (1...4).contains(part.utf8.count),
                part.utf8.allSatisfy({ (48...57).contains($0) })
            else { return nil }
            return Int(part)
        }
        return numbers.count == parts.count ? numbers : nil
    }

    private static func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
}
