import Apps
import Cryptography
import Gateway
import HTTPServer
import JSON
import Logins
import Observability
import PushCore
import RealmSync
import Storage

/// The part of App Services' routes that an unchanged Realm client needs to upload asymmetric
/// objects: sign-in, tokens, and the WebSocket of `RealmSocket`.
///
/// Its clients react to 401 and 403 by a logout, which may delete what they have not sent. So only a
/// sign-in is ever refused with these; everything else is 503 when in doubt, which they repeat. Each
/// loop has one instance.
struct RealmSurface: Surface {
    let intake: RealmIntake
    let logins: LoginCache
    let tokens: RealmTokens
    let rescue: RealmRescue

    private static let maximumBodyBytes = 64 << 10

    func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/api/client") }

    var routes: [SurfaceRoute] {
        [
            route(.get, RealmPath.location, RealmDescription.location, location),
            route(.post, RealmPath.login, RealmDescription.login, logIn),
            route(.get, RealmPath.profile, RealmDescription.profile, profile),
            route(.post, RealmPath.session, RealmDescription.renewal, renew),
            route(.delete, RealmPath.session, RealmDescription.logout, logOut),
            route(.delete, RealmPath.delete, RealmDescription.deletion, logOut),
            route(.get, RealmPath.sync, RealmDescription.socket, openSocket),
        ]
    }

