internal import JSON

/// Turns bytes into well-formed conditions: each byte makes one decision, and without bytes left
/// every decision is the simplest.
struct WhereScript {
    private var rest: ArraySlice<UInt8>
    private var made = 0

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    private mutating func next() -> Int {
        made += 1
        return made > 4000 ? 0 : Int(rest.popFirst() ?? 0)
    }

    private mutating func pick<Element>(_ list: [Element]) -> Element { list[next() % list.count] }

    mutating func condition(depth: Int) -> JSONValue {
        var object: JSONObject = [:]
        for _ in 0...next() % 3 {
            let choice = next()
            if depth > 0, choice % 5 == 0 {
                let parts = (0...next() % 3).map { _ in condition(depth: depth - 1) }
                object[pick(["$or", "$and", "$nor", "$relatedTo"])] = .array(parts)
            } else {
                object[path()] = constraint(depth: depth)
            }
        }
        if depth == 3, next() % 16 == 1 { return [.object(object)] }
        return .object(object)
    }

    private mutating func path() -> String {
        let name = pick([
            "a", "b_c", "channels", "objectId", "createdAt", "updatedAt", "badge", "valid",
            "deviceType", "installationId", "timeZone", "o.x", "o.x.y", "channels.x", "$bad",
            "'; --",
            "a.b'c.\"d", "1", "", "x-y",
        ])
        return next() % 32 == 1 ? text() : name
    }

    private mutating func text() -> String {
        let count = next() % 24
        let bytes = (0..<count).map { _ in UInt8(truncatingIfNeeded: next()) }
        return String(decoding: bytes, as: UTF8.self)
    }

    private mutating func value(depth: Int) -> JSONValue {
        switch next() % 14 {
        case 0: return .null
        case 1: return .bool(next() % 2 == 0)
        case 2: return .integer(Int64(next()) - 128)
        case 3: return .double(pick([0.5, -1e308, .leastNonzeroMagnitude, 1e20, 0.1]))
        case 4: return .number("1e400")
        case 5, 6, 7: return .string(text())
        case 8:
            return [
                "__type": "Date",
                "iso": pick([
                    "2024-02-29T00:00:00.000Z", "0001-01-01T00:00:00Z", "no", "2024-02-30",
                ]),
            ]
        case 9:
            return [
                "__type": "Pointer", "className": pick(["_User", "Team", "'"]),
                "objectId": .string(text()),
            ]
        case 10: return place()
        case 11:
            guard depth > 0 else { return [] }
            return .array((0..<next() % 5).map { _ in value(depth: depth - 1) })
        case 12:
            guard depth > 0 else { return [:] }
            return [text(): value(depth: depth - 1)] as JSONValue
        default: return ["$regex": .string(text())]
        }
    }

    private mutating func place() -> JSONValue {
        [
            "__type": "GeoPoint", "latitude": .integer(Int64(next()) - 100),
            "longitude": .double(Double(next()) * 1.7 - 200),
        ]
    }

    private mutating func list(depth: Int) -> JSONValue {
        .array((0..<next() % 130).map { _ in value(depth: depth) })
    }

    private mutating func constraint(depth: Int) -> JSONValue {
        var object: JSONObject = [:]
        for _ in 0...next() % 2 {
            let name = pick([
                "", "$eq", "$ne", "$lt", "$lte", "$gt", "$gte", "$in", "$nin", "$all", "$size",
                "$exists", "$regex", "$options", "$inQuery", "$notInQuery", "$select",
                "$dontSelect", "$nearSphere", "$maxDistanceInMiles", "$minDistance", "$within",
                "$geoWithin", "$containedBy", "$text", "$roughly",
            ])
            switch name {
            case "": return value(depth: depth)
            case "$in", "$nin", "$all", "$containedBy": object[name] = list(depth: 1)
            case "$size": object[name] = .integer(Int64(next()) - 2)
            case "$exists": object[name] = .bool(next() % 2 == 0)
            case "$regex": object[name] = .string(pattern())
            case "$options":
                object[name] = .string(pick(["i", "m", "s", "x", "imsx", "g", ""]))
                object["$regex"] = .string(pattern())
            case "$inQuery", "$notInQuery":
                object[name] =
                    next() % 3 == 0 && depth > 0 ? condition(depth: depth - 1) : query(depth)
            case "$select", "$dontSelect":
                object[name] = ["key": .string(path()), "query": query(depth)]
            case "$nearSphere":
                object[name] = place()
            case "$maxDistanceInMiles", "$minDistance":
                object[name] = .integer(Int64(next()) - 1)
                object["$nearSphere"] = place()
            case "$within": object[name] = ["$box": [place(), place()]]
            case "$geoWithin":
                object[name] =
                    next() % 2 == 0
                    ? ["$polygon": .array((0..<next() % 6).map { _ in place() })]
                    : ["$centerSphere": [place(), .double(Double(next()) * 0.01)]]
            default: object[name] = value(depth: depth)
            }
        }
        return .object(object)
    }

    private mutating func query(_ depth: Int) -> JSONValue {
        var object: JSONObject = [
            "className": pick(["_User", "_User", "_Installation", "Team", ""]),
            "where": depth > 0 ? condition(depth: depth - 1) : [:],
        ]
        if next() % 3 == 0 { object["limit"] = .integer(Int64(next()) * 10 - 10) }
        if next() % 4 == 0 { object["skip"] = .integer(Int64(next()) - 1) }
        if next() % 4 == 0 {
            object["order"] = .string(pick(["a", "-a,b", "-createdAt", "$", ","]))
        }
        if next() % 16 == 1 { object["include"] = "a" }
        return .object(object)
    }

    private mutating func pattern() -> String {
        (0..<next() % 14).map { _ in
            pick([
                "a", "B", "(", ")", "[", "]", "{2,9}", "*", "+", "?", "|", "^", "$", ".", "\\", "-",
                "\\d", "\\W", "\\b", "\\Q", "\\E", "(?:", "(?=", "(?!", "(?i)", "[^", "[[:alpha:]]",
                "\\x41", "\\u0041", "\n", "日", "***",
            ])
        }.joined()
    }
}
