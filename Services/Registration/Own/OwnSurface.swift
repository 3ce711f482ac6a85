import Apps
import Cryptography
import Door
import HTTPServer
import JSON
import PushCore
import PushStorage

/// Carillon's own routes, under `/v1`, and their description, `/openapi.json`. All of them need the
/// master key; errors are RFC 9457 problem details.
///
/// One value a loop, over that loop's database.
struct OwnSurface: Sendable {
    let database: PushDatabase
    let door: RequestGuard
    /// Whether the operators' routes stand beside these.
    let hasOperations: Bool

    private typealias Handler =
        @Sendable (HTTPServerRequest, AppAccess, Visit) async throws -> HTTPServerResponse

    func addRoutes(to router: inout Router) {
        on(.get, "/v1/notifications/:id", in: &router) { request, app, _ in
            try await notification(request, app)
        }
        for (path, kind) in [
            ("/v1/installations/:id", Subject.Kind.installation),
            ("/v1/identities/:identity", .identity),
        ] {
            on(.get, path + "/export", in: &router) { request, app, visit in
                try await export(try subject(kind, of: request, app), visit)
            }
            on(.delete, path, in: &router) { request, app, visit in
                try await erase(
                    try subject(kind, of: request, app),
                    visit,
                    action: "DELETE " + path
                )
            }
        }
        let document = OpenAPIDocument.bytes(withOperations: hasOperations)
        router.on(.get, "/openapi.json") { _ in
            HTTPServerResponse(
                status: 200,
                headers: ["Content-Type": "application/json"],
                body: document
            )
        }
    }

    /// Adds a route behind the master key.
    private func on(
        _ method: HTTPMethod,
        _ pattern: String,
        in router: inout Router,
        _ handler: @escaping Handler
    ) {
        let door = door
        router.on(method, pattern) { request in
            try await door.answer(request, as: "\(method.rawValue) \(pattern)") { visit in
                do {
                    let credential = try OwnCredential(headers: request.headers)
                    let app = try await visit.admit(
                        app: .id(credential.app),
                        rights: credential.rights,
                        isProved: credential.isProved(by:)
                    )
                    if credential.isTooOld(for: app) { throw Self.signatureTooOld }
                    guard credential.rights == .master else {
                        throw HTTPProblem(status: 403, detail: "this needs the master key")
                    }
                    return try await handler(request, app, visit)
                } catch {
                    guard let problem = Self.problem(error) else { throw error }
                    return .problem(problem)
                }
            }
        }
    }

    private static func unauthorized(_ detail: String) -> HTTPProblem {
        HTTPProblem(
            status: 401,
            detail: detail,
            headers: ["WWW-Authenticate": "Basic realm=\"carillon\", charset=\"UTF-8\""]
        )
    }

    private static let signatureTooOld = unauthorized(
        "the signature is too old, or the clock that it was made by is wrong"
    )

    /// What a client is told of an error; `nil` for what is no client's business.
    private static func problem(_ error: any Error) -> HTTPProblem? {
        switch error {
        case let problem as HTTPProblem: problem
        case RequestRefusal.unauthorized:
            unauthorized("the app's id or its key is missing or wrong")
        case RequestRefusal.tooManyRequests(let seconds):
            HTTPProblem(
                status: 429,
                detail: "too many requests; try again in \(seconds) s"
            )
        case let error as StorageError where error.isOfTheValues:
            HTTPProblem(status: 400, detail: "a value cannot be kept, or compared with")
        case let error as StorageError where error.isRetryable:
            HTTPProblem(
                status: 503,
                detail: "the service cannot answer now; try again",
                headers: ["Retry-After": "1"]
            )
        default: nil
        }
    }

    // MARK: Routes

    /// `GET /v1/notifications/{id}`: a push's ledger, and how far it is.
    private func notification(
        _ request: HTTPServerRequest,
        _ app: AppAccess
    ) async throws -> HTTPServerResponse {
        let id = request.pathParameters["id"] ?? ""
        guard let push = try await database.pushes.find(id.lowercased()), push.app == app.id else {
            throw HTTPProblem(status: 404, detail: "there is no such push")
        }
        return .json(.object(Self.object(of: push)))
    }

