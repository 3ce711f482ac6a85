import JSON

/// Makes installations, identities and conditions with common values.
struct RandomWhere {
    var choice: SeededChoice

    init(seed: UInt64) { choice = SeededChoice(seed: seed) }

    // MARK: Objects

    private static let numbers: [JSONValue] = [
        0, 1, 2, 3, -1, 1.5, 2.5, 1e20, 1.152921504606847e18, 9_007_199_254,
    ]
    private static let texts: [JSONValue] = [
        "", "a", "A", "ab", "Ab.c", "a+b", "b", "ba", "日本", "日本語", "\u{1F514}", "Ω", "ω", "a\nb",
        "1", "public", "O'Neill \\ \"x\"", "%_",
    ]
    private static let channels = ["public", "private", "protected", "a", "ab", "日本", "", "A-1"]
    private static let moments = [
        "2013-06-29T11:33:53.323Z", "2013-06-29T13:33:53.323+02:00", "2024-02-29T00:00:00Z",
        "2025-01-01T10:00:00.5Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z",
    ]
    static let identityCount = 30

    mutating func number() -> JSONValue { choice.pick(Self.numbers) }
    mutating func text() -> JSONValue { choice.pick(Self.texts) }

    mutating func date() -> JSONValue {
        ["__type": "Date", "iso": .string(choice.pick(Self.moments))]
    }

    mutating func pointer() -> JSONValue {
        [
            "__type": "Pointer", "className": .string(choice.pick(["_User", "_User", "Team"])),
            "objectId": .string("user\(choice.below(Self.identityCount + 3))"),
        ]
    }

    mutating func point() -> JSONValue {
        let latitudes: [Double] = [30, 30.001, -89.5, 12.25, 51.477811, 0.0000003]
        let longitudes = [-20, -20.002, 179.9, -179.9, 116.397228, .leastNonzeroMagnitude]
        return [
            "__type": "GeoPoint", "latitude": .double(choice.pick(latitudes)),
            "longitude": .double(choice.pick(longitudes)),
        ]
    }

    mutating func anyValue(depth: Int = 2) -> JSONValue {
        switch choice.below(depth > 0 ? 11 : 8) {
        case 0: return .null
        case 1: return .bool(choice.isOne(in: 2))
        case 2, 3: return number()
        case 4, 5: return text()
        case 6: return date()
        case 7: return choice.isOne(in: 2) ? pointer() : point()
        case 8, 9:
            return .array((0..<choice.below(4)).map { _ in anyValue(depth: depth - 1) })
        default:
            var object: JSONObject = [:]
            for key in ["x", "y"] where !choice.isOne(in: 3) {
                object[key] = anyValue(depth: depth - 1)
            }
            return .object(object)
        }
    }

    /// Makes fields that usually have one type, and sometimes any.
    mutating func fields() -> JSONObject {
        var object: JSONObject = [:]
        func value(_ usual: JSONValue, _ random: inout RandomWhere) -> JSONValue {
            random.choice.isOne(in: 6) ? random.anyValue() : usual
        }
        for name in Self.fieldNames where !choice.isOne(in: 4) {
            let usual: JSONValue
            switch name {
            case "n": usual = number()
            case "s": usual = text()
            case "b": usual = .bool(choice.isOne(in: 2))
            case "d": usual = date()
            case "owner", "p": usual = pointer()
            case "g": usual = point()
            case "l": usual = .array((0..<choice.below(4)).map { _ in text() })
            case "m": usual = .array((0..<choice.below(4)).map { _ in number() })
            default: usual = anyValue()
            }
            object[name] = value(usual, &self)
        }
        return object
    }

    private static let fieldNames = ["n", "s", "b", "d", "owner", "p", "g", "l", "m", "o"]

