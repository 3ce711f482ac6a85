import Gateway
import HTTPServer
import JSON
import PushCore

/// One request to the surface, from any of its sources: HTTP, a browser's form, or an item of a batch.
struct LeanCloudCall: Sendable {
    var method: HTTPMethod
    /// The values of the route's `:name` segments.
    var pathParameters: [String: String] = [:]
    /// Parameters of a query string as strings; a batch item's `params` and a form's keys unchanged.
    var parameters: JSONObject = [:]
    var body: Body = .none
    var caller: Caller
    /// `X-LC-Prod`.
    var prodHeader: String?
    /// The scheme and authority, as seen from outside.
    var base = ""
    var isInBatch = false

    enum Body: Sendable {
        case none
        case bytes([UInt8])
        case value(JSONValue)
    }

    static let maximumDepth = BodyLimits.depth

    /// Returns the body as a JSON object.
    ///
    /// - Throws: `LeanCloudError` 107 if it is not one.
    func object() throws(LeanCloudError) -> JSONObject {
        let value: JSONValue
        switch body {
        case .none: throw .malformedJSON("expected an object")
        case .value(let given): value = given
        case .bytes(let bytes): value = try Self.parse(bytes, forMaster: caller.isMaster)
        }
        guard let object = value.object else { throw .malformedJSON("expected an object") }
        return object
    }

    var bodyByteCount: Int {
        switch body {
        case .none: 0
        case .bytes(let bytes): bytes.count
        case .value(let value): value.bytes.count
        }
    }

    static func parse(
        _ bytes: [UInt8],
        forMaster isMaster: Bool
    ) throws(LeanCloudError) -> JSONValue {
        do {
            return try JSONValue.parse(
                bytes,
                maximumDepth: maximumDepth,
                maximumValues: BodyLimits.values(forMaster: isMaster)
            )
        } catch {
            throw .malformedJSON(error.description)
        }
    }

    func path(_ name: String) -> String { pathParameters[name] ?? "" }

    // MARK: Parameters

    /// Returns a parameter; `nil` if it is missing or empty.
    func parameter(_ name: String) -> JSONValue? {
        guard let value = parameters[name], !value.isNull, value != "" else { return nil }
        return value
    }

    func text(_ name: String) throws(LeanCloudError) -> String? {
        guard let value = parameter(name) else { return nil }
        guard let text = value.string else {
            throw LeanCloudError(code: 107, "\(name) must be a string.")
        }
        return text
    }

    func integer(_ name: String) throws(LeanCloudError) -> Int? {
        guard let value = parameter(name) else { return nil }
        guard let number = value.wholeNumber else {
            throw LeanCloudError(code: 107, "\(name) must be a whole number, not \(value.shown).")
        }
        return number
    }

    /// Whether a parameter is on: `1` or `true`.
    func flag(_ name: String) -> Bool {
        parameter(name)?.flag ?? false
    }

    /// Whether the call asks for the saved object, by LeanCloud's name or that of the JavaScript SDK.
    var wantsObject: Bool { flag("fetchWhenSave") || flag("new") }

    /// Returns JSON of a parameter: parsed from a string, or, in a batch or a form, unchanged.
    func json(_ name: String) throws(LeanCloudError) -> JSONValue? {
        guard let value = parameter(name) else { return nil }
        guard let text = value.string else { return value }
        return try Self.parse(Array(text.utf8), forMaster: caller.isMaster)
    }

    func condition() throws -> Where? {
        try json("where").map(Where.parse)
    }

    func selection() throws -> KeySelection {
        var selection = try KeySelection(try text("keys") ?? "")
        // The ACL is left out only on an explicit `returnACL=false`, so that an app reads back all
        // that it saved.
        if parameter("returnACL") != nil, !flag("returnACL") {
            try selection.add("ACL", isExcluding: true)
        }
        return selection
    }

    func include() throws(LeanCloudError) -> [String] {
        (try text("include") ?? "").split(separator: ",").map { name in
            String(name.filter { $0 != " " })
        }
    }

    /// Returns the query of `where`, `order`, `limit`, `skip`, `keys`, `include` and `count`.
    func query() throws -> ObjectQuery {
        var query = ObjectQuery()
        query.condition = try condition() ?? .everything
        query.order = try SortKey.parse(try text("order") ?? "")
        query.wantsCount = flag("count")
        query.limit = Self.limit(try integer("limit"), countOnly: query.wantsCount)
        query.skip = max(0, try integer("skip") ?? 0)
        query.selection = try selection()
        query.include = try include()
        return query
    }

    /// Returns the limit. A value outside of LeanCloud's range means its default; 0 with `count`
    /// asks only for the count.
    static func limit(_ given: Int?, countOnly: Bool = false) -> Int {
        guard let given else { return WhereQuery.defaultLimit }
        if given == 0, countOnly { return 0 }
        return (1...WhereQuery.maximumLimit).contains(given) ? given : WhereQuery.defaultLimit
    }
}

/// One response of the surface, before it becomes HTTP or an item of a batch.
struct LeanCloudAnswer: Sendable {
    var status = 200
    var body: JSONValue
    var location: String?
    /// The body's `results`, if they are too large to be built at once.
    var later: StreamedObjects?

    init(_ body: JSONValue, status: Int = 200, location: String? = nil) {
        self.body = body
        self.status = status
        self.location = location
    }

    static let empty = LeanCloudAnswer([:])

    /// Creates the response of a query, with other members beside its results.
    init(_ found: ObjectOperations.Found, beside others: JSONObject) {
        later = found.later
        var object = others
        if later == nil {
            object = ["results": .array(found.results.map(JSONValue.object))]
            for (name, value) in others { object[name] = value }
        }
        body = .object(object)
    }

    var response: HTTPServerResponse {
        if let later { return later.response(beside: body.object ?? [:]) }
        var response = HTTPServerResponse.json(body, status: status)
        if let location { response.headers["location"] = location }
        return response
    }
}

/// One method of one path below `/1.1`.
struct LeanCloudRoute: Sendable {
    typealias Handler = @Sendable (LeanCloudCall) async throws -> LeanCloudAnswer

    let method: HTTPMethod
    /// `classes/_User/:id`.
    let pattern: String
    let handler: Handler

    init(_ method: HTTPMethod, _ pattern: String, _ handler: @escaping Handler) {
        self.method = method
        self.pattern = pattern
        self.handler = handler
    }

    /// Returns the values of the named segments; `nil` if the path does not match.
    func match(_ path: [String]) -> [String: String]? { PathPattern(text: pattern).match(path) }
}
