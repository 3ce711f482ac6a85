import Cryptography
import Door
import EventLoop
import HTTPServer
import JSON
import Observability
import Outbox
import PushCore
import PushEvents
import PushStorage

/// Secure payloads over HTTP: a backend keeps and rings, a reader reads. The paths and the answers under
/// `/api` are those of the app that Microsoft's tutorial on secure push builds, so that it needs nothing
/// but its new address; what is under `/v1` is Carillon's own.
///
/// Order: who calls is proved before anything else of a request is looked at, so that no refusal of a
/// caller depends on an id. One value a loop, over that loop's database.
struct SecureSurface: Surface {
    let loop: EventLoop
    let database: PushDatabase
    let door: SecureDoor
    let keys: KeyRing
    let topics: KafkaTopics
    let checks: SecretChecks
    let limits: ReaderLimits
    let figures: SecureFigures
    let log: Log
    /// How long content that is read once can be read again.
    let readGrace: Duration
    /// What `/openapi.json` answers.
    let document: [UInt8]

    /// A payload of 64 KiB is six times as long where each byte is escaped, and what stands beside it
    /// is so, too: every legal body fits.
    static let maximumContentBody = 512 << 10
    /// Of everything else.
    static let maximumSmallBody = 64 << 10

    /// The app may stand before a path of the tutorial's.
    static let bases = ["", "/:app"]
    static let appName = "app"

    func owns(_ request: HTTPServerRequest) -> Bool { true }

    var routes: [SurfaceRoute] {
        Self.bases.flatMap { notificationRoutes($0) + registerRoutes($0) } + secretRoutes
            + deviceRoutes + [
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
                )
            ]
    }

    /// A route: its caller is proved, its refusals are counted, its ids are in the audit.
    func route(
        _ method: HTTPMethod,
        _ pattern: String,
        maximumBodyBytes: Int = SecureSurface.maximumSmallBody,
        _ handler:
            @escaping @Sendable (SecureCall) async throws -> HTTPServerResponse
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            pattern,
            appName: Self.appName,
            maximumBodyBytes: maximumBodyBytes,
            handler: .anybody { request, visit in
                do {
                    for name in ["id", "identity"] {
                        if let target = request.pathParameters[name] { visit.note(target) }
                    }
                    let caller = try await door.caller(request, visit)
                    return try await handler(SecureCall(request, visit, caller))
                } catch {
                    if let refusal = SecureRefusal(error) { figures.refuse(refusal) }
                    throw error
                }
            }
        )
    }

    func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
        switch refusal {
        case .unauthorized, .signatureTooOld: .problem(SecureRefusal.unproved.problem)
        case .tooManyRequests, .masterKeyNeeded, .nothingHere, .wrongMethod, .problem,
            .valueRefused, .tookTooLong, .unavailable, .failed:
            .problem(HTTPProblem(refusal))
        }
    }

    func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
        switch error {
        case let refusal as SecureRefusal: .problem(refusal.problem)
        case let error as SecureRequestError:
            .problem(HTTPProblem(status: 400, detail: error.description))
        default: nil
        }
    }

    // MARK: What readers may get wrong

    /// Before a reader's id is looked up.
    ///
    /// - Throws: 429 where too many of his were nothing.
    func beforeLooking(_ reader: ProvedReader) throws {
        if let wait = limits.waitAfterMisses(key(of: reader)) {
            throw reader.visit.tooMany(retryAfterSeconds: wait)
        }
    }

    /// Counts an id that is nothing to the reader.
    func notFound(_ reader: ProvedReader) -> SecureRefusal {
        limits.missed(key(of: reader))
        return .notFound
    }

    private func key(of reader: ProvedReader) -> [UInt8] {
        limits.key(ofReader: [reader.app.id, reader.identity, reader.device ?? ""])
    }
}

/// A request whose caller is proved.
struct SecureCall: Sendable {
    let request: HTTPServerRequest
    let visit: Visit
    let caller: SecureCaller

    init(_ request: HTTPServerRequest, _ visit: Visit, _ caller: SecureCaller) {
        self.request = request
        self.visit = visit
        self.caller = caller
    }

    /// What the path names.
    var id: String { request.pathParameters["id"] ?? "" }

    /// The body as its sender meant it.
    func body() throws -> [UInt8] {
        var request = request
        try request.decodeBody()
        return request.body
    }

    /// Where a notification is reached, by the way that its backend came.
    func location(of id: String) -> String {
        let app = request.pathParameters[SecureSurface.appName].map { "/\($0)" } ?? ""
        return "\(request.outsideBase)\(app)/api/notifications/\(id)"
    }
}

extension HTTPServerResponse {
    /// An answer that holds something secret: nothing on its way may keep it.
    static func secret(_ object: JSONObject) -> HTTPServerResponse {
        var response = json(.object(object))
        response.headers["Cache-Control"] = "no-store"
        return response
    }
}
