package import JSON

/// One app on one device, as the device registered it.
///
/// Each value that Carillon reads has a property. `fields` has all other fields that the client
/// saved, unchanged. `platform`, `token`, `environment`, `identity` and `locale` are derived from
/// fields that stay in `fields` as they are.
package struct Installation: Sendable, Equatable {
    package var app: String
    package var objectID: String
    package var deviceType: String
    /// The provider that reaches the device; `nil` if none of our providers does.
    package var platform: Platform?
    package var token: String?
    package var environment: PushEnvironment
    package var identity: String?
    package var channels: [String]
    /// Whether the field `channels` is present. An absent field differs from an empty list.
    package var hasChannels: Bool
    package var installationID: String?
    package var badge: Int
    /// Whether the field `badge` is present. An absent badge counts as 0.
    package var hasBadge: Bool
    package var timeZone: String?
    package var locale: String?
    package var apnsTopic: String?
    package var vendor: String?
    package var deviceProfile: String?
    package var fields: JSONObject
    /// Whether it receives only template sends. It may then share its token with others: saves do
    /// not find it by the token, and a save of it removes the token from no other installation.
    package var isTemplateOnly = false
    package var isValid: Bool
    /// The reason why it is invalid: a provider's answer, or the device's silence; `nil` if the
    /// client muted it.
    package var invalidReason: String?
    /// The time when the device last sent its token. If a provider says that the token was
    /// unregistered before this time, that is ignored.
    package var tokenUpdatedAt: Instant?
    package var createdAt: Instant
    package var updatedAt: Instant

    package init(app: String, objectID: String, at now: Instant) {
        self.app = app
        self.objectID = objectID
        deviceType = ""
        environment = .none
        channels = []
        hasChannels = false
        badge = 0
        hasBadge = false
        fields = JSONObject()
        isValid = true
        createdAt = now
        updatedAt = now
    }
}

/// An invalid field of an installation. Names the field, never contains its value.
package struct InstallationError: Error, Equatable, Sendable, CustomStringConvertible {
    /// LeanCloud's error code.
    package let code: Int
    package let description: String

    package init(code: Int, _ description: String) {
        self.code = code
        self.description = description
    }

    static func wrongType(_ field: String, _ expected: String) -> InstallationError {
        InstallationError(code: 111, "\(field) must be \(expected)")
    }
}

extension Installation {
    /// The keys that find an existing installation: a save with a known token or `installationId`
    /// updates that installation.
    package struct Keys: Sendable, Equatable {
        package var installationID: String?
        package var platform: Platform?
        package var token: String?
        package var environment: PushEnvironment
        /// The values as the client named them, for Parse's rule.
        package var deviceType: String?
        package var deviceToken: String?
        package var appIdentifier: String?

        package init(_ object: JSONObject) throws(InstallationError) {
            let fields = InstallationFields(object)
            installationID = try fields.installationID()
            environment = try fields.environment()
            (platform, token) = try fields.route()
            // Such an installation is found by `installationID`: it has no provider's token.
            if platform == .connection { (platform, token) = (nil, nil) }
            deviceType = try fields.string("deviceType", maximumBytes: 64)
            deviceToken = try fields.string("deviceToken", maximumBytes: 4096)
            if deviceToken?.isEmpty == true { deviceToken = nil }
            appIdentifier = object["appIdentifier"]?.string
        }
    }

    /// The fields that clients see, without `objectId`, `createdAt` and `updatedAt`.
    package var object: JSONObject {
        var object: JSONObject = [:]
        object["deviceType"] = .string(deviceType)
        if let installationID { object["installationId"] = .string(installationID) }
        if let timeZone { object["timeZone"] = .string(timeZone) }
        if let apnsTopic { object["apnsTopic"] = .string(apnsTopic) }
        if let vendor { object["vendor"] = .string(vendor) }
        if let deviceProfile { object["deviceProfile"] = .string(deviceProfile) }
        if hasChannels { object["channels"] = .array(channels.map(JSONValue.string)) }
        if hasBadge { object["badge"] = .integer(Int64(badge)) }
        object["valid"] = .bool(isValid)
        for (key, value) in fields { object[key] = value }
        return object
    }

