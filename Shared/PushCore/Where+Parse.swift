package import JSON

extension Where {
    /// Parses a condition: an object of fields, or an array of such objects, which must all hold.
    ///
    /// - Throws: `WhereError` with LeanCloud's code: 102 for an unknown or unsupported operator,
    ///   and for exceeding a limit; 103 for an invalid class name; 105 for a key; 106 for a
    ///   pointer; 107 for a wrong form; 302 for a place.
    package static func parse(_ value: JSONValue) throws(WhereError) -> Where {
        var reader = WhereReader()
        return try reader.condition(value, depth: 1)
    }
}

extension SortKey {
    package static let maximumKeys = 16

    /// Reads `order`: names separated by commas, `-` before descending ones.
    package static func parse(_ text: String) throws(WhereError) -> [SortKey] {
        var keys: [SortKey] = []
        for part in text.split(separator: ",") {
            let trimmed = part.drop { $0 == " " || $0 == "+" }
            let isDescending = trimmed.first == "-"
            let name = (isDescending ? trimmed.dropFirst() : trimmed).prefix { $0 != " " }
            keys.append(SortKey(path: try WherePath(String(name)), isDescending: isDescending))
        }
        guard keys.count <= maximumKeys else {
            throw WhereError(code: 102, field: "order", "at most \(maximumKeys) keys")
        }
        return keys
    }
}

extension WherePath {
    /// - Throws: 105 if a segment cannot be a field's name.
    package init(_ text: String) throws(WhereError) {
        let segments = text.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        guard segments.count <= Where.maximumPathSegments else {
            throw WhereError(
                code: 105,
                field: Self.shown(text),
                "at most \(Where.maximumPathSegments) names in a path"
            )
        }
        for (index, segment) in segments.enumerated() {
            guard Self.isName(segment, isFirst: index == 0) else {
                throw WhereError(code: 105, field: Self.shown(text), "not a field's name")
            }
        }
        self.segments = segments
    }

    /// Whether the segment is a valid name. The first segment must be a field name that can be
    /// saved; the others may be any key.
    private static func isName(_ segment: String, isFirst: Bool) -> Bool {
        let bytes = segment.utf8
        guard let first = bytes.first, bytes.count <= Where.maximumKeyBytes else { return false }
        guard isFirst else {
            return !bytes.contains(0) && first != UInt8(ascii: "$")
        }
        return ASCII.isLetter(first) || first == UInt8(ascii: "_")
            ? bytes.allSatisfy { ASCII.isAlphanumeric($0) || $0 == 0x5f || $0 == 0x2d } : false
    }

    /// Returns a name for an error message, cut to a bounded length.
    static func shown(_ text: String) -> String { String(text.prefix(100)) }
}

/// A reader of one `where`, which counts its parts.
private struct WhereReader {
    private var nodes = 0
    private var elements = 0
    private var patternBytes = 0
    private var queryDepth = 0

    // MARK: Conditions

    mutating func condition(_ value: JSONValue, depth: Int) throws(WhereError) -> Where {
        try enter(depth, "where")
        switch value {
        case .object(let object): return try condition(object, depth: depth)
        case .array(let list):
            return .all(try conditions(list, of: "where", depth: depth))
        default: throw .malformed("where", "must be an object, or an array of objects")
        }
    }

    private mutating func conditions(
        _ list: [JSONValue],
        of field: String,
        depth: Int
    ) throws(WhereError) -> [Where] {
        var parts: [Where] = []
        for element in list {
            guard let object = element.object else {
                throw .malformed(field, "must be an array of objects")
            }
            try enter(depth + 1, field)
            parts.append(try condition(object, depth: depth + 1))
        }
        return parts
    }

