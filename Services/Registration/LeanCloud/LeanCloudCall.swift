import Door
import HTTPServer
import JSON
import PushCore

/// One request to the surface, whichever way it came: over HTTP, as a browser's form, or as an item
/// of a batch.
struct LeanCloudCall: Sendable {
    var method: HTTPMethod
    /// What the route's `:name` segments stood for.
    var pathParameters: [String: String] = [:]
    /// The query string's as texts; a batch item's `params` and a form's keys as they are.
    var parameters: JSONObject = [:]
    var body: Body = .none
    var caller: Caller
    /// `X-LC-Prod`.
    var prodHeader: String?
    /// Scheme and authority, as they are seen from outside.
    var base = ""
    var isInBatch = false

    enum Body: Sendable {
        case none
        case bytes([UInt8])
        case value(JSONValue)
    }

    static let maximumDepth = BodyLimits.depth

    /// The body as a JSON object.
    ///
    /// - Throws: `LeanCloudError` 107 when it is not one.
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

    /// A parameter that is there and not empty.
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

    /// Whether a parameter is switched on: `1` or `true`.
    func flag(_ name: String) -> Bool {
        parameter(name)?.flag ?? false
    }

    /// LeanCloud's and the JavaScript SDK's way of asking for the saved object.
    var wantsObject: Bool { flag("fetchWhenSave") || flag("new") }

    /// JSON in a parameter: as text, or, in a batch or a form, as it is.
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
        // `returnACL` is off only where it says so: what an app saved is never lost to it.
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

    /// What `where`, `order`, `limit`, `skip`, `keys`, `include` and `count` ask for.
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

    /// What lies outside of what LeanCloud takes counts as its default; 0 beside `count` asks for
    /// nothing but the count.
    static func limit(_ given: Int?, countOnly: Bool = false) -> Int {
        guard let given else { return WhereQuery.defaultLimit }
        if given == 0, countOnly { return 0 }
        return (1...WhereQuery.maximumLimit).contains(given) ? given : WhereQuery.defaultLimit
    }
}

/// One answer of the surface, before it is HTTP's or a batch's.
struct LeanCloudAnswer: Sendable {
    var status = 200
    var body: JSONValue
    var location: String?
    /// The body's `results`, where they are too many to be made at once.
    var later: LaterObjects?

    init(_ body: JSONValue, status: Int = 200, location: String? = nil) {
        self.body = body
        self.status = status
        self.location = location
    }

    static let empty = LeanCloudAnswer([:])

    /// What a query found, with other members beside its results.
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

    /// What the named segments stand for; `nil` for another path.
    func match(_ path: [String]) -> [String: String]? { PathPattern(text: pattern).match(path) }
}
