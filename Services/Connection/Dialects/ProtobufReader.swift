/// Reads the fields of a protobuf message. Unknown fields are skipped; groups are refused.
struct ProtobufReader {
    enum Value: Equatable {
        case number(UInt64)
        case bytes(ArraySlice<UInt8>)
    }

    private var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    /// Returns the next field; `nil` at the end.
    mutating func next() throws(DialectError) -> (field: Int, value: Value)? {
        guard !rest.isEmpty else { return nil }
        let tag = try varint()
        let field = Int(truncatingIfNeeded: tag >> 3)
        guard field > 0, tag >> 3 < 1 << 29 else { throw Self.invalid }
        switch tag & 7 {
        case 0: return (field, .number(try varint()))
        case 1: return (field, .bytes(try take(8)))
        case 2:
            let count = try varint()
            guard count <= UInt64(rest.count) else { throw Self.invalid }
            return (field, .bytes(try take(Int(count))))
        case 5: return (field, .bytes(try take(4)))
        default: throw Self.invalid
        }
    }

    private static let invalid = DialectError(description: "is not a protobuf message")

    private mutating func varint() throws(DialectError) -> UInt64 {
        var value: UInt64 = 0
        for shift in stride(from: UInt64(0), to: 70, by: 7) {
            guard let byte = rest.popFirst() else { throw Self.invalid }
            if shift < 64 { value |= UInt64(byte & 0x7f) << shift }
            if byte & 0x80 == 0 { return value }
        }
        throw Self.invalid
    }

    private mutating func take(_ count: Int) throws(DialectError) -> ArraySlice<UInt8> {
        guard count <= rest.count else { throw Self.invalid }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}

/// Writes a protobuf message.
struct ProtobufWriter {
    private(set) var bytes: [UInt8] = []

    mutating func number(_ field: Int, _ value: Int64) {
        varint(UInt64(field) << 3)
        varint(UInt64(bitPattern: value))
    }

    mutating func bytes(_ field: Int, _ value: some Collection<UInt8>) {
        varint(UInt64(field) << 3 | 2)
        varint(UInt64(value.count))
        bytes.append(contentsOf: value)
    }

    mutating func text(_ field: Int, _ text: String) { bytes(field, Array(text.utf8)) }

    private mutating func varint(_ value: UInt64) {
        var value = value
        while value >= 0x80 {
            bytes.append(UInt8(value & 0x7f) | 0x80)
            value >>= 7
        }
        bytes.append(UInt8(value))
    }
}
