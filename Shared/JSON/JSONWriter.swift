extension JSONValue {
    /// This value as compact UTF-8.
    public var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(256)
        write(into: &bytes)
        return bytes
    }

    /// This value as compact text.
    public var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Appends this value, compactly. What JSON has no word for (NaN, infinities) becomes `null`.
    public func write(into bytes: inout [UInt8]) {
        switch self {
        case .null: bytes.append("null")
        case .bool(true): bytes.append("true")
        case .bool(false): bytes.append("false")
        case .integer(let value): writeJSONInteger(value, into: &bytes)
        case .double(let value):
            if value.isFinite {
                bytes.append(contentsOf: value.description.utf8)
            } else {
                bytes.append("null")
            }
        case .number(let text): bytes.append(contentsOf: text.utf8)
        case .string(let value): writeJSONString(value, into: &bytes)
        case .array(let elements):
            bytes.append(UInt8(ascii: "["))
            var isFirst = true
            for element in elements {
                if !isFirst { bytes.append(UInt8(ascii: ",")) }
                isFirst = false
                element.write(into: &bytes)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(let object): object.write(into: &bytes)
        }
    }
}

extension JSONObject {
    /// This object as compact UTF-8.
    public var bytes: [UInt8] { JSONValue.object(self).bytes }

    /// This object as compact text.
    public var text: String { JSONValue.object(self).text }

    /// Appends this object, compactly, its members in their order.
    public func write(into bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "{"))
        var isFirst = true
        for (key, value) in self {
            if !isFirst { bytes.append(UInt8(ascii: ",")) }
            isFirst = false
            writeJSONString(key, into: &bytes)
            bytes.append(UInt8(ascii: ":"))
            value.write(into: &bytes)
        }
        bytes.append(UInt8(ascii: "}"))
    }
}

/// Appends a string with its quotes, for writers that put JSON together by hand.
public func writeJSONString(_ text: String, into bytes: inout [UInt8]) {
    bytes.append(UInt8(ascii: "\""))
    var text = text
    text.withUTF8 { source in
        var from = 0
        for index in 0..<source.count {
            let byte = unsafe source[index]
            guard byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") else {
                continue
            }
            unsafe bytes.append(contentsOf: UnsafeBufferPointer(rebasing: source[from..<index]))
            appendEscape(of: byte, to: &bytes)
            from = index + 1
        }
        unsafe bytes.append(contentsOf: UnsafeBufferPointer(rebasing: source[from...]))
    }
    bytes.append(UInt8(ascii: "\""))
}

/// Appends an integer's digits, for writers that put JSON together by hand.
public func writeJSONInteger(_ value: Int64, into bytes: inout [UInt8]) {
    if value < 0 { bytes.append(UInt8(ascii: "-")) }
    var rest = value.magnitude
    let first = bytes.count
    repeat {
        bytes.append(UInt8(truncatingIfNeeded: rest % 10) + UInt8(ascii: "0"))
        rest /= 10
    } while rest > 0
    bytes[first...].reverse()
}

private func appendEscape(of byte: UInt8, to bytes: inout [UInt8]) {
    bytes.append(UInt8(ascii: "\\"))
    switch byte {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes.append(byte)
    case 0x08: bytes.append(UInt8(ascii: "b"))
    case 0x09: bytes.append(UInt8(ascii: "t"))
    case 0x0A: bytes.append(UInt8(ascii: "n"))
    case 0x0C: bytes.append(UInt8(ascii: "f"))
    case 0x0D: bytes.append(UInt8(ascii: "r"))
    default:
        bytes.append("u00")
        bytes.append(byte < 0x10 ? UInt8(ascii: "0") : UInt8(ascii: "1"))
        let low = byte & 0x0F
        bytes.append(low < 10 ? low + 0x30 : low - 10 + 0x61)
    }
}

extension [UInt8] {
    fileprivate mutating func append(_ text: StaticString) {
        unsafe append(
            contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        )
    }
}
