/// Texts of Realm's values that JSON has no type for.
enum RealmTexts {
    /// Formats a decimal with its own digits: plain if it has at most 34 decimal places and no
    /// positive exponent, else with `E`. The exponent is -6176...6111.
    static func decimal(_ coefficient: UInt128, exponent: Int, isNegative: Bool) -> String {
        let digits = String(coefficient)
        let sign = isNegative ? "-" : ""
        if exponent == 0 { return sign + digits }
        guard exponent < 0, exponent >= -34 else {
            let adjusted = exponent + digits.utf8.count - 1
            let rest = digits.dropFirst()
            return sign + digits.prefix(1) + (rest.isEmpty ? "" : "." + rest)
                + "E" + (adjusted < 0 ? "" : "+") + String(adjusted)
        }
        let padded =
            digits.utf8.count > -exponent
            ? digits : String(repeating: "0", count: 1 - exponent - digits.utf8.count) + digits
        return sign + padded.dropLast(-exponent) + "." + padded.suffix(-exponent)
    }

    /// The seconds of the years 0001 to 9999.
    private static let seconds: ClosedRange<Int64> = -62_135_596_800...253_402_300_799

    /// Formats a time as RFC 3339, with 0, 3, 6 or 9 digits of the second's fraction.
    ///
    /// - Parameters:
    ///   - seconds: Since 1970, rounded towards zero.
    ///   - nanoseconds: With the same sign.
    /// - Returns: `nil` outside the years 0001 to 9999.
    static func time(seconds: Int64, nanoseconds: Int64) -> String? {
        guard Self.seconds.contains(seconds) else { return nil }
        var (seconds, fraction) = (seconds, nanoseconds)
        if fraction < 0 {
            seconds -= 1
            fraction += 1_000_000_000
        }
        guard Self.seconds.contains(seconds) else { return nil }
        let day = Int((seconds - floorModulo(seconds, 86_400)) / 86_400)
        let second = Int(floorModulo(seconds, 86_400))
        let (year, month, dayOfMonth) = date(daysSince1970: day)
        var text: [UInt8] = []
        text.reserveCapacity(32)
        append(year, 4, to: &text)
        text.append(UInt8(ascii: "-"))
        append(month, 2, to: &text)
        text.append(UInt8(ascii: "-"))
        append(dayOfMonth, 2, to: &text)
        text.append(UInt8(ascii: "T"))
        append(second / 3600, 2, to: &text)
        text.append(UInt8(ascii: ":"))
        append(second / 60 % 60, 2, to: &text)
        text.append(UInt8(ascii: ":"))
        append(second % 60, 2, to: &text)
        if fraction != 0 {
            text.append(UInt8(ascii: "."))
            if fraction % 1_000_000 == 0 {
                append(Int(fraction / 1_000_000), 3, to: &text)
            } else if fraction % 1000 == 0 {
                append(Int(fraction / 1000), 6, to: &text)
            } else {
                append(Int(fraction), 9, to: &text)
            }
        }
        text.append(UInt8(ascii: "Z"))
        return String(decoding: text, as: UTF8.self)
    }

    private static func floorModulo(_ value: Int64, _ divisor: Int64) -> Int64 {
        let rest = value % divisor
        return rest < 0 ? rest + divisor : rest
    }

    private static func append(_ number: Int, _ digits: Int, to text: inout [UInt8]) {
        var divisor = 1
        for _ in 1..<digits { divisor *= 10 }
        while divisor > 0 {
            text.append(48 + UInt8(number / divisor % 10))
            divisor /= 10
        }
    }

    /// The Gregorian date of a day, by eras of 400 years that begin in March.
    private static func date(daysSince1970 days: Int) -> (year: Int, month: Int, day: Int) {
        // Day 0 is 0000-03-01; all days here come after it.
        let shifted = days + 719_468
        let (era, day) = (shifted / 146_097, shifted % 146_097)
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365
        let dayOfYear = day - (365 * year + year / 4 - year / 100)
        let month = (5 * dayOfYear + 2) / 153
        let dayOfMonth = dayOfYear - (153 * month + 2) / 5 + 1
        return (
            era * 400 + year + (month < 10 ? 0 : 1), month < 10 ? month + 3 : month - 9, dayOfMonth
        )
    }

    private static let alphabet: StaticString =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

    /// Encodes bytes in place, in the standard alphabet with padding.
    static func base64(_ bytes: UnsafeRawBufferPointer) -> String {
        let letters = unsafe alphabet.utf8Start
        let capacity = (bytes.count + 2) / 3 * 4
        return unsafe String(unsafeUninitializedCapacity: capacity) { text in
            var place = 0
            var start = 0
            while start < bytes.count {
                let count = min(3, bytes.count - start)
                var bits: UInt32 = 0
                for index in 0..<3 {
                    let byte = index < count ? unsafe bytes[start + index] : 0
                    bits = bits << 8 | UInt32(byte)
                }
                for index in 0..<4 {
                    let letter = unsafe letters[Int(bits >> UInt32(18 - 6 * index) & 0x3F)]
                    unsafe text[place + index] = index <= count ? letter : UInt8(ascii: "=")
                }
                place += 4
                start += 3
            }
            return place
        }
    }
}
