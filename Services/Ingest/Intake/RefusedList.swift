import JSON

/// The refused objects of a request, already in the JSON of its response.
struct RefusedList: Sendable {
    private var text: [UInt8] = []

    var isEmpty: Bool { text.isEmpty }
    var byteCount: Int { text.count }

    mutating func add(_ object: RefusedObject, at index: Int) {
        if !text.isEmpty { text.append(UInt8(ascii: ",")) }
        var json: JSONObject = ["index": JSONValue(index)]
        json["_id"] = object.id.map(JSONValue.string)
        json["pointer"] = .string(object.pointer)
        json["reason"] = .string(object.reason)
        json.write(into: &text)
    }

    /// Appends them as a JSON array.
    func write(into bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "["))
        bytes.append(contentsOf: text)
        bytes.append(UInt8(ascii: "]"))
    }
}
