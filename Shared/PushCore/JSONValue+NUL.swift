import JSON

extension JSONValue {
    /// Whether a string or key within it contains U+0000, which `jsonb` cannot hold.
    var holdsNUL: Bool {
        switch self {
        case .null, .bool, .integer, .double, .number: return false
        case .string(let text): return text.holds(byte: 0)
        case .array(let elements):
            for element in elements where element.holdsNUL { return true }
        case .object(let object):
            for (key, value) in object where key.holds(byte: 0) || value.holdsNUL { return true }
        }
        return false
    }
}