    private mutating func condition(
        _ object: JSONObject,
        depth: Int
    ) throws(WhereError) -> Where {
        var parts: [Where] = []
        for (key, value) in object {
            switch key {
            case "$and": parts.append(.all(try branches(value, of: key, depth: depth)))
            case "$or": parts.append(.any(try branches(value, of: key, depth: depth)))
            case "$nor": parts.append(.none(try branches(value, of: key, depth: depth)))
            case "$relatedTo", "$text", "$geoIntersects": throw .unsupported("", key)
            default:
                if key.utf8.first == UInt8(ascii: "$") {
                    let name = WherePath.shown(key)
                    throw WhereError(code: 105, field: name, "no operator, and no field's name")
                }
                let path = try WherePath(key)
                for test in try tests(value, of: path, depth: depth + 1) {
                    parts.append(.field(path, test))
                }
            }
        }
        return parts.count == 1 ? parts[0] : .all(parts)
    }

    private mutating func branches(
        _ value: JSONValue,
        of name: String,
        depth: Int
    ) throws(WhereError) -> [Where] {
        guard let list = value.array, !list.isEmpty else {
            throw .malformed(name, "must be an array of objects that is not empty")
        }
        return try conditions(list, of: name, depth: depth)
    }

    /// Counts a node. Throws if it is too deep, or if there are too many nodes.
    private mutating func enter(_ depth: Int, _ field: String) throws(WhereError) {
        nodes += 1
        guard depth <= Where.maximumDepth else {
            throw WhereError(code: 102, field: field, "nested too deeply")
        }
        guard nodes <= Where.maximumNodes else {
            throw WhereError(code: 102, field: field, "more than \(Where.maximumNodes) conditions")
        }
    }

    private mutating func addElements(_ count: Int, _ field: String) throws(WhereError) {
        elements += count
        guard elements <= Where.maximumElements else {
            throw WhereError(
                code: 102,
                field: field,
                "more than \(Where.maximumElements) elements in lists"
            )
        }
    }

    // MARK: Tests of a field

    private mutating func tests(
        _ value: JSONValue,
        of path: WherePath,
        depth: Int
    ) throws(WhereError) -> [WhereTest] {
        try enter(depth, path.text)
        guard let object = value.object, let operators = try operators(of: object, path) else {
            return [try equality(value, of: path, depth: depth)]
        }
        var tests: [WhereTest] = []
        // LeanCloud's JavaScript SDK merges a pointer, meaning equality, and operators into one
        // object.
        if operators.count < object.count {
            let typed = Self.members(of: object) { !Self.isOperator($0) }
            tests.append(try equality(.object(typed), of: path, depth: depth))
        }
        for (name, operand) in operators {
            try enter(depth, path.text)
            let operand = WhereOperand(name: name, value: operand, path: path, beside: operators)
            if let test = try test(operand, depth: depth) { tests.append(test) }
        }
        return tests
    }

    private static func isOperator(_ key: String) -> Bool { key.utf8.first == UInt8(ascii: "$") }

    private static func members(
        of object: JSONObject,
        where isWanted: (String) -> Bool
    ) -> JSONObject {
        var members = JSONObject()
        for (key, value) in object where isWanted(key) { members[key] = value }
        return members
    }

    /// Returns the operators of an object, which may also contain a typed value; `nil` if the
    /// object has no operators and so is a value.
    private func operators(
        of object: JSONObject,
        _ path: WherePath
    ) throws(WhereError) -> JSONObject? {
        let operators = Self.members(of: object, where: Self.isOperator)
        guard !operators.isEmpty else {
            guard object["__op"] == nil else {
                throw .malformed(path.text, "an operation is not a condition")
            }
            return nil
        }
        guard operators.count == object.count || object["__type"] != nil else {
            throw .malformed(path.text, "operators and other keys in one object")
        }
        return operators
    }

    private mutating func equality(
        _ value: JSONValue,
        of path: WherePath,
        depth: Int
    ) throws(WhereError) -> WhereTest {
        // A list of channels selects devices that have all of them, in any order.
        if path.segments == ["channels"], let list = value.array, !list.isEmpty {
            try addElements(list.count, path.text)
            var names: [WhereElement] = []
            for element in list {
                names.append(.value(try self.value(element, of: path, depth: depth + 1)))
            }
            return .holdsAll(names)
        }
        return .equal(try self.value(value, of: path, depth: depth))
    }

