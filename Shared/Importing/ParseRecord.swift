import Cryptography
import JSON
import PushCore

/// A document of Parse Server's collection `_Installation`, as `mongoexport` writes it: one a line, or
/// an array with `--jsonArray`. Also accepts an object as Parse's REST API returns it.
enum ParseRecord {
    /// The documents' own names for fields.
    private static let renamed: [String: String] = [
        "_id": "objectId", "_created_at": "createdAt", "_updated_at": "updatedAt", "_acl": "ACL",
    ]
    /// Parse Server makes these from the ACL, or sets them for itself.
    private static let dropped: Set<String> = ["_rperm", "_wperm", "__type", "className"]
    private static let pointer = "_p_"

    static func fields(_ bytes: [UInt8]) throws(Rejection) -> RecordFields {
        let record = try RecordValue.object(bytes)
        var body = JSONObject()
        var (id, created, updated): (String?, Instant?, Instant?)
        for (stored, value) in record where !value.isNull && !dropped.contains(stored) {
            let name = renamed[stored] ?? stored
            switch name {
            case "objectId":
                guard let text = value.string ?? value["$oid"]?.string else {
                    throw Rejection("\(stored) must be a string")
                }
                id = text
            case "createdAt": created = try RecordValue.time(value, stored)
            case "updatedAt": updated = try RecordValue.time(value, stored)
            case "ACL" where stored == "_acl": body[name] = .object(try accessList(value))
            case _ where name.hasPrefix(pointer):
                let field = String(name.dropFirst(pointer.count))
                body[field] = try pointed(value, stored)
            default: body[name] = try plain(value, name)
            }
        }
        guard let id else { throw Rejection("_id is missing") }
        return RecordFields(
            body: SaveRule.parseNormalized(body),
            rule: .parse(callerInstallationID: nil, isMaster: true),
            objectID: id,
            createdAt: created,
            updatedAt: updated
        )
    }

    /// Converts `{"*": {"r": true, "w": true}}` to Parse's `{"*": {"read": true, "write": true}}`.
    private static func accessList(_ value: JSONValue) throws(Rejection) -> JSONObject {
        guard let list = value.object else { throw Rejection("_acl must be an object") }
        var rights = JSONObject()
        for (who, allowed) in list {
            var own = JSONObject()
            if let read = allowed["r"] { own["read"] = read }
            if let write = allowed["w"] { own["write"] = write }
            rights[who] = .object(own)
        }
        return rights
    }

    /// Converts `_User$abc` to a pointer.
    private static func pointed(
        _ value: JSONValue,
        _ field: String
    ) throws(Rejection) -> JSONValue {
        guard let text = value.string, let mark = text.utf8.firstIndex(of: UInt8(ascii: "$")) else {
            throw Rejection("\(field) must be a class and an id, divided by $")
        }
        return [
            "__type": "Pointer", "className": .string(String(text[..<mark])),
            "objectId": .string(String(text[text.index(after: mark)...])),
        ]
    }

    /// Converts extended JSON to Parse's values.
    private static func plain(
        _ value: JSONValue,
        _ field: String
    ) throws(Rejection) -> JSONValue {
        switch value {
        case .null, .bool, .integer, .double, .number, .string: return value
        case .array(let elements):
            var plain: [JSONValue] = []
            plain.reserveCapacity(elements.count)
            for element in elements { plain.append(try Self.plain(element, field)) }
            return .array(plain)
        case .object(let object):
            if let (name, inside) = object.first(where: { _ in true }), name.hasPrefix("$") {
                guard let plain = try unwrapped(name, inside, field) else {
                    throw Rejection("\(field) has extended JSON that cannot be stored")
                }
                return plain
            }
            var plain = JSONObject()
            for (name, member) in object { plain[name] = try Self.plain(member, field) }
            return .object(plain)
        }
    }

    private static func unwrapped(
        _ name: String,
        _ inside: JSONValue,
        _ field: String
    ) throws(Rejection) -> JSONValue? {
        switch name {
        case "$date":
            return try RecordValue.time(inside, field).map {
                ["__type": "Date", "iso": .string($0.iso8601)]
            }
        case "$oid", "$symbol": return inside.string.map(JSONValue.string)
        case "$numberInt", "$numberLong":
            return inside.string.flatMap { Int64($0) }.map(JSONValue.integer)
        case "$numberDouble", "$numberDecimal":
            guard let number = inside.string.flatMap(Double.init), number.isFinite else {
                return nil
            }
            return .double(number)
        case "$binary":
            guard let text = inside["base64"]?.string ?? inside.string,
                (try? Base64.decode(text)) != nil
            else { return nil }
            return ["__type": "Bytes", "base64": .string(text)]
        default: return nil
        }
    }
}
