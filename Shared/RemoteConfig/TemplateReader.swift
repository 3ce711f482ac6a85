import JSON

/// A reader of one template, member by member, into the stored form.
///
/// Linear in the template. Unknown members are rejected by name, so that a misspelling is not
/// published as a parameter without a value.
struct TemplateReader {
    private let namespace: ConfigNamespace
    private var expressions: ExpressionContext
    private var keys = ExactStringSet()
    private var names = ExactStringSet()
    private var valuesLength = 0
    private(set) var versionDescription = ""
    private(set) var conditions: [(name: String, expression: ConfigExpression)] = []
    private(set) var parameters: [ConfigParameter] = []

    var patternBytes: Int { expressions.patternBytes }

    init(_ namespace: ConfigNamespace, isStored: Bool) {
        self.namespace = namespace
        expressions = ExpressionContext(isStored: isStored)
    }

    /// - Returns: `conditions`, `parameters` and `parameterGroups`.
    mutating func template(_ json: JSONValue) throws(ConfigTemplateError) -> JSONObject {
        guard let members = json.object else {
            throw ConfigTemplateError("", "a template is an object, not \(json.kindShown)")
        }
        let object = try Self.fields(members, "")
        for (name, value) in object {
            switch name {
            case "conditions", "parameters", "parameterGroups": break
            case "version": try readVersion(value)
            // Clients that store the template that they received include it.
            case "etag": break
            default: throw ConfigTemplateError("", "\(name.shown) is not known")
            }
        }
        let conditions = try readConditions(object["conditions"])
        let parameters = try readParameters(object["parameters"], in: "parameters")
        let groups = try readGroups(object["parameterGroups"])
        return [
            "conditions": .array(conditions), "parameters": .object(parameters),
            "parameterGroups": .object(groups),
        ]
    }

    /// Reads only the version's description. The server sets its number, time and user.
    private mutating func readVersion(_ value: JSONValue) throws(ConfigTemplateError) {
        if value.isNull { return }
        guard let version = value.object else {
            throw ConfigTemplateError("version", "is \(value.kindShown), not an object")
        }
        versionDescription =
            try text(
                version["description"],
                "version",
                "description",
                ConfigTemplate.maximumVersionDescriptionLength
            ) ?? ""
    }

    // MARK: Conditions

    private mutating func readConditions(
        _ value: JSONValue?
    ) throws(ConfigTemplateError) -> [JSONValue] {
        guard let value, !value.isNull else { return [] }
        guard let list = value.array else {
            throw ConfigTemplateError("conditions", "is \(value.kindShown), not a list")
        }
        guard list.count <= ConfigTemplate.maximumConditions else {
            throw ConfigTemplateError(
                "conditions",
                "more than \(ConfigTemplate.maximumConditions) of them"
            )
        }
        var result: [JSONValue] = []
        for (index, element) in list.enumerated() {
            result.append(.object(try readCondition(element, at: index)))
        }
        return result
    }

