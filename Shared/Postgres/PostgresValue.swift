package import JSON

/// One parameter of a statement. It is sent as text and takes the type that the statement gives
/// it, so an array for `unnest` needs a cast there: `unnest($1::text[])`.
package enum PostgresValue: Sendable, Equatable {
    case null
    case text(String)
    case integer(Int)
    case double(Double)
    case boolean(Bool)
    case bytes([UInt8])
    /// For `json` and `jsonb`.
    case json(JSONValue)
    /// The usual text of 36 characters; the server checks it.
    case uuid(String)
    /// Microseconds since 1970, UTC; `Int64.max` and `.min` are `infinity` and `-infinity`.
    case timestamp(Int64)
    case textArray([String?])
    case integerArray([Int?])
    case doubleArray([Double?])
    case booleanArray([Bool?])
    case bytesArray([[UInt8]?])
    case jsonArray([JSONValue?])
    case uuidArray([String?])
    case timestampArray([Int64?])
}

extension PostgresValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral, ExpressibleByBooleanLiteral, ExpressibleByNilLiteral
{
    package init(stringLiteral value: String) { self = .text(value) }
    package init(integerLiteral value: Int) { self = .integer(value) }
    package init(floatLiteral value: Double) { self = .double(value) }
    package init(booleanLiteral value: Bool) { self = .boolean(value) }
    package init(nilLiteral: ()) { self = .null }

    /// `null` for nil.
    package static func optional(text: String?) -> PostgresValue { text.map { .text($0) } ?? .null }
    package static func optional(integer: Int?) -> PostgresValue {
        integer.map { .integer($0) } ?? .null
    }
    package static func optional(bytes: [UInt8]?) -> PostgresValue {
        bytes.map { .bytes($0) } ?? .null
    }
    package static func optional(timestamp: Int64?) -> PostgresValue {
        timestamp.map { .timestamp($0) } ?? .null
    }
    package static func optional(json: JSONValue?) -> PostgresValue {
        json.map { .json($0) } ?? .null
    }
    package static func optional(uuid: String?) -> PostgresValue { uuid.map { .uuid($0) } ?? .null }
}

extension PostgresValue {
    /// `bytea` travels as it is; all else as text.
    var isBinary: Bool {
        if case .bytes = self { return true }
        return false
    }

    /// Appends what is sent.
    ///
    /// - Returns: False for `null`, which has no bytes.
    /// - Throws: `PostgresError.encoding` for a text with a NUL, which Postgres cannot hold.
    func write(into bytes: inout [UInt8]) throws(PostgresError) -> Bool {
        switch self {
        case .null: return false
        case .text(let text), .uuid(let text): try append(text, to: &bytes)
        case .integer(let value): append(number: value, to: &bytes)
        case .double(let value): append(double: value, to: &bytes)
        case .boolean(let value): bytes.append(value ? UInt8(ascii: "t") : UInt8(ascii: "f"))
        case .bytes(let value): bytes.append(contentsOf: value)
        case .json(let value): value.write(into: &bytes)
        case .timestamp(let value): append(timestamp: value, to: &bytes)
        case .textArray(let values), .uuidArray(let values):
            try appendArray(values, to: &bytes) { value, bytes throws(PostgresError) in
                try appendQuoted(value, to: &bytes)
            }
        case .integerArray(let values):
            try appendArray(values, to: &bytes) { value, bytes in
                append(number: value, to: &bytes)
            }
        case .doubleArray(let values):
            try appendArray(values, to: &bytes) { value, bytes in
                append(double: value, to: &bytes)
            }
        case .booleanArray(let values):
            try appendArray(values, to: &bytes) { value, bytes in
                bytes.append(value ? UInt8(ascii: "t") : UInt8(ascii: "f"))
            }
        case .bytesArray(let values):
            try appendArray(values, to: &bytes) { value, bytes in
                bytes.append(contentsOf: "\"\\\\x".utf8)
                for byte in value {
                    bytes.append(hexDigits[Int(byte >> 4)])
                    bytes.append(hexDigits[Int(byte & 15)])
                }
                bytes.append(UInt8(ascii: "\""))
            }
        case .jsonArray(let values):
            try appendArray(values, to: &bytes) { value, bytes throws(PostgresError) in
                bytes.append(UInt8(ascii: "\""))
                let start = bytes.count
                value.write(into: &bytes)
                try escape(from: start, in: &bytes)
                bytes.append(UInt8(ascii: "\""))
            }
        case .timestampArray(let values):
            try appendArray(values, to: &bytes) { value, bytes in
                bytes.append(UInt8(ascii: "\""))
                append(timestamp: value, to: &bytes)
                bytes.append(UInt8(ascii: "\""))
            }
        }
        return true
    }
}

