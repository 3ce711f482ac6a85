import Explain
import Gateway
import HTTPServer
import JSON
import PushStorage
import Storage

/// Why a device got a push, or why not.
extension NativeSurface {
    var explainRoutes: [SurfaceRoute] {
        [
            SurfaceRoute(.get, "/v1/notifications/:id/explain", for: .master) { request, caller in
                try await explain(request, caller)
            }
            .described(
                Self.description(
                    "Explain why a device got this push, or why not",
                    .init(200, "One reason, and five steps", .json(named: "Explanation")),
                    [
                        .path("id", Self.uuid),
                        .query("installation", Self.id, "The object id, or installationId")
                            .required,
                    ]
                )
            ),
            SurfaceRoute(.get, "/v1/installations/:id/explain", for: .master) { request, caller in
                try await explainDevice(request, caller)
            }
            .described(
                Self.description(
                    "Explain why a device gets no push at all",
                    .init(200, "One reason, and five steps", .json(named: "Explanation"))
                )
            ),
        ]
    }

    /// `GET /v1/notifications/{id}/explain?installation=`. The installation may be deleted.
    private func explain(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard let installation = request.queryValue("installation") else {
            throw HTTPProblem(
                status: 400,
                detail: "installation is missing: ?installation=<object id or installationId>"
            )
        }
        guard Self.isID(installation) else {
            throw HTTPProblem(status: 400, detail: "installation: \(Self.idRule)")
        }
        let push = try await ownPush(of: request, caller)
        let explanation = try await database.explanations.explain(
            push,
            app: caller.appID,
            installation: installation
        )
        return .json(.object(explanation.json(showingContent: true)))
    }

    /// `GET /v1/installations/{id}/explain`: fails with 404 if there is no such installation.
    private func explainDevice(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let id = request.pathParameters["id"] ?? ""
        guard Self.isID(id) else { throw HTTPProblem(status: 400, detail: "id: \(Self.idRule)") }
        let explanation = try await database.explanations.explain(
            nil,
            app: caller.appID,
            installation: id
        )
        guard explanation.reason != .installationUnknown else {
            throw HTTPProblem(status: 404, detail: explanation.sentence.text)
        }
        return .json(.object(explanation.json(showingContent: true)))
    }
}
