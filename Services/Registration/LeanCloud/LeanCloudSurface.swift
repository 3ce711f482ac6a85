import Apps
import Door
import HTTPServer
import JSON
import PushCore
import PushStorage

/// LeanCloud's REST API 1.1 under `/1.1`: routes, who may call them, and errors in its own form.
///
/// A call comes over HTTP, as a browser's form (a POST whose text names the method and the keys), or
/// as an item of a batch; all three meet in `LeanCloudRoute`s. One value a loop, over that loop's
/// database.
struct LeanCloudSurface: Sendable {
    let database: PushDatabase
    let door: RequestGuard
    let objects: ObjectOperations
    let pushes: PushOperations

    /// All of the surface, a literal path before one with names in it.
    var routes: [LeanCloudRoute] {
        objectRoutes + recordRoutes + pushRoutes + scheduleRoutes + queryRoutes + batchRoutes
            + otherClasses
    }

    func addRoutes(to router: inout Router) {
        let byPattern = Dictionary(grouping: routes, by: \.pattern)
        for (pattern, routes) in byPattern {
            let handlers = Dictionary(routes.map { ($0.method, $0.handler) }) { first, _ in first }
            // A form may stand for any method.
            let isBatch = pattern.hasPrefix("batch")
            for method in Set(handlers.keys).union([.post]) {
                router.on(
                    method,
                    "/1.1/" + pattern,
                    maximumBodyBytes: isBatch ? Self.maximumBatchBytes : nil
                ) { request in
                    try await door.answer(request, as: "\(method.rawValue) /1.1/\(pattern)") {
                        try await respond(to: request, $0, pattern, handlers)
                    }
                }
            }
        }
        router.on(.get, "/1.1/date") { _ in withCORS(Self.date().response) }
        // A browser asks first, without credentials.
        router.on(.options, "/1.1/*rest") { _ in
            var response = HTTPServerResponse.empty(200)
            response.headers["access-control-allow-methods"] = "GET, POST, PUT, DELETE, OPTIONS"
            response.headers["access-control-allow-headers"] = Self.browserHeaders
            response.headers["access-control-max-age"] = "86400"
            return withCORS(response)
        }
    }

    private static let browserHeaders =
        "Content-Type, X-LC-Id, X-LC-Key, X-LC-Sign, X-LC-Session, X-LC-Prod, X-LC-UA, "
        + "X-LC-Hook-Key, X-AVOSCloud-Application-Id, X-AVOSCloud-Application-Key"

    static func date() -> LeanCloudAnswer {
        LeanCloudAnswer(["__type": "Date", "iso": .string(Instant.now().iso8601)])
    }

    private func respond(
        to request: HTTPServerRequest,
        _ visit: Visit,
        _ pattern: String,
        _ handlers: [HTTPMethod: LeanCloudRoute.Handler]
    ) async throws -> HTTPServerResponse {
        do {
            let credential: LeanCloudCredential
            do {
                credential = try LeanCloudRequest.credential(
                    of: request,
                    beforeSearching: visit.beforeSearching
                )
            } catch let error as LeanCloudError where error == .unauthorized {
                throw visit.refusal()
            }
            let caller = Caller(
                app: try await visit.admit(
                    app: .id(credential.app),
                    rights: credential.rights,
                    isProved: credential.isProved(by:)
                ),
                rights: credential.rights,
                visit: visit
            )
            if credential.isTooOld(
                maximumSeconds: caller.app.settings.signatureMaxAgeSeconds,
                at: .now()
            ) {
                throw LeanCloudError.signatureTooOld
            }
            var request = request
            try request.decodeBody()
            let incoming = try LeanCloudRequest(request, forMaster: caller.isMaster)
            visit.action = "\(incoming.method.rawValue) /1.1/\(pattern)"
            guard let handler = handlers[incoming.method] else {
                throw LeanCloudError.wrongMethod
            }
            var call = LeanCloudCall(method: incoming.method, caller: caller)
            call.pathParameters = request.pathParameters
            call.parameters = incoming.parameters
            call.body = incoming.body
            call.prodHeader = incoming.production
            call.base = request.outsideBase
            return withCORS(try await handler(call).response)
        } catch {
            guard let response = LeanCloudSurface.response(to: error) else { throw error }
            return withCORS(response)
        }
    }

    // MARK: What is not here

    static func owns(_ path: String) -> Bool { path == "/1.1" || path.hasPrefix("/1.1/") }

    /// Classes that are kept elsewhere.
    private var otherClasses: [LeanCloudRoute] {
        ["classes/:class", "classes/:class/:id"].flatMap { pattern in
            [HTTPMethod.get, .post, .put, .delete].map { method in
                LeanCloudRoute(method, pattern) { call in
                    let name = call.path("class")
                    guard ObjectOperations.ObjectClass(className: name) == nil else {
                        throw LeanCloudError.wrongMethod
                    }
                    throw LeanCloudError.classNotFound(name)
                }
            }
        }
    }

