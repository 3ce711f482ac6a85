import JSON
import PushCore

/// The registration that the tutorial's app sends: `{"Platform", "Handle", "Tags"}`, with names in any case,
/// and any other fields beside them.
struct DeviceRegistration: Equatable, Sendable {
    private enum Platform: String {
        case mpns, wns, apns, gcm

        /// The device type of LeanCloud's surface, and the field of the token.
        var fields: (deviceType: String, token: String) {
            switch self {
            case .apns: ("ios", "deviceToken")
            case .gcm: ("android", "registrationId")
            case .wns: ("windows", "subscriptionUri")
            case .mpns: ("wp", "subscriptionUri")
            }
        }
    }

    static let maximumTags = 60
    private static let userTag = "username:"
    /// The fields with the provider and the address of a device.
    private static let routeFields: ExactStringSet = [
        "deviceType", "deviceToken", "registrationId", "subscriptionUri", "pushType",
    ]

    private let platform: Platform
    private let handle: String
    private let tags: [String]
    private let identity: String

    /// - Parameters:
    ///   - body: The request's body.
    ///   - identity: The caller's identity.
    /// - Throws: `SecureRequestError`, also for a tag of another user, as backends select audiences
    ///   by these.
    init(_ body: [UInt8], of identity: String) throws(SecureRequestError) {
        let parsed = try? JSONValue.parse(body, maximumDepth: 8, maximumValues: 1000)
        guard let object = parsed?.object else {
            throw SecureRequestError("the body must be a JSON object")
        }
        func field(_ name: String) -> JSONValue? {
            let written = object.first { $0.key.lowercased().isSame(as: name.lowercased()) }
            let value = object[name] ?? written?.value
            return value?.isNull == true ? nil : value
        }
        guard let platform = field("Platform")?.string.flatMap(Platform.init(rawValue:)) else {
            throw SecureRequestError("Platform must be mpns, wns, apns or gcm")
        }
        guard let handle = field("Handle")?.string, !handle.isEmpty else {
            throw SecureRequestError("Handle must be the device's token")
        }
        let own = Self.userTag + identity
        var tags: [String] = []
        if let given = field("Tags") {
            guard let list = given.array, list.count <= Self.maximumTags else {
                throw SecureRequestError("Tags must be a list of at most \(Self.maximumTags)")
            }
            for value in list {
                guard let tag = value.string, TagName.isValid(tag) || tag.isSame(as: own) else {
                    throw SecureRequestError(
                        "Tags must be texts of 1 to 120 letters, digits and _ @ # . : -"
                    )
                }
                let isUsers = tag.lowercased().utf8.starts(with: Self.userTag.utf8)
                guard !isUsers || tag.isSame(as: own) else {
                    throw SecureRequestError("Tags must not name another user")
                }
                tags.append(tag)
            }
        }
        self.platform = platform
        self.handle = handle
        self.identity = identity
        self.tags = (tags + [own]).withoutRepeats()
    }

    /// Returns the keys that find the devices with this token.
    func keys() throws(InstallationError) -> Installation.Keys {
        var object: JSONObject = [:]
        write(to: &object)
        return try Installation.Keys(object)
    }

    /// Writes the registration into an installation; the fields of other surfaces stay.
    func put(into installation: inout Installation, now: Instant) throws(InstallationError) {
        var object = installation.object
        for field in Self.routeFields { object.removeValue(forKey: field) }
        write(to: &object)
        object["channels"] = .array(tags.map(JSONValue.string))
        object["identity"] = .string(identity)
        if platform == .gcm {
            let vendor = object["vendor"]?.string?.lowercased() ?? ""
            if !["", "fcm", "gcm"].contains(vendor) { object.removeValue(forKey: "vendor") }
        }
        let tags = ExactStringSet(tags)
        try installation.take(
            object,
            changed: Self.routeFields.union(["channels", "identity"]),
            now: now,
            isChannel: { tags.contains($0) }
        )
    }

    private func write(to object: inout JSONObject) {
        let (type, field) = platform.fields
        object["deviceType"] = .string(type)
        object[field] = .string(handle)
    }
}
