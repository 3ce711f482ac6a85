import ConfigStorage
import EventLoop
import Gateway
import HTTPServer
import JSON
import PushCore
import PushEvents
import RemoteConfig
import ServiceShell
import Storage

/// Firebase Remote Config's REST API, under `/v1/projects`: a project is an app, named by its id or by a
/// linked name.
///
/// Publishers authenticate by a config token of the app or by its master key. Clients authenticate
/// by its app key, or by an API key that is linked to it. Each loop has one instance, which uses
/// the loop's database.
struct FirebaseSurface: Surface {
    let loop: EventLoop
    let database: PushDatabase
    let topics: KafkaTopics
    let memory: TemplateCache
    let streams: ConfigStreams
    let limits: FetchLimits
    let notes: FetchRecorder
    let metrics: ConfigMetrics
    let turns: PublishQueue
    /// The turns in which slow conditions of apps are evaluated.
    let fetchTurns: FairTurns
    /// The threads on which templates are compiled.
    let pool: FairPool
    let stopped: StoppedConditions

    static let project = "/v1/projects/:project"
    /// The limit of a fetch, also decompressed.
    static let maximumFetchBytes = 256 << 10

    func owns(_ request: HTTPServerRequest) -> Bool {
        request.isBelow("/v1") || request.isBelow("/oauth2")
    }

    /// The JavaScript SDK sends requests across origins, and reads the ETag.
    let cors: CORS? = CORS(
        "/v1/projects/*rest",
        methods: "POST",
        headers: "content-type, content-encoding, if-none-match, accept, x-goog-api-key, "
            + "x-goog-firebase-installations-auth, x-firebase-rc-fetch-type, x-lc-id, x-lc-key, "
            + "x-lc-sign, last-event-id",
        exposed: "ETag"
    )

    var routes: [SurfaceRoute] {
        publisherRoutes + clientRoutes + [
            // Firebase's command renews its token first; if that fails, it uses the token as it is.
            SurfaceRoute(
                .post,
                "/oauth2/v3/token",
                handler: .unauthenticated { _, _ in
                    .json(["error": "unsupported_grant_type"], status: 400)
                }
            )
        ]
    }

    static let openAPI = OpenAPI(
        "Carillon config watcher",
        "Firebase Remote Config's REST API, of version 1. Names are also taken in snake case, and"
            + " Google's standard query parameters at every route. Another parameter is 400."
            + " Firebase's documentation says what templates are.",
        securitySchemes: [
            "configToken": ["type": "http", "scheme": "bearer"],
            "masterKey": ["type": "http", "scheme": "basic"],
            "apiKey": ["type": "apiKey", "in": "query", "name": "key"],
            "apiKeyHeader": ["type": "apiKey", "in": "header", "name": "X-Goog-Api-Key"],
        ],
        schemas: [
            "Error": .schema(ofObject: [
                "error": .schema(
                    ofObject: [
                        "code": ["type": "integer"], "message": ["type": "string"],
                        "status": ["type": "string"],
                    ],
                    optional: ["details": .schema(ofArray: ["type": "object"])]
                )
            ])
        ]
    )

    static let refusal = RouteDescription.Content.json(named: "Error")

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        FirebaseError(refusal).response
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        let known: FirebaseError? =
            switch error {
            case let error as FirebaseError: error
            case let error as ConfigTemplateError: .invalidTemplate(error.description)
            case let error as JSONError:
                .invalidTemplate("the body is not JSON: \(error.description)")
            case let error as ConfigFetchError: .invalid("\(error)")
            case let error as ConfigVersionMismatch:
                .versionMismatch(
                    expected: String(error.expected),
                    found: error.found,
                    project: request.pathParameters["project"] ?? ""
                )
            case ConfigRollbackError.notFound: .versionNotFound
            case ConfigRollbackError.notOlder(let current):
                .invalid("The version must be older than the current one, which is \(current).")
            case let error as ConfigVersionsExhausted: .invalid("\(error)")
            case is ConfigUnavailable: .unavailable
            case is FairTurnsFull:
                .throttled(retryAfterSeconds: FairTurnsFull.retryAfterSeconds)
            default: nil
            }
        return known?.response
    }
}
