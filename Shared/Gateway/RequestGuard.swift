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
    ///   - handler: Authenticates the caller by the context, and answers; errors are in the
    ///     surface's own form.
    /// - Returns: Its response.
    /// - Throws: The errors of the handler.
    func answer(
        _ request: HTTPServerRequest,
        by route: SurfaceRoute,
        _ handler: (RequestContext) async throws -> HTTPServerResponse
    ) async rethrows -> HTTPServerResponse {
        let context = RequestContext(request, limits)
        return try await finished(context, request, route) { try await handler(context) }
    }

    /// Answers as `answer`, with a handler that rarely waits. A request with an audit entry waits
    /// until the entry is recorded; a refused request waits as `untilRefusal` says.
    func answerImmediately(
        _ request: HTTPServerRequest,
        by route: SurfaceRoute,
        _ handler: (RequestContext) throws -> ImmediateResponse
    ) throws -> ImmediateResponse {
        let context = RequestContext(request, limits)
        do {
            switch try handler(context) {
            case .now(let response):
                if context.audited == nil, !context.isRefused {
                    return .now(completed(response, of: context))
                }
                return .later { [self] in await finished(context, request, route) { response } }
            case .later(let rest):
                return .later { [self] in try await finished(context, request, route, rest) }
            }
        } catch {
            guard context.audited != nil || context.isRefused else { throw error }
            return .later { [self] in try await finished(context, request, route) { throw error } }
        }
    }

    private func finished(
        _ context: RequestContext,
        _ request: HTTPServerRequest,
        _ route: SurfaceRoute,
        _ handler: () async throws -> HTTPServerResponse
    ) async rethrows -> HTTPServerResponse {
        let response: HTTPServerResponse
        do {
            response = completed(try await handler(), of: context)
        } catch {
            // The router answers errors that no surface can render.
            await wait(for: context)
            await recordAudit(context, route, request, nil)
            throw error
        }
        await wait(for: context)
        await recordAudit(context, route, request, response)
        return response
    }

    private func wait(for context: RequestContext) async {
        guard context.isRefused else { return }
        try? await EventLoop.current?.sleep(for: context.untilRefusal())
    }

    private func completed(
        _ response: consuming HTTPServerResponse,
        of context: RequestContext
    ) -> HTTPServerResponse {
        if response.status == 429, let seconds = context.retryAfterSeconds {
            response.headers["retry-after"] = String(seconds)
        }
        return response
    }

    private func recordAudit(
        _ context: RequestContext,
        _ route: SurfaceRoute,
        _ request: HTTPServerRequest,
        _ response: HTTPServerResponse?
    ) async {
        guard let (app, actor) = context.audited, !context.isAudited else { return }
        let noted = context.targets
        await audit.record(
            AuditEntry(
                app: app,
                actor: actor,
                action: context.action ?? route.action,
                targets: noted.isEmpty ? Self.targets(of: request, by: route, response) : noted,
                address: context.address,
                status: response?.status ?? 500,
                detail: context.items.json
            )
        )
    }

    /// Returns the default targets: the ids in the path, and for a created object the id in its
    /// `Location`.
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
