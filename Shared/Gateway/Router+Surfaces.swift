package import HTTPServer
import PushCore

extension Router {
    /// Mounts surfaces behind the gateway. Paths that belong to no surface get problem details.
    package mutating func mount(_ surfaces: [any Surface], behind requestGuard: RequestGuard) {
        // Nothing is inflated before its sender is authenticated.
        givesBodiesAsSent = true
        // No app has such a name: paths below these names belong to other surfaces.
        reservedFirstSegments = AppID.reserved
        for surface in surfaces {
            for route in surface.allRoutes { add(route, of: surface, behind: requestGuard) }
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
            return surface.errorResponse(error, request) ?? surface.refused(.failed, request)
        }
    }

    /// Adds a route: the only way from a connection to a surface's handler.
    private mutating func add(
        _ route: SurfaceRoute,
        of surface: any Surface,
        behind requestGuard: RequestGuard
    ) {
        let bound = route.maximumBodyBytes
        switch route.handler {
        case .unauthenticated(let handler):
            on(
                route.method,
                route.pattern,
                maximumBodyBytes: bound,
                streamsBody: route.streamsBody
            ) { request in
                try await requestGuard.answer(request, by: route) { context in
                    try await surface.withErrorResponse(request) {
                        try await handler(request, context)
                    }
                }
            }
        case .caller(let handler):
            on(route.method, route.pattern, maximumBodyBytes: bound) { request in
                try await requestGuard.answer(request, by: route) { context in
                    try await surface.withErrorResponse(request) {
                        let proof = try surface.proof(of: request, context)
                        let caller = try await context.admit(proof)
                        var request = request
                        try request.decodeBody()
                        return try await handler(request, caller)
                    }
                }
            }
        case .prompt(let handler):
            onPrompt(route.method, route.pattern, maximumBodyBytes: bound) { request in
                try requestGuard.answerImmediately(request, by: route) { context in
                    try surface.withImmediateErrorResponse(request) {
                        try handler(request, context)
                    }
                }
            }
        }
    }
}

extension Surface {
    /// Returns the response of a handler, or the response to its error.
    fileprivate func withErrorResponse(
        _ request: HTTPServerRequest,
        _ handler: () async throws -> HTTPServerResponse
    ) async throws -> HTTPServerResponse {
        do {
            return withCORSHeaders(decorated(try await handler(), for: request))
        } catch {
            guard let response = errorResponse(error, request) else { throw error }
            return response
        }
    }

    fileprivate func withImmediateErrorResponse(
        _ request: HTTPServerRequest,
        _ handler: () throws -> ImmediateResponse
    ) throws -> ImmediateResponse {
        do {
            switch try handler() {
            case .now(let response): return .now(withCORSHeaders(decorated(response, for: request)))
            case .later(let rest): return .later { try await withErrorResponse(request, rest) }
            }
        } catch {
            guard let response = errorResponse(error, request) else { throw error }
            return .now(response)
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
