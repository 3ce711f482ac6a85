import HTTPServer
import JSON
import Observability
import PushCore
import PushEvents
import PushStorage

/// LeanCloud's REST API 1.1 under `/1.1`: routes, who may call them, and errors in its own form.
///
/// One value a loop, over that loop's database.
struct LeanCloudSurface: Sendable {
    let database: PushDatabase
    let apps: AppDirectory
    let topics: KafkaTopics
    let saved: Counter

    /// Who called: an app, and what its key lets the caller do.
    struct Caller: Sendable {
        let app: AppAccess
        let rights: CallerRights
    }

    typealias Handler = @Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse

    func addRoutes(to router: inout Router) {
        addInstallationRoutes(to: &router)
        addPushRoutes(to: &router)
        router.on(.get, "/1.1/date") { _ in
            withCORS(.json(["__type": "Date", "iso": .string(Instant.now().iso8601)]))
        }
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
        "Content-Type, X-LC-Id, X-LC-Key, X-LC-Sign, X-LC-Session, X-LC-Prod, X-LC-UA, X-LC-Hook-Key"

    /// Adds a route behind the caller's credentials.
    func on(
        _ method: HTTPMethod,
        _ pattern: String,
        in router: inout Router,
        _ handler: @escaping Handler
    ) {
        let apps = apps
        router.on(method, pattern) { request in
            do {
                let credential = try LeanCloudCredential(headers: request.headers)
                let caller = Caller(
                    app: try await apps.access(credential),
                    rights: credential.rights
                )
                return withCORS(try await handler(request, caller))
            } catch {
                guard let response = LeanCloudSurface.response(to: error) else { throw error }
                return withCORS(response)
            }
        }
    }

    static func owns(_ path: String) -> Bool { path == "/1.1" || path.hasPrefix("/1.1/") }

    /// The answer to what a handler threw, where it is an error that a client can be told of.
    static func response(to error: any Error) -> HTTPServerResponse? {
        switch error {
        case let error as LeanCloudError: error.response
        case let error as InstallationError:
            LeanCloudError(code: error.code, error.description).response
        case let error as PushRequestError:
            LeanCloudError(code: error.leanCloudCode, error.description).response
        case let problem as HTTPProblem:
            LeanCloudError(
                status: problem.status,
                code: problem.status == 413 ? 116 : 1,
                problem.detail
            ).response
        case let error as StorageError where error.isRetryable:
            LeanCloudError.unavailable.response
        default: nil
        }
    }
}

extension PushRequestError {
    /// 112 for a channel's name, else 1: LeanCloud has no code of its own for a push parameter.
    fileprivate var leanCloudCode: Int { problem == .badChannelName ? 112 : 1 }
}

/// Web pages call from other origins, and must be able to read errors too.
func withCORS(_ response: HTTPServerResponse) -> HTTPServerResponse {
    var response = response
    response.headers["access-control-allow-origin"] = "*"
    return response
}

extension HTTPServerRequest {
    /// The body as a JSON object.
    ///
    /// - Throws: `LeanCloudError` 107 when it is not one.
    func jsonObject() throws(LeanCloudError) -> JSONObject {
        let value: JSONValue
        do {
            value = try JSONValue.parse(body, maximumDepth: 32)
        } catch {
            throw .malformedJSON(error.description)
        }
        guard let object = value.object else { throw .malformedJSON("expected an object") }
        return object
    }

    /// Whether a query parameter is switched on: `1` or `true`.
    func flag(_ name: String) -> Bool {
        guard let value = queryValue(name) else { return false }
        return value == "1" || value == "true"
    }
}
