package import JSON
import Postgres
package import PushCore

extension WhereCompiler {
    mutating func compile(
        _ test: WhereTest,
        of field: WhereField
    ) throws(WhereError) -> String {
        switch test {
        case .equal(let value): return equals([value], field)
        case .among(let values): return equals(values, field)
        case .notEqual(let value): return not(equals([value], field))
        case .notAmong(let values): return not(equals(values, field))
        case .compare(let comparison, let value): return compare(comparison, value, field)
        case .holdsAll(let elements): return holdsAll(elements, field)
        case .containedBy(let values): return contained(by: values, field)
        case .size(let size): return hasSize(size, field)
        case .exists(let flag):
            let present = isPresent(field)
            return flag ? present : not(present)
        case .pattern(let pattern): return matches(pattern, field)
        case .inQuery(let query): return try pointsInto(query, field)
        case .notInQuery(let query): return not(try pointsInto(query, field, isNegated: true))
        case .selected(let key, let query): return try isSelected(key, query, field)
        case .notSelected(let key, let query): return not(try isSelected(key, query, field))
        case .near(let point, let minimum, let maximum):
            return isNear(point, minimum, maximum, field)
        case .inBox(let southWest, let northEast): return isInBox(southWest, northEast, field)
        case .inPolygon(let points): return isInPolygon(points, field)
        }
    }

    private func not(_ condition: String) -> String { "(\(condition) IS NOT TRUE)" }

    // MARK: The field's value

    /// Returns the field as `jsonb`; NULL if it is missing.
    mutating func value(_ field: WhereField) -> String {
        switch field.column {
        case .text(let column), .integer(let column, _), .boolean(let column):
            return "to_jsonb(\(column))"
        case .textArray(let column, let mark):
            return "to_jsonb(\(Self.present(column, unless: mark)))"
        case .timestamp(let column):
            return """
                jsonb_build_object('__type', 'Date', 'iso', to_char(\(column) AT TIME ZONE 'UTC', \
                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
                """
        case .json:
            var text = field.rows.fields
            for segment in field.path.segments { text += "->" + bind(text: segment) }
            return "(\(text))"
        case .nothing: return "NULL::jsonb"
        }
    }

    /// Returns an array's column; NULL if an empty one stands for a field that is absent.
    private static func present(_ column: String, unless mark: String) -> String {
        "CASE WHEN \(column) <> '{}' OR NOT \(mark) THEN \(column) END"
    }

    private mutating func isPresent(_ field: WhereField) -> String {
        switch field.column {
        case .text(let column): "(\(column) IS NOT NULL)"
        case .integer(let column, _): "((\(column)) IS NOT NULL)"
        case .textArray(let column, let mark): "(\(column) <> '{}' OR NOT \(mark))"
        case .boolean, .timestamp: "TRUE"
        case .json: "(\(value(field)) IS NOT NULL)"
        case .nothing: "FALSE"
        }
    }

    /// Returns the test that any element of an array passes; NULL for any other value. The type is
    /// tested twice: the first test lets an index of the arrays apply, the second keeps the order
    /// of evaluation.
    private func anyElement(of value: String, _ test: (String) -> String) -> String {
        """
        (jsonb_typeof(\(value)) = 'array' AND CASE WHEN jsonb_typeof(\(value)) = 'array' \
        THEN EXISTS (SELECT FROM jsonb_array_elements(\(value)) AS e(value) \
        WHERE \(test("e.value"))) END)
        """
    }

    /// Returns the same test for a sub-query. This form contains the sub-query only once, as two
    /// copies would double the statement at each level of nested queries. `IS TRUE` keeps the
    /// planner from making it a join, which would evaluate the sub-query again for each row. In
    /// this form it is hashed once.
    private func anyOnce(of value: String, _ test: (String) -> String) -> String {
        """
        EXISTS (SELECT FROM (SELECT \(value) UNION ALL SELECT jsonb_array_elements(\
        CASE WHEN jsonb_typeof(\(value)) = 'array' THEN \(value) ELSE '[]'::jsonb END)) \
        AS e(value) WHERE (\(test("e.value"))) IS TRUE)
        """
    }

    /// Returns the test that the value itself passes, or any element of it.
    private func any(of value: String, _ test: (String) -> String) -> String {
        "(\(test(value)) OR \(anyElement(of: value, test)))"
    }

    // MARK: Equality

