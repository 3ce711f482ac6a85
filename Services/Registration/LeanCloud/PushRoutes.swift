import Cryptography
import HTTPServer
import JSON
import PushCore
import PushEvents
import PushStorage

extension LeanCloudSurface {
    func addPushRoutes(to router: inout Router) {
        on(.post, "/1.1/push", in: &router) { request, caller in
            try await accept(request, caller)
        }
        on(.get, "/1.1/tables/Notifications/:id", in: &router) { request, caller in
            try await record(request, caller)
        }
        on(.get, "/1.1/scheduledPushMessages", in: &router) { request, caller in
            try await scheduled(request, caller)
        }
        on(.delete, "/1.1/scheduledPushMessages/:id", in: &router) { request, caller in
            try await cancelScheduled(request, caller)
        }
    }

    /// What is accepted must reach Kafka, whose brokers take a little over 1,000,000 bytes a record
    /// where nobody has set another limit.
    private static let maximumRecordBytes = 1_000_000

    /// `POST /1.1/push`: keeps the push and its outbox row in one transaction, then answers with
    /// its id. What reaches Kafka is the relay's to say.
    private func accept(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard caller.rights == .master || caller.app.settings.clientsMayPush else {
            throw LeanCloudError.masterKeyNeeded(for: "Sending a push")
        }
        var body = try request.jsonObject()
        for field in ["app", "id", "source"] where body[field] != nil {
            throw LeanCloudError(
                code: 1,
                "\(field) belongs to a record on Kafka; over HTTP it is not taken."
            )
        }
        // The header decides where the body is silent; absent means production.
        if body["prod"] == nil, let header = request.header("x-lc-prod"), header != "1" {
            body["prod"] = "dev"
        }
        let now = Instant.now()
        let parsed = try PushRequest.parse(body, now: now)
        let eventID = Hex.encode(randomBytes(16))
        let source = PushIdentity.httpSource
        let id = PushIdentity.pushID(
            app: caller.app.id,
            source: source,
            eventID: eventID,
            digest: { sha256($0) }
        )
        let record = PushEvent.encode(
            body,
            app: caller.app.id,
            source: source,
            eventID: eventID,
            topics: topics
        )
        guard (record.value?.count ?? 0) <= Self.maximumRecordBytes else {
            throw LeanCloudError(
                status: 413,
                code: 116,
                "The push is too large: at most \(Self.maximumRecordBytes) bytes."
            )
        }
        let push = try await database.pushes.accept(
            NewPush(
                id: id,
                app: caller.app.id,
                eventSource: source,
                eventID: eventID,
                object: body,
                request: parsed,
                expiresAt: parsed.expiresAt(acceptedAt: now),
                releaseAt: parsed.releaseTime(acceptedAt: now)
            ),
            record: OutboxRecord(
                kafkaTopic: record.topic,
                key: record.key,
                value: record.value ?? []
            )
        )
        return .json([
            "objectId": .string(push.id), "createdAt": .string(push.createdAt.iso8601),
        ])
    }

    /// `GET /1.1/tables/Notifications/{id}`: the ledger for either key; what was sent, and to whom,
    /// for the master key alone.
    private func record(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let id = request.pathParameters["id"] ?? ""
        guard let push = try await database.pushes.find(id), push.app == caller.app.id else {
            throw LeanCloudError.objectNotFound("_Notification")
        }
        return .json(.object(PushRecord.object(of: push, withContent: caller.rights == .master)))
    }
}

/// A push's record in LeanCloud's words, with the ledger by name beside them.
enum PushRecord {
    static func object(of push: StoredPush, withContent: Bool) -> JSONObject {
        let ledger = push.ledger
        var object: JSONObject = [
            "objectId": .string(push.id),
            "status": .string(statusText(push)),
            "devices": JSONValue(ledger.targeted),
            "successes": JSONValue(ledger.delivered),
            "errors": JSONValue(ledger.failed),
            "invalidTokens": JSONValue(ledger.invalidTokens),
            "targeted": JSONValue(ledger.targeted),
            "delivered": JSONValue(ledger.delivered),
            "failed": JSONValue(ledger.failed),
            "expired": JSONValue(ledger.expired),
            "suppressed": JSONValue(ledger.suppressed),
            "inDoubt": JSONValue(ledger.inDoubt),
            "pending": JSONValue(ledger.pending),
            "from-service": "push",
            "prod": push.request["prod"] ?? "prod",
            "push-time": push.request["push_time"] ?? .string(push.createdAt.iso8601),
            "createdAt": .string(push.createdAt.iso8601),
            "updatedAt": .string(push.updatedAt.iso8601),
        ]
        if let label = push.request["notification_id"] { object["notificationId"] = label }
        if !push.notes.isEmpty { object["notes"] = .object(push.notes) }
        guard withContent else { return object }
        object["eventId"] = .string(push.eventID)
        if let data = push.request["data"] {
            object["data"] = data
            object["msg"] = data
        }
        if let condition = push.request["where"] { object["where"] = condition }
        if let channels = push.request["channels"] { object["channels"] = channels }
        return object
    }

    /// LeanCloud's `in-queue`, `scheduled` and `done`; a push that failed as a whole shows why. Never under a
    /// key `error`: the Python client takes that for a failed call.
    private static func statusText(_ push: StoredPush) -> String {
        switch push.status {
        case .queued where push.releaseAt != nil: "scheduled"
        case .scheduled: "scheduled"
        case .queued, .planning, .sending: "in-queue"
        case .done: "done"
        case .cancelled: "cancelled"
        case .failed: push.error ?? "failed"
        }
    }
}
