import Cryptography
import JSON
import PushCore
import PushStorage

/// A push's record as Parse's `_PushStatus`. Pure.
enum ParsePushStatus {
    static func object(of push: StoredPush, sent: [PlatformCount] = []) -> JSONObject {
        let ledger = push.ledger
        var object: JSONObject = [
            "objectId": .string(push.id),
            "createdAt": .string(push.createdAt.iso8601),
            "updatedAt": .string(push.updatedAt.iso8601),
            "pushTime": push.request["push_time"] ?? .string(push.createdAt.iso8601),
            "query": .string(query(push.request).text),
            "payload": .string(
                JSONValue.object(ParsePush.sent(push.request["data"]?.object ?? [:])).text
            ),
            "source": "rest",
            "status": .string(status(push)),
            "numSent": JSONValue(ledger.delivered),
            "numFailed": JSONValue(
                ledger.failed + ledger.expired + ledger.suppressed + ledger.inDoubt
            ),
            "pushHash": .string(hash(push.request["data"]?["alert"])),
            "ACL": .object([:]),
        ]
        if !push.failures.isEmpty { object["failures"] = push.failures.json }
        if ledger.pending > 0 { object["count"] = JSONValue(ledger.pending) }
        if let expiresAt = push.expiresAt { object["expiry"] = .integer(expiresAt.milliseconds) }
        if let interval = push.request["expiration_interval"] {
            object["expiration_interval"] = interval
        }
        switch push.status {
        case .failed: object["errorMessage"] = ["message": .string(push.error ?? "failed")]
        case .cancelled: object["errorMessage"] = ["message": "The push was cancelled."]
        case .queued, .scheduled, .planning, .sending, .done: break
        }
        for (name, isSent) in [("sentPerType", true), ("failedPerType", false)] {
            var types: JSONObject = [:]
            for count in sent where count.isDelivered == isSent {
                types[deviceType(count.platform)] = JSONValue(count.count)
            }
            if !types.isEmpty { object[name] = .object(types) }
        }
        return object
    }

    /// Translates the names in a condition on push records into the names of the stored records.
    static func translated(_ condition: Where) throws(WhereError) -> Where {
        switch condition {
        case .all(let parts): return .all(try translated(parts))
        case .any(let parts): return .any(try translated(parts))
        case .none(let parts): return .none(try translated(parts))
        case .field(let path, let test):
            guard path.text == "status" else { return .field(try translated(path), test) }
            return try statusTest(test, path)
        }
    }

    static func translated(_ order: [SortKey]) throws(WhereError) -> [SortKey] {
        var keys: [SortKey] = []
        for key in order {
            guard key.path.text != "status" else {
                throw WhereError(code: 102, field: "status", "records have no order by it")
            }
            keys.append(SortKey(path: try translated(key.path), isDescending: key.isDescending))
        }
        return keys
    }

    private static func translated(_ parts: [Where]) throws(WhereError) -> [Where] {
        var result: [Where] = []
        for part in parts { result.append(try translated(part)) }
        return result
    }

    private static func translated(_ path: WherePath) throws(WhereError) -> WherePath {
        switch path.text {
        case "objectId", "createdAt", "updatedAt": path
        case "numSent": try WherePath("delivered")
        default:
            throw WhereError(
                code: 102,
                field: path.text,
                "push records cannot be asked for this field"
            )
        }
    }

    /// LeanCloud's status for each of Parse's. All other statuses of LeanCloud's are Parse's
    /// `failed`.
    private static let statuses = [
        "pending": "in-queue", "running": "in-queue", "scheduled": "scheduled",
        "succeeded": "done",
    ]

    private static func statusTest(
        _ test: WhereTest,
        _ path: WherePath
    ) throws(WhereError) -> Where {
        func holds(_ value: WhereValue) -> Where {
            guard case .string(let name) = value else { return .any([]) }
            if let kept = statuses[name] { return .field(path, .equal(.string(kept))) }
            guard name == "failed" else { return .any([]) }
            let others = Set(statuses.values).sorted().map { WhereValue.string($0) }
            return .field(path, .notAmong(others))
        }
        switch test {
        case .equal(let value): return holds(value)
        case .notEqual(let value): return .none([holds(value)])
        case .among(let values): return .any(values.map(holds))
        case .notAmong(let values): return .none(values.map(holds))
        case .compare, .holdsAll, .containedBy, .size, .exists, .pattern, .inQuery, .notInQuery,
            .selected, .notSelected, .near, .inBox, .inPolygon:
            throw WhereError(code: 102, field: "status", "records are only asked for equality here")
        }
    }

    private static func status(_ push: StoredPush) -> String {
        switch push.status {
        case .scheduled: "scheduled"
        case .queued: push.releaseAt == nil ? "pending" : "scheduled"
        case .planning, .sending: "running"
        case .done: "succeeded"
        case .cancelled, .failed: "failed"
        }
    }

    /// Returns the audience as a query for installations.
    private static func query(_ request: JSONObject) -> JSONValue {
        if let channels = request["channels"] {
            return ["channels": ["$in": channels.array == nil ? .array([channels]) : channels]]
        }
        return request["where"] ?? .object([:])
    }

    /// Returns the hash by which Parse recognizes pushes with the same alert.
    private static func hash(_ alert: JSONValue?) -> String {
        let text = alert?.string ?? (alert?.object == nil ? "" : alert?.text ?? "")
        return Hex.encode(md5(Array(text.utf8)))
    }

    private static func deviceType(_ platform: Platform) -> String {
        switch platform {
        case .apns: "ios"
        case .fcm: "android"
        case .wns: "windows"
        case .mpns: "wp"
        case .connection: "connection"
        }
    }
}