    /// Returns the condition that the field equals one of the values.
    private mutating func equals(_ values: [WhereValue], _ field: WhereField) -> String {
        switch field.column {
        case .text(let column):
            var terms: [String] = []
            let texts = values.compactMap(\.text)
            if texts.count == 1 {
                terms.append("\(column) = \(bind(text: texts[0]))")
            } else if !texts.isEmpty {
                terms.append("\(column) = ANY (\(bind(.textArray(texts)))::text[])")
            }
            if values.contains(.null) { terms.append("\(column) IS NULL") }
            return disjunction(terms)
        case .textArray(let column, let mark):
            var terms: [String] = []
            let texts = values.compactMap(\.text)
            if values.contains(.null) { terms.append("(\(column) = '{}' AND \(mark))") }
            if texts.count == 1 {
                terms.append("\(column) @> ARRAY[\(bind(text: texts[0]))]")
            } else if !texts.isEmpty {
                terms.append("\(column) && \(bind(.textArray(texts)))::text[]")
            }
            let whole = values.filter { if case .structure = $0 { true } else { false } }
            if !whole.isEmpty { terms.append(isMember(value(field), of: WhereMembers(whole))) }
            return disjunction(terms)
        case .timestamp(let column):
            let terms = values.compactMap { value -> Instant? in
                if case .date(let instant) = value { instant } else { nil }
            }
            guard !terms.isEmpty else { return "FALSE" }
            let instants = terms.map(\.microseconds)
            return "(\(column) = ANY (\(bind(.timestampArray(instants)))::timestamptz[]))"
        case .boolean(let column):
            let flags = values.compactMap { value -> Bool? in
                if case .bool(let flag) = value { flag } else { nil }
            }
            return disjunction(Set(flags).map { $0 ? column : "NOT \(column)" }.sorted())
        case .integer(let column, _):
            let test = isMember(value(field), of: WhereMembers(values))
            return values.contains(.null) ? "(\(test) OR (\(column)) IS NULL)" : test
        case .json:
            return equalsInFields(values, field)
        case .nothing:
            return values.contains(.null) ? "TRUE" : "FALSE"
        }
    }

    private func disjunction(_ terms: [String]) -> String {
        terms.isEmpty ? "FALSE" : "(" + terms.joined(separator: " OR ") + ")"
    }

    private mutating func equalsInFields(
        _ values: [WhereValue],
        _ field: WhereField
    ) -> String {
        var terms: [String] = []
        var rest = WhereMembers(values)
        let probes = rest.takeContainable(upTo: Self.maximumProbes)
        if !probes.isEmpty {
            // The field equals the value, or it is an array that contains it: `@>` with a list
            // tests that.
            let documents = probes.flatMap { [field.document($0), field.document([$0])] }
            if documents.count == 2 {
                for document in documents {
                    terms.append("\(field.rows.fields) @> \(bind(json: document))")
                }
            } else {
                terms.append(
                    "\(field.rows.fields) @> ANY (\(bind(.jsonArray(documents)))::jsonb[])"
                )
            }
        }
        // The path is bound only where it is used: Postgres cannot infer the type of an unused
        // parameter.
        if values.contains(.null) { terms.append("\(value(field)) IS NULL") }
        if !rest.isEmpty {
            let (value, test) = (value(field), memberTest(rest))
            terms.append(test(value))
            terms.append(anyElement(of: value, test))
        }
        return disjunction(terms)
    }

    private mutating func isMember(_ value: String, of members: WhereMembers) -> String {
        memberTest(members)(value)
    }

    /// Returns the test whether a `jsonb` that is not NULL equals one of the members, as a whole.
    private mutating func memberTest(_ members: WhereMembers) -> (String) -> String {
        var tests: [(String) -> String] = []
        if !members.exact.isEmpty {
            let list = bind(.jsonArray(members.exact)) + "::jsonb[]"
            tests.append { "\($0) = ANY (\(list))" }
        }
        if !members.points.isEmpty {
            let list = bind(.jsonArray(members.points)) + "::jsonb[]"
            tests.append { "\($0) @> ANY (\(list))" }
        }
        if !members.dates.isEmpty {
            let list = bind(.integerArray(members.dates)) + "::bigint[]"
            tests.append { "carillon_instant(\($0)) = ANY (\(list))" }
        }
        for (className, ids) in members.pointers.sortedByKey() {
            let className = bind(text: className)
            let list = bind(.textArray(ids)) + "::text[]"
            tests.append { value in
                """
                (\(value)->>'__type' = 'Pointer' AND \(value)->>'className' = \(className) \
                AND \(value)->>'objectId' = ANY (\(list)))
                """
            }
        }
        guard !tests.isEmpty else { return { _ in "FALSE" } }
        return { value in "(" + tests.map { $0(value) }.joined(separator: " OR ") + ")" }
    }