    private static func object(of push: StoredPush) -> JSONObject {
        let ledger = push.ledger
        var object: JSONObject = [
            "pushId": .string(push.id), "app": .string(push.app),
            "eventId": .string(push.eventID), "eventSource": .string(push.eventSource),
            "status": .string(push.status.rawValue),
            "targeted": JSONValue(ledger.targeted), "delivered": JSONValue(ledger.delivered),
            "failed": JSONValue(ledger.failed), "expired": JSONValue(ledger.expired),
            "suppressed": JSONValue(ledger.suppressed), "inDoubt": JSONValue(ledger.inDoubt),
            "pending": JSONValue(ledger.pending),
            "invalidTokens": JSONValue(ledger.invalidTokens),
            "createdAt": .string(push.createdAt.iso8601),
            "updatedAt": .string(push.updatedAt.iso8601),
        ]
        if !push.failures.isEmpty { object["failures"] = push.failures.json }
        if let error = push.error { object["error"] = .string(error) }
        if !push.notes.isEmpty { object["notes"] = .object(push.notes) }
        object["releaseAt"] = push.releaseAt.map { .string($0.iso8601) }
        object["expiresAt"] = push.expiresAt.map { .string($0.iso8601) }
        object["finishedAt"] = push.finishedAt.map { .string($0.iso8601) }
        if let progress = push.progress {
            object["shards"] = JSONValue(progress.shards)
            object["finishedShards"] = JSONValue(progress.finishedShards)
        }
        return object
    }

    /// `GET /v1/installations/{id}/export`, `GET /v1/identities/{identity}/export`.
    private func export(
        _ subject: Subject,
        _ visit: Visit
    ) async throws -> HTTPServerResponse {
        let found = try await database.erasures.export(subject)
        guard !found.isEmpty else {
            // Asking for somebody who was erased must not bring his name back into the audit.
            visit.note("sha256:\(subject.digest)")
            throw Self.unknown(subject)
        }
        return .json(.object(found.json(of: subject, at: .now())))
    }

    private static func unknown(_ subject: Subject) -> HTTPProblem {
        HTTPProblem(status: 404, detail: "nothing is stored of this \(subject.kind.rawValue)")
    }

    /// `DELETE /v1/installations/{id}`, `DELETE /v1/identities/{identity}`: the receipt; 404 where
    /// nothing was stored, not even what may outlive the subject and names it.
    private func erase(
        _ subject: Subject,
        _ visit: Visit,
        action: String
    ) async throws -> HTTPServerResponse {
        let receipt = try await database.erasures.erase(
            subject,
            by: AuditEntry(
                app: subject.app,
                actor: RequestGuard.masterKeyActor,
                action: action,
                address: visit.address,
                status: 200
            ),
            unknown: 404
        )
        // The receipt is in the audit, and the name must not come back there.
        visit.isWrittenDown = true
        guard !receipt.isOfNobody else { throw Self.unknown(subject) }
        return .json(.object(receipt.json))
    }

    private func subject(
        _ kind: Subject.Kind,
        of request: HTTPServerRequest,
        _ app: AppAccess
    ) throws -> Subject {
        let id = request.pathParameters.values.first ?? ""
        guard (1...Self.maximumIDLength).contains(id.unicodeScalars.count),
            id.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
        else {
            throw HTTPProblem(
                status: 400,
                detail: "an id has 1 to \(Self.maximumIDLength) characters, none a control"
            )
        }
        return Subject(app: app.id, kind, id)
    }

    /// As `/openapi.json` says.
    private static let maximumIDLength = 512
}

extension Subject {
    /// As an erasure's receipt names it.
    fileprivate var digest: String {
        Hex.encode(sha256(Array("\(app)/\(kind.rawValue)/\(id)".utf8)))
    }
}

/// Who calls: `X-LC-Id` with `X-LC-Key` or `X-LC-Sign`, or Basic `<app>:<master key>`.
struct OwnCredential {
    let app: String
    let rights: CallerRights
    private let proof: Proof

    private enum Proof {
        case key(String)
        case leanCloud(LeanCloudCredential)
    }

    /// - Throws: `RequestRefusal.unauthorized` where there is none that can be read.
    init(headers: HTTPHeaders) throws(RequestRefusal) {
        guard let header = headers["authorization"] else {
            let credential: LeanCloudCredential
            do throws(LeanCloudError) {
                credential = try LeanCloudCredential(headers: headers)
            } catch {
                throw .unauthorized
            }
            app = credential.app
            rights = credential.rights
            proof = .leanCloud(credential)
            return
        }
        let parts = header.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "basic",
            let bytes = try? Base64.decode(String(parts[1])),
            let text = String(validating: bytes, as: UTF8.self),
            let colon = text.firstIndex(of: ":")
        else { throw .unauthorized }
        app = String(text[..<colon])
        rights = .master
        proof = .key(String(text[text.index(after: colon)...]))
    }

    func isTooOld(for app: AppAccess) -> Bool {
        switch proof {
        case .key: false
        case .leanCloud(let credential):
            credential.isTooOld(
                maximumSeconds: app.settings.signatureMaxAgeSeconds,
                at: .now()
            )
        }
    }

    func isProved(by key: String) -> Bool {
        switch proof {
        case .key(let presented): constantTimeEqual(presented, key)
        case .leanCloud(let credential): credential.isProved(by: key)
        }
    }
}
