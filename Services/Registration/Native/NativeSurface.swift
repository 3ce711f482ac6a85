import Cryptography
import Gateway
import HTTPServer
import JSON
import PushCore
import PushStorage
import Storage
import StorageAdmin

/// Carillon's own routes, under `/v1`. All of them need the master key; errors are RFC 9457 problem details.
///
/// Each loop has one instance, which uses the loop's database.
struct NativeSurface: Surface {
    let database: PushDatabase

    func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/v1") }

    var routes: [SurfaceRoute] {
        [
            SurfaceRoute(.get, "/v1/notifications/:id", for: .master) { request, caller in
                try await notification(request, caller)
            }
            .described(
                Self.description(
                    "Show a push's ledger: what became of each delivery, counted",
                    .init(200, "The ledger", .json(named: "Notification")),
                    [.path("id", Self.uuid)]
                )
            )
        ] + explainRoutes + routes(of: .installation, "a device", at: "/v1/installations/:id")
            + routes(of: .identity, "a user and all their devices", at: "/v1/identities/:identity")
    }

    private func routes(
        of kind: Subject.Kind,
        _ whose: String,
        at path: String
    ) -> [SurfaceRoute] {
        [
            SurfaceRoute(.get, path + "/export", for: .master) { request, caller in
                try await export(try subject(kind, of: request, caller), caller)
            }
            .described(
                Self.description(
                    "Export all data stored about \(whose)",
                    .init(200, "What is stored", .json(named: "Export"))
                )
            ),
            SurfaceRoute(.delete, path, for: .master) { request, caller in
                try await erase(
                    try subject(kind, of: request, caller),
                    caller,
                    action: "DELETE " + path
                )
            }
            .described(
                Self.description(
                    "Erase all data stored about \(whose)",
                    .init(200, "The receipt: how much went, by kind", .json(named: "Receipt"))
                )
            ),
        ]
    }

    static func description(
        _ summary: String,
        _ answer: RouteDescription.Answer,
        _ parameters: [RouteDescription.Parameter] = []
    ) -> RouteDescription {
        RouteDescription(
            summary,
            for: [["basic"], ["appId", "appKey"]],
            parameters: parameters,
            answers: [answer]
        )
    }

    /// `GET /v1/notifications/{id}`: returns a push's ledger and its progress.
    private func notification(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let push = try await ownPush(of: request, caller)
        return .json(.object(Self.object(of: try await database.receipts.added(to: push))))
    }

    /// Returns the push that a path names.
    func ownPush(of request: HTTPServerRequest, _ caller: Caller) async throws -> StoredPush {
        let id = request.pathParameters["id"] ?? ""
        guard let push = try await database.pushes.find(id.lowercased()), push.app == caller.appID
        else {
            throw HTTPProblem(status: 404, detail: "there is no such push")
        }
        return push
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
            "confirmed": JSONValue(push.confirmed),
            "received": JSONValue(push.receipts.received),
            "opens": JSONValue(push.receipts.opened),
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
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let found = try await database.erasures.export(subject)
        guard !found.isEmpty else {
            // A request for an erased subject must not bring its name back into the audit.
            caller.context?.note("sha256:\(subject.digest)")
            throw Self.unknown(subject)
        }
        return .json(.object(found.json(of: subject, at: .now())))
    }

    private static func unknown(_ subject: Subject) -> HTTPProblem {
        HTTPProblem(status: 404, detail: "no data is stored for this \(subject.kind.rawValue)")
    }

    /// `DELETE /v1/installations/{id}`, `DELETE /v1/identities/{identity}`: returns the receipt.
    /// Fails with 404 if nothing was stored, not even data that names the subject and may outlive
    /// it.
    private func erase(
        _ subject: Subject,
        _ caller: Caller,
        action: String
    ) async throws -> HTTPServerResponse {
        let receipt: ErasureReceipt
        do {
            receipt = try await database.erasures.erase(
                subject,
                by: AuditEntry(
                    app: subject.app,
                    actor: AuditTrail.masterKeyActor,
                    action: action,
                    address: caller.context?.address ?? "",
                    status: 200
                ),
                unknown: 404
            )
        } catch let error as SchemaTooNew {
            throw HTTPProblem(status: 503, detail: error.description)
        }
        // The receipt is in the audit, and the name must not be added there again.
        caller.context?.isAudited = true
        guard !receipt.isUnknownSubject else { throw Self.unknown(subject) }
        return .json(.object(receipt.json))
    }

    private func subject(
        _ kind: Subject.Kind,
        of request: HTTPServerRequest,
        _ caller: Caller
    ) throws -> Subject {
        let id = request.pathParameters.values.first ?? ""
        guard Self.isID(id) else { throw HTTPProblem(status: 400, detail: Self.idRule) }
        return Subject(app: caller.appID, kind, id)
    }

    static func isID(_ id: String) -> Bool {
        (1...maximumIDLength).contains(id.unicodeScalars.count)
            && id.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    }

    static var idRule: String { "an id has 1 to \(maximumIDLength) characters, none a control" }

    /// The same limit as in `/openapi.json`.
    private static let maximumIDLength = 512
}

extension Subject {
    /// The subject's name in an erasure's receipt.
    fileprivate var digest: String {
        Hex.encode(sha256(Array("\(app)/\(kind.rawValue)/\(id)".utf8)))
    }
}
