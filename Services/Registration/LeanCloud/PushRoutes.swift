import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import PushStorage

extension LeanCloudSurface {
    var pushRoutes: [LeanCloudRoute] {
        [
            LeanCloudRoute(.post, "push") { try await push($0) },
            LeanCloudRoute(.post, "push/devices") { try await pushToDevices($0) },
        ]
    }

    /// LeanCloud's limit of a push's body. Carillon's own fields and the audience do not count, as
    /// lists of devices are longer and have their own limits.
    private static let maximumPushBytes = 4095
    private static let uncounted = [
        "where", "cql", "channels", "identities", "installations", "tags", "tokens", "native",
    ]

    private static func checkSize(_ body: JSONObject) throws(LeanCloudError) {
        var counted = body
        for field in uncounted { counted.removeValue(forKey: field) }
        guard JSONValue.object(counted).bytes.count <= maximumPushBytes else {
            throw LeanCloudError(
                status: 413,
                code: 413,
                "The push is too large: its parameters must be less than 4096 bytes in all."
            )
        }
    }

    /// Accepts a push and returns its id.
    private func push(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        try await accept(try call.object(), call)
    }

    private func accept(
        _ request: JSONObject,
        _ call: LeanCloudCall
    ) async throws -> LeanCloudAnswer {
        var body = try Self.normalized(request, of: call.caller)
        try Self.checkChannels(body["channels"])
        try Self.checkSize(body)
        // Without `prod` in the body, the header decides; without both, the push is for production.
        if body["prod"] == nil, let header = call.prodHeader, header != "1" {
            body["prod"] = "dev"
        }
        let requestKey = try Self.identifier("req_id", body.removeValue(forKey: "req_id"))
        _ = try Self.identifier("notification_id", body["notification_id"])
        let push = try await pushes.accept(body, requestKey: requestKey, caller: call.caller)
        return LeanCloudAnswer([
            "objectId": .string(push.id), "createdAt": .string(push.createdAt.iso8601),
        ])
    }

    /// Checks channel names by LeanCloud's rule. Values of another type are rejected later.
    private static func checkChannels(_ value: JSONValue?) throws(PushRequestError) {
        let names = value?.array ?? [value].compactMap { $0 }
        for (index, name) in names.enumerated() {
            guard let name = name.string, !ChannelName.isValid(name) else { continue }
            throw PushRequestError("channels[\(index)]", .badChannelName)
        }
    }

    /// Converts SDKs' own forms to that of the documentation: the Objective-C SDK sends `where` as a JSON
    /// string, the Android SDK an expiry as a typed Date.
    private static func normalized(
        _ request: JSONObject,
        of caller: Caller
    ) throws(LeanCloudError) -> JSONObject {
        var body = request
        if let text = request["where"]?.string {
            do throws(LeanCloudError) {
                body["where"] = try LeanCloudCall.parse(
                    Array(text.utf8),
                    forMaster: caller.isMaster
                )
            } catch {
                throw LeanCloudError(code: error.code, "where: \(error.description)")
            }
        }
        for field in ["push_time", "expiration_time"] {
            guard let date = request[field]?.object, date["__type"] == "Date",
                let time = date["iso"]?.string
            else { continue }
            body[field] = .string(time)
        }
        return body
    }

    private static func identifier(
        _ field: String,
        _ value: JSONValue?
    ) throws(LeanCloudError) -> String? {
        guard let value, !value.isNull else { return nil }
        guard let key = value.string ?? value.integer.map({ String($0) }),
            (1...16).contains(key.utf8.count), key.utf8.allSatisfy(ASCII.isAlphanumeric)
        else { throw LeanCloudError(code: 1, "\(field) is 1 to 16 letters and digits.") }
        return key
    }

    // MARK: Lists of devices

    private static let maximumDevices = 500
    /// The fields that both calls accept.
    private static let sharedFields: ExactStringSet = [
        "data", "expiration_time", "expiration_interval", "notification_id", "req_id", "prod",
        "topic", "apns_team_id", "push_time", "flow_control", "_notificationChannel",
    ]

