package import JSON

/// One parameter of a statement. A single value is sent as text and takes the type that the
/// statement gives it. An array is sent in the binary form of its own type (`type`); if the
/// statement needs another type, it must contain a cast: `$1::smallint[]`.
package enum PostgresValue: Sendable, Equatable {
    case null
    case text(String)
    case integer(Int)
    case double(Double)
    case boolean(Bool)
    case bytes([UInt8])
    /// A value for `json` or `jsonb`.
    case json(JSONValue)
    /// The usual form of 36 characters; the server checks it.
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

    /// Returns `null` for nil.
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
    /// Whether it is sent in binary form: `bytea` and arrays; all else is sent as text.
    var isBinary: Bool {
        if case .bytes = self { return true }
        return type != 0
    }

    /// The type OID that is sent with the value; 0: the server infers the type from the statement.
    var type: UInt32 {
        switch self {
        case .null, .text, .integer, .double, .boolean, .bytes, .json, .uuid, .timestamp: 0
        case .textArray: TypeOID.textArray
        case .integerArray: TypeOID.bigintArray
        case .doubleArray: TypeOID.doubleArray
        case .booleanArray: TypeOID.booleanArray
        case .bytesArray: TypeOID.byteaArray
        case .jsonArray: TypeOID.jsonArray
        case .uuidArray: TypeOID.uuidArray
        case .timestampArray: TypeOID.timestamptzArray
        }
    }

    /// Appends the encoded value.
    ///
    /// - Returns: False for `null`, which has no bytes.
    /// - Throws: `PostgresError.encoding` for a string with a NUL, which Postgres cannot store, and
    ///   for an invalid uuid in an array.
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
        case .textArray(let values):
            try appendArray(values, of: TypeOID.text, to: &bytes) {
                value,
                bytes throws(PostgresError) in
                try append(value, to: &bytes)
            }
        case .integerArray(let values):
            try appendArray(values, of: TypeOID.bigint, to: &bytes) { value, bytes in
                append(bits: Int64(value), to: &bytes)
            }
        case .doubleArray(let values):
            try appendArray(values, of: TypeOID.double, to: &bytes) { value, bytes in
                append(bits: value.bitPattern, to: &bytes)
            }
        case .booleanArray(let values):
            try appendArray(values, of: TypeOID.boolean, to: &bytes) { value, bytes in
                bytes.append(value ? 1 : 0)
            }
        case .bytesArray(let values):
            try appendArray(values, of: TypeOID.bytea, to: &bytes) { value, bytes in
                bytes.append(contentsOf: value)
            }
        case .jsonArray(let values):
            try appendArray(values, of: TypeOID.json, to: &bytes) { value, bytes in
                value.write(into: &bytes)
            }
        case .uuidArray(let values):
            try appendArray(values, of: TypeOID.uuid, to: &bytes) {
                value,
                bytes throws(PostgresError) in
                guard let uuid = uuidBytes(value) else { throw noUUID }
                append(bits: uuid.high, to: &bytes)
                append(bits: uuid.low, to: &bytes)
            }
        case .timestampArray(let values):
            try appendArray(values, of: TypeOID.timestamptz, to: &bytes) { value, bytes in
                let isInfinite = value == .max || value == .min
                append(
                    bits: isInfinite ? value : value &- TimestampText.postgresEpoch,
                    to: &bytes
                )
            }
        }
        return true
    }
}

extension PostgresValue {
    /// - Throws: The errors of `write`.
    func check() throws(PostgresError) {
        switch self {
        case .text(let text), .uuid(let text): try refuseNUL(in: text)
        case .textArray(let texts): for case let text? in texts { try refuseNUL(in: text) }
        case .uuidArray(let texts):
            for case let text? in texts where uuidBytes(text) == nil { throw noUUID }
        default: break
        }
    }
}

private func refuseNUL(in text: String) throws(PostgresError) {
    if text.utf8.contains(0) {
        throw PostgresError(.encoding, "a text parameter holds a NUL character")
    }
}

private let noUUID = PostgresError(.encoding, "a uuid parameter is not a uuid")

/// Parses both halves of a uuid, with its hyphens or without.
private func uuidBytes(_ text: String) -> (high: UInt64, low: UInt64)? {
    var (high, low, count): (UInt64, UInt64, Int) = (0, 0, 0)
    for character in text.utf8 where character != UInt8(ascii: "-") {
        let digit: UInt8
        switch character {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = character - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = character - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit = character - UInt8(ascii: "A") + 10
        default: return nil
        }
        if count < 16 { high = high << 4 | UInt64(digit) } else { low = low << 4 | UInt64(digit) }
        count += 1
    }
    return count == 32 ? (high, low) : nil
}

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

private func append(bits: some FixedWidthInteger, to bytes: inout [UInt8]) {
    unsafe withUnsafeBytes(of: bits.bigEndian) { unsafe bytes.append(contentsOf: $0) }
}

/// Appends an array of one dimension, counted from 1; each element follows its length.
private func appendArray<Element>(
    _ values: [Element?],
    of type: UInt32,
    to bytes: inout [UInt8],
    _ element: (Element, inout [UInt8]) throws(PostgresError) -> Void
) throws(PostgresError) {
    append(bits: Int32(values.isEmpty ? 0 : 1), to: &bytes)
    append(bits: Int32(values.contains { $0 == nil } ? 1 : 0), to: &bytes)
    append(bits: type, to: &bytes)
    guard !values.isEmpty else { return }
    append(bits: Int32(clamping: values.count), to: &bytes)
    append(bits: Int32(1), to: &bytes)
    for value in values {
        let start = bytes.count
        append(bits: Int32(-1), to: &bytes)
        guard let value else { continue }
        try element(value, &bytes)
        let length = UInt32(clamping: bytes.count - start - 4)
        for place in 0..<4 {
            bytes[start + place] = UInt8(truncatingIfNeeded: length >> (24 - 8 * UInt32(place)))
        }
    }
}
