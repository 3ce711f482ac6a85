import Cryptography
import JSON
import PushCore

/// Removes the wrappers of MongoDB's extended JSON: `{"$oid": "…"}` becomes its string, `{"$numberInt": "2"}`
/// the number 2, a date an RFC 3339 string.
enum ExtendedJSON {
    static func plain(_ object: JSONObject) throws(RefusedObject) -> JSONObject {
        var plain: JSONObject = [:]
        for (key, value) in object {
            plain[key] = try Self.plain(value, at: "/" + JSONPointer.escaped(key), level: 2)
        }
        return plain
    }

    private static func plain(
        _ value: JSONValue,
        at pointer: @autoclosure () -> String,
        level: Int
    ) throws(RefusedObject) -> JSONValue {
        switch value {
        case .null, .bool, .integer, .double, .number, .string: return value
        case .array(let elements):
            guard level <= ObjectLimits.levels + 1 else { return value }
            var plain: [JSONValue] = []
            plain.reserveCapacity(elements.count)
            for (index, element) in elements.enumerated() {
                plain.append(
                    try Self.plain(element, at: pointer() + "/\(index)", level: level + 1)
                )
            }
            return .array(plain)
        case .object(let members):
            // An object at a deeper level is refused later for its depth. Two levels more are
            // allowed here, as a wrapper may have two levels more than its value.
            guard level <= ObjectLimits.levels + 2 else { return value }
            if members.count <= 2, let (name, inside) = members.first(where: { _ in true }),
                name.utf8.first == UInt8(ascii: "$")
            {
                if let plain = unwrapped(name, inside, members) { return plain }
                throw RefusedObject(
                    pointer: pointer(),
                    reason: names.contains(name)
                        ? "is not a valid \(name)"
                        : "is extended JSON that cannot be stored; use \(list)"
                )
            }
            var plain: JSONObject = [:]
            for (key, member) in members {
                plain[key] = try Self.plain(
                    member,
                    at: pointer() + "/" + JSONPointer.escaped(key),
                    level: level + 1
                )
            }
            return .object(plain)
        }
    }

    /// The wrappers that are removed.
    private static let names: ExactStringSet = ExactStringSet([
        "$oid", "$uuid", "$date", "$timestamp", "$numberInt", "$numberLong", "$numberDouble",
        "$numberDecimal", "$symbol", "$binary",
    ])
    private static let list =
        "$oid, $uuid, $date, $timestamp, $numberInt, $numberLong, $numberDouble (finite),"
        + " $numberDecimal, $symbol or $binary"

    /// - Returns: `nil` if it is not a valid wrapper.
    private static func unwrapped(
        _ name: String,
        _ inside: JSONValue,
        _ members: JSONObject
    ) -> JSONValue? {
        if name == "$binary" { return binary(inside, members) }
        guard members.count == 1 else { return nil }
        switch name {
        case "$oid":
            guard let text = inside.string, text.utf8.count == 24 else { return nil }
            return IngestID.canonical(text).map(JSONValue.string)
        case "$uuid":
            guard let text = inside.string, text.utf8.count == 36 else { return nil }
            return IngestID.canonical(text).map(JSONValue.string)
        case "$date": return date(inside)
        case "$timestamp":
            // A timestamp has seconds, and a counter within the second, which is dropped, as a time
            // cannot express it.
            guard let seconds = inside["t"]?.integer, UInt32(exactly: seconds) != nil,
                let counter = inside["i"]?.integer, UInt32(exactly: counter) != nil
            else { return nil }
            return .string(Instant(milliseconds: Int64(seconds) * 1000).iso8601)
        case "$numberInt":
            return inside.string.flatMap { Int32($0) }.map { .integer(Int64($0)) }
        case "$numberLong": return inside.string.flatMap { Int64($0) }.map { .integer($0) }
        case "$numberDouble":
            guard let number = inside.string.flatMap({ Double($0) }), number.isFinite else {
                return nil
            }
            return .double(number)
        case "$numberDecimal":
            guard let text = inside.string, isDecimal(text) else { return nil }
            return .string(text)
        case "$symbol": return inside.string.map(JSONValue.string)
        default: return nil
        }
    }

    private static func isDecimal(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count) && Double(text)?.isNaN == false
            && text.utf8.allSatisfy { (48...57).contains($0) || "+-.eE".utf8.contains($0) }
    }

    /// Converts RFC 3339, or milliseconds since 1970 as a number, wrapped or not.
    private static func date(_ value: JSONValue) -> JSONValue? {
        if let text = value.string { return Instant(iso8601: text) == nil ? nil : .string(text) }
        let milliseconds =
            value.object.flatMap { $0["$numberLong"]?.string }.flatMap { Int64($0) }
            ?? value.integer.map { Int64($0) }
        // RFC 3339 ends with the year 9999.
        guard let milliseconds, (-62_135_596_800_000..<253_402_300_800_000).contains(milliseconds)
        else { return nil }
        return .string(Instant(milliseconds: milliseconds).iso8601)
    }

    /// Converts bytes to Base64, a UUID (subtype 4) to its string; accepts the current and the old form.
    private static func binary(_ value: JSONValue, _ members: JSONObject) -> JSONValue? {
        let text = value["base64"]?.string ?? value.string
        let kind = value["subType"]?.string ?? members["$type"]?.string
        guard let text, let kind, let bytes = try? Base64.decode(text) else { return nil }
        guard UInt8(kind, radix: 16) == 4, bytes.count == 16 else { return .string(text) }
        let digits = Array(Hex.encode(bytes))
        let parts = [0..<8, 8..<12, 12..<16, 16..<20, 20..<32].map { String(digits[$0]) }
        return .string(parts.joined(separator: "-"))
    }
}
