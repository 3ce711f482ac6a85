import JSON
package import Observability

/// Finds the handler of a request and returns its response: a value, callable without a socket.
///
/// A pattern is a list of segments. A segment is a literal, or `:name` (one segment, not empty), or
/// `:name` with a literal suffix that begins with a colon (`:namespace:fetch`). The last segment
/// may be `*rest`, which matches one segment or more; in `/a/` the segment after `a` is empty. A
/// literal takes precedence over a name, a name over the rest. HEAD falls back to GET (the server
/// drops the body); OPTIONS is left to routes.
///
/// A surface renders errors in its own protocol by the three hooks. Each gets the request, so one
/// router can serve several surfaces and choose by path.
package struct Router: Sendable {
    package typealias Handler =
        @Sendable (HTTPServerRequest) async throws -> HTTPServerResponse
    package typealias ImmediateHandler =
        @Sendable (HTTPServerRequest) throws -> ImmediateResponse

    /// The response if no route has this path.
    package var notFound: @Sendable (HTTPServerRequest) -> HTTPServerResponse = { _ in
        .problem(HTTPProblem(status: 404, detail: "there is nothing at this path"))
    }

    /// The response if a route has this path but not this method; `Allow` is added if it is
    /// missing.
    package var methodNotAllowed:
        @Sendable (HTTPServerRequest, _ allowed: [HTTPMethod]) -> HTTPServerResponse = { _, _ in
            .problem(HTTPProblem(status: 405, detail: "this path does not take this method"))
        }

    /// The response to an error thrown by a handler, or to an `HTTPProblem` by which the server
    /// itself refuses a request whose head could be read (408, 413, 417). Unknown errors are 500
    /// and show nothing.
    package var errorResponse: @Sendable (any Error, HTTPServerRequest) -> HTTPServerResponse = {
        error,
        _ in
        if let problem = error as? HTTPProblem { return .problem(problem) }
        return .problem(HTTPProblem(status: 500))
    }

    /// Returns the reason to refuse a request with a body. Called once its head is read, before its
    /// body is awaited.
    package var refusalBeforeBody: @Sendable (HTTPServerRequest) -> HTTPProblem? = { _ in nil }

    /// The log of handler failures (a response of 500 or above for an error). A handler that was
    /// cancelled by a stop has not failed.
    package var log: Log = .disabled

    /// First segments, in lower case, that a `:name` at the beginning of a pattern does not match:
    /// a surface at the root of the host must not take the paths of others.
    package var reservedFirstSegments: Set<String> = []

    /// Whether handlers get a body as sent, and decode it (`decodeBody`) once the client is
    /// authenticated. If false, bodies are decoded before the handler runs, for any sender.
    package var givesBodiesAsSent = false

    private var root = Node()

    package init() {}

    /// Adds a route. A repeat of the same method and pattern replaces it.
    ///
    /// If `maximumBodyBytes` is nil, the server's limit applies. With `streamsBody`, the handler runs
    /// once the head is read, and takes the body from `HTTPServerRequest.bodyReader`. `logLevel` is the
    /// level of the access log's lines: `debug` for requests that are frequent and uninteresting.
    package mutating func on(
        _ method: HTTPMethod,
        _ pattern: String,
        maximumBodyBytes: Int? = nil,
        streamsBody: Bool = false,
        logLevel: LogLevel = .info,
        _ handler: @escaping Handler
    ) {
        let route = Route(
            pattern: pattern,
            maximumBodyBytes: maximumBodyBytes,
            streamsBody: streamsBody,
            logLevel: logLevel,
            handler: handler
        )
        insert(route, method)
    }

    /// Adds a route as `on` does, for a handler that rarely waits. It runs on the connection's
    /// loop, and blocks all other requests there.
    package mutating func onPrompt(
        _ method: HTTPMethod,
        _ pattern: String,
        maximumBodyBytes: Int? = nil,
        logLevel: LogLevel = .info,
        _ handler: @escaping ImmediateHandler
    ) {
        let route = Route(
            pattern: pattern,
            maximumBodyBytes: maximumBodyBytes,
            logLevel: logLevel,
            handler: { request in try await handler(request).response() },
            prompt: handler
        )
        insert(route, method)
    }

    private mutating func insert(_ route: Route, _ method: HTTPMethod) {
        let pattern = route.pattern
        let segments = pattern.split(separator: "/", omittingEmptySubsequences: false)
            .dropFirst(pattern.hasPrefix("/") ? 1 : 0)
        root.insert(segments, names: [], method: method, route: route)
    }

    /// All routes, sorted by pattern.
    package var routes: [(method: HTTPMethod, pattern: String)] {
        root.routes.sorted {
            ($0.pattern, $0.method.rawValue) < ($1.pattern, $1.method.rawValue)
        }
    }

    package func respond(to request: HTTPServerRequest) async -> HTTPServerResponse {
        let match = match(request.method, request.pathSegments)
        var request = request
        if case .route(_, let parameters) = match { request.pathParameters = parameters }
        guard case .route(let route, _) = match else { return refusal(of: request, by: match) }
        do {
            return try await route.handler(request)
        } catch {
            return failure(error, of: request, at: route)
        }
    }

    func match(_ method: HTTPMethod, _ segments: [String]) -> Match {
        var values: [String] = []
        var allowed: [HTTPMethod] = []
        let isReserved =
            root.beginsWithName && !reservedFirstSegments.isEmpty
            && reservedFirstSegments.contains(segments.first?.lowercased() ?? "")
        if let found = root.find(
            segments[...],
            method,
            &values,
            &allowed,
            isNamedAllowed: !isReserved
        ) {
            if found.names.isEmpty { return .route(found.route, [:]) }
            let parameters = Dictionary(
                zip(found.names, values),
                uniquingKeysWith: { _, last in last }
            )
            return .route(found.route, parameters)
        }
        return allowed.isEmpty ? .nothing : .otherMethods(allowed)
    }

    /// Returns the response to a request without a route.
    func refusal(of request: HTTPServerRequest, by match: Match) -> HTTPServerResponse {
        guard case .otherMethods(let allowed) = match else { return notFound(request) }
        var response = methodNotAllowed(request, allowed)
        if response.headers.contains("Allow") { return response }
        var names = allowed.map(\.rawValue)
        if allowed.contains(.get), !allowed.contains(.head) { names.append("HEAD") }
        response.headers["Allow"] = names.sorted().joined(separator: ", ")
        return response
    }

    /// Returns the response to an error of a handler.
    func failure(
        _ error: any Error,
        of request: HTTPServerRequest,
        at route: Route
    ) -> HTTPServerResponse {
        if error is CancellationError, request.caller.isGone {
            // A client that has only ended its side may still read this.
            let left = HTTPProblem(status: 408, detail: "the client closed the request")
            return errorResponse(left, request)
        }
        let response = errorResponse(error, request)
        if response.status >= 500, !(error is HTTPProblem), !(error is CancellationError) {
            log.error(
                "request handler failed",
                [
                    .httpMethod: .string(request.method.rawValue),
                    .httpRoute: .string(route.pattern),
                    .error: .string(String(describing: error)),
                ]
            )
        }
        return response
    }

    /// A class, as each request holds a reference to its route.
    final class Route: Sendable {
        let pattern: String
        let maximumBodyBytes: Int?
        let streamsBody: Bool
        let logLevel: LogLevel
        let handler: Handler
        /// The handler, if it rarely waits.
        let prompt: ImmediateHandler?

        init(
            pattern: String,
            maximumBodyBytes: Int?,
            streamsBody: Bool = false,
            logLevel: LogLevel,
            handler: @escaping Handler,
            prompt: ImmediateHandler? = nil
        ) {
            self.pattern = pattern
            self.maximumBodyBytes = maximumBodyBytes
            self.streamsBody = streamsBody
            self.logLevel = logLevel
            self.handler = handler
            self.prompt = prompt
        }
    }

    enum Match: Sendable {
        case route(Route, [String: String])
        case otherMethods([HTTPMethod])
        case nothing

        var maximumBodyBytes: Int? {
            guard case .route(let route, _) = self else { return nil }
            return route.maximumBodyBytes
        }

        var logLevel: LogLevel {
            guard case .route(let route, _) = self else { return .info }
            return route.logLevel
        }

        /// The pattern that names the route in logs: paths contain tokens, patterns do not.
        var pattern: String {
            guard case .route(let route, _) = self else { return "" }
            return route.pattern
        }
    }
}

