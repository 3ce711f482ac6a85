private import Glibc
private import Observability

/// A moment in UTC, in milliseconds since 1970, of the years 0001 to 9999.
///
/// Every incoming number, from a provider, a client or a row, is clamped to this range. So no
/// conversion, difference or sum of two instants traps.
package struct Instant: Hashable, Comparable, Sendable {
    package let milliseconds: Int64

    package init(milliseconds: Int64) {
        self.milliseconds = min(
            max(milliseconds, Self.earliestMilliseconds),
            Self.latestMilliseconds
        )
    }

    package init(seconds: Int64) {
        let (milliseconds, overflow) = seconds.multipliedReportingOverflow(by: 1000)
        self.init(milliseconds: overflow ? (seconds < 0 ? .min : .max) : milliseconds)
    }

    /// Converts from microseconds, Postgres' unit.
    package init(microseconds: Int64) {
        self.init(milliseconds: Self.floorDivide(microseconds, 1000))
    }

    /// Reads the wall clock. Only drivers call this: a decision gets its time as a parameter.
    package static func now() -> Instant {
        var time = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &time)
        return Instant(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    package var microseconds: Int64 { milliseconds * 1000 }

    /// Whole seconds, rounded down, as in `apns-expiration`.
    package var seconds: Int64 { Self.floorDivide(milliseconds, 1000) }

    package static func < (a: Instant, b: Instant) -> Bool { a.milliseconds < b.milliseconds }

    /// Adds milliseconds. The result is clamped to the first and the last instant.
    package func adding(milliseconds: Int64) -> Instant {
        let (sum, overflow) = self.milliseconds.addingReportingOverflow(milliseconds)
        return Instant(milliseconds: overflow ? (milliseconds < 0 ? .min : .max) : sum)
    }

    package func adding(_ wait: Duration) -> Instant {
        adding(milliseconds: wait.wholeMilliseconds)
    }

    private static let earliestMilliseconds: Int64 = -62_135_596_800_000
    private static let latestMilliseconds: Int64 = 253_402_300_799_999

    package static let earliest = Instant(milliseconds: earliestMilliseconds)
    package static let latest = Instant(milliseconds: latestMilliseconds)

    /// The UTC day as `YYYY-MM-DD`: the name of the partition that stores a delivery.
    package var day: String { String(iso8601.prefix(10)) }

    /// `YYYY-MM-DDTHH:mm:ss.SSSZ`.
    package var iso8601: String {
        Timestamp(
            secondsSince1970: Int(seconds),
            milliseconds: Int(milliseconds - seconds * 1000)
        ).text
    }

    /// Reads an ISO 8601 date and time with its zone: `2026-11-20T21:04:05[.123…](Z|±hh:mm)`. A
    /// time without a zone is ambiguous, and is invalid.
    package init?(iso8601 text: String) {
        var reader = DigitReader(Array(text.utf8))
        guard let year = reader.number(4), year > 0, reader.take("-"),
            let month = reader.number(2), (1...12).contains(month), reader.take("-"),
            let day = reader.number(2), day >= 1, day <= Self.days(in: month, of: year),
            reader.take("T") || reader.take("t") || reader.take(" "),
            let hour = reader.number(2), hour < 24, reader.take(":"),
            let minute = reader.number(2), minute < 60
        else { return nil }
        var second: Int64 = 0
        var fraction: Int64 = 0
        if reader.take(":") {
            guard let value = reader.number(2), value <= 60 else { return nil }
            second = value
            if reader.take(".") || reader.take(",") {
                guard let value = reader.milliseconds() else { return nil }
                fraction = value
            }
        }
        var offset: Int64 = 0
        if !reader.take("Z"), !reader.take("z") {
            let sign: Int64 = reader.take("+") ? 1 : reader.take("-") ? -1 : 0
            guard sign != 0, let hours = reader.number(2), hours < 24 else { return nil }
            _ = reader.take(":")
            guard let minutes = reader.number(2), minutes < 60 else { return nil }
            offset = sign * (hours * 60 + minutes)
        }
        guard reader.isAtEnd else { return nil }
        let dayNumber = Self.daysFromCivil(year: year, month: month, day: day)
        let seconds = (dayNumber * 24 + hour) * 3600 + (minute - offset) * 60 + second
        self.init(milliseconds: seconds * 1000 + fraction)
    }

    private static func floorDivide(_ a: Int64, _ b: Int64) -> Int64 {
        let quotient = a / b
        return a % b < 0 ? quotient - 1 : quotient
    }

    private static func days(in month: Int64, of year: Int64) -> Int64 {
        switch month {
        case 2: return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: return 30
        default: return 31
        }
    }

    /// Returns the days since 1970-01-01 of a Gregorian date (H. Hinnant, "chrono-compatible date algorithms").
    private static func daysFromCivil(year: Int64, month: Int64, day: Int64) -> Int64 {
        let year = month <= 2 ? year - 1 : year
        let era = floorDivide(year, 400)
        let yearOfEra = year - era * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
        return era * 146_097 + dayOfEra - 719_468
    }
}

extension Duration {
    /// The milliseconds, rounded down, clamped to 64 bits.
    package var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        let perMillisecond: Int64 = 1_000_000_000_000_000
        let rest = attoseconds / perMillisecond - (attoseconds % perMillisecond < 0 ? 1 : 0)
        let (whole, overflow) = seconds.multipliedReportingOverflow(by: 1000)
        let (sum, overflowsToo) = whole.addingReportingOverflow(rest)
        return overflow || overflowsToo ? (seconds < 0 ? .min : .max) : sum
    }
}

/// A reader of fixed-width numbers and marks from the front of a string.
private struct DigitReader {
    private let bytes: [UInt8]
    private var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var isAtEnd: Bool { position == bytes.count }

    mutating func take(_ mark: Unicode.Scalar) -> Bool {
        guard position < bytes.count, bytes[position] == UInt8(ascii: mark) else { return false }
        position += 1
        return true
    }

    mutating func number(_ width: Int) -> Int64? {
        guard position + width <= bytes.count else { return nil }
        var value: Int64 = 0
        for byte in bytes[position..<position + width] {
            guard (48...57).contains(byte) else { return nil }
            value = value * 10 + Int64(byte - 48)
        }
        position += width
        return value
    }

    /// Reads one to nine digits after the point. Digits beyond a millisecond are cut off.
    mutating func milliseconds() -> Int64? {
        var value: Int64 = 0
        var digits = 0
        while position < bytes.count, (48...57).contains(bytes[position]), digits < 9 {
            if digits < 3 { value = value * 10 + Int64(bytes[position] - 48) }
            digits += 1
            position += 1
        }
        guard digits > 0 else { return nil }
        for _ in min(digits, 3)..<3 { value *= 10 }
        return value
    }
}