    private mutating func test(
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> WhereTest? {
        let path = operand.path
        switch operand.name {
        case "$eq": return try equality(operand.value, of: path, depth: depth)
        case "$ne": return .notEqual(try value(operand.value, of: path, depth: depth))
        case "$lt", "$lte", "$gt", "$gte":
            guard let comparison = WhereTest.Comparison(rawValue: operand.name) else { return nil }
            return .compare(comparison, try comparable(operand, depth: depth))
        case "$in": return .among(try list(operand, depth: depth))
        case "$nin": return .notAmong(try list(operand, depth: depth))
        case "$containedBy": return .containedBy(try list(operand, depth: depth))
        case "$all": return .holdsAll(try allElements(operand, depth: depth))
        case "$size":
            guard let size = operand.value.integer, size >= 0 else {
                throw operand.malformed("must be a whole number, 0 or more")
            }
            return .size(size)
        case "$exists":
            guard let flag = operand.value.flag else {
                throw operand.malformed("must be true or false, not \(operand.value.shown)")
            }
            return .exists(flag)
        case "$regex": return .pattern(try pattern(operand))
        case "$options":
            guard operand.beside["$regex"] != nil else { throw operand.malformed("needs $regex") }
            return nil
        case "$inQuery": return .inQuery(try pointerQuery(operand, depth: depth))
        case "$notInQuery": return .notInQuery(try pointerQuery(operand, depth: depth))
        case "$select":
            let (key, query) = try selection(operand, depth: depth)
            return .selected(key, by: query)
        case "$dontSelect":
            let (key, query) = try selection(operand, depth: depth)
            return .notSelected(key, by: query)
        case "$nearSphere": return try operand.near()
        case "$maxDistance", "$maxDistanceInRadians", "$maxDistanceInMiles",
            "$maxDistanceInKilometers", "$minDistance", "$minDistanceInRadians",
            "$minDistanceInMiles", "$minDistanceInKilometers":
            guard operand.beside["$nearSphere"] != nil else {
                throw operand.malformed("needs $nearSphere")
            }
            return nil
        case "$within": return try operand.box()
        case "$geoWithin":
            let area = try operand.area()
            if case .inPolygon(let points) = area { try addElements(points.count, path.text) }
            return area
        case "$relatedTo", "$text", "$geoIntersects":
            throw .unsupported(path.text, operand.name)
        default:
            throw WhereError(
                code: 102,
                field: path.text,
                "unknown operator \(WherePath.shown(operand.name))"
            )
        }
    }

    private mutating func comparable(
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> WhereValue {
        let value = try value(operand.value, of: operand.path, depth: depth)
        switch value {
        case .bool, .integer, .double, .string, .date: return value
        case .null, .pointer, .point, .structure:
            throw operand.malformed("must be a number, a string, a Date, true or false")
        }
    }

    private mutating func list(
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> [WhereValue] {
        guard let list = operand.value.array else { throw operand.malformed("must be an array") }
        try addElements(list.count, operand.path.text)
        var values: [WhereValue] = []
        values.reserveCapacity(list.count)
        for element in list {
            values.append(try value(element, of: operand.path, depth: depth + 1))
        }
        return values
    }

    private mutating func allElements(
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> [WhereElement] {
        guard let list = operand.value.array else { throw operand.malformed("must be an array") }
        try addElements(list.count, operand.path.text)
        var parts: [WhereElement] = []
        for element in list {
            guard let object = element.object, object["$regex"] != nil else {
                parts.append(.value(try value(element, of: operand.path, depth: depth + 1)))
                continue
            }
            try enter(depth + 1, operand.path.text)
            for key in object.keys where key != "$regex" && key != "$options" {
                throw operand.malformed("a pattern has only $regex and $options")
            }
            let pattern = WhereOperand(
                name: "$regex",
                value: object["$regex"] ?? .null,
                path: operand.path,
                beside: object
            )
            parts.append(.pattern(try self.pattern(pattern)))
        }
        return parts
    }

    private mutating func pattern(
        _ operand: WhereOperand
    ) throws(WhereError) -> WherePattern {
        patternBytes += operand.value.string?.utf8.count ?? 0
        guard patternBytes <= Where.maximumPatternBytesInAll else {
            throw WhereError(
                code: 102,
                field: operand.path.text,
                "more than \(Where.maximumPatternBytesInAll) bytes of patterns"
            )
        }
        return try operand.pattern()
    }

    /// Reads the condition of a sub-query.
    private mutating func inner(
        _ value: JSONValue,
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> Where {
        guard queryDepth < Where.maximumQueryDepth else {
            throw WhereError(
                code: 102,
                field: operand.path.text,
                "\(operand.name): more than \(Where.maximumQueryDepth) queries within each other"
            )
        }
        queryDepth += 1
        defer { queryDepth -= 1 }
        return try condition(value, depth: depth + 1)
    }

    // MARK: Sub-queries

    private mutating func pointerQuery(
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> WhereQuery {
        guard let object = operand.value.object else {
            throw operand.malformed("must be an object")
        }
        if object["where"] != nil || object["className"] != nil {
            return try query(object, operand, depth: depth)
        }
        let condition = try inner(operand.value, operand, depth: depth)
        return WhereQuery(condition: condition, className: nil, limit: nil)
    }

    private mutating func selection(
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> (WherePath, WhereQuery) {
        guard let object = operand.value.object, let key = object["key"]?.string,
            let query = object["query"]?.object, object.count == 2
        else { throw operand.malformed("must be an object of \"key\" and \"query\"") }
        return (try WherePath(key), try self.query(query, operand, depth: depth))
    }

    private mutating func query(
        _ object: JSONObject,
        _ operand: WhereOperand,
        depth: Int
    ) throws(WhereError) -> WhereQuery {
        guard let className = object["className"]?.string, !className.isEmpty,
            className.utf8.count <= Where.maximumKeyBytes, !className.utf8.contains(0)
        else {
            throw WhereError(
                code: 103,
                field: operand.path.text,
                "\(operand.name) needs a className"
            )
        }
        var query = WhereQuery(
            condition: try inner(object["where"] ?? [:], operand, depth: depth),
            className: className,
            limit: WhereQuery.defaultLimit
        )
        for (key, value) in object {
            switch key {
            case "where", "className", "keys", "excludeKeys": continue
            case "limit":
                guard let limit = value.wholeNumber else {
                    throw operand.malformed("limit must be a whole number")
                }
                let isValid = (1...WhereQuery.maximumLimit).contains(limit)
                query.limit = isValid ? limit : WhereQuery.defaultLimit
            case "skip":
                guard let skip = value.wholeNumber, skip >= 0 else {
                    throw operand.malformed("skip must be a whole number, 0 or more")
                }
                query.skip = skip
            case "order":
                guard let order = value.string else {
                    throw operand.malformed("order must be a string")
                }
                query.order = try SortKey.parse(order)
            default:
                throw .unsupported(operand.path.text, "\(WherePath.shown(key)) in \(operand.name)")
            }
        }
        return query
    }

    // MARK: Values

    private mutating func value(
        _ value: JSONValue,
        of path: WherePath,
        depth: Int
    ) throws(WhereError) -> WhereValue {
        switch value {
        case .null: return .null
        case .bool(let flag): return .bool(flag)
        case .integer(let number): return .integer(number)
        case .double, .number:
            guard let number = value.double else {
                throw .malformed(path.text, "a number too large")
            }
            // A number has one form: `1.0` is `1`. Larger numbers are stored with the digits in
            // which they were written, which differ from those of the equal integer.
            if abs(number) <= 0x1p53, let whole = value.integer { return .integer(Int64(whole)) }
            return .double(number)
        case .string(let text):
            guard !text.utf8.contains(0) else { throw .malformed(path.text, "a NUL character") }
            // These two fields are dates, which clients see as strings. So a string is parsed as a
            // date here.
            if path.segments == ["createdAt"] || path.segments == ["updatedAt"],
                let instant = Instant(iso8601: text)
            {
                return .date(instant)
            }
            return .string(text)
        case .array:
            try checkStructure(value, path, depth: depth)
            return .structure(value)
        case .object(let object):
            return try typed(object, of: path, depth: depth)
        }
    }

    private mutating func typed(
        _ object: JSONObject,
        of path: WherePath,
        depth: Int
    ) throws(WhereError) -> WhereValue {
        for key in object.keys where key.utf8.first == UInt8(ascii: "$") {
            throw WhereError(
                code: 102,
                field: path.text,
                "operator \(WherePath.shown(key)) inside of a value"
            )
        }
        switch object["__type"]?.string {
        case "Date":
            guard let text = object["iso"]?.string, let instant = Instant(iso8601: text) else {
                throw .malformed(path.text, "a Date needs \"iso\", in ISO 8601 with its zone")
            }
            return .date(instant)
        case "Pointer":
            guard let className = object["className"]?.string,
                let objectID = object["objectId"]?.string,
                !className.utf8.contains(0), !objectID.utf8.contains(0)
            else {
                throw WhereError(
                    code: 106,
                    field: path.text,
                    "a Pointer needs \"className\" and \"objectId\""
                )
            }
            return .pointer(className: className, objectID: objectID)
        case "GeoPoint": return .point(try GeoPoint(.object(object), of: path))
        case nil where object["__type"] == nil, "Bytes", "File", "Relation", "Object", "ACL":
            try checkStructure(.object(object), path, depth: depth)
            return .structure(.object(object))
        default: throw .malformed(path.text, "an unknown __type")
        }
    }

    /// Validates a value that goes to the database unchanged: it has no NUL, no number beyond the
    /// database's types, and is not too deep.
    private mutating func checkStructure(
        _ value: JSONValue,
        _ path: WherePath,
        depth: Int
    ) throws(WhereError) {
        switch value {
        case .null, .bool, .integer, .double: return
        case .number: throw .malformed(path.text, "a number too large")
        case .string(let text):
            guard !text.utf8.contains(0) else { throw .malformed(path.text, "a NUL character") }
        case .array(let list):
            try enter(depth, path.text)
            try addElements(list.count, path.text)
            for element in list { try checkStructure(element, path, depth: depth + 1) }
        case .object(let object):
            try enter(depth, path.text)
            try addElements(object.count, path.text)
            for (key, member) in object {
                guard !key.utf8.contains(0) else { throw .malformed(path.text, "a NUL character") }
                try checkStructure(member, path, depth: depth + 1)
            }
        }
    }
}

/// One operator of a field. `beside` is its object, with the other operators.
private struct WhereOperand {
    let name: String
    let value: JSONValue
    let path: WherePath
    let beside: JSONObject

    func malformed(_ problem: String) -> WhereError {
        .malformed(path.text, "\(name) \(problem)")
    }

    func pattern() throws(WhereError) -> WherePattern {
        guard let text = value.string else { throw malformed("must be a string") }
        var options = ""
        if let given = beside["$options"] {
            guard let letters = given.string else {
                throw .malformed(path.text, "$options must be a string")
            }
            options = letters
        }
        return try WherePattern(text, options: options, field: path.text)
    }

    // MARK: Places

    private static let units: [(suffix: String, radius: Double)] = [
        ("", 1), ("InRadians", 1), ("InMiles", GeoPoint.earthRadiusInMiles),
        ("InKilometers", GeoPoint.earthRadiusInKilometers),
    ]

    func near() throws(WhereError) -> WhereTest {
        .near(
            try GeoPoint(value, of: path),
            minimum: try distance("$minDistance"),
            maximum: try distance("$maxDistance")
        )
    }

    /// Returns the distance in radians.
    private func distance(_ name: String) throws(WhereError) -> Double? {
        var found: Double?
        for unit in Self.units {
            guard let value = beside[name + unit.suffix] else { continue }
            guard found == nil else { throw .malformed(path.text, "two of \(name)") }
            guard let distance = value.double, distance >= 0 else {
                throw .malformed(path.text, "\(name + unit.suffix) must be a number, 0 or more")
            }
            found = distance / unit.radius
        }
        return found
    }

    /// Reads a corner. LeanCloud's Python SDK writes a corner as a list that the app gives:
    /// latitude, longitude.
    private func corner(_ value: JSONValue) throws(WhereError) -> GeoPoint {
        guard let pair = value.array else { return try GeoPoint(value, of: path) }
        guard pair.count == 2, let latitude = pair[0].double, let longitude = pair[1].double else {
            throw malformed("a corner is a GeoPoint, or [latitude, longitude]")
        }
        return try GeoPoint.checked(latitude: latitude, longitude: longitude, of: path)
    }

    func box() throws(WhereError) -> WhereTest {
        guard let object = value.object else { throw malformed("must be an object") }
        for key in object.keys where key != "$box" {
            throw .unsupported(path.text, "\(WherePath.shown(key)) in $within")
        }
        guard let corners = object["$box"]?.array, corners.count == 2 else {
            throw malformed("needs a $box of two GeoPoints")
        }
        let southWest = try corner(corners[0])
        let northEast = try corner(corners[1])
        guard southWest.latitude <= northEast.latitude else {
            throw malformed("needs the southwest corner first")
        }
        return .inBox(southWest: southWest, northEast: northEast)
    }

    func area() throws(WhereError) -> WhereTest {
        guard let object = value.object, object.count == 1, let shape = object.keys.first else {
            throw malformed("must be an object of one shape")
        }
        switch shape {
        case "$centerSphere":
            guard let list = object[shape]?.array, list.count == 2, let radius = list[1].double,
                radius >= 0
            else { throw malformed("needs a $centerSphere of a place and a radius in radians") }
            return .near(try place(list[0]), minimum: nil, maximum: radius)
        case "$polygon":
            guard let list = object[shape]?.array, list.count >= 3 else {
                throw malformed("needs a $polygon of three places or more")
            }
            guard list.count <= Where.maximumNodes else {
                throw WhereError(
                    code: 102,
                    field: path.text,
                    "$polygon has more than \(Where.maximumNodes) places"
                )
            }
            var points: [GeoPoint] = []
            for element in list { points.append(try place(element)) }
            return .inPolygon(points)
        default: throw .unsupported(path.text, "\(WherePath.shown(shape)) in $geoWithin")
        }
    }

    /// Reads a GeoPoint, or MongoDB's pair of longitude and latitude.
    private func place(_ value: JSONValue) throws(WhereError) -> GeoPoint {
        guard let pair = value.array else { return try GeoPoint(value, of: path) }
        guard pair.count == 2, let longitude = pair[0].double, let latitude = pair[1].double else {
            throw malformed("a place is a GeoPoint, or [longitude, latitude]")
        }
        return try GeoPoint.checked(latitude: latitude, longitude: longitude, of: path)
    }
}

extension GeoPoint {
    fileprivate init(_ value: JSONValue, of path: WherePath) throws(WhereError) {
        guard let object = value.object, object["__type"].map({ $0 == "GeoPoint" }) ?? true,
            let latitude = object["latitude"]?.double, let longitude = object["longitude"]?.double
        else { throw .malformed(path.text, "a GeoPoint needs \"latitude\" and \"longitude\"") }
        self = try Self.checked(latitude: latitude, longitude: longitude, of: path)
    }

    fileprivate static func checked(
        latitude: Double,
        longitude: Double,
        of path: WherePath
    ) throws(WhereError) -> GeoPoint {
        guard let point = GeoPoint(latitude: latitude, longitude: longitude) else {
            throw WhereError(
                code: 302,
                field: path.text,
                "a latitude is within 90 degrees, a longitude within 180"
            )
        }
        return point
    }
}
