/// Converts timestamps to and from Postgres' ISO text. Microseconds since 1970, UTC.
enum TimestampText {
    static let microsecondsPerDay: Int64 = 86_400_000_000
    /// 2000-01-01, the epoch of Postgres' binary timestamps.
    static let postgresEpoch: Int64 = 946_684_800_000_000

    static func write(_ timestamp: Int64) -> String {
        if timestamp == .max { return "infinity" }
        if timestamp == .min { return "-infinity" }
        var days = timestamp / microsecondsPerDay
        var rest = timestamp % microsecondsPerDay
        if rest < 0 {
            rest += microsecondsPerDay
            days -= 1
        }
        let (year, month, day) = civil(fromDays: days)
        let seconds = rest / 1_000_000
        let date = "\(padded(year > 0 ? year : 1 - year, 4))-\(padded(month, 2))-\(padded(day, 2))"
        let clock =
            "\(padded(seconds / 3600, 2)):\(padded(seconds / 60 % 60, 2)):\(padded(seconds % 60, 2))"
        return "\(date) \(clock).\(padded(rest % 1_000_000, 6))+00\(year > 0 ? "" : " BC")"
    }

    /// - Returns: Nil if it is not a date or timestamp in ISO style.
    static func parse(_ text: some Collection<UInt8>) -> Int64? {
        var reader = Reader(bytes: Array(text))
        if reader.rest == "infinity" { return .max }
        if reader.rest == "-infinity" { return .min }
        guard let year = reader.number(digits: 4...6), reader.take("-"),
            let month = reader.number(digits: 2...2), (1...12).contains(month), reader.take("-"),
            let day = reader.number(digits: 2...2), (1...31).contains(day)
        else { return nil }
        var microseconds: Int64 = 0
        if reader.take(" ") || reader.take("T") {
            guard let clock = reader.clock() else { return nil }
            microseconds = clock
        }
        let isBeforeChrist = reader.rest == " BC"
        guard isBeforeChrist || reader.rest.isEmpty else { return nil }
        let days = days(fromYear: isBeforeChrist ? 1 - year : year, month: month, day: day)
        let (product, overflow) = days.multipliedReportingOverflow(by: microsecondsPerDay)
        return overflow ? nil : product &+ microseconds
    }

    // The next two functions: Howard Hinnant, "chrono-compatible low-level date algorithms".

    private static func civil(fromDays days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = days + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra =
            (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        return (year, month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }

    private static func days(fromYear year: Int64, month: Int64, day: Int64) -> Int64 {
        let shifted = month <= 2 ? year - 1 : year
        let era = (shifted >= 0 ? shifted : shifted - 399) / 400
        let yearOfEra = shifted - era * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
        return era * 146_097 + dayOfEra - 719_468
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }

    private struct Reader {
        let bytes: [UInt8]
        var position = 0

        init(bytes: [UInt8]) { self.bytes = bytes }

        var rest: String { String(decoding: bytes[position...], as: UTF8.self) }

        mutating func take(_ character: Unicode.Scalar) -> Bool {
            guard position < bytes.count, bytes[position] == UInt8(ascii: character) else {
                return false
            }
            position += 1
            return true
        }

        mutating func number(digits: ClosedRange<Int>) -> Int64? {
            let start = position
            var value: Int64 = 0
            while position < bytes.count, position - start < digits.upperBound,
                (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(bytes[position])
            {
                value = value * 10 + Int64(bytes[position] - UInt8(ascii: "0"))
                position += 1
            }
            return position - start < digits.lowerBound ? nil : value
        }

        /// Parses `hh:mm:ss[.ffffff][±hh[:mm[:ss]]]` as microseconds since midnight, UTC.
        mutating func clock() -> Int64? {
            guard let hours = number(digits: 2...2), hours <= 24, take(":"),
                let minutes = number(digits: 2...2), minutes < 60, take(":"),
                let seconds = number(digits: 2...2), seconds <= 60
            else { return nil }
            var microseconds = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
            if take(".") {
                let start = position
                guard var fraction = number(digits: 1...6) else { return nil }
                for _ in (position - start)..<6 { fraction *= 10 }
                microseconds += fraction
            }
            let isEast = take("+")
            guard isEast || take("-") else { return microseconds }
            guard var offset = number(digits: 2...2).map({ $0 * 3600 }) else { return nil }
            if take(":") {
                guard let minutes = number(digits: 2...2) else { return nil }
                offset += minutes * 60
                if take(":") {
                    guard let seconds = number(digits: 2...2) else { return nil }
                    offset += seconds
                }
            }
            return microseconds + (isEast ? -offset : offset) * 1_000_000
        }
    }
}
