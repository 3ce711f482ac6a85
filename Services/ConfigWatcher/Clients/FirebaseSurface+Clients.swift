import EventLoop
import Gateway
import HTTPServer
import JSON
import PushCore
import RemoteConfig
import Storage

/// The requests of clients: a fetch, and a stream that says when the next fetch is due.
extension FirebaseSurface {
    private typealias Answer =
        @Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse

    var clientRoutes: [SurfaceRoute] {
        let firebase = ConfigNamespace.firebase
        let namespaces = "\(Self.project)/namespaces/\(firebase.rawValue)"
        return [
            route(
                .post,
                namespaces + ":fetch",
                "Get the values for one app instance",
                answer: .json(),
                .prompt { try fetch($0, $1) }
            ),
            route(
                .post,
                namespaces + ":streamFetchInvalidations",
                "Listen: an object, one a line, for each announcement",
                answer: .json(),
                listening { try await lines($0, $1) }
            ),
        ]
            + ["\(Self.project)/remoteConfig:stream", Self.path(firebase, "remoteConfig:stream")]
            .map { path in
                route(
                    .get,
                    path,
                    "Listen: a server-sent event for each announcement",
                    query: ["lastKnownVersionNumber"],
                    answer: .init("text/event-stream"),
                    listening { try await events($0, $1) }
                )
            }
    }

