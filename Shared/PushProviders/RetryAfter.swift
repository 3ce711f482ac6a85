internal import HTTPTransport
internal import PushCore

extension HTTPResponse {
    /// Returns `Retry-After`, in either of its forms; `nil` if it is absent or invalid.
    func retryAfter(at now: Instant) -> Duration? {
        header("retry-after").flatMap { parseRetryAfter($0, at: now) }
    }
}

/// - SeeAlso: RFC 9110, sections 10.2.3 and 5.6.7. Only the date form that senders must use is
///   accepted. A time of more than a day is cut to a day.
func parseRetryAfter(_ text: String, at now: Instant) -> Duration? {
    let longest: Int64 = 86_400_000
    if !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) }) {
        guard let seconds = Int64(text) else { return .milliseconds(longest) }
        return .milliseconds(min(seconds, longest / 1000) * 1000)
    }
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]
    let parts = text.split(separator: " ")
    guard
        parts.count == 6, parts[0].hasSuffix(","), parts[5] == "GMT",
        let month = months.firstIndex(of: String(parts[2]))
    else { return nil }
    let number = month < 9 ? "0\(month + 1)" : "\(month + 1)"
    guard let date = Instant(iso8601: "\(parts[3])-\(number)-\(parts[1])T\(parts[4])Z") else {
        return nil
    }
    return .milliseconds(min(max(date.milliseconds - now.milliseconds, 0), longest))
}
