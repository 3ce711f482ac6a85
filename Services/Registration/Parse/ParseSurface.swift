import Apps
import Door
import HTTPServer
import JSON
import Observability
import PushCore
import PushStorage

/// Parse Server's REST API under `/parse`: who may call it, and errors in its own form.
///
/// One value a loop. What it does to objects and pushes is what LeanCloud's surface does to them;
/// only the names differ. A request that is at fault is never answered 5xx, since Parse's package
/// repeats such a call, pushes included, four times.
struct ParseSurface: Sendable {
    let door: RequestGuard
    let objects: ObjectOperations
    let pushes: PushOperations

    /// What a route answers, before it is dressed for HTTP or for its place in a batch.
    struct Answer: Sendable {
        var status = 200
        var body: JSONObject
        var location: String?
        var pushStatusID: String?
    }

    func addRoutes(to router: inout Router) {
        let log = router.log
        for method in [HTTPMethod.get, .post, .put, .delete] {
            router.on(method, "/parse/*rest") { request in
                try await door.answer(request, as: "\(method.rawValue) /parse/*rest") { visit in
                    try await respond(to: request, visit, log)
                }
            }
        }
        let (notFound, methodNotAllowed) = (router.notFound, router.methodNotAllowed)
        let errorResponse = router.errorResponse
        router.notFound = { request in
            Self.owns(request.path) ? Self.response(ParseRoute.nothing) : notFound(request)
        }
        router.methodNotAllowed = { request, allowed in
            Self.owns(request.path)
                ? Self.response(ParseRoute.otherMethod) : methodNotAllowed(request, allowed)
        }
        router.errorResponse = { error, request in
            guard Self.owns(request.path) else { return errorResponse(error, request) }
            return Self.response(to: error) ?? Self.response(.internal)
        }
        // A browser asks first, without credentials.
        router.on(.options, "/parse/*rest") { _ in
            var response = HTTPServerResponse.empty(200)
            response.headers["access-control-allow-methods"] = "GET, PUT, POST, DELETE, OPTIONS"
            response.headers["access-control-allow-headers"] = Self.browserHeaders
            response.headers["access-control-max-age"] = "86400"
            return Self.open(response)
        }
    }

    static func owns(_ path: String) -> Bool { path == "/parse" || path.hasPrefix("/parse/") }

    private static let browserHeaders = """
        X-Parse-Master-Key, X-Parse-REST-API-Key, X-Parse-Javascript-Key, X-Parse-Client-Key, \
        X-Parse-Windows-Key, X-Parse-Application-Id, X-Parse-Client-Version, \
        X-Parse-Session-Token, X-Parse-Installation-Id, X-Parse-Request-Id, \
        X-Parse-Revocable-Session, X-Requested-With, Content-Type, Pragma, Cache-Control
        """

    /// Web pages call from other origins. Parse's package looks for the exposed names in this very
    /// spelling, also outside of browsers, before it reads a push's id.
    static func open(_ response: HTTPServerResponse) -> HTTPServerResponse {
        var response = response
        response.headers["Access-Control-Allow-Origin"] = "*"
        response.headers["Access-Control-Expose-Headers"] =
            "X-Parse-Job-Status-Id, X-Parse-Push-Status-Id"
        return response
    }

    private func respond(
        to request: HTTPServerRequest,
        _ visit: Visit,
        _ log: Log
    ) async throws -> HTTPServerResponse {
        do {
            // Asked by whoever watches the service, without a key.
            if try ParseCall.path(request.pathSegments) == ["health"] {
                return Self.open(.json(["status": "ok"]))
            }
            let credential = try ParseCredential(
                request,
                beforeSearching: visit.beforeSearching
            )
            let caller = try await caller(credential, visit)
            var request = request
            try request.decodeBody()
            let call = try ParseCall(request, from: credential)
            visit.action = "\(call.method.rawValue) /parse/*rest"
            let route = try ParseRoute(call.method, call.path)
            visit.action = route.action
            if let id = route.id { visit.note(id) }
            if case .batch = route {
                return Self.open(.json(.array(try await batch(call, caller, request, log))))
            }
            return Self.response(try await answer(route, call, caller, request))
        } catch {
            guard let response = Self.response(to: error) else { throw error }
            return response
        }
    }

    /// Who calls. With a master key nothing else is looked at: one that is wrong is a failure, whatever
    /// right key stands beside it, or guesses at it would look like calls that were let in.
    private func caller(_ credential: ParseCredential?, _ visit: Visit) async throws -> Caller {
        guard let credential, let key = credential.masterKey ?? credential.clientKey else {
            throw visit.refusal()
        }
        let rights: CallerRights = credential.masterKey == nil ? .client : .master
        let proof = LeanCloudCredential(app: credential.app, key: key, rights: rights)
        let app = try await visit.admit(
            app: .id(credential.app),
            rights: rights,
            isProved: proof.isProved(by:)
        )
        return Caller(app: app, rights: rights, visit: visit)
    }

    // MARK: Answers

    private static func response(_ answer: Answer) -> HTTPServerResponse {
        var response = HTTPServerResponse.json(.object(answer.body), status: answer.status)
        if let location = answer.location { response.headers["Location"] = location }
        if let id = answer.pushStatusID { response.headers["X-Parse-Push-Status-Id"] = id }
        return open(response)
    }

    /// The answer to what a handler threw, where it is an error that a client can be told of.
    static func response(to error: any Error) -> HTTPServerResponse? {
        told(error).map(response)
    }

    private static func response(_ error: ObjectError) -> HTTPServerResponse {
        open(.json(body(of: error), status: error.status))
    }

    static func told(_ error: any Error) -> ObjectError? {
        if let error = error as? PushRequestError {
            switch error.problem {
            case .badChannelName, .condition: break
            case .invalid, .missing, .unsupported, .conflict, .noKnownSelector:
                return ObjectError(code: ParsePush.misconfigured, error.description)
            }
        }
        if case RequestRefusal.tooManyRequests(let seconds) = error {
            let told = "Too many requests; try again in \(seconds) s."
            return ObjectError(status: 429, code: 155, told)
        }
        if let error = error as? FieldMismatch {
            return ObjectError(code: FieldMismatch.code, error.descriptionOfParse)
        }
        guard let error = ObjectError(error) else { return nil }
        guard error == .unauthorized else { return error }
        return ObjectError(status: 403, code: error.code, error.description)
    }

    /// As Parse has it: who is a stranger gets no code.
    static func body(of error: ObjectError) -> JSONValue {
        if error.code == ObjectError.unauthorized.code { return ["error": "unauthorized"] }
        return ["code": JSONValue(error.code), "error": .string(error.description)]
    }
}

extension LeanCloudCredential {
    /// A key as it was sent, whatever it was called.
    fileprivate init(app: String, key: String, rights: CallerRights) {
        self.app = app
        proof = .key(key)
        self.rights = rights
    }
}
