import Door
import EventLoop
import HTTPServer
import JSON
import PushCore
import PushEvents
import PushStorage
import RemoteConfig

/// Firebase Remote Config's REST API, under `/v1/projects`: a project is an app, by its id or by a name
/// linked to it.
///
/// Publishers come with a config token of the app or its master key; clients with its app key, or with
/// an API key that is linked to it. One value a loop, over that loop's database.
struct FirebaseSurface: Surface {
    let loop: EventLoop
    let database: PushDatabase
    let topics: KafkaTopics
    let memory: ConfigMemory
    let streams: ConfigStreams
    let limits: FetchLimits
    let notes: FetchNotes
    let figures: ConfigFigures
    let turns: PublishTurns
    /// In which conditions of apps are evaluated that take long.
    let fetchTurns: FairTurns
    /// In which templates are compiled.
    let pool: FairPool
    let stopped: StoppedConditions
    /// What `/openapi.json` answers.
    let document: [UInt8]

    static let project = "/v1/projects/:project"
    /// Of a template, and what it unpacks to.
    static let maximumTemplateBytes = 8 << 20
    /// Of a fetch, and what it unpacks to.
    static let maximumFetchBytes = 256 << 10

    func owns(_ request: HTTPServerRequest) -> Bool {
        request.isBelow("/v1") || request.isBelow("/oauth2") || request.path == "/openapi.json"
    }

    /// The JavaScript SDK asks across origins, and reads its ETag.
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
            // Firebase's command renews its token first; where it cannot, it uses it as it is.
            SurfaceRoute(
                .post,
                "/oauth2/v3/token",
                handler: .anybody { _, _ in
                    .json(["error": "unsupported_grant_type"], status: 400)
                }
            ),
            SurfaceRoute(
                .get,
                "/openapi.json",
                handler: .anybody { _, _ in
                    HTTPServerResponse(
                        status: 200,
                        headers: ["Content-Type": "application/json"],
                        body: document
                    )
                }
            ),
        ]
    }

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
