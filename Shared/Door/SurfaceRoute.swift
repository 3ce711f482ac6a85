package import HTTPServer

/// One method of one path of a surface.
package struct SurfaceRoute: Sendable {
    package enum Handler: Sendable {
        /// Asked without a key, or with a proof that is not the surface's usual one: the handler lets
        /// its caller in by the visit, or nobody.
        case anybody(@Sendable (HTTPServerRequest, Visit) async throws -> HTTPServerResponse)
        case caller(@Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse)
        /// As `anybody`, of what is asked so often that it is answered without waiting where it can be.
        case prompt(@Sendable (HTTPServerRequest, Visit) throws -> HTTPPromptAnswer)
    }

    package let method: HTTPMethod
    package let pattern: String
    /// The method and the path as logs and the audit show them, by whichever name it was asked.
    package let action: String
    /// Whether the surface says so itself.
    let isNamed: Bool
    package let maximumBodyBytes: Int?
    /// The names in the pattern that stand for what is asked about.
    let targetNames: [String]
    let handler: Handler

    /// - Parameters:
    ///   - method: Its method. HEAD falls back to GET.
    ///   - pattern: As `Router` has it.
    ///   - action: The method and the pattern, where nothing better is said.
    ///   - appName: The name in the pattern that stands for the app.
    ///   - maximumBodyBytes: `nil`: the server's bound.
    ///   - handler: Its answer; errors are the surface's to tell.
    package init(
        _ method: HTTPMethod,
        _ pattern: String,
        action: String? = nil,
        appName: String? = nil,
        maximumBodyBytes: Int? = nil,
        handler: Handler
    ) {
        self.method = method
        self.pattern = pattern
        isNamed = action != nil
        self.action = action ?? "\(method.rawValue) \(pattern)"
        self.maximumBodyBytes = maximumBodyBytes
        self.handler = handler
        targetNames = pattern.split(separator: "/").compactMap { segment in
            guard segment.first == ":", segment.dropFirst() != appName ?? "" else { return nil }
            return String(segment.dropFirst().prefix { $0 != ":" })
        }
        .sorted()
    }

    /// What a path says it is about. A DELETE takes several ids, parted by commas; elsewhere a comma is
    /// part of an id.
    func targets(in request: HTTPServerRequest) -> [String] {
        targetNames.flatMap { name -> [String] in
            guard let value = request.pathParameters[name] else { return [] }
            let isList = name == "id" && method == .delete
            return isList ? value.split(separator: ",").map(String.init) : [value]
        }
    }

    /// A route for who has a key of the app, or, where `rights` says so, its master key.
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