    // MARK: Arrays

    private mutating func holdsAll(_ elements: [WhereElement], _ field: WhereField) -> String {
        guard !elements.isEmpty else { return "FALSE" }
        var values: [WhereValue] = []
        var terms: [String] = []
        for element in elements {
            switch element {
            case .value(let value): values.append(value)
            case .pattern(let pattern): terms.append(matches(pattern, field))
            }
        }
        switch field.column {
        case .textArray(let column, _):
            let texts = values.compactMap(\.text)
            if !texts.isEmpty { terms.append("\(column) @> \(bind(.textArray(texts)))::text[]") }
            for value in values where value.text == nil { terms.append(equals([value], field)) }
        case .json:
            var members = WhereMembers(values)
            let contained = members.takeContainable(upTo: .max)
            if contained.count > 1 {
                // A single value cannot equal two different ones, so the field must be an array.
                let document = field.document(.array(contained))
                terms.append("\(field.rows.fields) @> \(bind(json: document))")
            }
            for value in values where contained.count <= 1 || !value.isContainable {
                terms.append(equals([value], field))
            }
        case .text, .integer, .boolean, .timestamp, .nothing:
            for value in values { terms.append(equals([value], field)) }
        }
        return "(" + terms.joined(separator: " AND ") + ")"
    }

    private mutating func contained(
        by values: [WhereValue],
        _ field: WhereField
    ) -> String {
        switch field.column {
        case .textArray(let column, let mark):
            let list = bind(.textArray(values.compactMap(\.text)))
            return "(\(Self.present(column, unless: mark)) <@ \(list)::text[])"
        case .json:
            let value = value(field)
            let test = memberTest(WhereMembers(values))
            return """
                CASE WHEN jsonb_typeof(\(value)) = 'array' THEN NOT EXISTS (\
                SELECT FROM jsonb_array_elements(\(value)) AS e(value) \
                WHERE \(test("e.value")) IS NOT TRUE) END
                """
        case .text, .integer, .boolean, .timestamp, .nothing: return "FALSE"
        }
    }

    private mutating func hasSize(_ size: Int, _ field: WhereField) -> String {
        switch field.column {
        case .textArray(let column, let mark):
            let present = Self.present(column, unless: mark)
            return "(cardinality(\(present)) = \(bind(.integer(size)))::bigint)"
        case .json:
            let value = value(field)
            return """
                CASE WHEN jsonb_typeof(\(value)) = 'array' THEN \
                jsonb_array_length(\(value)) = \(bind(.integer(size)))::bigint END
                """
        case .text, .integer, .boolean, .timestamp, .nothing: return "FALSE"
        }
    }

    // MARK: Order and patterns

    private mutating func compare(
        _ comparison: WhereTest.Comparison,
        _ operand: WhereValue,
        _ field: WhereField
    ) -> String {
        let sign = comparison.sql
        switch (field.column, operand) {
        case (.text(let column), .string(let text)):
            return "(\(column) COLLATE \"C\" \(sign) \(bind(text: text)))"
        case (.textArray(let column, _), .string(let text)):
            let text = bind(text: text)
            return """
                EXISTS (SELECT FROM unnest(\(column)) AS e(value) \
                WHERE e.value COLLATE "C" \(sign) \(text))
                """
        case (.integer(let column, _), .integer), (.integer(let column, _), .double):
            return "((\(column))::numeric \(sign) \(bind(number: operand.json)))"
        case (.timestamp(let column), .date(let instant)):
            return "(\(column) \(sign) \(bind(timestamp: instant)))"
        case (.boolean(let column), .bool(let flag)):
            return "(\(column) \(sign) \(bind(.boolean(flag)))::boolean)"
        case (.json, _):
            let one = WhereComparison(comparison: comparison, operand: operand)
            return compareInFields([one], field)
        default: return "FALSE"
        }
    }

    /// Returns the test that the value itself passes all comparisons, or that it is an array in
    /// which some element passes each of them.
    mutating func compareInFields(
        _ comparisons: [WhereComparison],
        _ field: WhereField
    ) -> String {
        let value = value(field)
        let tests = comparisons.map { test($0) }
        let own = tests.map { $0(value) }.joined(separator: " AND ")
        let elements = tests.map { anyElement(of: value, $0) }.joined(separator: " AND ")
        return "((\(own)) OR (\(elements)))"
    }