/// A node in the tree of patterns.
private struct Node: Sendable {
    struct Leaf: Sendable {
        let names: [String]
        let route: Router.Route
    }

    struct NamedSegment: Sendable {
        /// The literal end of the segment, empty if the name takes all of it.
        let suffix: String
        var node: Node
    }

    private var literals: [(text: String, node: Node)] = []
    /// The index of each literal, once there are too many to compare one by one.
    private var places: ExactStringMap<Int> = [:]
    private static let comparedLiterals = 8
    /// Sorted by suffix, the longest first.
    private var named: [NamedSegment] = []
    private var leaves: [HTTPMethod: Leaf] = [:]
    private var restLeaves: [HTTPMethod: Leaf] = [:]

    /// Whether some pattern has a `:name` for its first segment here.
    var beginsWithName: Bool { !named.isEmpty }

    var routes: [(method: HTTPMethod, pattern: String)] {
        let own = [leaves, restLeaves].flatMap { $0.map { ($0.key, $0.value.route.pattern) } }
        return own + literals.flatMap { $0.node.routes } + named.flatMap { $0.node.routes }
    }

    mutating func insert(
        _ segments: ArraySlice<Substring>,
        names: [String],
        method: HTTPMethod,
        route: Router.Route
    ) {
        guard let segment = segments.first else {
            leaves[method] = Leaf(names: names, route: route)
            return
        }
        let rest = segments.dropFirst()
        if segment.first == "*", rest.isEmpty {
            let names = names + [String(segment.dropFirst())]
            restLeaves[method] = Leaf(names: names, route: route)
        } else if segment.first == ":" {
            let body = segment.dropFirst()
            let end = body.firstIndex(of: ":") ?? body.endIndex
            let names = names + [String(body[..<end])]
            let suffix = String(body[end...])
            if let index = named.firstIndex(where: { $0.suffix == suffix }) {
                named[index].node.insert(rest, names: names, method: method, route: route)
            } else {
                var node = Node()
                node.insert(rest, names: names, method: method, route: route)
                named.append(NamedSegment(suffix: suffix, node: node))
                named.sort { $0.suffix.utf8.count > $1.suffix.utf8.count }
            }
        } else {
            let text = String(segment)
            var place = place(of: text)
            if place == nil {
                place = literals.count
                places[text] = literals.count
                literals.append((text, Node()))
            }
            literals[place ?? 0].node.insert(rest, names: names, method: method, route: route)
        }
    }

