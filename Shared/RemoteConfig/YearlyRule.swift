/// The rule for the yearly changes of clocks, in POSIX' form: `CET-1CEST,M3.5.0,M10.5.0/3`.
struct YearlyRule: Sendable {
    struct Summer: Sendable {
        let offset: Int64
        let start: Change
        let end: Change
    }

    /// A day of the year, and seconds after its midnight, by the clock before the change.
    struct Change: Sendable {
        enum Day: Sendable {
            /// 1 to 365, without counting the 29th of February.
            case ofYear(Int64)
            /// 0 to 365.
            case sinceNewYear(Int64)
            /// The month, the week (5: the last), and the day of the week, 0 being Sunday.
            case ofWeek(month: Int64, week: Int64, day: Int64)
        }

        let day: Day
        let seconds: Int64
    }

    let standard: Int64
    let summer: Summer?

    init(standard: Int64, summer: Summer?) {
        self.standard = standard
        self.summer = summer
    }

    /// - Returns: `nil` if it is not a rule.
    init?(_ text: ArraySlice<UInt8>) {
        var reader = RuleReader(text)
        guard reader.skipName(), let west = reader.time() else { return nil }
        standard = -west
        guard !reader.isAtEnd else {
            summer = nil
            return
        }
        guard reader.skipName() else { return nil }
        var offset = standard + 3600
        if !reader.isAt(",") {
            guard let west = reader.time() else { return nil }
            offset = -west
        }
        guard let start = reader.change(), let end = reader.change(), reader.isAtEnd else {
            return nil
        }
        summer = Summer(offset: offset, start: start, end: end)
    }

    func offset(at time: Int64) -> Int64 {
        guard let summer else { return standard }
        let year = Self.year(ofDay: Self.floorDivide(time + standard, 86_400))
        let start = Self.second(of: summer.start, in: year) - standard
        let end = Self.second(of: summer.end, in: year) - summer.offset
        // In the south, summer includes the turn of the year.
        let isSummer =
            start <= end ? time >= start && time < end : time >= start || time < end
        return isSummer ? summer.offset : standard
    }

    /// Returns when a change happens, in seconds since 1970 by a local clock.
    private static func second(of change: Change, in year: Int64) -> Int64 {
        let newYear = days(beforeYear: year)
        let day: Int64
        switch change.day {
        case .ofYear(let number):
            day = newYear + number - 1 + (isLeap(year) && number >= 60 ? 1 : 0)
        case .sinceNewYear(let number): day = newYear + number
        case .ofWeek(let month, let week, let weekday):
            let first = newYear + days(beforeMonth: month, of: year)
            let length = days(beforeMonth: month + 1, of: year) - days(beforeMonth: month, of: year)
            // The first of January 1970 was a Thursday.
            let ahead = (weekday - (first + 4) % 7 + 7) % 7
            var ofMonth = ahead + (week - 1) * 7
            if ofMonth >= length { ofMonth -= 7 }
            day = first + ofMonth
        }
        return day * 86_400 + change.seconds
    }

    private static func floorDivide(_ a: Int64, _ b: Int64) -> Int64 {
        a / b - (a % b < 0 ? 1 : 0)
    }

    private static func isLeap(_ year: Int64) -> Bool {
        year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
    }

    /// Returns the days from 1970 to the first of January.
    private static func days(beforeYear year: Int64) -> Int64 {
        let last = year - 1
        return last * 365 + floorDivide(last, 4) - floorDivide(last, 100) + floorDivide(last, 400)
            - 719_162
    }

    private static func days(beforeMonth month: Int64, of year: Int64) -> Int64 {
        let before: [Int64] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365]
        return before[Int(month - 1)] + (month > 2 && isLeap(year) ? 1 : 0)
    }

    private static func year(ofDay day: Int64) -> Int64 {
        var year = 1970 + floorDivide(day * 400, 146_097)
        while days(beforeYear: year) > day { year -= 1 }
        while days(beforeYear: year + 1) <= day { year += 1 }
        return year
    }
}

private struct RuleReader {
    private var rest: ArraySlice<UInt8>

    init(_ text: ArraySlice<UInt8>) { rest = text }

    var isAtEnd: Bool { rest.isEmpty }

    func isAt(_ mark: Unicode.Scalar) -> Bool { rest.first == UInt8(ascii: mark) }

    private mutating func take(_ mark: Unicode.Scalar) -> Bool {
        guard isAt(mark) else { return false }
        rest.removeFirst()
        return true
    }

    /// Skips letters, or anything between angle brackets.
    mutating func skipName() -> Bool {
        if take("<") {
            rest = rest.drop { $0 != UInt8(ascii: ">") }
            return take(">")
        }
        let count = rest.count
        rest = rest.drop { (65...90).contains($0) || (97...122).contains($0) }
        return rest.count <= count - 3
    }

    /// Reads at most seven digits.
    private mutating func number() -> Int64? {
        var value: Int64?
        while let digit = rest.first, (48...57).contains(digit), (value ?? 0) < 1_000_000 {
            value = (value ?? 0) * 10 + Int64(digit - 48)
            rest.removeFirst()
        }
        return value
    }

    /// Reads `[+-]hh[:mm[:ss]]`, in seconds.
    mutating func time() -> Int64? {
        let sign: Int64 = take("-") ? -1 : 1
        if sign == 1 { _ = take("+") }
        guard var seconds = number().map({ $0 * 3600 }) else { return nil }
        if take(":") {
            guard let minutes = number() else { return nil }
            seconds += minutes * 60
            if take(":") {
                guard let more = number() else { return nil }
                seconds += more
            }
        }
        return seconds <= 168 * 3600 ? sign * seconds : nil
    }

    /// Reads a change such as `,M3.5.0/2`.
    mutating func change() -> YearlyRule.Change? {
        guard take(",") else { return nil }
        let day: YearlyRule.Change.Day
        if take("M") {
            guard let month = number(), (1...12).contains(month), take("."), let week = number(),
                (1...5).contains(week), take("."), let weekday = number(), weekday <= 6
            else { return nil }
            day = .ofWeek(month: month, week: week, day: weekday)
        } else if take("J") {
            guard let number = number(), (1...365).contains(number) else { return nil }
            day = .ofYear(number)
        } else {
            guard let number = number(), number <= 365 else { return nil }
            day = .sinceNewYear(number)
        }
        guard take("/") else { return YearlyRule.Change(day: day, seconds: 7200) }
        guard let seconds = time() else { return nil }
        return YearlyRule.Change(day: day, seconds: seconds)
    }
}
