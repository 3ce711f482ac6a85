/// A decimal number of a condition, a value or a client, with its original text.
struct ConfigNumber: Equatable, Sendable {
    let text: String
    let value: Double

    /// Parses digits with or without a sign, a fraction and an exponent: no hexadecimal, no infinity.
    init?(_ text: String) {
        // Parsing costs time, and real numbers are not longer.
        guard text.utf8.count <= 64,
            text.utf8.contains(where: { (48...57).contains($0) }),
            text.utf8.allSatisfy({ byte in
                switch byte {
                case 48...57, UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."),
                    UInt8(ascii: "e"), UInt8(ascii: "E"):
                    true
                default: false
                }
            }), let value = Double(text), value.isFinite
        else { return nil }
        self.text = text
        self.value = value
    }
}

/// A version: numbers separated by points; missing ones at the end are zero.
struct VersionNumbers: Equatable, Comparable, Sendable {
    private static let maximumBytes = 256

    /// The count of digits of each number without leading zeros, then these digits; zeros at the end are
    /// omitted. So versions compare as these arrays do.
    private let digits: [UInt16]

    init?(_ text: String) {
        guard text.utf8.count <= Self.maximumBytes else { return nil }
        var digits: [UInt16] = []
        digits.reserveCapacity(2 * text.utf8.count + 1)
        var start = 0
        var isEmpty = true
        digits.append(0)
        for byte in text.utf8 {
            if byte == UInt8(ascii: ".") {
                guard !isEmpty else { return nil }
                start = digits.count
                isEmpty = true
                digits.append(0)
                continue
            }
            guard (48...57).contains(byte) else { return nil }
            isEmpty = false
            if digits[start] == 0, byte == 48 { continue }
            digits[start] += 1
            digits.append(UInt16(byte))
        }
        guard !isEmpty else { return nil }
        // The digits are ASCII codes, so a 0 here is a count.
        while digits.last == 0 { digits.removeLast() }
        self.digits = digits
    }

    static func < (left: VersionNumbers, right: VersionNumbers) -> Bool {
        left.digits.lexicographicallyPrecedes(right.digits)
    }
}