    private func place(of text: String) -> Int? {
        if literals.count > Self.comparedLiterals { return places[text] }
        for place in literals.indices where literals[place].text.isSame(as: text) { return place }
        return nil
    }

    /// Searches depth first, the most exact branch first. `values` grows along the branch taken;
    /// `allowed` collects the methods of every leaf that has the path but not the method.
    func find(
        _ segments: ArraySlice<String>,
        _ method: HTTPMethod,
        _ values: inout [String],
        _ allowed: inout [HTTPMethod],
        isNamedAllowed: Bool = true
    ) -> Leaf? {
        guard let segment = segments.first else {
            return pick(leaves, method, &allowed)
        }
        let rest = segments.dropFirst()
        if let place = place(of: segment),
            let leaf = literals[place].node.find(rest, method, &values, &allowed)
        {
            return leaf
        }
        for candidate in named
        where isNamedAllowed && segment.utf8.count > candidate.suffix.utf8.count
            && (candidate.suffix.isEmpty || segment.hasSuffix(candidate.suffix))
        {
            values.append(
                candidate.suffix.isEmpty
                    ? segment : String(segment.dropLast(candidate.suffix.count))
            )
            if let leaf = candidate.node.find(rest, method, &values, &allowed) { return leaf }
            values.removeLast()
        }
        guard let leaf = pick(restLeaves, method, &allowed) else { return nil }
        values.append(segments.joined(separator: "/"))
        return leaf
    }

    private func pick(
        _ leaves: [HTTPMethod: Leaf],
        _ method: HTTPMethod,
        _ allowed: inout [HTTPMethod]
    ) -> Leaf? {
        if let leaf = leaves[method] { return leaf }
        if method == .head, let leaf = leaves[.get] { return leaf }
        for known in leaves.keys where !allowed.contains(known) { allowed.append(known) }
        return nil
    }
}