    /// `POST /1.1/push/devices`: sends to tokens of iPhones, or to Android's installation ids and
    /// registration ids.
    private func pushToDevices(_ call: LeanCloudCall) async throws -> LeanCloudAnswer {
        let given = try call.object()
        guard call.caller.mayPush else {
            throw LeanCloudError.masterKeyNeeded(for: "Sending a push")
        }
        var body: JSONObject = [:]
        for (key, value) in given {
            switch key {
            case "device_type", "device_ids": continue
            case "channel": body["_notificationChannel"] = value
            case "vendor":
                // The push services of other makers are not supported.
                guard value.isNull || ["fcm", "gcm", ""].contains(value.string?.lowercased()) else {
                    throw LeanCloudError.notSupported("A vendor other than fcm")
                }
            case "device_profile":
                guard value.isNull || value == "" else {
                    throw LeanCloudError.notSupported("device_profile")
                }
            case _ where Self.sharedFields.contains(key): body[key] = value
            default:
                throw LeanCloudError(code: 1, "\(key.prefix(100)) is unknown to push/devices.")
            }
        }
        guard body["data"]?.object != nil else {
            throw LeanCloudError(code: 1, "data is missing: an object says what to send.")
        }
        let type = given["device_type"]?.string?.lowercased()
        guard let platform = type.flatMap({ ["ios": Platform.apns, "android": .fcm][$0] }) else {
            let shown = given["device_type"]?.shown ?? "missing"
            throw LeanCloudError(code: 1, "device_type must be ios or android, not \(shown).")
        }
        for (name, value) in try await audience(
            try Self.deviceIDs(given["device_ids"]),
            platform,
            call.caller.appID
        ) { body[name] = value }
        return try await accept(body, call)
    }

    private static func deviceIDs(_ value: JSONValue?) throws(LeanCloudError) -> [String] {
        guard let list = value?.array, (1...maximumDevices).contains(list.count) else {
            throw LeanCloudError(
                code: 1,
                "device_ids must be an array of 1 to \(maximumDevices) strings."
            )
        }
        var ids: [String] = []
        for element in list {
            guard let id = element.string, (1...4096).contains(id.utf8.count),
                !id.utf8.contains(0)
            else { throw LeanCloudError(code: 1, "device_ids contains an invalid device id.") }
            ids.append(id)
        }
        return ids
    }

    /// Returns the audience. Registered devices are selected as installations, so that ledger and
    /// badge belong to the installation. If one token of an iPhone is not registered, all devices
    /// are selected by token. An unknown id of Android selects no device, like an unknown
    /// installation.
    private func audience(
        _ ids: [String],
        _ platform: Platform,
        _ app: String
    ) async throws -> JSONObject {
        let tokens = ids.filter { DeviceToken.problem($0, for: platform) == nil }
            .map { DeviceToken.canonical($0, for: platform) }
        let found = try await database.installations.find(
            app: app,
            platform: platform,
            tokens: tokens,
            installationIDs: platform == .fcm ? ids : []
        )
        guard platform == .apns else {
            let known = ExactStringSet(
                found.flatMap { [$0.token, $0.installationID].compactMap { $0 } }
            )
            // Longer ids are unknown registration ids: an installation's name has at most 512
            // bytes.
            let unknown = ids.filter { !known.contains($0) && $0.utf8.count <= 512 }
            let names = found.map(\.objectID) + unknown
            return ["installations": .array(names.map(JSONValue.string))]
        }
        guard tokens.count == ids.count else {
            throw LeanCloudError(code: 114, "device_ids contains an invalid APNs device token.")
        }
        if Set(found.compactMap(\.token)) == Set(tokens) {
            return ["installations": .array(found.map { .string($0.objectID) })]
        }
        return [
            "tokens": .array(tokens.map { ["platform": "apns", "token": .string($0)] })
        ]
    }
}
