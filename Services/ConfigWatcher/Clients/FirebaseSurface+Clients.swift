import Door
import HTTPServer
import JSON
import PushCore
import PushStorage
import RemoteConfig

/// What clients ask: a fetch, and to be told when the next is due.
extension FirebaseSurface {
    private typealias Answer =
        @Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse

    var clientRoutes: [SurfaceRoute] {
        let firebase = ConfigNamespace.firebase
        let namespaces = "\(Self.project)/namespaces/\(firebase.rawValue)"
        return [
            route(.post, namespaces + ":fetch", .prompt { try fetch($0, $1) }),
            route(
                .post,
                namespaces + ":streamFetchInvalidations",
                listening { try await lines($0, $1) }
            ),
        ]
            + ["\(Self.project)/remoteConfig:stream", Self.path(firebase, "remoteConfig:stream")]
            .map { path in
                route(.get, path, listening { try await events($0, $1) })
            }
    }

    private func route(
        _ method: HTTPMethod,
        _ path: String,
        _ handler: SurfaceRoute.Handler
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            path,
            appName: "project",
            maximumBodyBytes: Self.maximumFetchBytes,
            handler: handler
        )
    }

    private func listening(_ answer: @escaping Answer) -> SurfaceRoute.Handler {
        .anybody { request, visit in
            try await answer(request, try await visit.admit(try client(request, visit)))
        }
    }

    // MARK: Fetching

    /// Answers at once where the app and its template are in memory, as they are but for seconds.
    private func fetch(
        _ request: HTTPServerRequest,
        _ visit: Visit
    ) throws -> HTTPPromptAnswer {
        let proof = try client(request, visit)
        if let caller = try visit.admitAtOnce(proof) { return try fetch(request, caller, visit) }
        return .later {
            let caller = try await visit.admit(proof)
            return try await fetch(request, caller, visit).response()
        }
    }

    private func fetch(
        _ request: HTTPServerRequest,
        _ caller: Caller,
        _ visit: Visit
    ) throws -> HTTPPromptAnswer {
        // The JavaScript SDK says gzip and sends text.
        let fetch: ConfigFetch
        do {
            fetch = try ConfigFetch(body: try request.bodyByItsBytes())
        } catch {
            // Nobody can tell whose it is, and reading it was work.
            try count(.address(visit.subscriber), caller)
            throw error
        }
        try count(fetch.appInstanceID.map { .instance($0) } ?? .address(visit.subscriber), caller)
        let header = request.header("if-none-match")
        let (app, createdAt) = (caller.appID, caller.fieldsVersion.createdAt)
        if let known = memory.remembered(app, createdAt: createdAt) {
            return .now(answer(to: fetch, ifNoneMatch: header, of: app, known))
        }
        return .later {
            let known = try await memory.config(of: app, createdAt: createdAt)
            return answer(to: fetch, ifNoneMatch: header, of: app, known)
        }
    }

    /// - Throws: 429 where he has had his fetches of this hour.
    private func count(
        _ fetcher: FetchLimits.Fetcher,
        _ caller: Caller
    ) throws(FirebaseError) {
        let wait = limits.take(
            fetcher,
            of: caller.appID,
            limit: caller.settings.configFetchesPerHour
        )
        guard let wait else { return }
        figures.throttle()
        throw .throttled(retryAfterSeconds: wait)
    }

    private func answer(
        to fetch: ConfigFetch,
        ifNoneMatch header: String?,
        of app: String,
        _ known: ConfigMemory.Known
    ) -> HTTPServerResponse {
        let answer =
            known.config?.answer(
                to: fetch,
                ifNoneMatch: header.map { Array($0.utf8) },
                now: .now()
            ) ?? CompiledConfig.noTemplate(app: app)
        figures.fetched(answer.state)
        if let instance = fetch.appInstanceID { notes.note(app, instance, version: known.version) }
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
        let known = try ConfigFetch(body: try request.bodyByItsBytes()).lastKnownVersion ?? 0
        return try await stream(.lines, to: caller, knowing: known)
    }

    /// Server-sent events, for everyone else.
    private func events(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try await stream(.events, to: caller, knowing: try Self.lastEvent(of: request))
    }

    /// The version that was heard last; an empty header, of who has heard nothing, hides no query.
    static func lastEvent(of request: HTTPServerRequest) throws(FirebaseError) -> Int? {
        let texts = [
            request.header("last-event-id"), request.queryValue("lastKnownVersionNumber"),
        ]
        guard let text = texts.lazy.compactMap({ $0 }).first(where: { !$0.isEmpty }) else {
            return nil
        }
        guard let known = text.wholeNumber else {
            throw .invalid("lastKnownVersionNumber must be a version's number")
        }
        return known
    }

    /// A `known` of `nil`: its client does not ask what has been.
    private func stream(
        _ form: ConfigStream.Form,
        to caller: Caller,
        knowing known: Int?
    ) async throws -> HTTPServerResponse {
        let (app, createdAt) = (caller.appID, caller.fieldsVersion.createdAt)
        // In this order: what is announced between the two is told.
        let announced = try await streams.announced(of: app, createdAt: createdAt)
        let current = try await memory.config(of: app, createdAt: createdAt).version
        var response = HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": form.contentType, "Cache-Control": "no-store"]
        )
        response.stream = HTTPBodyStream(
            fedBy: ConfigStream(
                app: app,
                createdAt: createdAt,
                form: form,
                announced: announced,
                current: current,
                knowing: known,
                streams: streams
            )
        )
        return response
    }
}
