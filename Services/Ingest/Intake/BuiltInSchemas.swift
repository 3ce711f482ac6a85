import JSON
import JSONSchema
import PushCore

/// The schemas of the types that every app has.
enum BuiltInSchemas {
    static func known(_ type: BuiltInIngestType, version: Int) -> KnownType? {
        guard let schema = schemas[type] else { return nil }
        return KnownType(name: type.rawValue, version: version, schema: schema, builtIn: type)
    }

    private static let schemas: [BuiltInIngestType: ObjectSchema] = {
        var schemas: [BuiltInIngestType: ObjectSchema] = [:]
        for type in BuiltInIngestType.allCases {
            schemas[type] = try? ObjectSchema(document(type).bytes, type: type.rawValue)
        }
        return schemas
    }()

    private static func document(_ type: BuiltInIngestType) -> JSONValue {
        switch type {
        case .segmentTrack: segment(required: ["event"])
        case .segmentIdentify, .segmentGroup, .segmentPage, .segmentScreen, .segmentAlias:
            segment(required: [])
        case .pushOpened, .pushReceived: report
        }
    }

    /// Returns the schema of valid items: they need a user, and the fields in `required`.
    private static func segment(required: [JSONValue]) -> JSONValue {
        let someone: JSONValue = ["type": ["string", "integer", "number"], "minLength": 1]
        return [
            "type": "object",
            "properties": [
                "_id": ["type": "string"], "event": ["type": "string", "minLength": 1],
            ],
            "required": .array(["_id"] + required),
            "anyOf": [
                ["required": ["userId"], "properties": ["userId": someone]],
                ["required": ["anonymousId"], "properties": ["anonymousId": someone]],
            ],
        ]
    }

    private static let report: JSONValue = {
        let text: JSONValue = ["type": "string", "minLength": 1, "maxLength": 1024]
        return [
            "type": "object",
            "properties": [
                "_id": ["type": "string"],
                "pushId": ["type": "string", "format": "uuid"],
                "eventId": text, "source": text, "installationId": text, "action": text,
                "at": ["type": "string", "format": "date-time"],
            ],
            "required": ["_id"],
            "anyOf": [["required": ["pushId"]], ["required": ["eventId"]]],
        ]
    }()
}
