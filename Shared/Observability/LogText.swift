/// Appends the parts of a line: each string at once, as byte by byte it would cost several times
/// that, and a busy server writes a line a request.
extension [UInt8] {
    mutating func append(_ text: StaticString) {
        unsafe append(
            contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        )
    }

    mutating func append(text: String) {
        var text = text
        text.withUTF8 { unsafe append(contentsOf: $0) }
    }

    mutating func append(number: Int) {
        guard number >= 0 else { return append(text: String(number)) }
        append(digits: number)
    }

    private mutating func append(digits number: Int) {
        if number >= 10 { append(digits: number / 10) }
        append(UInt8(ascii: "0") + UInt8(number % 10))
    }

    /// Appends a number in the form of `description`; thousandths, as in durations, have a faster
    /// path.
    mutating func append(number: Double) {
        let thousandths = (number * 1000).rounded()
        guard number >= 0.001, number < 1e9, thousandths / 1000 == number else {
            return append(text: number.description)
        }
        let (whole, rest) = Int(thousandths).quotientAndRemainder(dividingBy: 1000)
        append(digits: whole)
        append(UInt8(ascii: "."))
        append(UInt8(ascii: "0") + UInt8(rest / 100))
        guard rest % 100 > 0 else { return }
        append(UInt8(ascii: "0") + UInt8(rest / 10 % 10))
        if rest % 10 > 0 { append(UInt8(ascii: "0") + UInt8(rest % 10)) }
    }

    /// Appends a quoted JSON string. Observability is below JSON's writer for values, and a log
    /// line needs no more than this.
    mutating func append(quoted text: String) {
        var text = text
        text.withUTF8 { unsafe append(quoted: $0) }
    }

    mutating func append(quoted text: StaticString) {
        text.withUTF8Buffer { unsafe append(quoted: $0) }
    }

    private mutating func append(quoted text: UnsafeBufferPointer<UInt8>) {
        append(UInt8(ascii: "\""))
        if unsafe text.contains(where: mustEscape) {
            for place in text.indices { append(escaped: unsafe text[place]) }
        } else {
            unsafe append(contentsOf: text)
        }
        append(UInt8(ascii: "\""))
    }

    private mutating func append(escaped byte: UInt8) {
        let digits: StaticString = "0123456789abcdef"
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"):
            append(UInt8(ascii: "\\"))
            append(byte)
        case UInt8(ascii: "\n"): append("\\n")
        case UInt8(ascii: "\t"): append("\\t")
        case let byte where mustEscape(byte):
            append("\\u00")
            append(unsafe digits.utf8Start[Int(byte >> 4)])
            append(unsafe digits.utf8Start[Int(byte & 15)])
        default: append(byte)
        }
    }
}

private func mustEscape(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") || byte == 0x7F
}
