/// One value as the server sent it: text from statements, binary from COPY. Accessors are nil for a
/// value of another type.
struct Cell {
    let block: RowBlock
    let place: RowBlock.Place
    let column: Int

    private var range: Range<Int> { place.start..<(place.start + place.length) }
    var bytes: ArraySlice<UInt8> { block.bytes[range] }
    var type: UInt32 { block.columns.types[column] }
    var isBinary: Bool { block.isBinary }
    var count: Int { place.length }

    /// The big-endian binary number of all bytes.
    private var bigEndian: UInt64 {
        var value: UInt64 = 0
        for index in range { value = value << 8 | UInt64(block.bytes[index]) }
        return value
    }

    /// The value as a string. `String(validating:as:)` is not used: it is not specialised and costs
    /// three times as much.
    var text: String? {
        let bytes = block.bytes
        let span = bytes.span.extracting(range)
        guard let characters = try? UTF8Span(validating: span) else { return nil }
        return String(copying: characters)
    }

    var integer: Int? {
        guard isBinary else { return decimal }
        switch count {
        case 2: return Int(Int16(truncatingIfNeeded: bigEndian))
        case 4: return Int(Int32(truncatingIfNeeded: bigEndian))
        case 8: return Int(Int64(truncatingIfNeeded: bigEndian))
        default: return nil
        }
    }

    /// The integer in text form. Parsed without a String, as integers are the most frequent type.
    private var decimal: Int? {
        let isNegative = bytes.first == UInt8(ascii: "-")
        let digits = isNegative ? bytes.dropFirst() : bytes
        guard !digits.isEmpty else { return nil }
        var value = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { return nil }
            // The sum is built as a negative number, as `Int.min` has no positive counterpart.
            let (tens, overflowsTens) = value.multipliedReportingOverflow(by: 10)
            let (sum, overflows) = tens.subtractingReportingOverflow(
                Int(digit - UInt8(ascii: "0"))
            )
            guard !overflowsTens, !overflows else { return nil }
            value = sum
        }
        if isNegative { return value }
        return value == .min ? nil : -value
    }

    var double: Double? {
        guard isBinary else {
            switch text {
            case "Infinity": return .infinity
            case "-Infinity": return -.infinity
            case "NaN": return .nan
            case let text?: return Double(text)
            case nil: return nil
            }
        }
        switch count {
        case 4: return Double(Float(bitPattern: UInt32(truncatingIfNeeded: bigEndian)))
        case 8: return Double(bitPattern: bigEndian)
        default: return nil
        }
    }

    var boolean: Bool? {
        guard count == 1 else { return nil }
        switch block.bytes[place.start] {
        case UInt8(ascii: "t") where !isBinary, 1 where isBinary: return true
        case UInt8(ascii: "f") where !isBinary, 0 where isBinary: return false
        default: return nil
        }
    }

    /// The decoded bytes of a `bytea`; the bytes as sent for every other type.
    var rawBytes: [UInt8]? {
        guard type == TypeOID.bytea, !isBinary else { return Array(bytes) }
        guard bytes.starts(with: "\\x".utf8), bytes.count % 2 == 0 else { return nil }
        var decoded: [UInt8] = []
        decoded.reserveCapacity(bytes.count / 2 - 1)
        var index = bytes.startIndex + 2
        while index < bytes.endIndex {
            guard let high = hexValue(bytes[index]), let low = hexValue(bytes[index + 1]) else {
                return nil
            }
            decoded.append(high << 4 | low)
            index += 2
        }
        return decoded
    }

    /// The JSON bytes. Binary `jsonb` begins with a version byte, 1; no JSON text begins with that
    /// byte.
    var jsonBytes: [UInt8] {
        Array(isBinary && bytes.first == 1 ? bytes.dropFirst() : bytes)
    }

    var uuid: String? {
        guard isBinary else { return bytes.count == 36 ? text : nil }
        guard bytes.count == 16 else { return nil }
        let digits = Array("0123456789abcdef".utf8)
        var characters: [UInt8] = []
        for (offset, byte) in bytes.enumerated() {
            if [4, 6, 8, 10].contains(offset) { characters.append(UInt8(ascii: "-")) }
            characters.append(digits[Int(byte >> 4)])
            characters.append(digits[Int(byte & 15)])
        }
        return String(decoding: characters, as: UTF8.self)
    }

    var timestamp: Int64? {
        guard isBinary else { return TimestampText.parse(bytes) }
        guard count == 8 else { return nil }
        let value = Int64(truncatingIfNeeded: bigEndian)
        if value == .max || value == .min { return value }
        let (sum, overflow) = value.addingReportingOverflow(TimestampText.postgresEpoch)
        return overflow ? nil : sum
    }

    /// The elements of a one-dimensional array; text form only. A nil element is NULL.
    var arrayElements: [String?]? {
        guard !isBinary else { return nil }
        return ArrayText.parse(bytes)
    }

    private func hexValue(_ digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): return digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): return digit - UInt8(ascii: "a") + 10
        default: return nil
        }
    }
}

/// Postgres' text form of an array, as in `{a,"b c",NULL}`.
enum ArrayText {
    /// - Returns: Nil if the text is not a one-dimensional array that starts at index 1.
    static func parse(_ bytes: ArraySlice<UInt8>) -> [String?]? {
        guard bytes.first == UInt8(ascii: "{"), bytes.last == UInt8(ascii: "}"), bytes.count > 1
        else { return nil }
        let inside = bytes.dropFirst().dropLast()
        if inside.isEmpty { return [] }
        var elements: [String?] = []
        var index = inside.startIndex
        while true {
            var element: [UInt8] = []
            var isQuoted = false
            if index < inside.endIndex, inside[index] == UInt8(ascii: "\"") {
                isQuoted = true
                index += 1
                while true {
                    guard index < inside.endIndex else { return nil }
                    let byte = inside[index]
                    index += 1
                    if byte == UInt8(ascii: "\"") { break }
                    if byte == UInt8(ascii: "\\") {
                        guard index < inside.endIndex else { return nil }
                        element.append(inside[index])
                        index += 1
                    } else {
                        element.append(byte)
                    }
                }
            } else {
                while index < inside.endIndex, inside[index] != UInt8(ascii: ",") {
                    guard inside[index] != UInt8(ascii: "{") else { return nil }
                    element.append(inside[index])
                    index += 1
                }
                if element.isEmpty { return nil }
            }
            if !isQuoted, element.elementsEqual("NULL".utf8) {
                elements.append(nil)
            } else {
                guard let text = String(validating: element, as: UTF8.self) else { return nil }
                elements.append(text)
            }
            if index == inside.endIndex { return elements }
            guard inside[index] == UInt8(ascii: ",") else { return nil }
            index += 1
        }
    }
}