extension PostgresValue {
    /// - Throws: `PostgresError.encoding` where a text of it has a NUL: what `write` would throw.
    func check() throws(PostgresError) {
        switch self {
        case .text(let text), .uuid(let text): try refuseNUL(in: text)
        case .textArray(let texts), .uuidArray(let texts):
            for case let text? in texts { try refuseNUL(in: text) }
        default: break
        }
    }
}

private func refuseNUL(in text: String) throws(PostgresError) {
    if text.utf8.contains(0) {
        throw PostgresError(.encoding, "a text parameter holds a NUL character")
    }
}

private let hexDigits = Array("0123456789abcdef".utf8)

private func append(_ text: String, to bytes: inout [UInt8]) throws(PostgresError) {
    let start = bytes.count
    bytes.append(contentsOf: text.utf8)
    if bytes[start...].contains(0) {
        throw PostgresError(.encoding, "a text parameter holds a NUL character")
    }
}

private func append(number: Int, to bytes: inout [UInt8]) {
    bytes.append(contentsOf: String(number).utf8)
}

private func append(double value: Double, to bytes: inout [UInt8]) {
    if value.isNaN {
        bytes.append(contentsOf: "NaN".utf8)
    } else if value.isInfinite {
        bytes.append(contentsOf: (value < 0 ? "-Infinity" : "Infinity").utf8)
    } else {
        bytes.append(contentsOf: String(value).utf8)
    }
}

private func append(timestamp: Int64, to bytes: inout [UInt8]) {
    bytes.append(contentsOf: TimestampText.write(timestamp).utf8)
}

private func appendArray<Element>(
    _ values: [Element?],
    to bytes: inout [UInt8],
    _ element: (Element, inout [UInt8]) throws(PostgresError) -> Void
) throws(PostgresError) {
    bytes.append(UInt8(ascii: "{"))
    var isFirst = true
    for value in values {
        if !isFirst { bytes.append(UInt8(ascii: ",")) }
        isFirst = false
        if let value {
            try element(value, &bytes)
        } else {
            bytes.append(contentsOf: "NULL".utf8)
        }
    }
    bytes.append(UInt8(ascii: "}"))
}

private func appendQuoted(_ text: String, to bytes: inout [UInt8]) throws(PostgresError) {
    bytes.append(UInt8(ascii: "\""))
    let start = bytes.count
    bytes.append(contentsOf: text.utf8)
    try escape(from: start, in: &bytes)
    bytes.append(UInt8(ascii: "\""))
}

/// Makes what was appended the inside of a quoted element. It is copied whole, looked over once, and moved
/// from its end on where something in it needs a backslash: JSON in an array is most of what is encoded.
private func escape(from start: Int, in bytes: inout [UInt8]) throws(PostgresError) {
    let end = bytes.count
    var (special, hasNUL) = (0, false)
    unsafe bytes.withUnsafeBufferPointer { bytes in
        for index in start..<end {
            let byte = unsafe bytes[index]
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { special += 1 }
            if byte == 0 { hasNUL = true }
        }
    }
    guard !hasNUL else {
        throw PostgresError(.encoding, "a text parameter holds a NUL character")
    }
    guard special > 0 else { return }
    bytes.append(contentsOf: repeatElement(0, count: special))
    unsafe bytes.withUnsafeMutableBufferPointer { bytes in
        var (from, to) = (end, end + special)
        while from < to {
            from -= 1
            to -= 1
            let byte = unsafe bytes[from]
            unsafe bytes[to] = byte
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") {
                to -= 1
                unsafe bytes[to] = UInt8(ascii: "\\")
            }
        }
    }
}
