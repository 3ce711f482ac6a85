package import HTTPServer

/// One method of one path of a surface.
package struct SurfaceRoute: Sendable {
    package enum Handler: Sendable {
        /// A route without a key, or with a proof that is not the surface's usual one: the handler
        /// authenticates its caller by the context, or needs no caller.
        case unauthenticated(
            @Sendable (HTTPServerRequest, RequestContext) async throws -> HTTPServerResponse
        )
        case caller(@Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse)
        /// As `unauthenticated`, for frequent requests that are answered without waiting if
        /// possible.
        case prompt(@Sendable (HTTPServerRequest, RequestContext) throws -> ImmediateResponse)
    }

    package let method: HTTPMethod
    package let pattern: String
    /// The method and the path in logs and the audit, whatever name the request used.
    package let action: String
    /// Whether the surface sets the action itself.
    package let isNamed: Bool
    package let maximumBodyBytes: Int?
    /// Whether the handler takes the body while it arrives.
    let streamsBody: Bool
    /// The names in the pattern that stand for the targets.
    let targetNames: [String]
    let handler: Handler
    /// `nil` if another service's documentation describes it.
    package private(set) var description: RouteDescription?

    /// - Parameters:
    ///   - method: Its method. HEAD falls back to GET.
    ///   - pattern: As `Router` defines it.
    ///   - action: The method and the pattern by default.
    ///   - appName: The name in the pattern that stands for the app.
    ///   - maximumBodyBytes: `nil`: the server's limit.
    ///   - streamsBody: As `Router.on` says. Only for handlers that authenticate the caller themselves.
    ///   - handler: Returns the response; the surface renders errors.
    package init(
        _ method: HTTPMethod,
        _ pattern: String,
        action: String? = nil,
        appName: String? = nil,
        maximumBodyBytes: Int? = nil,
        streamsBody: Bool = false,
        handler: Handler
    ) {
        self.method = method
        self.pattern = pattern
        isNamed = action != nil
        self.action = action ?? "\(method.rawValue) \(pattern)"
        self.maximumBodyBytes = maximumBodyBytes
        self.streamsBody = streamsBody
        self.handler = handler
        targetNames = pattern.split(separator: "/").compactMap { segment in
            guard segment.first == ":", segment.dropFirst() != appName ?? "" else { return nil }
            return String(segment.dropFirst().prefix { $0 != ":" })
        }
        .sorted()
    }

    package func described(_ description: RouteDescription) -> SurfaceRoute {
        var route = self
        route.description = description
        return route
    }

    /// Returns the targets in a path. A DELETE takes several ids, separated by commas; elsewhere a
    /// comma is part of an id.
    func targets(in request: HTTPServerRequest) -> [String] {
        targetNames.flatMap { name -> [String] in
            guard let value = request.pathParameters[name] else { return [] }
            let isList = name == "id" && method == .delete
            return isList ? value.split(separator: ",").map(String.init) : [value]
        }
    }

    /// Makes a route for holders of a key of the app, or, if `rights` says so, its master key.
    package init(
        _ method: HTTPMethod,
        _ pattern: String,
        for rights: CallerRights,
        _ handler:
            @escaping @Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse
    ) {
        self.init(
            method,
            pattern,
            handler: .caller { request, caller in
                guard rights == .client || caller.isMaster else {
                    throw Refusal.masterKeyNeeded(for: "This")
                }
                return try await handler(request, caller)
            }
        )
    }
}
