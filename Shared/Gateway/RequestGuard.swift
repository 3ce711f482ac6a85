import EventLoop
import HTTPServer
import PushCore
import Storage

/// The gateway of one loop's surfaces: authentication, rate limits and audit.
///
/// Each request is answered through `answer`, and its sender authenticated by
/// `RequestContext.admit`. Refusals are thrown as `Refusal`, for the surface to render in its own
/// form. Confined to its loop.
package final class RequestGuard: Sendable {
    private let limits: RequestLimits
    private let audit: AuditTrail

    package init(_ limits: RequestLimits, audit: AuditTrail) {
        self.limits = limits
        self.audit = audit
    }

    /// Answers a request, and audits calls with a master key.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - route: Its route; a surface may name it more exactly for the audit
    ///     (`RequestContext.action`).
    ///   - handler: Authenticates the caller by the visit, and answers; errors are in the surface's
    ///     own form.
    /// - Returns: Its response.
    /// - Throws: The errors of the handler.
    func answer(
        _ request: HTTPServerRequest,
        by route: SurfaceRoute,
        _ handler: (RequestContext) async throws -> HTTPServerResponse
    ) async rethrows -> HTTPServerResponse {
        let visit = RequestContext(request, limits)
        return try await finished(visit, request, route) { try await handler(visit) }
    }

    /// Answers as `answer`, with a handler that rarely waits. A request with an audit entry waits
    /// until it is written, or its turn has come.
    func answerImmediately(
        _ request: HTTPServerRequest,
        by route: SurfaceRoute,
        _ handler: (RequestContext) throws -> ImmediateResponse
    ) throws -> ImmediateResponse {
        let visit = RequestContext(request, limits)
        do {
            switch try handler(visit) {
            case .now(let response):
                if visit.audited == nil, !visit.isRefused {
                    return .now(completed(response, of: visit))
                }
                return .later { [self] in await finished(visit, request, route) { response } }
            case .later(let rest):
                return .later { [self] in try await finished(visit, request, route, rest) }
            }
        } catch {
            guard visit.audited != nil || visit.isRefused else { throw error }
            return .later { [self] in try await finished(visit, request, route) { throw error } }
        }
    }

    private func finished(
        _ visit: RequestContext,
        _ request: HTTPServerRequest,
        _ route: SurfaceRoute,
        _ handler: () async throws -> HTTPServerResponse
    ) async rethrows -> HTTPServerResponse {
        let response: HTTPServerResponse
        do {
            response = completed(try await handler(), of: visit)
        } catch {
            // The router answers errors that no surface can render.
            await wait(for: visit)
            await writeDown(visit, route, request, nil)
            throw error
        }
        await wait(for: visit)
        await writeDown(visit, route, request, response)
        return response
    }

    private func wait(for visit: RequestContext) async {
        guard visit.isRefused else { return }
        try? await EventLoop.current?.sleep(for: visit.untilRefusal())
    }

    private func completed(
        _ response: consuming HTTPServerResponse,
        of visit: RequestContext
    ) -> HTTPServerResponse {
        if response.status == 429, let seconds = visit.retryAfterSeconds {
            response.headers["retry-after"] = String(seconds)
        }
        return response
    }

    private func writeDown(
        _ visit: RequestContext,
        _ route: SurfaceRoute,
        _ request: HTTPServerRequest,
        _ response: HTTPServerResponse?
    ) async {
        guard let (app, actor) = visit.audited, !visit.isAudited else { return }
        let noted = visit.targets
        await audit.record(
            AuditEntry(
                app: app,
                actor: actor,
                action: visit.action ?? route.action,
                targets: noted.isEmpty ? Self.targets(of: request, by: route, response) : noted,
                address: visit.address,
                status: response?.status ?? 500,
                detail: visit.items.json
            )
        )
    }

    /// Returns the default targets: the ids in the path, and for a created object the one in its
    /// location.
    private static func targets(
        of request: HTTPServerRequest,
        by route: SurfaceRoute,
        _ response: HTTPServerResponse?
    ) -> [String] {
        let named = route.targets(in: request)
        guard let response, response.status == 201, let location = response.headers["location"]
        else { return named }
        let made = location.prefix { $0 != "?" }.split(separator: "/").last ?? ""
        return named + [String(made)]
    }
}
