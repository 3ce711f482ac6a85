import JSON
import PushCore
import PushStorage

/// A push's record in LeanCloud's terms, with the counters of the ledger.
enum PushRecord {
    private static let successFields: [(String, Set<Platform>)] = [
        ("iosSuccesses", [.apns]), ("androidSuccesses", [.fcm]), ("wpSuccesses", [.wns, .mpns]),
    ]

    /// - Parameters:
    ///   - push: The stored push.
    ///   - platforms: The outcomes of its deliveries on each platform, if they were counted.
    ///   - withContent: Whether the caller may see its content and its audience.
    /// - Returns: The record.
    static func object(
        of push: StoredPush,
        platforms: [PlatformCount]?,
        withContent: Bool
    ) -> JSONObject {
        let ledger = push.ledger
        var object: JSONObject = [
            "objectId": .string(push.id),
            "notificationId": push.notes["notificationId"] ?? push.request["notification_id"]
                ?? .string(push.id),
            "status": .string(statusText(push)),
            "devices": JSONValue(ledger.targeted),
            "subscribers": JSONValue(ledger.targeted),
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
        if push.confirmed > 0 { object["confirmed"] = JSONValue(push.confirmed) }
        if push.receipts.received > 0 { object["received"] = JSONValue(push.receipts.received) }
        if push.receipts.opened > 0 { object["opens"] = JSONValue(push.receipts.opened) }
        if !push.failures.isEmpty { object["failures"] = push.failures.json }
        for (name, those) in successFields {
            guard let platforms else { break }
            let delivered = platforms.filter { $0.isDelivered && those.contains($0.platform) }
            object[name] = JSONValue(delivered.reduce(0) { $0 + $1.count })
        }
        if let platforms {
            // On LeanCloud's own channel, a push succeeds when a device acknowledges it.
            let stored = platforms.filter { $0.isDelivered && $0.platform == .connection }
                .reduce(0) { $0 + $1.count }
            if stored > 0 {
                let received = min(push.receipts.received, stored)
                object["lcSuccesses"] = JSONValue(received)
                object["successes"] = JSONValue(ledger.delivered - stored + received)
            }
        }
        var notes = push.notes
        for key in ["notificationId", PushStore.platformsNote] { notes.removeValue(forKey: key) }
        // `dryRun` contains one of the payloads.
        if !withContent { notes.removeValue(forKey: "dryRun") }
        if !notes.isEmpty { object["notes"] = .object(notes) }
        guard withContent else { return object }
        object["eventId"] = .string(push.eventID)
        if let data = push.request["data"] {
            object["data"] = data
            object["msg"] = data
        }
        for field in ["where", "cql", "channels", "audience_topic"] {
            if let value = push.request[field] { object[field] = value }
        }
        return object
    }

    /// Returns LeanCloud's `in-queue`, `scheduled` or `done`, or the error of a push that failed as
    /// a whole. The error is never under a key `error`, as the Python client takes that for a
    /// failed call.
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
