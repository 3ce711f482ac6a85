import JSON
import PushCore

/// The properties of an object's JSON that are known without making a value of it.
enum ObjectText {
    /// Returns a lower bound of its bytes in compact form: brackets, commas, colons and quotes, and
    /// one byte for each other value. The contents of strings do not count, as an escape has more
    /// bytes than the character that it stands for.
    static func leastBytes(_ text: ArraySlice<UInt8>) -> Int {
        var count = 0
        var isInString = false
        var isEscaped = false
        var isInWord = false
        for byte in text {
            if isInString {
                if isEscaped {
                    isEscaped = false
                } else if byte == UInt8(ascii: "\\") {
                    isEscaped = true
                } else if byte == UInt8(ascii: "\"") {
                    isInString = false
                    count += 1
                }
                continue
            }
            switch byte {
            case UInt8(ascii: "\""):
                isInString = true
                isInWord = false
                count += 1
            case UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: "["), UInt8(ascii: "]"),
                UInt8(ascii: ","), UInt8(ascii: ":"):
                isInWord = false
                count += 1
            case 0x20, 0x09, 0x0A, 0x0D: isInWord = false
            default:
                if !isInWord { count += 1 }
                isInWord = true
            }
        }
        return count
    }

    /// Returns the `_id` of an object, if it is valid.
    static func id(_ text: ArraySlice<UInt8>) -> String? {
        var id: String?
        try? JSONReader.visit(Array(text), maximumDepth: ObjectLimits.levelsOfBody) {
            reader throws(JSONError) in
            try reader.object { key, reader throws(JSONError) in
                if key.isEqual(to: "_id") { id = try reader.string() }
            }
        }
        return id.flatMap(IngestID.canonical)
    }

    /// Parses an object from a body that was scanned as a whole.
    static func value(
        _ text: ArraySlice<UInt8>,
        maximumValues: Int = .max
    ) throws(JSONError) -> JSONValue {
        try JSONValue.parse(
            Array(text),
            maximumDepth: ObjectLimits.levelsOfBody,
            maximumValues: min(maximumValues, ObjectLimits.valuesOfBody)
        )
    }

    /// Returns the number of values in a value, including itself.
    static func values(_ value: JSONValue) -> Int {
        switch value {
        case .null, .bool, .integer, .double, .number, .string: 1
        case .array(let elements): elements.reduce(1) { $0 + values($1) }
        case .object(let members): members.reduce(1) { $0 + values($1.value) }
        }
    }

    static func tooLarge(_ id: String?) -> RefusedObject {
        RefusedObject(
            id: id,
            pointer: "",
            reason: "an object has at most \(ObjectLimits.bytes) bytes"
        )
    }
}
