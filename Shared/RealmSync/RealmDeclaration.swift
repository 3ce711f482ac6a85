package import JSON

/// The members that a declared type gives to an object which lacks them.
///
/// Realm sends nothing for an empty collection, nor, in some clients, for a field with its default
/// value. A schema that requires them would refuse such objects.
package struct RealmDeclaration: Sendable {
    private struct Member: Sendable {
        let name: String
        /// `nil` if an absent member stays absent.
        let absent: JSONValue?
        /// The declaration of the member's own members; an index of `parts`.
        let inside: Int?
    }

    private struct Part: Sendable {
        var members: [Member] = []
        /// The declaration of all elements of an array, or of the values of a dictionary.
        var others: Int?
        var isEmpty: Bool { members.isEmpty && others == nil }
    }

    private var parts: [Part] = []
    private let root: Int?

    private static let maximumDepth = 32

    /// Reads a schema, of JSON Schema's form or Atlas'. References and combinations have no
    /// defaults.
    package init(schema: JSONValue) {
        var parts: [Part] = []
        root = Self.read(schema, into: &parts, depth: 0)
        self.parts = parts
    }

    /// - Returns: The object with everything that it lacks.
    package func filled(_ object: JSONObject) -> JSONObject {
        guard let root, case .object(let filled) = filled(.object(object), parts[root]) else {
            return object
        }
        return filled
    }

    // MARK: Reading

    private static func read(
        _ schema: JSONValue,
        into parts: inout [Part],
        depth: Int
    ) -> Int? {
        guard depth <= maximumDepth else { return nil }
        var part = Part()
        let required = schema["required"]?.array ?? []
        for (name, declared) in schema["properties"]?.object ?? [:]
        where !(depth == 0 && name == "_id") {
            let inside = read(declared, into: &parts, depth: depth + 1)
            let kinds = kinds(declared)
            let absent: JSONValue? =
                if kinds.holds("array") {
                    []
                } else if required.contains(.string(name)) {
                    missing(kinds, declared["format"]?.string)
                } else {
                    nil
                }
            guard absent != nil || inside != nil else { continue }
            part.members.append(Member(name: name, absent: absent, inside: inside))
        }
        for others in [schema["items"], schema["additionalProperties"]] {
            if let others, others.object != nil, part.others == nil {
                part.others = read(others, into: &parts, depth: depth + 1)
            }
        }
        guard !part.isEmpty else { return nil }
        parts.append(part)
        return parts.count - 1
    }

    private static func kinds(_ schema: JSONValue) -> [String] {
        let type = schema["bsonType"] ?? schema["type"]
        return type?.array?.compactMap(\.string) ?? type?.string.map { [$0] } ?? []
    }

    /// - Returns: The value of a required member that is absent.
    private static func missing(_ kinds: [String], _ format: String?) -> JSONValue? {
        if kinds.holds("null") { return .null }
        switch kinds.first {
        case "boolean", "bool": return false
        case "integer", "number", "int", "long", "float", "double": return 0
        case "decimal": return "0"
        case "date": return "1970-01-01T00:00:00Z"
        case "objectId": return .string(RealmIDText.objectID(0, 0))
        case "uuid": return .string(RealmIDText.uuid(0, 0))
        case "object": return [:]
        case "string":
            switch format {
            case "date-time": return "1970-01-01T00:00:00Z"
            case "uuid": return .string(RealmIDText.uuid(0, 0))
            default: return ""
            }
        default: return nil
        }
    }

    // MARK: Filling

    private func filled(_ value: JSONValue, _ part: Part) -> JSONValue {
        switch value {
        case .null, .bool, .integer, .double, .number, .string: return value
        case .array(let elements):
            guard let others = part.others else { return value }
            return .array(elements.map { filled($0, parts[others]) })
        case .object(var members):
            for member in part.members {
                guard let value = members[member.name] ?? member.absent else { continue }
                members[member.name] = member.inside.map { filled(value, parts[$0]) } ?? value
            }
            guard let others = part.others else { return .object(members) }
            for (name, value) in members
            where !part.members.contains(where: { $0.name.isSame(as: name) }) {
                members[name] = filled(value, parts[others])
            }
            return .object(members)
        }
    }
}
