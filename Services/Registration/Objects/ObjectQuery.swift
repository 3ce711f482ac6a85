package import JSON
package import PushCore

/// The objects of a class that a client asks for, and their fields.
package struct ObjectQuery: Sendable, Equatable {
    package var condition = Where.everything
    package var order: [SortKey] = []
    /// 0...1000; 0 if only the count is asked for.
    package var limit = WhereQuery.defaultLimit
    package var skip = 0
    package var selection = KeySelection()
    /// The pointers that are replaced by their objects.
    package var include: [String] = []
    package var wantsCount = false

    package init() {}
}

/// The fields of an object in a response: `keys=name,profile.city,-secret`.
package struct KeySelection: Sendable, Equatable {
    /// The selected fields; empty: all of them.
    package private(set) var included: [WherePath] = []
    package private(set) var excluded: [WherePath] = []

    package static let maximumKeys = 100
    /// Fields that are always included.
    private static let always = ["objectId", "createdAt", "updatedAt", "className", "__type"]

    package init() {}

    /// Parses names joined by commas; `-` before a name excludes it.
    package init(_ text: String) throws(WhereError) {
        try add(text, isExcluding: false)
    }

    /// Adds names; with `isExcluding` each of them is excluded, as in Parse's `excludeKeys`.
    package mutating func add(_ text: String, isExcluding: Bool) throws(WhereError) {
        for part in text.split(separator: ",") {
            var name = part.drop { $0 == " " || $0 == "+" }
            while name.last == " " { name.removeLast() }
            let leavesOut = name.first == "-"
            if leavesOut { name = name.dropFirst() }
            let path = try WherePath(String(name))
            if leavesOut || isExcluding { excluded.append(path) } else { included.append(path) }
        }
        guard included.count + excluded.count <= Self.maximumKeys else {
            throw WhereError(code: 102, field: "keys", "at most \(Self.maximumKeys) keys")
        }
    }

    package func apply(to object: JSONObject) -> JSONObject {
        var result = object
        if !included.isEmpty {
            result = [:]
            for key in Self.always { if let value = object[key] { result[key] = value } }
            for path in included { Self.copy(path.segments[...], from: object, into: &result) }
        }
        for path in excluded where path.segments != ["objectId"] {
            Self.remove(path.segments[...], from: &result)
        }
        return result
    }

    private static func copy(
        _ path: ArraySlice<String>,
        from source: JSONObject,
        into result: inout JSONObject
    ) {
        guard let name = path.first, let value = source[name] else { return }
        guard path.count > 1 else {
            result[name] = value
            return
        }
        guard let inner = value.object else { return }
        var kept = result[name]?.object ?? [:]
        copy(path.dropFirst(), from: inner, into: &kept)
        result[name] = .object(kept)
    }

    private static func remove(_ path: ArraySlice<String>, from object: inout JSONObject) {
        guard let name = path.first else { return }
        guard path.count > 1 else {
            object.removeValue(forKey: name)
            return
        }
        guard var inner = object[name]?.object else { return }
        remove(path.dropFirst(), from: &inner)
        object[name] = .object(inner)
    }
}
