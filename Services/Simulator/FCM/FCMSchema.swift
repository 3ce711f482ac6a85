import JSON

/// The schema of `messages:send`'s body, from FCM v1's discovery document. Names are in snake case; camel
/// case is accepted, too, as in proto3's JSON.
indirect enum FCMType: Sendable {
    case string, boolean, integer, number, duration, timestamp
    /// A map of strings to strings.
    case stringMap
    /// Any JSON object.
    case anyObject
    case enumeration([String])
    case list(FCMType)
    case message([String: FCMType])
}

/// The place where a body violates the schema.
struct FCMViolation: Error, Equatable {
    let field: String
    let description: String
}

extension FCMType {
    /// Validates a value against the schema; `null` means "not set", as in proto3.
    ///
    /// - Returns: The value with every name in snake case.
    /// - Throws: `FCMViolation` with the path of the first field that is unknown or of the wrong
    ///   type.
    func normalized(_ value: JSONValue, at path: String) throws(FCMViolation) -> JSONValue {
        if value.isNull { return .null }
        switch self {
        case .string:
            guard value.string != nil else { throw wrong(path, "TYPE_STRING") }
        case .boolean:
            guard value.bool != nil else { throw wrong(path, "TYPE_BOOL") }
        case .integer:
            guard value.integer != nil || value.string.flatMap({ Int($0) }) != nil else {
                throw wrong(path, "TYPE_INT32")
            }
        case .number:
            guard value.double != nil else { throw wrong(path, "TYPE_FLOAT") }
        case .duration:
            guard let text = value.string, Self.seconds(of: text) != nil else {
                throw wrong(path, "type.googleapis.com/google.protobuf.Duration")
            }
        case .timestamp:
            guard let text = value.string, text.utf8.count >= 20, text.contains("T") else {
                throw wrong(path, "type.googleapis.com/google.protobuf.Timestamp")
            }
        case .anyObject:
            guard value.object != nil else {
                throw wrong(path, "type.googleapis.com/google.protobuf.Struct")
            }
        case .enumeration(let names):
            guard let name = value.string, names.contains(name.uppercased()) else {
                throw wrong(path, "TYPE_ENUM")
            }
        case .stringMap:
            guard let members = value.object else { throw wrong(path, "TYPE_MESSAGE") }
            for (index, member) in members.enumerated() where member.value.string == nil {
                throw wrong("\(path)[\(index)].value", "TYPE_STRING")
            }
        case .list(let element):
            guard let elements = value.array else { throw wrong(path, "a list") }
            var normalized: [JSONValue] = []
            for (index, value) in elements.enumerated() {
                normalized.append(try element.normalized(value, at: "\(path)[\(index)]"))
            }
            return .array(normalized)
        case .message(let fields):
            guard let members = value.object else { throw wrong(path, "TYPE_MESSAGE") }
            var normalized = JSONObject()
            for (name, value) in members {
                let known = Self.snakeCase(name)
                guard let type = fields[known] else {
                    let place = path.isEmpty ? "" : " at '\(path)'"
                    throw FCMViolation(
                        field: path,
                        description: "Invalid JSON payload received. Unknown name \"\(name)\""
                            + "\(place): Cannot find field."
                    )
                }
                normalized[known] = try type.normalized(
                    value,
                    at: path.isEmpty ? known : "\(path).\(known)"
                )
            }
            return .object(normalized)
        }
        return value
    }

    private func wrong(_ path: String, _ type: String) -> FCMViolation {
        FCMViolation(field: path, description: "Invalid value at '\(path)' (\(type))")
    }

    /// Parses `^\d+(\.\d{1,9})?s$`, rounded down; `nil` for any other string.
    static func seconds(of duration: String) -> Int64? {
        guard duration.hasSuffix("s") else { return nil }
        let parts = duration.dropLast().split(separator: ".", omittingEmptySubsequences: false)
        guard 1...2 ~= parts.count, String(parts[0]).isDigits, parts[0].utf8.count <= 12 else {
            return nil
        }
        if parts.count == 2 {
            guard String(parts[1]).isDigits, parts[1].utf8.count <= 9 else { return nil }
        }
        return Int64(parts[0])
    }

    /// Converts `collapseKey` to `collapse_key`; snake case stays.
    static func snakeCase(_ name: String) -> String {
        var result = ""
        for character in name {
            if character.isASCII, character.isUppercase {
                result += "_" + character.lowercased()
            } else {
                result.append(character)
            }
        }
        return result
    }
}

// MARK: - The tables

extension FCMType {
    static let sendRequest = FCMType.message(["validate_only": .boolean, "message": message])

    private static let message = FCMType.message([
        "name": .string, "token": .string, "topic": .string, "condition": .string, "fid": .string,
        "data": .stringMap,
        "notification": .message(["title": .string, "body": .string, "image": .string]),
        "fcm_options": .message(["analytics_label": .string]),
        "android": android, "apns": apns, "webpush": webpush,
    ])

    private static let android = FCMType.message([
        "collapse_key": .string, "priority": .enumeration(["NORMAL", "HIGH"]), "ttl": .duration,
        "restricted_package_name": .string, "data": .stringMap, "direct_boot_ok": .boolean,
        "bandwidth_constrained_ok": .boolean, "restricted_satellite_ok": .boolean,
        "fcm_options": .message(["analytics_label": .string]),
        "notification": androidNotification,
    ])

    private static let androidNotification = FCMType.message([
        "title": .string, "body": .string, "icon": .string, "color": .string, "sound": .string,
        "tag": .string, "click_action": .string, "body_loc_key": .string,
        "body_loc_args": .list(.string), "title_loc_key": .string,
        "title_loc_args": .list(.string), "channel_id": .string, "ticker": .string,
        "sticky": .boolean, "event_time": .timestamp, "local_only": .boolean,
        "notification_priority": .enumeration([
            "PRIORITY_UNSPECIFIED", "PRIORITY_MIN", "PRIORITY_LOW", "PRIORITY_DEFAULT",
            "PRIORITY_HIGH", "PRIORITY_MAX",
        ]),
        "default_sound": .boolean, "default_vibrate_timings": .boolean,
        "default_light_settings": .boolean, "vibrate_timings": .list(.duration),
        "visibility": .enumeration(["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"]),
        "notification_count": .integer,
        "light_settings": .message([
            "color": .message([
                "red": .number, "green": .number, "blue": .number, "alpha": .number,
            ]),
            "light_on_duration": .duration, "light_off_duration": .duration,
        ]),
        "image": .string,
        "proxy": .enumeration(["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"]),
        "bypass_proxy_notification": .boolean,
    ])

    private static let apns = FCMType.message([
        "headers": .stringMap, "payload": .anyObject, "live_activity_token": .string,
        "fcm_options": .message(["analytics_label": .string, "image": .string]),
    ])

    private static let webpush = FCMType.message([
        "headers": .stringMap, "data": .stringMap, "notification": .anyObject,
        "fcm_options": .message(["link": .string, "analytics_label": .string]),
    ])
}