    private func route(
        _ method: HTTPMethod,
        _ pattern: String,
        _ description: RouteDescription,
        _ handler:
            @escaping @Sendable (HTTPServerRequest, RequestContext) async throws ->
            HTTPServerResponse
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            pattern,
            appName: "appId",
            maximumBodyBytes: Self.maximumBodyBytes,
            handler: .unauthenticated(handler)
        )
        .described(description)
    }

    // MARK: Errors

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        switch refusal {
        case .nothingHere, .wrongMethod: Self.error(404, "there is nothing here", "NotFound")
        case .unauthorized where RealmPath.isHarmedByRefusal(request.path):
            Self.error(503, "the token cannot be verified", "ServiceUnavailable")
        case .unauthorized, .signatureTooOld, .tooManyRequests, .masterKeyNeeded, .problem,
            .valueRefused, .tookTooLong, .unavailable, .failed:
            answer(to: HTTPProblem(refusal), request)
        }
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        guard case .some(let problem) = HTTPProblem(ofIntake: error) else { return nil }
        return answer(to: problem, request)
    }

    private func answer(to problem: HTTPProblem, _ request: HTTPServerRequest) -> HTTPServerResponse
    {
        var problem = problem
        if problem.status == 401 || problem.status == 403 {
            problem.status = RealmPath.isHarmedByRefusal(request.path) ? 503 : 401
        }
        let code =
            switch problem.status {
            case 400, 413: "BadRequest"
            case 401: "AuthError"
            case 404: "AppNotFound"
            case 429: "RateLimitExceeded"
            case 500...: "ServiceUnavailable"
            default: "InvalidParameter"
            }
        var response = Self.error(
            problem.status,
            problem.detail.isEmpty ? statusText(problem.status) : problem.detail,
            code
        )
        for field in problem.headers { response.headers[field.name] = field.value }
        return response
    }

    private static func error(_ status: Int, _ text: String, _ code: String) -> HTTPServerResponse {
        .json(["error": .string(text), "error_code": .string(code)], status: status)
    }

    // MARK: Apps

    /// Finds the app of the path by its own id, or the id that it had at Atlas.
    ///
    /// - Throws: 404 if there is none, or if it does not take Realm's clients.
    private func app(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> Caller {
        guard let app = try await knownApp(request, context) else {
            throw HTTPProblem(status: 404, detail: Self.noApp)
        }
        return app
    }

    private static let noApp = "there is no app of this id for Realm"

    /// - Returns: `nil` if there is none, or if it does not take Realm's clients.
    private func knownApp(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> Caller? {
        let name = request.pathParameters["appId"] ?? ""
        let app = try await context.publicApp(.atlas(name))
        return app?.settings.takesRealmClients == true ? app : nil
    }

    private func location(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        _ = try await app(request, context)
        let host = request.outsideBase
        // Of `http`, too: `ws` and `wss`.
        let sockets = "ws" + host.dropFirst(4)
        return .json([
            "deployment_model": "GLOBAL", "location": "US-VA", "hostname": .string(host),
            "ws_hostname": .string(String(sockets)),
        ])
    }

    // MARK: Sign-in

    private func logIn(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let app = try await app(request, context)
        let provider = RealmProvider(rawValue: request.pathParameters["provider"] ?? "")
        guard let provider else {
            throw HTTPProblem(
                status: 404,
                detail: "sign in by anon-user, custom-token or api-key; others are not served"
            )
        }
        var request = request
        try request.decodeBody()
        guard let body = (try? JSONValue.parse(request.body, maximumDepth: 16))?.object else {
            throw HTTPProblem(status: 400, detail: "the body must be a JSON object")
        }
        let user = try await user(of: body, provider, app, context)
        intake.status.signedIn(app.appID, provider, device: body["options"]?["device"])
        return .json([
            "access_token": .string(try await tokens.make(.user(user), .access)),
            "refresh_token": .string(try await tokens.make(.user(user), .refresh)),
            "user_id": .string(user.id), "device_id": "000000000000000000000000",
        ])
    }

    private func user(
        of body: JSONObject,
        _ provider: RealmProvider,
        _ app: Caller,
        _ context: RequestContext
    ) async throws -> RealmUser {
        switch provider {
        case .anonymous: return .anonymous(of: app.appID)
        case .customToken:
            let name: String
            do {
                let token = body["token"]?.string ?? ""
                name = try await logins.reader(of: token, app: app.appID).identity
            } catch let refusal as LoginRefusal {
                switch refusal {
                case .refused: throw context.refusal()
                case .unavailable:
                    throw RealmPath.unavailable("the token's issuer is not reachable")
                }
            }
            return .named(name, of: app.appID, by: .customToken)
        case .apiKey:
            let key = body["key"]?.string ?? ""
            guard app.app.accepts(.app, { constantTimeEqual(key, $0) }) else {
                throw context.refusal()
            }
            return .named("app-key", of: app.appID, by: .apiKey)
        }
    }

    // MARK: Tokens

    private static func bearerToken(_ request: HTTPServerRequest) -> String? {
        let parts = request.header("authorization")?.split(separator: " ", maxSplits: 1) ?? []
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return nil }
        return String(parts[1])
    }

    private func bearer(
        _ request: HTTPServerRequest,
        _ kind: RealmTokens.Kind,
        _ context: RequestContext
    ) async throws -> RealmTokens.Bearer {
        try context.countArrival()
        guard let token = Self.bearerToken(request) else { throw context.refusal() }
        if let bearer = try await tokens.bearer(of: token, kind) { return bearer }
        if kind == .refresh, let name = RealmTokens.unverifiedUser(of: token),
            try await rescue.isOpen()
        {
            return .rescued(name)
        }
        throw context.refusal()
    }

    private func profile(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let bearer = try await bearer(request, .access, context)
        let (id, app, provider) =
            switch bearer {
            case .user(let user): (user.id, user.app, user.provider.rawValue)
            case .rescued(let name): (name, "", RealmProvider.customToken.rawValue)
            }
        return .json([
            "user_id": .string(id), "domain_id": .string(app),
            "identities": [
                [
                    "id": .string(id), "provider_type": .string(provider),
                    "provider_id": .string(provider),
                ]
            ],
            "data": [:], "type": "normal",
        ])
    }

    private func renew(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let bearer = try await bearer(request, .refresh, context)
        return .json(
            ["access_token": .string(try await tokens.make(bearer, .access))],
            status: 201
        )
    }

    /// Ends nothing here: the client forgets its tokens, and its user has no data of its own.
    private func logOut(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        try context.countArrival()
        return HTTPServerResponse(status: 204)
    }

    // MARK: Sockets

    private func openSocket(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> HTTPServerResponse {
        let handshake = try WebSocketHandshake(request)
        guard let dialect = RealmDialect(offered: handshake.subprotocols) else {
            throw HTTPProblem(status: 400, detail: "no offered subprotocol is known")
        }
        let app = try await appOfSocket(request, context)
        let socket = try intake.socket(
            dialect,
            of: app.appID,
            from: context.address,
            in: context.knownApps,
            agent: request.header("user-agent") ?? ""
        )
        return .upgrade(
            handshake,
            subprotocol: dialect.subprotocol,
            limits: socket.limits,
            to: socket
        )
    }

    /// - Throws: 503 if the app is unknown or does not take Realm's clients, as after a 404 old
    ///   clients do not come back; and for a wrong token.
    private func appOfSocket(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> Caller {
        guard let app = try await knownApp(request, context) else {
            throw RealmPath.unavailable(Self.noApp)
        }
        guard let token = request.queryValue("baas_at"),
            let bearer = try await tokens.bearer(of: token, .access)
        else { throw context.refusal() }
        let rescued =
            switch bearer {
            case .user(let user) where user.app.isSame(as: app.appID): nil as String?
            // Of the app that had this id before: the device would stay outside for ever.
            case .user(let user): user.id
            case .rescued(let name): name
            }
        if let rescued {
            guard app.settings.rescuesRealmClients(at: .now()) else { throw context.refusal() }
            context.audit(app, as: "realm-rescue", target: rescued)
        }
        return app
    }
}
