/// A time in UTC, rendered as RFC 3339 with milliseconds: `2026-11-20T21:04:05.123Z`.
package struct Timestamp: Sendable, Equatable {
    package let secondsSince1970: Int
    package let milliseconds: Int

    package init(secondsSince1970: Int, milliseconds: Int = 0) {
        self.secondsSince1970 = secondsSince1970
        self.milliseconds = milliseconds
    }

    package var text: String {
        var text: [UInt8] = []
        text.reserveCapacity(24)
        append(to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// Appends the civil date and time: Howard Hinnant's `civil_from_days`, eras of 400 years from
    /// March.
    func append(to text: inout [UInt8]) {
        let days = Int((Double(secondsSince1970) / 86_400).rounded(.down))
        let second = secondsSince1970 - days * 86_400
        let shifted = days + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra =
            (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        appendDigits(year, 4, to: &text)
        text.append(UInt8(ascii: "-"))
        appendPair(month, to: &text)
        text.append(UInt8(ascii: "-"))
        appendPair(day, to: &text)
        text.append(UInt8(ascii: "T"))
        appendPair(second / 3600, to: &text)
        text.append(UInt8(ascii: ":"))
        appendPair(second / 60 % 60, to: &text)
        text.append(UInt8(ascii: ":"))
        appendPair(second % 60, to: &text)
        text.append(UInt8(ascii: "."))
        appendDigits(milliseconds, 3, to: &text)
        text.append(UInt8(ascii: "Z"))
    }
}

/// Appends digits, with leading zeros up to `width`.
private func appendDigits(_ number: Int, _ width: Int, to text: inout [UInt8]) {
    if number >= 10 || width > 1 { appendDigits(number / 10, width - 1, to: &text) }
    text.append(UInt8(ascii: "0") + UInt8(abs(number % 10)))
}

/// Appends two digits of a number in 0..<100.
private func appendPair(_ number: Int, to text: inout [UInt8]) {
    text.append(UInt8(ascii: "0") + UInt8(number / 10))
    text.append(UInt8(ascii: "0") + UInt8(number % 10))
}