    /// Parts of LeanCloud's API that this service does not have: refused by name, as an app must not
    /// take them for a failure of its own.
    private static let refused: TextSet = [
        "functions", "call", "login", "logout", "usersByMobilePhone", "usersByMobilePhoneVerify",
        "usersByEmail", "requestSmsCode", "verifySmsCode", "requestMobilePhoneVerify",
        "verifyMobilePhone", "requestLoginSmsCode", "requestPasswordReset",
        "requestPasswordResetBySmsCode", "resetPasswordBySmsCode", "requestEmailVerify",
        "requestCaptcha", "verifyCaptcha", "requestChangePhoneNumber", "changePhoneNumber",
        "files", "fileTokens", "fileCallback", "qiniu", "roles", "statuses", "subscribe",
        "friendship", "friendshipRequests", "leaderboard", "search", "bigquery", "schemas",
        "sessions", "rtm", "stats", "statistics", "feedback", "apps", "aggregate", "config",
        "usersStrictly", "refreshSessionToken", "LiveQuery", "exportData",
    ]

    /// The error of a path that no route has.
    static func nothing(at path: String) -> LeanCloudError {
        let segments = path.split(separator: "/").dropFirst()
        if let first = segments.first.map(String.init), refused.contains(first) {
            return .notPart(first)
        }
        if segments.first == "users", segments.count > 2, let last = segments.last {
            return .notPart("users/…/\(last.prefix(50))")
        }
        return LeanCloudError(status: 404, code: 1, "There is nothing at this path.")
    }

    /// The answer to what a handler threw, where it is an error that a client can be told of.
    static func response(to error: any Error) -> HTTPServerResponse? {
        ObjectError(error)?.leanCloudResponse
    }
}

/// What an HTTP request says of itself: where it is a browser's form, the method, the parameters and
/// the body that it stands for. Before that is read, its credential has been, and proved.
struct LeanCloudRequest {
    let method: HTTPMethod
    let parameters: JSONObject
    let body: LeanCloudCall.Body
    /// `X-LC-Prod`, by its old name too, or the form's key.
    let production: String?

    /// Keys of a form that are no part of what it asks for.
    private static let formKeys = [
        "_method", "_ApplicationId", "_ApplicationKey", "_ApplicationProduction", "_MasterKey",
        "_ClientVersion", "_InstallationId", "_SessionToken",
    ]

    init(
        _ request: HTTPServerRequest,
        forMaster isMaster: Bool = false
    ) throws(LeanCloudError) {
        let query = JSONObject(request.query.reversed().map { ($0.name, .string($0.value)) })
        guard let form = try Self.form(in: request, forMaster: isMaster) else {
            method = request.method == .head ? .get : request.method
            parameters = query
            production = Self.production(request)
            // SDKs send `null` or `{}` with what takes no body.
            body = method == .post || method == .put ? .bytes(request.body) : .none
            return
        }
        let name = form["_method"]?.string ?? "POST"
        guard let method = HTTPMethod(rawValue: name.uppercased()),
            [.get, .post, .put, .delete].contains(method)
        else { throw LeanCloudError(code: 107, "_method is GET, POST, PUT or DELETE.") }
        var rest = form
        for key in Self.formKeys { rest.removeValue(forKey: key) }
        self.method = method
        let named = form["_ApplicationProduction"]
        production = named?.string ?? named?.integer.map { String($0) } ?? Self.production(request)
        if method == .post || method == .put {
            parameters = query
            body = .value(.object(rest))
        } else {
            var merged = query
            for (key, value) in rest { merged[key] = value }
            parameters = merged
            body = .none
        }
    }

    private static func production(_ request: HTTPServerRequest) -> String? {
        request.header("x-lc-prod") ?? request.header("x-avoscloud-application-production")
    }

    private static func mayBeForm(_ request: HTTPServerRequest) -> Bool {
        request.method == .post
            && request.header("content-type")?.lowercased().hasPrefix("text/plain") == true
    }

    /// A POST of plain text that names a method or an app in its body.
    private static func form(
        in request: HTTPServerRequest,
        forMaster isMaster: Bool
    ) throws(LeanCloudError) -> JSONObject? {
        guard mayBeForm(request),
            let object = try LeanCloudCall.parse(request.body, forMaster: isMaster).object,
            object["_method"] != nil || object["_ApplicationId"] != nil
        else { return nil }
        return object
    }

    /// A longer form has to say who calls by its headers: nobody's 16 MiB are searched for it.
    private static let maximumSearchedBytes = 1 << 20

    private static let credentialWords: [StaticString] = [
        "_ApplicationId", "_ApplicationKey", "_MasterKey",
    ]

    /// Who says that he calls: by the headers, and where they do not say, by a form, which is
    /// searched for that alone; `beforeSearching` is told how much that is. Throws
    /// `LeanCloudError.unauthorized` where nobody does.
    static func credential(
        of request: HTTPServerRequest,
        beforeSearching: (_ bytes: Int) throws -> Void
    ) throws -> LeanCloudCredential {
        do {
            return try LeanCloudCredential(headers: request.headers)
        } catch {
            guard mayBeForm(request), request.body.count <= maximumSearchedBytes
            else { throw error }
            let found = try BodyCredentials(
                request,
                named: credentialWords,
                beforeSearching: beforeSearching
            )
            guard let form = found,
                let app = form.text("_ApplicationId")
            else { throw error }
            var named: HTTPHeaders = [:]
            named["x-lc-id"] = app
            if let key = form.text("_ApplicationKey") { named["x-lc-key"] = key }
            if let master = form.text("_MasterKey") { named["x-lc-key"] = master + ",master" }
            return try LeanCloudCredential(headers: named)
        }
    }
}

/// Web pages call from other origins, and must be able to read errors too.
func withCORS(_ response: HTTPServerResponse) -> HTTPServerResponse {
    var response = response
    response.headers["access-control-allow-origin"] = "*"
    return response
}