    private mutating func test(_ comparison: WhereComparison) -> (String) -> String {
        let sign = comparison.comparison.sql
        switch comparison.operand {
        case .string(let text):
            let text = bind(text: text)
            // First a condition on the beginnings of the strings, as an index contains only these.
            let side =
                switch comparison.comparison {
                case .less, .lessOrEqual: "<="
                case .greater, .greaterOrEqual: ">="
                }
            let length = Self.indexedCharacters
            return { value in
                let own = Self.text(value)
                return """
                    (left(\(own), \(length)) COLLATE "C" \(side) left(\(text), \(length)) \
                    AND \(own) COLLATE "C" \(sign) \(text))
                    """
            }
        case .integer, .double:
            let number = bind(number: comparison.operand.json)
            return { value in
                """
                CASE WHEN jsonb_typeof(\(value)) = 'number' THEN (\(value))::numeric END \
                \(sign) \(number)
                """
            }
        case .date(let instant):
            let instant = bind(.integer(Int(instant.milliseconds))) + "::bigint"
            return { "carillon_instant(\($0)) \(sign) \(instant)" }
        case .bool(let flag):
            let flag = bind(.boolean(flag)) + "::boolean"
            return { value in
                """
                CASE WHEN jsonb_typeof(\(value)) = 'boolean' THEN (\(value))::boolean END \
                \(sign) \(flag)
                """
            }
        case .null, .pointer, .point, .structure: return { _ in "FALSE" }
        }
    }

    /// Returns the string in a `jsonb`; NULL if it is of another type.
    private static func text(_ value: String) -> String {
        "(CASE WHEN jsonb_typeof(\(value)) = 'string' THEN \(value) #>> '{}' END)"
    }

    private mutating func matches(_ pattern: WherePattern, _ field: WhereField) -> String {
        if let text = pattern.exactText { return equals([.string(text)], field) }
        switch field.column {
        case .text(let column):
            return "(\(column) COLLATE \"C\" ~ \(bind(text: pattern.postgres)))"
        case .textArray(let column, _):
            let text = bind(text: pattern.postgres)
            return """
                EXISTS (SELECT FROM unnest(\(column)) AS e(value) \
                WHERE e.value COLLATE "C" ~ \(text))
                """
        case .json:
            let text = bind(text: pattern.postgres)
            guard let beginning = pattern.postgresBeginning else {
                return any(of: value(field)) { "\(Self.text($0)) COLLATE \"C\" ~ \(text)" }
            }
            let start = bind(text: beginning)
            return any(of: value(field)) { value in
                let own = Self.text(value)
                return """
                    (left(\(own), \(Self.indexedCharacters)) COLLATE "C" ~ \(start) \
                    AND \(own) COLLATE "C" ~ \(text))
                    """
            }
        case .integer, .boolean, .timestamp, .nothing: return "FALSE"
        }
    }

    // MARK: Sub-queries

    private mutating func pointsInto(
        _ query: WhereQuery,
        _ field: WhereField,
        isNegated: Bool = false
    ) throws(WhereError) -> String {
        guard case .json = field.column else { return "FALSE" }
        let className = query.className ?? WhereTable.identities.className
        let name = bind(text: className)
        func isPointer(_ value: String) -> String {
            "\(value)->>'__type' = 'Pointer' AND \(value)->>'className' = \(name)"
        }
        guard query.limit != nil else {
            // The planner looks each id up, or hashes the selected ids. An array of all ids might
            // be too long to be hashed, and would then be read for each row.
            let (rows, selected) = try source(query.condition, over: className, of: field.path)
            return anyOnce(of: value(field)) { value in
                """
                (\(isPointer(value)) AND EXISTS (SELECT \(selected) \
                AND \(rows.objectID) = \(value)->>'objectId'))
                """
            }
        }
        if isNegated {
            // No index serves a negation, so all rows are tested, against a hash of the ids, which
            // are few.
            let ids = try select(
                { rows, _ in rows.objectID },
                query,
                over: className,
                of: field.path
            )
            return anyOnce(of: value(field)) {
                "(\(isPointer($0)) AND \($0)->>'objectId' IN (\(ids)))"
            }
        }
        // The ids are few, so each is looked up in the index.
        let path = field.path.segments.reversed().map { bind(text: $0) }
        let documents = try select(
            { rows, _ in
                let pointer = """
                    jsonb_build_object('__type', 'Pointer', 'className', \(name), \
                    'objectId', \(rows.objectID))
                    """
                let whole = path.reduce(pointer) { "jsonb_build_object(\($1), \($0))" }
                let held = path.reduce("jsonb_build_array(\(pointer))") {
                    "jsonb_build_object(\($1), \($0))"
                }
                return "ARRAY[\(whole), \(held)]"
            },
            query,
            over: className,
            of: field.path
        )
        return """
            (\(field.rows.fields) @> ANY (ARRAY(\
            SELECT unnest(found.value) FROM (\(documents)) AS found)))
            """
    }

