extension JSONValue {
    /// This value as compact UTF-8.
    public var bytes: [UInt8] {
        var buffer = JSONBuffer(capacity: 1024)
        write(to: &buffer)
        return unsafe Array(buffer.bytes)
    }

    /// This value as compact text.
    public var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Appends this value, compactly. Numbers without a JSON form (NaN, infinities) become `null`.
    public func write(into bytes: inout [UInt8]) {
        var buffer = JSONBuffer(capacity: 1024)
        write(to: &buffer)
        unsafe bytes.append(contentsOf: buffer.bytes)
    }

    fileprivate func write(to buffer: inout JSONBuffer) {
        switch self {
        case .null: buffer.append("null")
        case .bool(true): buffer.append("true")
        case .bool(false): buffer.append("false")
        case .integer(let value): buffer.append(value)
        case .double(let value):
            if value.isFinite { buffer.append(value.description) } else { buffer.append("null") }
        case .number(let text): buffer.append(text)
        case .string(let value): buffer.appendQuoted(value)
        case .array(let elements):
            buffer.append(UInt8(ascii: "["))
            var isFirst = true
            for element in elements {
                if !isFirst { buffer.append(UInt8(ascii: ",")) }
                isFirst = false
                element.write(to: &buffer)
            }
            buffer.append(UInt8(ascii: "]"))
        case .object(let object): object.write(to: &buffer)
        }
    }
}

extension JSONObject {
    /// This object as compact UTF-8.
    public var bytes: [UInt8] { JSONValue.object(self).bytes }

    /// This object as compact text.
    public var text: String { JSONValue.object(self).text }

    /// Appends this object, compactly, its members in their order.
    public func write(into bytes: inout [UInt8]) { JSONValue.object(self).write(into: &bytes) }

    fileprivate func write(to buffer: inout JSONBuffer) {
        buffer.append(UInt8(ascii: "{"))
        var isFirst = true
        for (key, value) in self {
            if !isFirst { buffer.append(UInt8(ascii: ",")) }
            isFirst = false
            buffer.appendQuoted(key)
            buffer.append(UInt8(ascii: ":"))
            value.write(to: &buffer)
        }
        buffer.append(UInt8(ascii: "}"))
    }
}

/// Appends a string with its quotes, for code that writes JSON directly.
public func writeJSONString(_ text: String, into bytes: inout [UInt8]) {
    var buffer = JSONBuffer(capacity: text.utf8.count + 16)
    buffer.appendQuoted(text)
    unsafe bytes.append(contentsOf: buffer.bytes)
}

/// Appends an integer's digits, for code that writes JSON directly.
public func writeJSONInteger(_ value: Int64, into bytes: inout [UInt8]) {
    var buffer = JSONBuffer(capacity: 20)
    buffer.append(value)
    unsafe bytes.append(contentsOf: buffer.bytes)
}