    mutating func installation(_ index: Int) -> JSONObject {
        var object = fields()
        object["deviceType"] = .string(choice.pick(["ios", "android", "web"]))
        let channels = Self.channels.filter { _ in choice.isOne(in: 3) }
        if !choice.isOne(in: 4) { object["channels"] = .array(channels.map(JSONValue.string)) }
        if choice.isOne(in: 2) { object["installationId"] = .string("device\(index)") }
        if choice.isOne(in: 2) { object["timeZone"] = .string(choice.pick(["Asia/Tokyo", "UTC"])) }
        if choice.isOne(in: 3) { object["deviceProfile"] = .string(choice.pick(["dev", "prod"])) }
        if !choice.isOne(in: 3) { object["badge"] = .integer(Int64(choice.below(4))) }
        object["valid"] = .bool(!choice.isOne(in: 3))
        return object
    }

    mutating func identity(_ index: Int) -> JSONObject {
        var object = fields()
        object["objectId"] = .string("user\(index)")
        object["createdAt"] = ["__type": "Date", "iso": "2024-01-01T00:00:00.000Z"]
        // It is ordered by, so it must be comparable.
        object["rank"] = .integer(Int64(choice.below(10)))
        return object
    }

    // MARK: Conditions

    mutating func condition(depth: Int) -> JSONValue {
        var object: JSONObject = [:]
        if depth > 0, choice.isOne(in: 2) {
            let branches = (0..<choice.below(3) + 1).map { _ in
                condition(depth: depth - 1).shortForm
            }
            object[choice.pick(["$or", "$and", "$nor"])] = .array(branches)
        }
        for _ in 0..<choice.below(object.isEmpty ? 3 : 2) + (object.isEmpty ? 1 : 0) {
            let name = path()
            object[name] = constraint(of: name, depth: depth)
        }
        if depth > 1, choice.isOne(in: 12) { return [.object(object), condition(depth: 1)] }
        return .object(object)
    }

    private mutating func path() -> String {
        switch choice.below(12) {
        case 0: return choice.pick(["channels", "channels", "badge", "valid", "deviceType"])
        case 1:
            return choice.pick([
                "installationId", "timeZone", "deviceProfile", "objectId", "vendor",
            ])
        case 2: return choice.pick(["createdAt", "updatedAt"])
        case 4: return choice.pick(["channels", "badge"])
        case 3: return choice.pick(["o.x", "o.y", "o.x.y", "channels.x", "g.latitude", "none.x"])
        default: return choice.pick(Self.fieldNames)
        }
    }

    /// Returns a likely value of such a field.
    private mutating func value(of path: String) -> JSONValue {
        if choice.isOne(in: 8) { return anyValue() }
        switch path {
        case "channels": return .string(choice.pick(Self.channels))
        case "badge": return .integer(Int64(choice.below(4)))
        case "valid", "b": return .bool(choice.isOne(in: 2))
        case "deviceType": return .string(choice.pick(["ios", "android", "web"]))
        case "installationId": return .string("device\(choice.below(200))")
        case "timeZone": return "UTC"
        case "n", "m": return number()
        case "s", "l": return text()
        case "d", "createdAt", "updatedAt": return date()
        case "owner", "p": return pointer()
        case "g": return point()
        default: return anyValue()
        }
    }

    private mutating func constraint(of path: String, depth: Int) -> JSONValue {
        if choice.isOne(in: 4) { return value(of: path) }
        var object: JSONObject = [:]
        for _ in 0..<(choice.isOne(in: 3) ? 2 : 1) { addOperator(to: &object, path, depth) }
        return .object(object)
    }

    private mutating func list(of path: String) -> JSONValue {
        // Sometimes it is longer than an index is searched for one by one.
        let count = choice.isOne(in: 10) ? 130 : choice.below(4)
        return .array((0..<count).map { _ in value(of: path) })
    }

    private mutating func comparable(of path: String) -> JSONValue {
        let value = value(of: path)
        switch value {
        case .bool, .integer, .double, .string: return value
        case .object where value["__type"] == "Date": return value
        default: return choice.isOne(in: 2) ? number() : text()
        }
    }

