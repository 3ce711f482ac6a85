/// A decimal number as conditions, values and clients write it, with the text that it came in.
struct ConfigNumber: Equatable, Sendable {
    let text: String
    let value: Double

    /// Digits with or without a sign, a fraction and an exponent: no hexadecimal, no infinity.
    init?(_ text: String) {
        // No number that is meant is longer, and reading costs time.
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

/// A version: numbers with points between, of which those that are missing at the end are zero.
struct VersionNumbers: Equatable, Comparable, Sendable {
    /// The digits of each without leading zeros, those of zero none, and none of zero at the end.
    private let parts: [ArraySlice<UInt8>]

    init?(_ text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count <= 256 else { return nil }
        var parts: [ArraySlice<UInt8>] = []
        for part in bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false) {
            guard !part.isEmpty, part.allSatisfy({ (48...57).contains($0) }) else { return nil }
            parts.append(part.drop { $0 == 48 })
        }
        while parts.last?.isEmpty == true { parts.removeLast() }
        self.parts = parts
    }

    static func < (left: VersionNumbers, right: VersionNumbers) -> Bool {
        for (left, right) in zip(left.parts, right.parts) where left != right {
            guard left.count == right.count else { return left.count < right.count }
            return left.lexicographicallyPrecedes(right)
        }
        return left.parts.count < right.parts.count
    }
}
