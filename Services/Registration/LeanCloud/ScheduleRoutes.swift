import HTTPServer
import JSON
import PushCore
import PushStorage

/// Pushes that wait for their `push_time`.
extension LeanCloudSurface {
    /// `GET /1.1/scheduledPushMessages[?limit&skip]`: those that wait, the next first.
    func scheduled(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try requireSender(caller, for: "Listing scheduled pushes")
        // What lies outside of what LeanCloud takes counts as its default.
        let limit = request.queryValue("limit").flatMap { Int($0) } ?? 100
        let pushes = try await database.pushes.scheduled(
            app: caller.app.id,
            limit: (1...1000).contains(limit) ? limit : 100,
            skip: max(0, request.queryValue("skip").flatMap { Int($0) } ?? 0)
        )
        return .json(["results": .array(pushes.compactMap(ScheduledPush.item))])
    }

    /// `DELETE /1.1/scheduledPushMessages/{id}`: by the number that the list gives.
    func cancelScheduled(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try requireSender(caller, for: "Cancelling a scheduled push")
        guard let id = request.pathParameters["id"].flatMap({ Int($0) }),
            try await database.pushes.cancelScheduled(app: caller.app.id, scheduleID: id)
        else {
            throw LeanCloudError(status: 404, code: 101, "There is no such scheduled push.")
        }
        return .json([:])
    }

    /// Whoever may send may also take back.
    private func requireSender(_ caller: Caller, for action: String) throws(LeanCloudError) {
        guard caller.rights == .master || caller.app.settings.clientsMayPush else {
            throw .masterKeyNeeded(for: action)
        }
    }
}

/// A scheduled push in LeanCloud's words.
enum ScheduledPush {
    /// - Returns: `nil` for a push that waits for nothing.
    static func item(_ push: StoredPush) -> JSONValue? {
        guard let id = push.scheduleID, let releaseAt = push.releaseAt else { return nil }
        var query = push.request["where"]?.object ?? [:]
        if let channels = push.request["channels"] {
            query["channels"] = channels.array == nil ? channels : ["$in": channels]
        }
        query["valid"] = true
        let message: JSONObject = [
            "app-id": .string(push.app),
            "where": ["query": .object(query), "sort": ["createdAt": 1]],
            "prod": push.request["prod"] ?? "prod",
            "api-version": "1.1",
            "msg": push.request["data"] ?? .object([:]),
            "id": .string(push.id),
            "notificationId": push.request["notification_id"] ?? .string(push.id),
        ]
        var item: JSONObject = [
            "id": JSONValue(id),
            "expire_time": .integer(releaseAt.milliseconds),
            "push_msg": .object(message),
            "createdAt": .string(push.createdAt.iso8601),
        ]
        // As it was asked for: of a device-local push, `expire_time` is when it begins.
        item["push_time"] = push.request["push_time"]
        return .object(item)
    }
}
