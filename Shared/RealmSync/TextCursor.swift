/// A cursor over the decimal numbers in the heads of messages.
struct TextCursor {
    private let bytes: [UInt8]
    private(set) var position: Int

    init(_ bytes: [UInt8], at position: Int = 0) {
        self.bytes = bytes
        self.position = position
    }

    var remaining: Int { bytes.count - position }

    /// Reads a number of 0 to 2^63 - 1, and the byte that ends it.
    ///
    /// - Returns: `nil` if there is something else.
    mutating func number(endingWith end: UInt8) -> Int64? {
        var value: Int64 = 0
        var digits = 0
        while position < bytes.count {
            let byte = bytes[position]
            position += 1
            if byte == end { return digits > 0 ? value : nil }
            guard (48...57).contains(byte), digits < 19 else { return nil }
            let (tens, isTooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, isBeyond) = tens.addingReportingOverflow(Int64(byte - 48))
            guard !isTooLarge, !isBeyond else { return nil }
            value = sum
            digits += 1
        }
        return nil
    }

    mutating func skip(_ count: Int) { position = min(bytes.count, position + max(0, count)) }
}
