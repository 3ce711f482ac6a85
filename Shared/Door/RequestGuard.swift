import EventLoop
import HTTPServer
import PushCore
import PushStorage

/// The door of one loop's surfaces: who may come in, how often, and what is written down of it.
///
/// Each request is answered through `answer`, and its sender let in by `Visit.admit`. Refusals are
/// thrown as `Refusal`, for the surface to tell in its own form. Confined to its loop.
package final class RequestGuard: Sendable {
    private let limits: RequestLimits
    private let audit: AuditTrail

    package init(_ limits: RequestLimits, audit: AuditTrail) {
        self.limits = limits
        self.audit = audit
    }

    /// Has a request answered, and writes down what was done with a master key.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - route: Its route; what the audit shows of it, a surface may say better (`Visit.action`).
    ///   - handler: Lets the caller in by the visit, and answers; errors in the surface's own form.
    /// - Returns: Its answer.
    /// - Throws: What the handler throws.
    func answer(
        _ request: HTTPServerRequest,
        by route: SurfaceRoute,
        _ handler: (Visit) async throws -> HTTPServerResponse
    ) async rethrows -> HTTPServerResponse {
        let visit = Visit(request, limits)
        return try await finished(visit, request, route) { try await handler(visit) }
    }

    /// As `answer`, of a handler that need not wait in most cases. Who leaves an entry in the audit waits
    /// until it is written, or its turn has come.
    func answerPromptly(
        _ request: HTTPServerRequest,
        by route: SurfaceRoute,
        _ handler: (Visit) throws -> HTTPPromptAnswer
    ) throws -> HTTPPromptAnswer {
        let visit = Visit(request, limits)
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
        _ visit: Visit,
        _ request: HTTPServerRequest,
        _ route: SurfaceRoute,
        _ handler: () async throws -> HTTPServerResponse
    ) async rethrows -> HTTPServerResponse {
        let response: HTTPServerResponse
        do {
            response = completed(try await handler(), of: visit)
        } catch {
            // The router answers for what no surface can tell.
            await wait(for: visit)
            await writeDown(visit, route, request, nil)
            throw error
        }
        await wait(for: visit)
        await writeDown(visit, route, request, response)
        return response
    }

    private func wait(for visit: Visit) async {
        guard visit.isRefused else { return }
        try? await EventLoop.current?.sleep(for: visit.untilRefusal())
    }

    private func completed(
        _ response: consuming HTTPServerResponse,
        of visit: Visit
    ) -> HTTPServerResponse {
        if response.status == 429, let seconds = visit.retryAfterSeconds {
            response.headers["retry-after"] = String(seconds)
        }
        return response
    }

    private func writeDown(
        _ visit: Visit,
        _ route: SurfaceRoute,
        _ request: HTTPServerRequest,
        _ response: HTTPServerResponse?
    ) async {
        guard let (app, actor) = visit.audited, !visit.isWrittenDown else { return }
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

    /// What nobody has noted: the ids in the path, and of what was made the one in its location.
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