    private mutating func readCondition(
        _ value: JSONValue,
        at index: Int
    ) throws(ConfigTemplateError) -> JSONObject {
        let number = "condition number \(index + 1)"
        guard let members = value.object else {
            throw ConfigTemplateError(number, "is \(value.kindShown), not an object")
        }
        let object = try Self.fields(members, number)
        guard
            let name = try text(
                object["name"],
                number,
                "name",
                ConfigTemplate.maximumConditionNameLength
            ), !name.isEmpty
        else { throw ConfigTemplateError(number, "has no name") }
        let place = "condition \(name.shown)"
        guard names.insert(name).inserted else { throw ConfigTemplateError(place, "comes twice") }
        var result: JSONObject = ["name": .string(name)]
        var hasRule = false
        for (member, value) in object where !value.isNull {
            switch (member, namespace) {
            case ("name", _): break
            case ("expression", .firebase):
                hasRule = true
                result[member] = value
                conditions.append((name, try expression(value, place)))
            case ("condition", .server):
                hasRule = true
                result[member] = try serverCondition(value, place)
            // The console's form; the Admin SDKs get the equivalent condition.
            case ("expression", .server):
                hasRule = true
                result[member] = value
                _ = try serverCondition(of: try expression(value, place), place)
            case ("tagColor", _):
                guard let color = value.string, Self.tagColors.contains(color) else {
                    let colors = Self.tagColors.subtracting([Self.unspecifiedColor]).sorted()
                    throw ConfigTemplateError(
                        place,
                        "unknown tagColor \(value.shown); use \(colors.joined(separator: ", "))"
                    )
                }
                if color != Self.unspecifiedColor { result[member] = value }
            default:
                throw ConfigTemplateError(place, "\(member.shown) is not known")
            }
        }
        guard hasRule else {
            let wanted = namespace == .firebase ? "expression" : "condition or expression"
            throw ConfigTemplateError(place, "has no \(wanted)")
        }
        return result
    }

    /// Returns a server's condition, in the form that the Admin SDKs read.
    private mutating func serverCondition(
        _ value: JSONValue,
        _ place: String
    ) throws(ConfigTemplateError) -> JSONValue {
        do throws(ServerConditionError) {
            let condition = try ServerCondition.canonical(value)
            try ServerCondition.check(condition, &expressions)
            return condition
        } catch {
            throw ConfigTemplateError(place, error.description)
        }
    }

    private mutating func serverCondition(
        of expression: ConfigExpression,
        _ place: String
    ) throws(ConfigTemplateError) -> JSONValue {
        let condition: JSONValue
        do throws(ServerConditionError) {
            condition = try ServerCondition.condition(of: expression)
        } catch {
            throw ConfigTemplateError(place, error.description)
        }
        return try serverCondition(condition, place)
    }

    private mutating func expression(
        _ value: JSONValue,
        _ place: String
    ) throws(ConfigTemplateError) -> ConfigExpression {
        guard let text = value.string else {
            throw ConfigTemplateError(place, "expression is \(value.kindShown), not a text")
        }
        do throws(ExpressionError) {
            return try ConfigExpression(text, in: &expressions)
        } catch {
            throw ConfigTemplateError(place, error.description)
        }
    }

    private static let unspecifiedColor = "CONDITION_DISPLAY_COLOR_UNSPECIFIED"

    private static let tagColors: Set<String> = [
        unspecifiedColor, "BLUE", "BROWN", "CYAN", "DEEP_ORANGE", "GREEN", "INDIGO", "LIME",
        "ORANGE", "PINK", "PURPLE", "TEAL",
    ]

    // MARK: Parameters

    private mutating func readGroups(
        _ value: JSONValue?
    ) throws(ConfigTemplateError) -> JSONObject {
        guard let value, !value.isNull else { return [:] }
        guard let groups = value.object else {
            throw ConfigTemplateError("parameterGroups", "is \(value.kindShown), not an object")
        }
        var result = JSONObject()
        for (name, value) in groups {
            let place = "group \(name.shown)"
            try check(name, place, "name", ConfigTemplate.maximumGroupNameLength)
            guard !name.isEmpty else { throw ConfigTemplateError(place, "has no name") }
            guard let object = value.object else {
                throw ConfigTemplateError(place, "is \(value.kindShown), not an object")
            }
            var group = JSONObject()
            for (member, value) in object where !value.isNull {
                switch member {
                case "description":
                    group[member] = try text(
                        value,
                        place,
                        member,
                        ConfigTemplate.maximumGroupDescriptionLength
                    ).map { .string($0) }
                case "parameters":
                    group[member] = .object(try readParameters(value, in: place))
                default:
                    throw ConfigTemplateError(place, "\(member.shown) is not known")
                }
            }
            if group["parameters"] == nil { group["parameters"] = [:] }
            result[name] = .object(group)
        }
        return result
    }

