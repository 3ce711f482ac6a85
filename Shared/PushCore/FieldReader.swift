import JSON

/// A reader of known fields by kind; `null` counts as absent.
struct FieldReader {
    private let object: JSONObject
    private let path: String
    /// One bit for each length of a name that is present. Most of the requested fields are absent,
    /// and in most cases this mask shows it.
    private let marks: UInt64

    init(_ object: JSONObject, path: String = "") {
        self.object = object
        self.path = path
        var marks: UInt64 = 0
        for (name, _) in object { marks |= Self.mark(name) }
        self.marks = marks
    }

    private static func mark(_ name: String) -> UInt64 {
        1 &<< UInt64(truncatingIfNeeded: name.utf8.count)
    }

    subscript(field: String) -> JSONValue? {
        guard marks & Self.mark(field) != 0, let value = object[field], !value.isNull else {
            return nil
        }
        return value
    }

    func has(_ field: String) -> Bool { self[field] != nil }

    /// Whether the field is present and null.
    func isNull(_ field: String) -> Bool {
        marks & Self.mark(field) != 0 && object[field]?.isNull == true
    }

    private func wrong(_ field: String, _ expected: String, _ value: JSONValue) -> PushRequestError
    {
        PushRequestError(path + field, .invalid("must be \(expected), \(value.not)"))
    }

    func string(
        _ field: String,
        bytes: ClosedRange<Int>? = nil
    ) throws(PushRequestError) -> String? {
        guard let value = self[field] else { return nil }
        guard let text = value.string else { throw wrong(field, "a string", value) }
        if let bytes, !bytes.contains(text.utf8.count) {
            throw PushRequestError(
                path + field,
                .invalid("must be \(bytes.lowerBound) to \(bytes.upperBound) bytes long")
            )
        }
        guard !text.holds(byte: 0) else {
            throw PushRequestError(path + field, .invalid("must not hold a NUL character"))
        }
        return text
    }

    /// Returns an event's id or source, 1 to 256 bytes. A number is returned as its digits.
    func identifier(
        _ field: String,
        bytes: ClosedRange<Int> = 1...PushRequest.maximumSourceBytes
    ) throws(PushRequestError) -> String? {
        if let number = self[field]?.integer { return String(number) }
        return try string(field, bytes: bytes)
    }

    /// Returns a field that must be one of a few words.
    func choice<Choice: RawRepresentable>(
        _ field: String,
        _ words: String
    ) throws(PushRequestError) -> Choice? where Choice.RawValue == String {
        guard let name = try string(field) else { return nil }
        guard let choice = Choice(rawValue: name) else {
            throw PushRequestError(
                path + field,
                .invalid("must be \(words), not \(JSONValue.string(name).shown)")
            )
        }
        return choice
    }

    func boolean(_ field: String) throws(PushRequestError) -> Bool? {
        guard let value = self[field] else { return nil }
        guard let flag = value.bool else { throw wrong(field, "true or false", value) }
        return flag
    }

    func object(_ field: String) throws(PushRequestError) -> JSONObject? {
        guard let value = self[field] else { return nil }
        guard let object = value.object else { throw wrong(field, "an object", value) }
        return object
    }

    func time(_ field: String) throws(PushRequestError) -> Instant? {
        guard let value = self[field] else { return nil }
        guard let text = value.string, let time = Instant(iso8601: text) else {
            throw PushRequestError(
                path + field,
                .invalid(
                    "must be an ISO 8601 time in UTC, such as 2026-11-20T21:04:05.000Z, not "
                        + value.shown
                )
            )
        }
        return time
    }

    /// Returns an instant, or a device-local time if the value has no zone.
    func pushTime(_ field: String) throws(PushRequestError) -> PushTime? {
        guard let value = self[field] else { return nil }
        if let text = value.string {
            if let time = Instant(iso8601: text) { return .at(time) }
            if let time = LocalDateTime(iso8601: text) { return .local(time) }
        }
        throw PushRequestError(
            path + field,
            .invalid(
                "must be an ISO 8601 time, such as 2026-11-20T21:04:05.000Z, or without the zone "
                    + "for the time of each device, not \(value.shown)"
            )
        )
    }

    /// Returns a list of strings without duplicates, in the given order.
    func strings(
        _ field: String,
        orOne: Bool
    ) throws(PushRequestError) -> [String]? {
        guard let value = self[field] else { return nil }
        if orOne, let one = value.string { return try check([.string(one)], field) }
        guard let list = value.array else { throw wrong(field, "an array of strings", value) }
        return try check(list, field)
    }

    private func check(
        _ list: [JSONValue],
        _ field: String
    ) throws(PushRequestError) -> [String] {
        guard list.count <= PushRequest.maximumListCount else {
            throw PushRequestError(
                path + field,
                .invalid("must hold at most \(PushRequest.maximumListCount) entries")
            )
        }
        var result: [String] = []
        var seen: ExactStringSet = []
        for (index, value) in list.enumerated() {
            guard let text = value.string else {
                throw wrong("\(field)[\(index)]", "a string", value)
            }
            guard text.utf8.count <= 512, !text.holds(byte: 0) else {
                throw PushRequestError(
                    "\(path)\(field)[\(index)]",
                    .invalid("must be at most 512 bytes, without NUL")
                )
            }
            if list.count == 1 || seen.insert(text).inserted { result.append(text) }
        }
        return result
    }

    func stringMap(_ field: String) throws(PushRequestError) {
        guard let object = try object(field) else { return }
        for (key, value) in object where value.string == nil {
            throw wrong("\(field).\(String(key.prefix(100)))", "a string", value)
        }
    }
}

extension JSONValue {
    /// The end of an error message, such as "not a number".
    var not: String {
        switch self {
        case .null: "not null"
        case .bool: "not a boolean"
        case .integer, .double, .number: "not a number"
        case .string: "not a string"
        case .array: "not an array"
        case .object: "not an object"
        }
    }
}
