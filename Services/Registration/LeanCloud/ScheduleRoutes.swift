import Gateway
import HTTPServer
import JSON
import PushCore
import PushStorage

/// Pushes that wait for their `push_time`.
extension LeanCloudSurface {
    var scheduleRoutes: [LeanCloudRoute] {
        [
            LeanCloudRoute(.get, "scheduledPushMessages") { try await scheduled($0) },
            LeanCloudRoute(.delete, "scheduledPushMessages/:id") { try await cancelScheduled($0) },
        ]
    }

    /// Returns waiting pushes, the next first; `where` is a condition on their records.
    private func scheduled(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        try requireSender(call.caller, for: "Listing scheduled pushes")
        let app = call.caller.appID
        let limit = LeanCloudCall.limit(try call.integer("limit"))
        let skip = max(0, try call.integer("skip") ?? 0)
        let waiting: [StoredPush]
        if let condition = try call.condition() {
            try call.caller.requireQueryAllowed(condition, of: "_Notification")
            let isWaiting = Where.field(try WherePath("status"), .equal(.string("scheduled")))
            waiting = try await database.pushes.query(
                app: app,
                where: .all([isWaiting, condition]),
                order: [SortKey(path: try WherePath("push-time"), isDescending: false)],
                limit: limit,
                skip: skip
            )
        } else {
            waiting = try await database.pushes.scheduled(app: app, limit: limit, skip: skip)
        }
        let items = waiting.compactMap {
            ScheduledPush.item($0, withContent: call.caller.isMaster)
        }
        return LeanCloudAnswer(["results": .array(items)])
    }

    /// Cancels a push by its number in the list.
    private func cancelScheduled(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        try requireSender(call.caller, for: "Cancelling a scheduled push")
        guard let id = Int(call.path("id")),
            try await database.pushes.cancelScheduled(app: call.caller.appID, scheduleID: id)
        else {
            throw LeanCloudError(status: 404, code: 101, "There is no such scheduled push.")
        }
        return .empty
    }

    /// Requires the right to send, which includes the right to cancel.
    private func requireSender(_ caller: Caller, for action: String) throws(LeanCloudError) {
        guard caller.mayPush else { throw .masterKeyNeeded(for: action) }
    }
}

/// A scheduled push in LeanCloud's terms.
enum ScheduledPush {
    /// - Parameters:
    ///   - push: The stored push.
    ///   - withContent: Whether the caller may see its content and its audience, as in its record.
    /// - Returns: `nil` if the push does not wait.
    static func item(_ push: StoredPush, withContent: Bool) -> JSONValue? {
        guard let id = push.scheduleID, let releaseAt = push.releaseAt else { return nil }
        var message: JSONObject = [
            "app-id": .string(push.app),
            "prod": push.request["prod"] ?? "prod",
            "api-version": "1.1",
            "id": .string(push.id),
            "notificationId": push.request["notification_id"] ?? .string(push.id),
            "through?": .null,
        ]
        if withContent {
            message["where"] = ["query": .object(query(push.request)), "sort": ["createdAt": 1]]
            message["msg"] = push.request["data"] ?? .object([:])
        }
        var item: JSONObject = [
            "id": JSONValue(id),
            "expire_time": .integer(releaseAt.milliseconds),
            "push_msg": .object(message),
            "createdAt": .string(push.createdAt.iso8601),
        ]
        if withContent { item["cql"] = push.request["cql"] }
        // `push_time` is shown as sent. For a device-local push, `expire_time` is when sending
        // begins.
        item["push_time"] = push.request["push_time"]
        return .object(item)
    }

    /// Returns the audience as one condition.
    private static func query(_ request: JSONObject) -> JSONObject {
        var query = request["where"]?.object ?? [:]
        if let all = request["where"]?.array { query["$and"] = .array(all) }
        if let channels = request["channels"] {
            let test: JSONValue = channels.array == nil ? channels : ["$in": channels]
            if query["channels"] == nil {
                query["channels"] = test
            } else {
                query = ["$and": [.object(query), ["channels": test]]]
            }
        }
        query["valid"] = true
        return query
    }
}