    private static let ownFields: ExactStringSet = [
        "deviceType", "installationId", "timeZone", "apnsTopic", "vendor", "deviceProfile",
        "channels", "badge", "valid", "objectId", "createdAt", "updatedAt",
    ]

    /// Applies a save. `object` has all fields as they are after the save, not only the changed
    /// ones.
    ///
    /// `object` is `self.object` with the request's changes; `changed` has the names of the
    /// request's fields. A save with a token shows that the device is active: the installation
    /// becomes valid again unless it was muted. If it was only inactive, any save makes it valid.
    /// The names of new channels must obey `isChannel`; existing channels are accepted, so that one
    /// API does not reject names that another one allowed.
    package mutating func take(
        _ object: JSONObject,
        changed: ExactStringSet,
        now: Instant,
        isChannel: (String) -> Bool = ChannelName.isValid
    ) throws(InstallationError) {
        let reader = InstallationFields(object)
        for field in changed { try reader.check(field) }
        guard let type = try reader.string("deviceType", maximumBytes: 64), !type.isEmpty else {
            throw InstallationError(code: 135, "deviceType must be given")
        }
        let isNew = deviceType.isEmpty
        deviceType = type
        installationID = try reader.installationID()
        timeZone = try reader.string("timeZone", maximumBytes: 128)
        apnsTopic = try reader.string("apnsTopic", maximumBytes: 256)
        vendor = try reader.string("vendor", maximumBytes: 64)
        deviceProfile = try reader.deviceProfile()
        let known = ExactStringSet(channels)
        channels = try reader.channels { known.contains($0) || isChannel($0) }
        hasChannels = reader.has("channels")
        badge = try reader.badge()
        hasBadge = reader.has("badge")
        environment = try reader.environment()
        locale = try reader.locale()
        identity = try reader.identity()
        let before = (platform, token)
        let route = try reader.route()
        // If another installation took over this token, the token is set again only when this
        // device sends it.
        let wasTakenOver =
            !isNew && token == nil && changed.isDisjoint(with: Self.routeFields)
            && route.0 != .connection
        (platform, token) = wasTakenOver ? (nil, nil) : route
        fields = [:]
        for (key, value) in object where !Self.ownFields.contains(key) { fields[key] = value }
        updatedAt = max(now, createdAt)
        let namesToken = before != (platform, token) || !changed.isDisjoint(with: Self.tokenFields)
        if token == nil {
            tokenUpdatedAt = nil
        } else if namesToken {
            tokenUpdatedAt = now
            if invalidReason != nil {
                isValid = true
                invalidReason = nil
            }
        }
        if invalidReason == Self.inactiveReason {
            isValid = true
            invalidReason = nil
        }
        if changed.contains("valid") {
            isValid = try reader.boolean("valid") ?? true
            invalidReason = nil
        }
    }

    /// The `invalidReason` of an installation that was not saved for the app's `valid-days`.
    package static let inactiveReason = "silent"
    /// The vendors whose devices a provider serves. Devices of other vendors use a connection.
    package static let servedVendors: Set<String> = ["fcm", "gcm"]
    /// The `invalidReason` of an Azure client's installation whose `expirationTime` has passed.
    package static let hubExpiredReason = "expirationTime"

    /// Whether `jsonb` can hold the value: strings without NUL, and numbers that it represents exactly.
    static func isStorable(_ value: JSONValue) -> Bool {
        switch value {
        case .null, .bool, .integer, .double: true
        case .number: false
        case .string(let text): !text.utf8.contains(0)
        case .array(let elements): elements.allSatisfy(isStorable)
        case .object(let object):
            object.allSatisfy { !$0.key.utf8.contains(0) && isStorable($0.value) }
        }
    }