    private mutating func isSelected(
        _ key: WherePath,
        _ query: WhereQuery,
        _ field: WhereField
    ) throws(WhereError) -> String {
        if case .nothing = field.column { return "FALSE" }
        let values = try select(
            { rows, compiler in compiler.value(WhereField(key, rows)) },
            query,
            over: query.className ?? WhereTable.identities.className,
            of: field.path
        )
        let list = """
            SELECT found.value FROM (\(values)) AS found \
            WHERE found.value IS NOT NULL AND found.value <> 'null'
            """
        return anyOnce(of: value(field)) { "\($0) IN (\(list))" }
    }

    // MARK: Places

    private mutating func bind(point: GeoPoint) -> String {
        bind(.text("(\(Self.text(point)))")) + "::point"
    }

    /// Returns a point to a billionth of a degree, as `carillon_point` does.
    private static func text(_ point: GeoPoint) -> String {
        let longitude = (point.longitude * 1e9).rounded() / 1e9
        let latitude = (point.latitude * 1e9).rounded() / 1e9
        return "\(longitude),\(latitude)"
    }

    private mutating func isNear(
        _ point: GeoPoint,
        _ minimum: Double?,
        _ maximum: Double?,
        _ field: WhereField
    ) -> String {
        guard case .json = field.column else { return "FALSE" }
        guard minimum != nil || maximum != nil else {
            return any(of: value(field)) { "carillon_point(\($0)) IS NOT NULL" }
        }
        let point = bind(point: point)
        let minimum = minimum.map { bind(.double($0)) + "::float8" }
        let maximum = maximum.map { bind(.double($0)) + "::float8" }
        return any(of: value(field)) { value in
            let arc = "carillon_arc(carillon_point(\(value)), \(point))"
            let terms = [minimum.map { "\(arc) >= \($0)" }, maximum.map { "\(arc) <= \($0)" }]
            return "(" + terms.compactMap { $0 }.joined(separator: " AND ") + ")"
        }
    }

    private mutating func isInBox(
        _ southWest: GeoPoint,
        _ northEast: GeoPoint,
        _ field: WhereField
    ) -> String {
        guard case .json = field.column else { return "FALSE" }
        let (low, high) = (bind(point: southWest), bind(point: northEast))
        // A box whose west is east of its east spans the date line.
        let word = southWest.longitude <= northEast.longitude ? "AND" : "OR"
        return any(of: value(field)) { value in
            let point = "(carillon_point(\(value)))"
            return """
                (\(point)[1] BETWEEN (\(low))[1] AND (\(high))[1] \
                AND (\(point)[0] >= (\(low))[0] \(word) \(point)[0] <= (\(high))[0]))
                """
        }
    }

    private mutating func isInPolygon(_ points: [GeoPoint], _ field: WhereField) -> String {
        guard case .json = field.column else { return "FALSE" }
        let corners = points.map { "(\(Self.text($0)))" }.joined(separator: ",")
        let polygon = bind(.text("(\(corners))")) + "::polygon"
        return any(of: value(field)) { "\(polygon) @> carillon_point(\($0))" }
    }

    // MARK: The order of rows

    mutating func order(
        _ keys: [SortKey],
        of condition: Where,
        _ rows: WhereRows
    ) -> String {
        let terms = orderTerms(keys, of: condition, rows)
        return (terms.map { "\($0.sql) \($0.direction)" } + [rows.objectID])
            .joined(separator: ", ")
    }

