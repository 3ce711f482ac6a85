package import HTTPServer
import PushCore

extension Router {
    /// Mounts surfaces behind the gateway. Paths that belong to no surface get problem details.
    package mutating func mount(_ surfaces: [any Surface], behind door: RequestGuard) {
        // Nothing is inflated before its sender is authenticated.
        givesBodiesAsSent = true
        // No app has such a name: paths below these names belong to other surfaces.
        reservedFirstSegments = AppID.reserved
        for surface in surfaces {
            for route in surface.allRoutes { add(route, of: surface, behind: door) }
        }
        let (nothing, otherMethod) = (notFound, methodNotAllowed)
        let failure = errorResponse
        notFound = { request in
            guard let surface = surfaces.first(where: { $0.owns(request) }) else {
                return nothing(request)
            }
            return surface.refused(.nothingHere, request)
        }
        methodNotAllowed = { request, allowed in
            guard let surface = surfaces.first(where: { $0.owns(request) }) else {
                return otherMethod(request, allowed)
            }
            // Browsers may send a preflight for any path; that alone does not make it a path of the
            // surface.
            return surface.refused(allowed == [.options] ? .nothingHere : .wrongMethod, request)
        }
        refusalBeforeBody = { request in
            surfaces.first(where: { $0.owns(request) })?.refusal(beforeBodyOf: request)
        }
        errorResponse = { error, request in
            guard let surface = surfaces.first(where: { $0.owns(request) }) else {
                return failure(error, request)
            }
            return surface.told(error, request) ?? surface.refused(.failed, request)
        }
    }

    /// Adds a route: the only way from a connection to a surface's handler.
    private mutating func add(
        _ route: SurfaceRoute,
        of surface: any Surface,
        behind door: RequestGuard
    ) {
        let bound = route.maximumBodyBytes
        switch route.handler {
        case .anybody(let handler):
            on(route.method, route.pattern, maximumBodyBytes: bound) { request in
                try await door.answer(request, by: route) { visit in
                    try await surface.telling(request) { try await handler(request, visit) }
                }
            }
        case .caller(let handler):
            on(route.method, route.pattern, maximumBodyBytes: bound) { request in
                try await door.answer(request, by: route) { visit in
                    try await surface.telling(request) {
                        let proof = try surface.proof(of: request, visit)
                        let caller = try await visit.admit(proof)
                        var request = request
                        try request.decodeBody()
                        return try await handler(request, caller)
                    }
                }
            }
        case .prompt(let handler):
            onPrompt(route.method, route.pattern, maximumBodyBytes: bound) { request in
                try door.answerImmediately(request, by: route) { visit in
                    try surface.tellingPromptly(request) { try handler(request, visit) }
                }
            }
        }
    }
}

extension Surface {
    /// Returns the response of a handler, or the response to its error.
    fileprivate func telling(
        _ request: HTTPServerRequest,
        _ handler: () async throws -> HTTPServerResponse
    ) async throws -> HTTPServerResponse {
        do {
            return opened(dressed(try await handler(), for: request))
        } catch {
            guard let told = told(error, request) else { throw error }
            return told
        }
    }

    fileprivate func tellingPromptly(
        _ request: HTTPServerRequest,
        _ handler: () throws -> ImmediateResponse
    ) throws -> ImmediateResponse {
        do {
            switch try handler() {
            case .now(let response): return .now(opened(dressed(response, for: request)))
            case .later(let rest): return .later { try await telling(request, rest) }
            }
        } catch {
            guard let told = told(error, request) else { throw error }
            return .now(told)
        }
    }
}

extension Surface {
    /// All routes, including the preflights of browsers.
    package var allRoutes: [SurfaceRoute] { routes + (cors?.preflights ?? []) }
}

extension HTTPServerRequest {
    /// Whether its path is this one, or lies below it.
    package func isBelow(_ base: String) -> Bool { path == base || path.hasPrefix(base + "/") }
}
