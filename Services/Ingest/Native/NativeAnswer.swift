import HTTPServer
import JSON

/// What is told of each object of a request.
struct NativeAnswer: Sendable {
    private var accepted: [JSONValue] = []
    private var duplicates: [JSONValue] = []
    private(set) var refused: [JSONValue] = []
    private var known = TextSet()

    /// - Returns: Whether it is the first of its id in this request.
    mutating func accept(_ id: String) -> Bool {
        guard known.insert(id).inserted else {
            duplicates.append(.string(id))
            return false
        }
        accepted.append(.string(id))
        return true
    }

    mutating func refuse(_ object: RefusedObject, at index: Int) {
        refused.append(Self.json(object, at: index))
    }

    static func json(_ object: RefusedObject, at index: Int) -> JSONValue {
        var json: JSONObject = ["index": JSONValue(index)]
        json["_id"] = object.id.map(JSONValue.string)
        json["pointer"] = .string(object.pointer)
        json["reason"] = .string(object.reason)
        return .object(json)
    }

    var response: HTTPServerResponse {
        .json([
            "accepted": .array(accepted), "duplicates": .array(duplicates),
            "refused": .array(refused),
        ])
    }
}