    /// Returns the terms of the order, the most significant first; without the object id.
    mutating func orderTerms(
        _ keys: [SortKey],
        of condition: Where,
        _ rows: WhereRows
    ) -> [(sql: String, direction: String)] {
        var terms: [(sql: String, direction: String)] = []
        for key in keys {
            let direction = key.isDescending ? "DESC NULLS LAST" : "ASC NULLS FIRST"
            let field = WhereField(key.path, rows)
            switch field.column {
            case .text(let column) where column == rows.objectID:
                // This is the order of the primary key. Ids are unique, so later terms have no
                // effect.
                terms.append((column, key.isDescending ? "DESC" : "ASC"))
                return terms
            case .text(let column): terms.append(("\(column) COLLATE \"C\"", direction))
            case .integer(let column, _), .boolean(let column), .timestamp(let column):
                terms.append((column, direction))
            case .textArray(let column, let mark):
                terms.append((Self.present(column, unless: mark), direction))
            case .json:
                let value = value(field)
                // MongoDB's order of types.
                let rank = """
                    CASE jsonb_typeof(\(value)) WHEN 'number' THEN 1 WHEN 'string' THEN 2 \
                    WHEN 'object' THEN CASE WHEN carillon_instant(\(value)) IS NULL THEN 3 \
                    ELSE 6 END WHEN 'array' THEN 4 WHEN 'boolean' THEN 5 ELSE 0 END
                    """
                let number =
                    "CASE WHEN jsonb_typeof(\(value)) = 'number' THEN (\(value))::numeric END"
                for term in [
                    rank, number, "\(Self.text(value)) COLLATE \"C\"",
                    "carillon_instant(\(value))",
                    "CASE WHEN jsonb_typeof(\(value)) = 'boolean' THEN (\(value))::boolean END",
                ] {
                    terms.append((term, direction))
                }
            case .nothing: continue
            }
        }
        if keys.isEmpty, let (path, point) = condition.nearest {
            let field = WhereField(path, rows)
            if case .json = field.column {
                let value = value(field)
                let arc = "carillon_arc(carillon_point(\(value)), \(bind(point: point)))"
                terms.append((arc, "ASC"))
            }
        }
        return terms
    }
}

extension WhereTest.Comparison {
    fileprivate var sql: String {
        switch self {
        case .less: "<"
        case .lessOrEqual: "<="
        case .greater: ">"
        case .greaterOrEqual: ">="
        }
    }
}

extension WhereValue {
    fileprivate var text: String? {
        if case .string(let text) = self { text } else { nil }
    }

    /// Whether `@>` with this value tests equality, so that the index finds it by a single hash.
    var isContainable: Bool {
        switch self {
        case .null, .bool, .integer, .double, .string, .pointer, .point: true
        case .date, .structure: false
        }
    }

    /// The value as the database stores it.
    package var json: JSONValue {
        switch self {
        case .null: .null
        case .bool(let flag): .bool(flag)
        case .integer(let number): .integer(number)
        case .double(let number): .double(number)
        case .string(let text): .string(text)
        case .date(let instant): ["__type": "Date", "iso": .string(instant.iso8601)]
        case .pointer(let className, let objectID):
            [
                "__type": "Pointer", "className": .string(className),
                "objectId": .string(objectID),
            ]
        case .point(let point):
            [
                "__type": "GeoPoint", "latitude": .double(point.latitude),
                "longitude": .double(point.longitude),
            ]
        case .structure(let value): value
        }
    }
}

/// Values, grouped by the way in which equality with them is tested.
struct WhereMembers {
    /// Scalars, arrays and objects, which are compared as a whole.
    private(set) var exact: [JSONValue] = []
    private(set) var points: [JSONValue] = []
    /// Milliseconds since 1970, as an instant can be written in many ways.
    private(set) var dates: [Int?] = []
    private(set) var pointers: ExactStringMap<[String?]> = [:]
    private var values: [WhereValue]

    init(_ values: [WhereValue]) {
        self.values = values
        sort()
    }

    var isEmpty: Bool { values.isEmpty }

    /// Removes the values that `@>` can test, and returns each once. Returns none if there are more
    /// than the limit.
    mutating func takeContainable(upTo limit: Int) -> [JSONValue] {
        let containable = values.filter(\.isContainable)
        guard containable.count <= limit else { return [] }
        values.removeAll(where: \.isContainable)
        sort()
        var seen: ExactStringSet = []
        return containable.map(\.json).filter { seen.insert($0.text).inserted }
    }

    private mutating func sort() {
        (exact, points, dates, pointers) = ([], [], [], ExactStringMap())
        for value in values {
            switch value {
            case .null, .bool, .integer, .double, .string, .structure: exact.append(value.json)
            case .point: points.append(value.json)
            case .date(let instant): dates.append(Int(instant.milliseconds))
            case .pointer(let className, let objectID):
                pointers[className, default: []].append(objectID)
            }
        }
    }
}
