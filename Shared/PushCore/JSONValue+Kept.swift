package import JSON

extension JSONValue {
    /// The size of its compact text in Postgres. `jsonb` has no exponents: the five bytes of
    /// `1e308` are 309 digits there. Limits of stored values use this size. Otherwise a small
    /// request could become a large response.
    package var keptByteCount: Int { bytes.count + expansion }

    /// The number of bytes that `jsonb` needs in addition, as it writes numbers without exponents.
    private var expansion: Int {
        switch self {
        case .null, .bool, .integer, .string: 0
        case .double(let value):
            // Numbers in this range are written without an exponent.
            value == 0 || (1e-4..<1e16).contains(abs(value)) || !value.isFinite
                ? 0 : Self.expansion(ofNumber: value.description)
        case .number(let text): Self.expansion(ofNumber: text)
        case .array(let elements): elements.reduce(0) { $0 + $1.expansion }
        case .object(let object): object.reduce(0) { $0 + $1.value.expansion }
        }
    }

    /// Returns how much longer a number is once its exponent is written out.
    private static func expansion(ofNumber text: String) -> Int {
        let parts = text.utf8.split(separator: UInt8(ascii: "e"), maxSplits: 1)
        let upper = text.utf8.split(separator: UInt8(ascii: "E"), maxSplits: 1)
        let (mantissa, exponent) =
            parts.count == 2 ? (parts[0], parts[1]) : (upper[0], upper.last ?? upper[0])
        guard parts.count == 2 || upper.count == 2 else { return 0 }
        let sign = mantissa.first == UInt8(ascii: "-") ? 1 : 0
        let point = mantissa.firstIndex(of: UInt8(ascii: "."))
        let behind = point.map { mantissa.distance(from: $0, to: mantissa.endIndex) - 1 } ?? 0
        let before = mantissa.count - sign - (point == nil ? 0 : behind + 1)
        // A bound that exceeds what `jsonb` accepts.
        let far = 1 << 20
        let places = max(-far, min(far, Int(Substring(exponent)) ?? far))
        let whole = max(1, before + places)
        let fraction = max(0, behind - places)
        let kept = sign + whole + (fraction > 0 ? 1 + fraction : 0)
        return max(0, kept - text.utf8.count)
    }
}