    private static let tokenFields: ExactStringSet = [
        "deviceToken", "registrationId", "subscriptionUri",
    ]

    private static let routeFields = tokenFields.union([
        "deviceType", "pushType", "vendor", "apnsEnvironment",
    ])
}

/// A reader of an installation's fields by name; `null` counts as absent.
struct InstallationFields {
    private let object: JSONObject

    init(_ object: JSONObject) { self.object = object }

    private subscript(field: String) -> JSONValue? {
        guard let value = object[field], !value.isNull else { return nil }
        return value
    }

    func has(_ field: String) -> Bool { self[field] != nil }

    /// Validates a field that a save names. Stored values stay, even if they break a newer rule.
    func check(_ field: String) throws(InstallationError) {
        guard let value = object[field] else { return }
        if field != HubTemplate.field, let problem = FieldName.problem(field) { throw problem }
        guard Installation.isStorable(value) else {
            throw .wrongType(
                field,
                "without NUL characters and without numbers that cannot be stored exactly"
            )
        }
    }

    func string(_ field: String, maximumBytes: Int) throws(InstallationError) -> String? {
        guard let value = self[field] else { return nil }
        guard let text = value.string else { throw .wrongType(field, "a string") }
        guard text.utf8.count <= maximumBytes, !text.utf8.contains(0) else {
            throw .wrongType(field, "at most \(maximumBytes) bytes, without NUL")
        }
        return text
    }

    func boolean(_ field: String) throws(InstallationError) -> Bool? {
        guard let value = self[field] else { return nil }
        guard let flag = value.bool else { throw .wrongType(field, "true or false") }
        return flag
    }

    func installationID() throws(InstallationError) -> String? {
        guard let id = try string("installationId", maximumBytes: 256), !id.isEmpty else {
            return nil
        }
        return id
    }

    func deviceProfile() throws(InstallationError) -> String? {
        guard let name = try string("deviceProfile", maximumBytes: 128) else { return nil }
        let first = name.utf8.first ?? UInt8(ascii: "a")
        guard (65...90).contains(first) || (97...122).contains(first),
            name.utf8.allSatisfy({ ASCII.isAlphanumeric($0) || $0 == UInt8(ascii: "_") })
        else {
            throw .wrongType("deviceProfile", "a letter followed by letters, digits and '_'")
        }
        return name
    }

    /// Returns each channel once. `isValid` is the surface's rule for a name.
    func channels(_ isValid: (String) -> Bool) throws(InstallationError) -> [String] {
        guard let value = self["channels"] else { return [] }
        guard let list = value.array else { throw .wrongType("channels", "an array of strings") }
        guard list.count <= 2000 else { throw .wrongType("channels", "at most 2000 names") }
        var channels: [String] = []
        var seen: ExactStringSet = []
        for entry in list {
            guard let name = entry.string else {
                throw .wrongType("channels", "an array of strings")
            }
            guard isValid(name) else {
                throw InstallationError(
                    code: 112,
                    "a channel's name is letters, digits, '_', '-', '=' and CJK, at most "
                        + "\(ChannelName.maximumBytes) bytes"
                )
            }
            if seen.insert(name).inserted { channels.append(name) }
        }
        return channels
    }

    func badge() throws(InstallationError) -> Int {
        guard let value = self["badge"] else { return 0 }
        guard let badge = value.integer, (-2_147_483_648...2_147_483_647).contains(badge) else {
            throw .wrongType("badge", "a whole number")
        }
        return badge
    }

    func environment() throws(InstallationError) -> PushEnvironment {
        guard let name = try string("apnsEnvironment", maximumBytes: 32), !name.isEmpty else {
            return .none
        }
        guard let environment = PushEnvironment(rawValue: name) else {
            throw .wrongType("apnsEnvironment", "production or sandbox")
        }
        return environment
    }

    func locale() throws(InstallationError) -> String? {
        for field in ["localeIdentifier", "locale"] {
            if let value = self[field]?.string { return String(value.prefix(64)) }
        }
        return nil
    }

