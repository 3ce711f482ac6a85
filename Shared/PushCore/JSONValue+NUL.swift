import JSON

extension JSONValue {
    /// Whether a text or a key within it has U+0000, which `jsonb` takes in none.
    var holdsNUL: Bool {
        switch self {
        case .null, .bool, .integer, .double, .number: false
        case .string(let text): text.utf8.contains(0)
        case .array(let elements): elements.contains(where: \.holdsNUL)
        case .object(let object):
            object.contains { $0.key.utf8.contains(0) || $0.value.holdsNUL }
        }
    }
}
