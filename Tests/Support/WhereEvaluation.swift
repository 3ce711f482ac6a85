import Foundation
package import JSON
package import PushCore

/// Evaluates a `where` over one object at a time, for comparison with SQL. It shares no code with
/// the compiler, and leaves regular expressions to ICU.
package struct WhereEvaluation {
    /// Returns the objects of a class (`_User` if a query names none) that a sub-query selects.
    package typealias Resolve = (WhereQuery) -> [JSONObject]

    private let resolve: Resolve

    package init(resolve: @escaping Resolve = { _ in [] }) {
        self.resolve = resolve
    }

    package func matches(_ condition: Where, _ object: JSONObject) -> Bool {
        switch condition {
        case .all(let parts): parts.allSatisfy { matches($0, object) }
        case .any(let parts): parts.contains { matches($0, object) }
        case .none(let parts): !parts.contains { matches($0, object) }
        case .field(let path, let test): matches(test, Self.lookUp(path, object))
        }
    }

    /// Returns the objects that a sub-query selects, in its order and within its limit.
    package func select(_ query: WhereQuery, from objects: [JSONObject]) -> [JSONObject] {
        let found = objects.filter { matches(query.condition, $0) }.sorted { left, right in
            for key in query.order {
                let values = [left, right].map { Self.lookUp(key.path, $0)?.double }
                if values[0] == values[1] { continue }
                let isBefore = (values[0] ?? -.infinity) < (values[1] ?? -.infinity)
                return isBefore != key.isDescending
            }
            let ids = [left, right].map { $0["objectId"]?.string ?? "" }
            return Self.isOrdered(ids[0], ids[1])
        }
        guard let limit = query.limit else { return found }
        return Array(found.dropFirst(query.skip).prefix(limit))
    }

    private static func lookUp(_ path: WherePath, _ object: JSONObject) -> JSONValue? {
        var value: JSONValue? = .object(object)
        for segment in path.segments { value = value?.object?[segment] }
        return value
    }

    private func matches(_ test: WhereTest, _ value: JSONValue?) -> Bool {
        switch test {
        case .equal(let operand): equals(operand, value)
        case .notEqual(let operand): !equals(operand, value)
        case .among(let list): list.contains { equals($0, value) }
        case .notAmong(let list): !list.contains { equals($0, value) }
        case .compare(let comparison, let operand):
            any(value) { Self.compare(comparison, $0, operand) }
        case .holdsAll(let elements):
            !elements.isEmpty
                && elements.allSatisfy { element in
                    switch element {
                    case .value(let operand): equals(operand, value)
                    case .pattern(let pattern): any(value) { Self.matches(pattern, $0) }
                    }
                }
        case .containedBy(let list):
            value?.array?.allSatisfy { element in
                list.contains { Self.equals($0, whole: element) }
            } ?? false
        case .size(let size): value?.array?.count == size
        case .exists(let flag): (value != nil) == flag
        case .pattern(let pattern): any(value) { Self.matches(pattern, $0) }
        case .inQuery(let query): points(into: query, value)
        case .notInQuery(let query): !points(into: query, value)
        case .selected(let key, let query): isSelected(key, query, value)
        case .notSelected(let key, let query): !isSelected(key, query, value)
        case .near(let point, let minimum, let maximum):
            any(value) { candidate in
                guard let place = Self.point(candidate) else { return false }
                let arc = Self.arc(place, point)
                return arc >= minimum ?? 0 && arc <= maximum ?? .infinity
            }
        case .inBox(let southWest, let northEast):
            any(value) { candidate in
                guard let place = Self.point(candidate) else { return false }
                let (west, east) = (southWest.longitude, northEast.longitude)
                let isBetween =
                    west <= east
                    ? (west...east).contains(place.longitude)
                    : place.longitude >= west || place.longitude <= east
                return isBetween
                    && (southWest.latitude...northEast.latitude).contains(place.latitude)
            }
        case .inPolygon(let corners):
            any(value) { Self.point($0).map { Self.isInside($0, corners) } ?? false }
        }
    }

    /// Tests the value itself, and each element of it.
    private func any(_ value: JSONValue?, _ test: (JSONValue) -> Bool) -> Bool {
        guard let value else { return false }
        return test(value) || value.array?.contains(where: test) ?? false
    }

    private func equals(_ operand: WhereValue, _ value: JSONValue?) -> Bool {
        if operand == .null, value == nil { return true }
        return any(value) { Self.equals(operand, whole: $0) }
    }

    private func points(into query: WhereQuery, _ value: JSONValue?) -> Bool {
        let ids = Set(resolve(query).compactMap { $0["objectId"]?.string })
        return any(value) { candidate in
            candidate["__type"] == "Pointer"
                && candidate["className"]?.string == query.className ?? "_User"
                && candidate["objectId"]?.string.map(ids.contains) ?? false
        }
    }

    private func isSelected(_ key: WherePath, _ query: WhereQuery, _ value: JSONValue?) -> Bool {
        let values = resolve(query).compactMap { Self.lookUp(key, $0) }.filter { !$0.isNull }
        return any(value) { candidate in
            values.contains { Self.isSame(candidate, $0) }
        }
    }

    // MARK: Values

    private static func equals(_ operand: WhereValue, whole value: JSONValue) -> Bool {
        switch operand {
        case .null: value.isNull
        case .bool(let flag): value.bool == flag
        case .integer(let number): isSame(.integer(number), value)
        case .double(let number): isSame(.double(number), value)
        case .string(let text): isSame(.string(text), value)
        case .date(let instant): date(value) == instant
        case .pointer(let className, let objectID):
            value["__type"] == "Pointer" && value["className"]?.string == className
                && value["objectId"]?.string == objectID
        case .point(let place): point(value) == place
        case .structure(let structure): isSame(structure, value)
        }
    }

    private static func isSame(_ left: JSONValue, _ right: JSONValue) -> Bool {
        switch (left, right) {
        case (.integer(let left), .integer(let right)): left == right
        // `jsonb` returns 1e20 as its digits, which exceed `Int64`.
        case (.integer, .double), (.double, .integer), (.double, .double), (.number, _),
            (_, .number):
            left.double != nil && left.double == right.double
        case (.string(let left), .string(let right)): left.utf8.elementsEqual(right.utf8)
        case (.array(let left), .array(let right)):
            left.count == right.count && zip(left, right).allSatisfy(isSame)
        case (.object(let left), .object(let right)):
            left.count == right.count
                && left.allSatisfy { key, value in right[key].map { isSame(value, $0) } ?? false }
        default: left == right
        }
    }

    private static func compare(
        _ comparison: WhereTest.Comparison,
        _ value: JSONValue,
        _ operand: WhereValue
    ) -> Bool {
        switch (value, operand) {
        case (.integer(let left), .integer(let right)): comparison.holds(left, right)
        case (.integer, .double), (.double, .integer), (.double, .double), (.number, .integer),
            (.number, .double):
            comparison.holds(value.double ?? 0, number(operand))
        case (.string(let left), .string(let right)):
            comparison.holds(isOrdered(left, right) ? 0 : isOrdered(right, left) ? 2 : 1, 1)
        case (.bool(let left), .bool(let right)):
            comparison.holds(left ? 1 : 0, right ? 1 : 0)
        case (.object, .date(let right)):
            date(value).map { comparison.holds($0.milliseconds, right.milliseconds) } ?? false
        default: false
        }
    }

    private static func number(_ value: WhereValue) -> Double {
        switch value {
        case .integer(let number): Double(number)
        case .double(let number): number
        default: .nan
        }
    }

    private static func isOrdered(_ left: String, _ right: String) -> Bool {
        left.utf8.lexicographicallyPrecedes(right.utf8)
    }

    private static func date(_ value: JSONValue) -> Instant? {
        guard value["__type"] == "Date", let text = value["iso"]?.string else { return nil }
        return Instant(iso8601: text)
    }

    private static func matches(_ pattern: WherePattern, _ value: JSONValue) -> Bool {
        guard case .string(let text) = value else { return false }
        var options: NSRegularExpression.Options = []
        for letter in pattern.options {
            switch letter {
            case "i": options.insert(.caseInsensitive)
            case "m": options.insert(.anchorsMatchLines)
            case "x": options.insert(.allowCommentsAndWhitespace)
            default: options.insert(.dotMatchesLineSeparators)
            }
        }
        let expression = try? NSRegularExpression(pattern: pattern.source, options: options)
        let range = NSRange(text.startIndex..., in: text)
        return expression?.firstMatch(in: text, range: range) != nil
    }

    // MARK: Places

    private static func point(_ value: JSONValue) -> GeoPoint? {
        guard value["__type"] == "GeoPoint", let latitude = value["latitude"]?.double,
            let longitude = value["longitude"]?.double
        else { return nil }
        return GeoPoint(latitude: latitude, longitude: longitude)
    }

    private static func arc(_ a: GeoPoint, _ b: GeoPoint) -> Double {
        let radian = Double.pi / 180
        let x = sin((a.longitude - b.longitude) * radian / 2)
        let y = sin((a.latitude - b.latitude) * radian / 2)
        let cosines = cos(a.latitude * radian) * cos(b.latitude * radian)
        return 2 * asin(min(1, (y * y + cosines * x * x).squareRoot()))
    }

    /// Tests by the winding number.
    private static func isInside(_ point: GeoPoint, _ corners: [GeoPoint]) -> Bool {
        var turns = 0
        for (index, start) in corners.enumerated() {
            let end = corners[(index + 1) % corners.count]
            let side =
                (end.longitude - start.longitude) * (point.latitude - start.latitude)
                - (point.longitude - start.longitude) * (end.latitude - start.latitude)
            if start.latitude <= point.latitude, end.latitude > point.latitude, side > 0 {
                turns += 1
            }
            if start.latitude > point.latitude, end.latitude <= point.latitude, side < 0 {
                turns -= 1
            }
        }
        return turns != 0
    }
}

extension WhereTest.Comparison {
    fileprivate func holds<Value: Comparable>(_ left: Value, _ right: Value) -> Bool {
        switch self {
        case .less: left < right
        case .lessOrEqual: left <= right
        case .greater: left > right
        case .greaterOrEqual: left >= right
        }
    }
}

extension Installation {
    /// All of its fields, as a `where` sees them.
    package var whereObject: JSONObject {
        var object = object
        object["objectId"] = .string(objectID)
        object["createdAt"] = ["__type": "Date", "iso": .string(createdAt.iso8601)]
        object["updatedAt"] = ["__type": "Date", "iso": .string(updatedAt.iso8601)]
        return object
    }
}
