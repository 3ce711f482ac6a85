import Door
import HTTPServer
import JSON
import PushCore
import PushStorage
import RemoteConfig

/// What clients ask: a fetch, and to be told when the next is due.
extension FirebaseSurface {
    private typealias Answer =
        @Sendable (HTTPServerRequest, Caller, Visit) async throws -> HTTPServerResponse

    var clientRoutes: [SurfaceRoute] {
        let firebase = ConfigNamespace.firebase
        let namespaces = "\(Self.project)/namespaces/\(firebase.rawValue)"
        return [
            route(.post, namespaces + ":fetch", { try await fetch($0, $1, $2) }),
            route(
                .post,
                namespaces + ":streamFetchInvalidations",
                { request, caller, _ in try await lines(request, caller) }
            ),
        ]
            + ["\(Self.project)/remoteConfig:stream", Self.path(firebase, "remoteConfig:stream")]
            .map { path in
                route(.get, path, { request, caller, _ in try await events(request, caller) })
            }
    }

    private func route(
        _ method: HTTPMethod,
        _ path: String,
        _ answer: @escaping Answer
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            path,
            appName: "project",
            maximumBodyBytes: Self.maximumFetchBytes,
            handler: .anybody { request, visit in
                let caller = try await client(request, visit)
                var request = request
                // The JavaScript SDK says gzip and sends text.
                try request.decodeBodyByItsBytes()
                return try await answer(request, caller, visit)
            }
        )
    }

    // MARK: Fetching

    private func fetch(
        _ request: HTTPServerRequest,
        _ caller: Caller,
        _ visit: Visit
    ) async throws -> HTTPServerResponse {
        let fetch = try ConfigFetch(body: request.body)
        let wait = limits.take(
            fetch.appInstanceID.map { .instance($0) } ?? .address(visit.subscriber),
            of: caller.appID,
            limit: caller.settings.configFetchesPerHour
        )
        if let wait {
            figures.throttle()
            throw FirebaseError.throttled(retryAfterSeconds: wait)
        }
        let known = try await memory.config(
            of: caller.appID,
            createdAt: caller.fieldsVersion.createdAt
        )
        let answer =
            known.config?.answer(
                to: fetch,
                ifNoneMatch: request.header("if-none-match").map { Array($0.utf8) },
                now: .now()
            ) ?? CompiledConfig.noTemplate(app: caller.appID)
        figures.fetched(answer.state)
        if let instance = fetch.appInstanceID {
            notes.note(caller.appID, instance, version: known.version)
        }
        return HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/json; charset=UTF-8", "ETag": answer.etag],
            body: answer.body
        )
    }

    // MARK: Listening

    /// `streamFetchInvalidations`, as Firebase's SDKs listen.
    private func lines(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let known = try ConfigFetch(body: request.body).lastKnownVersion ?? 0
        return try await stream(.lines, to: caller, knowing: known)
    }

    /// Server-sent events, for everyone else.
    private func events(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let text = request.header("last-event-id") ?? request.queryValue("lastKnownVersionNumber")
        var known: Int?
        if let text, !text.isEmpty {
            known = text.wholeNumber
            guard known != nil else {
                throw FirebaseError.invalid("lastKnownVersionNumber must be a version's number")
            }
        }
        return try await stream(.events, to: caller, knowing: known)
    }

    /// A `known` of `nil`: its client does not ask what has been.
    private func stream(
        _ form: ConfigStream.Form,
        to caller: Caller,
        knowing known: Int?
    ) async throws -> HTTPServerResponse {
        let current = try await memory.config(
            of: caller.appID,
            createdAt: caller.fieldsVersion.createdAt
        ).version
        var response = HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": form.contentType, "Cache-Control": "no-store"]
        )
        response.stream = HTTPBodyStream(
            fedBy: ConfigStream(
                app: caller.appID,
                createdAt: caller.fieldsVersion.createdAt,
                form: form,
                current: current,
                isBehind: known.map { $0 < current } ?? false,
                streams: streams
            )
        )
        return response
    }
}