    private mutating func readParameters(
        _ value: JSONValue?,
        in place: String
    ) throws(ConfigTemplateError) -> JSONObject {
        guard let value, !value.isNull else { return [:] }
        guard let members = value.object else {
            throw ConfigTemplateError(
                place,
                "its parameters are \(value.kindShown), not an object"
            )
        }
        var result = JSONObject()
        for (key, value) in members {
            result[key] = .object(try readParameter(key, value))
        }
        return result
    }

    private mutating func readParameter(
        _ key: String,
        _ value: JSONValue
    ) throws(ConfigTemplateError) -> JSONObject {
        let place = "parameter \(key.shown)"
        try check(key, place, "key", ConfigTemplate.maximumKeyLength)
        guard let first = key.utf8.first, Self.isFirstOfKey(first),
            !key.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F })
        else { throw ConfigTemplateError(place, "a key begins with a letter or _") }
        guard keys.insert(key).inserted else {
            throw ConfigTemplateError(place, "comes twice, here and in another group")
        }
        guard keys.count <= ConfigTemplate.maximumParameters else {
            throw ConfigTemplateError(
                "parameters",
                "more than \(ConfigTemplate.maximumParameters) of them"
            )
        }
        guard let fields = value.object else {
            throw ConfigTemplateError(place, "is \(value.kindShown), not an object")
        }
        let object = try Self.fields(fields, place)
        let type = try valueType(object["valueType"], place)
        var defaultValue: ConfigParameter.Value?
        var conditionalValues: [(condition: String, value: ConfigParameter.Value)] = []
        var result = JSONObject()
        for (member, value) in object where !value.isNull {
            switch member {
            case "defaultValue":
                let read = try readValue(value, type, place)
                defaultValue = read
                result[member] = Self.json(read)
            case "conditionalValues":
                conditionalValues = try readConditionalValues(value, type, place)
                result[member] = .object(
                    JSONObject(conditionalValues.lazy.map { ($0.condition, Self.json($0.value)) })
                )
            case "description":
                result[member] = try text(
                    value,
                    place,
                    member,
                    ConfigTemplate.maximumDescriptionLength
                ).map { .string($0) }
            case "valueType": break
            default: throw ConfigTemplateError(place, "\(member.shown) is not known")
            }
        }
        result["valueType"] = .string(type.rawValue)
        parameters.append(
            ConfigParameter(
                key: key,
                defaultValue: defaultValue,
                conditionalValues: conditionalValues
            )
        )
        return result
    }

    private static func isFirstOfKey(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "_"):
            true
        default: false
        }
    }

    private func valueType(
        _ value: JSONValue?,
        _ place: String
    ) throws(ConfigTemplateError) -> ValueType {
        guard let value, !value.isNull, value != "PARAMETER_VALUE_TYPE_UNSPECIFIED" else {
            return .string
        }
        guard let type = value.string.flatMap(ValueType.init) else {
            throw ConfigTemplateError(
                place,
                "unknown valueType \(value.shown); use STRING, BOOLEAN, NUMBER or JSON"
            )
        }
        return type
    }

    private mutating func readConditionalValues(
        _ value: JSONValue,
        _ type: ValueType,
        _ place: String
    ) throws(ConfigTemplateError) -> [(condition: String, value: ConfigParameter.Value)] {
        guard let members = value.object else {
            throw ConfigTemplateError(
                place,
                "conditionalValues is \(value.kindShown), not an object"
            )
        }
        var result: [(condition: String, value: ConfigParameter.Value)] = []
        result.reserveCapacity(members.count)
        for (name, value) in members {
            guard names.contains(name) else {
                throw ConfigTemplateError(place, "there is no condition \(name.shown)")
            }
            result.append((name, try readValue(value, type, place)))
        }
        return result
    }

    private mutating func readValue(
        _ value: JSONValue,
        _ type: ValueType,
        _ place: String
    ) throws(ConfigTemplateError) -> ConfigParameter.Value {
        guard let members = value.object else {
            throw ConfigTemplateError(place, "a value is an object, not \(value.kindShown)")
        }
        let object = try Self.fields(members, place)
        var result: ConfigParameter.Value?
        for (member, value) in object where !value.isNull {
            guard result == nil else {
                throw ConfigTemplateError(place, "a value is one thing, not several")
            }
            switch member {
            case "value": result = .text(try readText(value, type, place))
            case "useInAppDefault":
                guard value.bool == true else {
                    throw ConfigTemplateError(
                        place,
                        "useInAppDefault must be true, not \(value.shown)"
                    )
                }
                result = .inAppDefault
            // Only Google's console can create these values, which need its services.
            case "rolloutValue", "personalizationValue", "experimentValue":
                throw ConfigTemplateError(place, "\(member) is not supported")
            default: throw ConfigTemplateError(place, "\(member.shown) is not known")
            }
        }
        guard let result else {
            throw ConfigTemplateError(place, "a value has neither value nor useInAppDefault")
        }
        return result
    }

    private mutating func readText(
        _ value: JSONValue,
        _ type: ValueType,
        _ place: String
    ) throws(ConfigTemplateError) -> String {
        guard let text = value.string else {
            throw ConfigTemplateError(place, "value is \(value.kindShown), not a text")
        }
        guard !text.utf8.contains(0) else {
            throw ConfigTemplateError(place, "value has a NUL character")
        }
        valuesLength += text.scalarCount
        guard valuesLength <= ConfigTemplate.maximumValuesLength else {
            throw ConfigTemplateError(
                place,
                "all values together have more than \(ConfigTemplate.maximumValuesLength) characters"
            )
        }
        guard type.takes(text) else {
            throw ConfigTemplateError(place, "\(value.shown) is not a \(type.rawValue)")
        }
        return text
    }

    private static func json(_ value: ConfigParameter.Value) -> JSONValue {
        switch value {
        case .text(let text): ["value": .string(text)]
        case .inAppDefault: ["useInAppDefault": true]
        }
    }

    // MARK: Strings

    /// Returns the members of a message by the names of its fields.
    private static func fields(
        _ message: JSONObject,
        _ place: String
    ) throws(ConfigTemplateError) -> JSONObject {
        do throws(RepeatedField) {
            return try FieldNames.camelCase(message)
        } catch {
            throw ConfigTemplateError(
                place,
                "\(error.name) comes twice, the second time as \(FieldNames.snakeCase(error.name))"
            )
        }
    }

    private func text(
        _ value: JSONValue?,
        _ place: String,
        _ name: String,
        _ maximum: Int
    ) throws(ConfigTemplateError) -> String? {
        guard let value, !value.isNull else { return nil }
        guard let text = value.string else {
            throw ConfigTemplateError(place, "\(name) is \(value.kindShown), not a text")
        }
        try check(text, place, name, maximum)
        return text
    }

    private func check(
        _ text: String,
        _ place: String,
        _ name: String,
        _ maximum: Int
    ) throws(ConfigTemplateError) {
        guard text.scalarCount <= maximum else {
            throw ConfigTemplateError(place, "\(name) has more than \(maximum) characters")
        }
        guard !text.utf8.contains(0) else {
            throw ConfigTemplateError(place, "\(name) has a NUL character")
        }
    }
}

/// The type of a parameter's values.
enum ValueType: String {
    case string = "STRING"
    case boolean = "BOOLEAN"
    case number = "NUMBER"
    case json = "JSON"

    func takes(_ text: String) -> Bool {
        switch self {
        case .string: true
        // Booleans are accepted in any case, as Firebase's console writes `TRUE`, and clients
        // accept it.
        case .boolean:
            ["true", "false"].contains { text.utf8.count == $0.utf8.count && text.begins($0) }
        case .number: ConfigNumber(text) != nil
        case .json: (try? JSONValue.parse(text)) != nil
        }
    }
}
