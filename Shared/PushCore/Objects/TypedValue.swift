import JSON

/// Validates LeanCloud's and Parse's typed values, as they are saved. Pure.
enum TypedValue {
    /// The limit of a class name, which becomes a part of a field's type.
    private static let maximumClassBytes = 128

    /// - Throws: `ObjectError` that names the key: 106 for a pointer, 111 for another malformed value, 121
    ///   for a name with `$` inside of an object, 302 for invalid coordinates.
    static func check(_ value: JSONValue, key: String) throws(ObjectError) {
        switch value {
        case .null, .bool, .integer, .double, .number, .string: return
        case .array(let elements):
            for element in elements { try check(element, key: key) }
        case .object(let object): try check(object, key: key)
        }
    }

    private static func check(_ object: JSONObject, key: String) throws(ObjectError) {
        for (name, value) in object {
            guard !name.utf8.contains(UInt8(ascii: "$")) else {
                throw ObjectError(code: 121, "\(key): a name inside of it contains '$'.")
            }
            guard name != "__op" else {
                throw ObjectError(
                    code: 111,
                    "\(key): an operation is not a value inside of another."
                )
            }
            try check(value, key: key)
        }
        guard let type = object["__type"] else { return }
        switch type.string {
        case "Date":
            guard let text = object["iso"]?.string, Instant(iso8601: text) != nil else {
                throw wrong(key, "a Date with \"iso\", in ISO 8601 with its zone")
            }
        case "Pointer":
            guard let name = object["className"]?.string,
                (1...maximumClassBytes).contains(name.utf8.count),
                object["objectId"]?.string != nil
            else {
                throw ObjectError(
                    code: 106,
                    "\(key): a Pointer needs \"className\" and \"objectId\"."
                )
            }
        case "GeoPoint":
            guard let latitude = object["latitude"]?.double,
                let longitude = object["longitude"]?.double
            else { throw wrong(key, "a GeoPoint with \"latitude\" and \"longitude\"") }
            guard GeoPoint(latitude: latitude, longitude: longitude) != nil else {
                throw ObjectError(
                    code: 302,
                    "\(key): a latitude is within 90 degrees, a longitude within 180."
                )
            }
        case "Bytes":
            guard object["base64"]?.string != nil else { throw wrong(key, "Bytes with \"base64\"") }
        case "Relation":
            throw ObjectError(code: 1, "\(key): a Relation is not supported.")
        case "File", "Object": return
        default: throw wrong(key, "a known \"__type\"")
        }
    }

    private static func wrong(_ key: String, _ expected: String) -> ObjectError {
        ObjectError(code: 111, "\(key): expected \(expected).")
    }
}