    /// Returns `identity`, or the object id that LeanCloud's `owner` or `user` points to.
    func identity() throws(InstallationError) -> String? {
        if let identity = try string("identity", maximumBytes: 512), !identity.isEmpty {
            return identity
        }
        for field in ["owner", "user"] {
            guard let pointer = self[field], pointer["__type"]?.string == "Pointer",
                let id = pointer["objectId"]?.string, !id.isEmpty, id.utf8.count <= 512
            else { continue }
            return id
        }
        return nil
    }

    /// Returns the provider that reaches the device, and the token for it.
    func route() throws(InstallationError) -> (Platform?, String?) {
        let (platform, token) = try providerRoute()
        if platform != nil { return (platform, token) }
        guard try canConnect(), let id = try installationID() else { return (nil, nil) }
        return (.connection, id)
    }

    /// Whether the device may hold a connection to Carillon. Its type and vendor decide, by
    /// LeanCloud's rule. Devices of Apple and Windows use APNs and WNS: if they have no token, they
    /// have not registered there yet.
    private func canConnect() throws(InstallationError) -> Bool {
        let vendor = try string("vendor", maximumBytes: 64)?.lowercased() ?? ""
        guard !Installation.servedVendors.contains(vendor) else { return false }
        // Azure's clients may use platforms that are not supported. They do not use connections.
        guard self[HubTemplate.field] == nil else { return false }
        switch try string("deviceType", maximumBytes: 64)?.lowercased() {
        case nil, "ios", "macos", "osx", "watchos", "tvos", "visionos", "applewatch", "windows",
            "winrt", "wp":
            return false
        default: return true
        }
    }

    private func providerRoute() throws(InstallationError) -> (Platform?, String?) {
        let deviceToken = try string("deviceToken", maximumBytes: 4096)
        let registrationID = try string("registrationId", maximumBytes: 4096)
        let subscriptionURI = try string("subscriptionUri", maximumBytes: 4096)
        let pushType = try string("pushType", maximumBytes: 64)?.lowercased()
        let vendor = try string("vendor", maximumBytes: 64)?.lowercased() ?? ""
        let candidate: (Platform, String?)
        switch try string("deviceType", maximumBytes: 64)?.lowercased() {
        case "ios", "macos", "osx", "watchos", "tvos", "visionos", "applewatch":
            candidate = (.apns, deviceToken)
        case "android":
            let isFCM = vendor.isEmpty || Installation.servedVendors.contains(vendor)
            let token =
                isFCM && registrationID?.isEmpty == false
                ? registrationID : pushType == "gcm" || pushType == "fcm" ? deviceToken : nil
            candidate = (.fcm, token)
        case "windows", "winrt":
            candidate = (.wns, subscriptionURI ?? deviceToken)
        case "wp":
            let uri = subscriptionURI ?? deviceToken
            candidate = (uri.map(Self.isMPNSChannel) ?? false ? .mpns : .wns, uri)
        default:
            return (nil, nil)
        }
        guard let token = candidate.1, !token.isEmpty else { return (nil, nil) }
        if let problem = DeviceToken.problem(token, for: candidate.0) {
            throw InstallationError(code: 114, "the token cannot be used: \(problem)")
        }
        return (candidate.0, DeviceToken.canonical(token, for: candidate.0))
    }

    /// Whether the host is MPNS', or the path begins like a channel of a simulator. The dispatcher
    /// decides which hosts it sends to.
    private static func isMPNSChannel(_ uri: String) -> Bool {
        let rest = uri.drop { $0 != "/" }.drop { $0 == "/" }
        let host = rest.prefix { $0 != "/" && $0 != ":" && $0 != "?" }.lowercased()
        return host.hasSuffix(".notify.live.net") || host == "notify.live.net"
            || rest.drop { $0 != "/" }.hasPrefix("/mpns/")
    }
}