    private mutating func addOperator(to object: inout JSONObject, _ path: String, _ depth: Int) {
        switch choice.below(depth > 0 ? 16 : 14) {
        case 0, 1, 2:
            object[choice.pick(["$lt", "$lte", "$gt", "$gte"])] = comparable(of: path)
        case 3: object["$ne"] = value(of: path)
        case 4: object["$in"] = list(of: path)
        case 5: object["$nin"] = list(of: path)
        case 6:
            var elements = (0..<choice.below(3)).map { _ in value(of: path) }
            if choice.isOne(in: 3) { elements.append(["$regex": .string(pattern())]) }
            object["$all"] = .array(elements)
        case 7: object["$size"] = .integer(Int64(choice.below(4)))
        case 8: object["$exists"] = .bool(choice.isOne(in: 2))
        case 9:
            object["$regex"] = .string(pattern())
            if choice.isOne(in: 2) {
                object["$options"] = .string(choice.pick(["i", "m", "s", "im"]))
            }
        case 10: object["$containedBy"] = list(of: path)
        case 11:
            object["$nearSphere"] = point()
            if choice.isOne(in: 2) {
                object["$maxDistanceInKilometers"] = choice.pick([0.5, 9000])
            }
            if choice.isOne(in: 4) { object["$minDistance"] = 0.1 }
        case 12:
            let (west, east) = (Double(choice.below(360) - 180), Double(choice.below(360) - 180))
            let corner = { (latitude: Double, longitude: Double) -> JSONValue in
                [
                    "__type": "GeoPoint", "latitude": .double(latitude),
                    "longitude": .double(longitude),
                ]
            }
            object["$within"] = ["$box": [corner(-40.5, west + 0.125), corner(60.5, east + 0.125)]]
        case 13:
            let corner = { (random: inout RandomWhere) -> JSONValue in
                [
                    .double(Double(random.choice.below(350) - 175) + 0.3),
                    .double(Double(random.choice.below(170) - 85) + 0.3),
                ]
            }
            object["$geoWithin"] =
                choice.isOne(in: 2)
                ? ["$polygon": .array((0..<4).map { _ in corner(&self) })]
                : ["$centerSphere": [corner(&self), choice.pick([0.1, 1.2])]]
        case 14:
            object[choice.pick(["$inQuery", "$notInQuery"])] =
                choice.isOne(in: 3) ? condition(depth: depth - 1).shortForm : query(depth: depth)
        default:
            object[choice.pick(["$select", "$dontSelect"])] = [
                "key": .string(choice.pick(Self.fieldNames + ["objectId", "o.x", "channels"])),
                "query": query(depth: depth),
            ]
        }
    }

    private mutating func query(depth: Int) -> JSONValue {
        let isOfInstallations = choice.isOne(in: 4)
        var query: JSONObject = [
            "className": isOfInstallations ? "_Installation" : "_User",
            "where": condition(depth: depth - 1),
        ]
        if choice.isOne(in: 3) { query["limit"] = .integer(Int64(choice.below(12))) }
        if choice.isOne(in: 4) { query["skip"] = .integer(Int64(choice.below(5))) }
        if !isOfInstallations, choice.isOne(in: 3) {
            query["order"] = .string(choice.pick(["rank", "-rank"]))
        }
        // The nearest come first if there is no other order.
        if query["where"]?.text.contains("$nearSphere") == true
            || query["where"]?.text.contains("$centerSphere") == true
        {
            query["order"] = "objectId"
        }
        return .object(query)
    }

    private mutating func pattern() -> String {
        switch choice.below(10) {
        case 0: return #"^\Q\#(word())\E"#
        case 1: return #"\Q\#(word())\E$"#
        case 2: return #"\Q\#(word())\E"#
        case 3: return #"^\Q\#(word())\E$"#
        case 4: return "^\(word())|\(word())$"
        case 5: return "[a-c]{1,2}"
        case 6: return "^[^a]"
        case 7: return "^(?:a|b)+$"
        case 8:
            return choice.pick([#"^\d"#, "a.b", "^b", "^(?!a)", "(?=.*b)a", "日.?$", "A", "^.$"])
        default: return #"a\+b|\."#
        }
    }

    private mutating func word() -> String {
        choice.pick(["a", "b", "ab", "pub", "日本", "c", "A", "1", "ω"])
    }
}

extension JSONValue {
    /// The form without the lists that only the top level accepts.
    fileprivate var shortForm: JSONValue { array?.first ?? self }
}