    private func route(
        _ method: HTTPMethod,
        _ path: String,
        _ summary: String,
        query: [String] = [],
        answer: RouteDescription.Content,
        _ handler: SurfaceRoute.Handler
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            path,
            appName: "project",
            maximumBodyBytes: Self.maximumFetchBytes,
            handler: handler
        )
        .described(
            RouteDescription(
                summary,
                for: [["apiKey"], ["apiKeyHeader"], ["masterKey"]],
                parameters: query.map { .query($0) },
                body: method == .post ? .json(["type": "object"]) : nil,
                answers: [.init(200, "Done", answer)],
                refusal: Self.refusal
            )
        )
    }

    private func listening(_ answer: @escaping Answer) -> SurfaceRoute.Handler {
        .unauthenticated { request, context in
            try await answer(request, try await context.admit(try client(request, context)))
        }
    }

    // MARK: Fetching

    /// Answers without a wait if the app and its template are cached, as they nearly always are.
    private func fetch(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) throws -> ImmediateResponse {
        let proof = try client(request, context)
        if let caller = try context.admitAtOnce(proof) {
            return try fetch(request, caller, context)
        }
        return .later {
            let caller = try await context.admit(proof)
            return try await fetch(request, caller, context).response()
        }
    }

    private func fetch(
        _ request: HTTPServerRequest,
        _ caller: Caller,
        _ context: RequestContext
    ) throws -> ImmediateResponse {
        _ = try QueryParameters(request, taking: [])
        // The JavaScript SDK declares gzip and sends plain text, so the bytes decide.
        let fetch: ConfigFetch
        do {
            fetch = try ConfigFetch(body: try request.bodyByItsBytes())
        } catch {
            // The address is charged, as the instance is unknown and parsing took time.
            try count(.address(context.subscriber), caller)
            throw error
        }
        try count(fetch.appInstanceID.map { .instance($0) } ?? .address(context.subscriber), caller)
        let header = request.header("if-none-match")
        let (app, createdAt) = (caller.appID, caller.fieldsVersion.createdAt)
        if let known = memory.remembered(app, createdAt: createdAt) {
            return evaluate(fetch, ifNoneMatch: header, of: app, known)
        }
        return .later {
            let known = try await memory.config(of: app, createdAt: createdAt)
            return try await evaluate(fetch, ifNoneMatch: header, of: app, known).response()
        }
    }

    /// Evaluates a fetch. Slow conditions are evaluated in the app's turns.
    private func evaluate(
        _ fetch: ConfigFetch,
        ifNoneMatch header: String?,
        of app: String,
        _ known: TemplateCache.Known
    ) -> ImmediateResponse {
        guard let config = known.config else {
            return .now(
                response(to: fetch, CompiledConfig.noTemplate(app: app), of: app, known.version)
            )
        }
        let etag = header.map { Array($0.utf8) }
        var evaluation = config.evaluation(of: fetch, now: .now())
        if !fetchTurns.isBusy(app),
            config.advance(&evaluation, steps: CompiledConfig.stepsAtOnce)
        {
            return .now(answer(to: fetch, evaluation, config, ifNoneMatch: etag, of: app))
        }
        return .later { [evaluation] in
            try await finish(evaluation, of: fetch, ifNoneMatch: etag, of: app, known)
        }
    }

    /// Finishes an evaluation in the app's turns.
    private func finish(
        _ begun: ConfigEvaluation,
        of fetch: ConfigFetch,
        ifNoneMatch etag: [UInt8]?,
        of app: String,
        _ known: TemplateCache.Known
    ) async throws -> HTTPServerResponse {
        guard let config = known.config else { throw ConfigUnavailable() }
        var evaluation = begun
        if fetchTurns.isBusy(app) {
            try await fetchTurns.begin(app)
        } else {
            try await fetchTurns.next(app)
        }
        while !config.advance(&evaluation, steps: CompiledConfig.stepsPerSlice) {
            try await fetchTurns.next(app)
        }
        return answer(to: fetch, evaluation, config, ifNoneMatch: etag, of: app)
    }

    /// - Throws: 429 if the client has used up its fetches of this hour.
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
        metrics.throttle()
        throw .throttled(retryAfterSeconds: wait)
    }

    private func answer(
        to fetch: ConfigFetch,
        _ evaluation: ConfigEvaluation,
        _ config: CompiledConfig,
        ifNoneMatch etag: [UInt8]?,
        of app: String
    ) -> HTTPServerResponse {
        stopped.count(evaluation, of: app, version: config.version)
        let answer = config.answer(to: evaluation, ifNoneMatch: etag)
        return response(to: fetch, answer, of: app, config.version)
    }

    private func response(
        to fetch: ConfigFetch,
        _ answer: CompiledConfig.Answer,
        of app: String,
        _ version: Int
    ) -> HTTPServerResponse {
        metrics.fetched(answer.state)
        if let instance = fetch.appInstanceID { notes.note(app, instance, version: version) }
        return HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/json; charset=UTF-8", "ETag": answer.etag],
            body: answer.body
        )
    }

    // MARK: Listening

    /// `streamFetchInvalidations`, the stream of Firebase's SDKs.
    private func lines(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        _ = try QueryParameters(request, taking: [])
        let known = try ConfigFetch(body: try request.bodyByItsBytes()).lastKnownVersion ?? 0
        return try await stream(.lines, to: caller, knowing: known)
    }

    /// Server-sent events, for all other clients.
    private func events(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try await stream(.events, to: caller, knowing: try Self.lastEvent(of: request))
    }

    /// Returns the last version that the client received. An empty header does not hide the query
    /// parameter: clients that received no version send one.
    static func lastEvent(of request: HTTPServerRequest) throws(FirebaseError) -> Int? {
        let texts = [
            request.header("last-event-id"),
            try QueryParameters(request, taking: ["lastKnownVersionNumber"])[
                "lastKnownVersionNumber"
            ],
        ]
        guard let text = texts.lazy.compactMap({ $0 }).first(where: { !$0.isEmpty }) else {
            return nil
        }
        guard let known = text.wholeNumber else {
            throw .invalid(
                "lastKnownVersionNumber must be a version's number, not \"\(text.shown)\""
            )
        }
        return known
    }

    /// Opens a stream. `known` is `nil` if the client does not ask for past versions.
    private func stream(
        _ form: ConfigStream.Form,
        to caller: Caller,
        knowing known: Int?
    ) async throws -> HTTPServerResponse {
        let (app, createdAt) = (caller.appID, caller.fieldsVersion.createdAt)
        // The order of the two queries matters: a version that is announced between them is sent.
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
