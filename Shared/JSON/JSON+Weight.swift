extension JSONValue {
    /// The approximate memory in bytes, without the value's own place, for caches with a byte
    /// budget. A tree takes several times the memory of its text.
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
    /// The weight, as `JSONValue.weightBytes`.
    public var weightBytes: Int {
        reduce(32 + count * MemoryLayout<Element>.stride) {
            // The key is in the index of a large object, too.
            $0 + $1.key.weightBytes * 2 + $1.value.weightBytes + (count > 16 ? 64 : 0)
        }
    }
}

extension String {
    /// The weight, as `JSONValue.weightBytes`: up to fifteen bytes are stored in the value itself.
    public var weightBytes: Int { utf8.count <= 15 ? 0 : 32 + utf8.count }
}
