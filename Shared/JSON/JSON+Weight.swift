extension JSONValue {
    /// About how many bytes of memory it takes, beyond the place that it stands in: for those who keep
    /// values up to a budget. A tree takes several times its text.
    public var weightBytes: Int {
        switch self {
        case .null, .bool, .integer, .double: 0
        case .number(let text), .string(let text): text.weightBytes
        case .array(let elements):
            elements.reduce(32 + elements.capacity * MemoryLayout<JSONValue>.stride) {
                $0 + $1.weightBytes
            }
        case .object(let object): object.weightBytes
        }
    }
}

extension JSONObject {
    /// As `JSONValue.weightBytes`.
    public var weightBytes: Int {
        reduce(32 + count * MemoryLayout<Element>.stride) {
            // The key stands in the index of a large object, too.
            $0 + $1.key.weightBytes * 2 + $1.value.weightBytes + (count > 16 ? 64 : 0)
        }
    }
}

extension String {
    /// As `JSONValue.weightBytes`: up to fifteen bytes stand in the value itself.
    public var weightBytes: Int { utf8.count <= 15 ? 0 : 32 + utf8.count }
}
