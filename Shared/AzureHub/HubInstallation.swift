package import JSON
package import PushCore
import XML

/// The platforms of Azure's installations.
package enum HubPlatform: String, Sendable {
    case apns, gcm, fcm, fcmv1, wns, mpns, adm, baidu, browser, xiaomi

    package init?(name: String) { self.init(rawValue: name.lowercased()) }

    /// The provider through which Carillon reaches the platform; `nil` without one.
    package var provider: Platform? {
        switch self {
        case .apns: .apns
        case .gcm, .fcm, .fcmv1: .fcm
        case .wns: .wns
        case .mpns: .mpns
        case .adm, .baidu, .browser, .xiaomi: nil
        }
    }

    /// The device type of LeanCloud's surface.
    fileprivate var deviceType: String {
        switch self {
        case .apns: "ios"
        case .gcm, .fcm, .fcmv1: "android"
        case .wns: "windows"
        case .mpns: "wp"
        case .adm, .baidu, .browser, .xiaomi: rawValue
        }
    }

    fileprivate var tokenField: String? {
        switch self {
        case .apns: "deviceToken"
        case .gcm, .fcm, .fcmv1: "registrationId"
        case .wns, .mpns: "subscriptionUri"
        case .adm, .baidu, .browser, .xiaomi: nil
        }
    }
}

/// A channel with its tags and templates: a device, or one of its secondary tiles.
package struct HubChannel: Equatable, Sendable {
    package var pushChannel: JSONValue
    package var tags: [String] = []
    package var templates: [(name: String, value: Template)] = []

    package struct Template: Equatable, Sendable {
        package var body: String
        package var headers: JSONObject
        package var expiry: String?
        package var tags: [String]

        package init(body: String, headers: JSONObject, expiry: String?, tags: [String]) {
            (self.body, self.headers, self.expiry, self.tags) = (body, headers, expiry, tags)
        }
    }

    package init(pushChannel: JSONValue, tags: [String] = []) {
        (self.pushChannel, self.tags) = (pushChannel, tags)
    }

    package static func == (left: HubChannel, right: HubChannel) -> Bool {
        left.pushChannel == right.pushChannel && left.tags == right.tags
            && left.templates.elementsEqual(right.templates) {
                $0.name == $1.name && $0.value == $1.value
            }
    }

    package func template(_ name: String) -> Template? {
        templates.first { $0.name == name }?.value
    }

    package mutating func setTemplate(_ name: String, _ template: Template?) {
        let index = templates.firstIndex { $0.name == name }
        switch (index, template) {
        case (let index?, let template?): templates[index].value = template
        case (let index?, nil): templates.remove(at: index)
        case (nil, let template?): templates.append((name, template))
        case (nil, nil): break
        }
    }
}

/// An installation in the form of Azure's clients, and its mapping to ours.
package struct HubInstallation: Equatable, Sendable {
    package var id: String
    package var userID: String?
    package var platform: HubPlatform
    package var channel: HubChannel
    package var secondaryTiles: ExactStringMap<HubChannel> = [:]
    package var pushVariables: JSONObject = [:]
    package var expirationTime: String?
    /// The data of a registration of the older model; `nil` for an installation.
    package var registration: HubRegistration?

    package static let noExpiry = "9999-12-31T23:59:59.9999999Z"
    package static let maximumTags = 60
    private static let maximumTiles = 100
    private static let maximumTemplates = 20
    private static let maximumVariables = 100
    private static let maximumVariablesBytes = 16 * 1024
    private static let maximumChannelBytes = 4096

    package init(id: String, platform: HubPlatform, channel: HubChannel) {
        self.id = id
        self.platform = platform
        self.channel = channel
    }

    // MARK: From a client

    /// Parses the body of a `PUT`. `null` counts as absent; unknown members are ignored.
    package init(_ body: JSONObject, id: String) throws(AzureError) {
        let body = body.filtered
        guard let stated = body["installationId"] else {
            throw AzureError("installationId is missing")
        }
        guard stated.string == id else {
            throw AzureError("installationId must be the one that the path names")
        }
        guard let name = body["platform"]?.string else { throw AzureError("platform is missing") }
        guard let platform = HubPlatform(name: name) else {
            throw AzureError("unknown platform")
        }
        self.id = id
        self.platform = platform
        channel = try HubChannel(body, in: "")
        userID = try body["userId"].map { value throws(AzureError) in try Self.userID(value) }
        for (name, tile) in try HubJSON.object(body["secondaryTiles"], "secondaryTiles") {
            guard let tile = tile.object else {
                throw AzureError("secondaryTiles.\(name.prefix(60)) must be an object")
            }
            secondaryTiles[name] = try HubChannel(tile, in: "secondaryTiles.\(name.prefix(60)).")
        }
        pushVariables = try HubJSON.object(body["pushVariables"], "pushVariables")
        expirationTime = try body["expirationTime"].map { value throws(AzureError) in
            try HubJSON.time(value, "expirationTime")
        }
        try check()
    }

    package static func userID(_ value: JSONValue) throws(AzureError) -> String {
        guard let text = value.string, (1...512).contains(text.utf8.count),
            text.utf8.allSatisfy({ isAlphanumeric($0) || "-_@#.:=".utf8.contains($0) })
        else { throw AzureError("userId must be letters, digits and - _ @ # . : =") }
        return text
    }

    /// Validates the whole installation, from any source. Tags and headers that are unchanged since
    /// `before`, the stored installation, are not validated again.
    package func check(before: HubInstallation? = nil) throws(AzureError) {
        try check(channel, isTile: false, before: before?.channel)
        guard secondaryTiles.count <= Self.maximumTiles else {
            throw AzureError("secondaryTiles holds more than \(Self.maximumTiles) tiles")
        }
        for (name, tile) in secondaryTiles {
            try check(tile, isTile: true, before: before?.secondaryTiles[name])
        }
        for (name, value) in pushVariables where value.string == nil {
            throw AzureError("pushVariables.\(name.prefix(60)) must be a string")
        }
        guard pushVariables.count <= Self.maximumVariables,
            JSONValue.object(pushVariables).bytes.count <= Self.maximumVariablesBytes
        else {
            throw AzureError(
                "pushVariables holds more than \(Self.maximumVariables) variables, or more than "
                    + "\(Self.maximumVariablesBytes) bytes"
            )
        }
    }

    private func check(
        _ channel: HubChannel,
        isTile: Bool,
        before: HubChannel?
    ) throws(AzureError) {
        if platform == .browser, !isTile {
            guard let object = channel.pushChannel.object,
                ["endpoint", "p256dh", "auth"].allSatisfy({ object[$0]?.string != nil })
            else { throw AzureError("pushChannel must be an object of endpoint, p256dh and auth") }
            guard channel.pushChannel.bytes.count <= Self.maximumChannelBytes else {
                throw AzureError("pushChannel has at most \(Self.maximumChannelBytes) bytes")
            }
        } else {
            guard let text = channel.pushChannel.string,
                (1...Self.maximumChannelBytes).contains(text.utf8.count)
            else {
                throw AzureError("pushChannel must be a string of 1 to 4096 bytes")
            }
        }
        try Self.check(tags: channel.tags, before: before?.tags ?? [])
        guard channel.templates.count <= Self.maximumTemplates else {
            throw AzureError("templates holds more than \(Self.maximumTemplates) templates")
        }
        for (name, template) in channel.templates {
            guard HubTemplate.isName(name) else {
                throw AzureError("a template's name is letters, digits and _ @ # . : -")
            }
            try Self.check(tags: template.tags, before: before?.template(name)?.tags ?? [])
            try check(template, name)
            if before?.template(name)?.headers != template.headers {
                try check(headers: template.headers, of: name)
            }
        }
    }

    /// Refuses headers that would not be sent to the push service. Here the client still sees
    /// the error.
    private func check(headers: JSONObject, of template: String) throws(AzureError) {
        var known: ExactStringSet = []
        for (name, value) in headers {
            let path = "templates.\(template).headers.\(name.prefix(60))"
            let name = name.lowercased()
            guard takes(header: name) else {
                throw AzureError("\(path) is not a header that may be set")
            }
            guard known.insert(name).inserted else { throw AzureError("\(path) is there twice") }
            guard let text = value.string, text.utf8.count <= 1024,
                text.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
            else { throw AzureError("\(path) must be a line of text") }
            let values: [String]? =
                switch (platform, name) {
                case (.apns, "apns-priority"): ["10", "5", "1"]
                case (.wns, "x-wns-type"): ["wns/toast", "wns/tile", "wns/badge", "wns/raw"]
                case (.mpns, "x-windowsphone-target"): ["toast", "token", "tile", "raw", ""]
                default: nil
                }
            if let values, !HubChannel.isExpression(text),
                !values.contains(platform == .mpns ? text.lowercased() : text)
            {
                throw AzureError("\(path) has no value that it may have")
            }
        }
    }

    /// Whether a template for the platform may have this header, in lower case. Platforms that are
    /// sent no headers, such as Google's, accept every header, which is only stored.
    private func takes(header name: String) -> Bool {
        switch platform {
        case .apns:
            name.hasPrefix("apns-")
                && !["apns-id", "apns-channel-id", "apns-request-id"].contains(name)
        case .wns: name.hasPrefix("x-wns-") && name != "x-wns-match" || name == "ms-cv"
        case .mpns: name == "x-windowsphone-target" || name == "x-notificationclass"
        case .gcm, .fcm, .fcmv1, .adm, .baidu, .browser, .xiaomi: true
        }
    }

    /// Validates tags. A stored channel name of another surface may stay, although no tag
    /// expression matches it.
    private static func check(tags: [String], before: [String]) throws(AzureError) {
        guard tags.count <= maximumTags else {
            throw AzureError("tags holds more than \(maximumTags) tags")
        }
        guard tags.allSatisfy({ TagName.isValid($0) || before.holds($0) }) else {
            throw AzureError("a tag is 1 to 120 letters, digits and _ @ # . : -")
        }
    }

    private func check(_ template: HubChannel.Template, _ name: String) throws(AzureError) {
        guard JSONValue.object(template.kept(as: name)).bytes.count <= HubTemplate.maximumBytes
        else {
            throw AzureError("templates.\(name) is larger than \(HubTemplate.maximumBytes) bytes")
        }
        let bytes = Array(template.body.utf8)
        switch platform {
        case .wns, .mpns:
            guard template.body.first(where: { !$0.isWhitespace }) == "<" else { return }
            do throws(XMLError) {
                _ = try XMLElement.parse(bytes)
            } catch {
                throw AzureError("templates.\(name).body is not XML, \(error.description)")
            }
        case .apns, .gcm, .fcm, .fcmv1, .adm, .baidu, .browser, .xiaomi:
            guard (try? JSONValue.parse(bytes, maximumDepth: 32))?.object != nil else {
                throw AzureError("templates.\(name).body is no JSON object")
            }
        }
    }

    private static func isAlphanumeric(_ byte: UInt8) -> Bool { ASCII.isAlphanumeric(byte) }

    // MARK: For clients

    package func object(isExpired: Bool) -> JSONObject {
        var object: JSONObject = [
            "installationId": .string(id), "pushChannel": channel.pushChannel,
            "pushChannelExpired": .bool(isExpired), "platform": .string(platform.rawValue),
            "expirationTime": .string(expirationTime ?? Self.noExpiry),
        ]
        if let userID { object["userId"] = .string(userID) }
        channel.write(to: &object)
        if !pushVariables.isEmpty { object["pushVariables"] = .object(pushVariables) }
        if !secondaryTiles.isEmpty {
            var tiles = JSONObject()
            for (name, tile) in secondaryTiles.sortedByKey() {
                var object: JSONObject = ["pushChannel": tile.pushChannel]
                tile.write(to: &object)
                tiles[name] = .object(object)
            }
            object["secondaryTiles"] = .object(tiles)
        }
        return object
    }

    // MARK: In an installation of ours

    /// Returns an installation of ours with this part; the fields of other surfaces stay.
    ///
    /// - Parameters:
    ///   - installation: The stored installation, or a new one.
    ///   - namesChannel: Whether the caller names the channel.
    ///   - now: The time of the save.
    /// - Returns: The installation to store.
    /// - Throws: `InstallationError`; `ObjectError` if the installation is too large.
    package func applied(
        to installation: Installation,
        namesChannel: Bool,
        now: Instant
    ) throws -> Installation {
        var installation = installation
        installation.isTemplateOnly = registration?.isTemplate ?? false
        var object = installation.object
        var changed = write(to: &object, provider: installation.platform)
        if !namesChannel { changed.subtract(Self.routeFields) }
        try installation.take(
            object,
            changed: changed,
            now: now,
            isChannel: { TagName.isValid($0) || ChannelName.isValid($0) }
        )
        if let expiresAt, expiresAt <= now {
            installation.isValid = false
            installation.invalidReason = Installation.hubExpiredReason
        } else if installation.invalidReason == Installation.hubExpiredReason {
            installation.isValid = true
            installation.invalidReason = nil
        }
        try ObjectSize.check(installation.fields)
        return installation
    }

    /// Returns the keys by which a save finds its installation, and takes a channel from others.
    ///
    /// - Parameter namesChannel: Whether the caller names the channel.
    /// - Returns: The keys.
    /// - Throws: `InstallationError`.
    package func keys(namesChannel: Bool) throws(InstallationError) -> Installation.Keys {
        var object: JSONObject = [:]
        _ = write(to: &object, provider: nil)
        // A template shares its channel with other installations, and does not take it from them.
        if !namesChannel || registration?.isTemplate ?? false {
            object = ["installationId": .string(id)]
        }
        return try Installation.Keys(object)
    }

    /// Reads the part of an installation that Azure's clients see. An installation of another
    /// surface gets a platform, too: by its provider or its device type.
    package init(_ installation: Installation) {
        let kept = installation.fields[HubTemplate.field]?.object ?? [:]
        id = installation.installationID ?? installation.objectID
        userID = installation.identity
        let stated = kept["platform"]?.string.flatMap(HubPlatform.init(name:))
        let provider = installation.platform
        if let stated, provider == nil || stated.provider == provider {
            platform = stated
        } else {
            switch (provider, installation.deviceType.lowercased()) {
            case (.fcm, _), (nil, "android"): platform = .fcmv1
            case (.wns, _), (nil, "windows"): platform = .wns
            case (.mpns, _), (nil, "wp"): platform = .mpns
            case (.connection, _): platform = .browser
            case (.apns, _), (nil, _): platform = .apns
            }
        }
        let token = platform.tokenField.flatMap { installation.fields[$0] }
        let route = token ?? installation.token.map(JSONValue.string)
        channel = HubChannel(pushChannel: route ?? kept["pushChannel"] ?? "")
        channel.tags = installation.channels
        channel.readTemplates(kept["templates"]?.object ?? [:])
        for (name, value) in kept["secondaryTiles"]?.object ?? [:] {
            guard let object = value.object else { continue }
            var tile = HubChannel(pushChannel: object["pushChannel"] ?? "")
            tile.tags = (object["tags"]?.array ?? []).compactMap(\.string)
            tile.readTemplates(object["templates"]?.object ?? [:])
            secondaryTiles[name] = tile
        }
        pushVariables = kept["pushVariables"]?.object ?? [:]
        expirationTime = kept["expirationTime"]?.string
        registration = HubRegistration(kept: kept["registration"])
    }

    /// Writes this part into the fields of an installation; the fields of other surfaces stay.
    ///
    /// - Returns: The names of the fields that it set.
    package func write(to object: inout JSONObject, provider: Platform?) -> ExactStringSet {
        object["installationId"] = .string(id)
        // A Mac stays a Mac.
        if provider == nil || provider != platform.provider || object["deviceType"] == "" {
            object["deviceType"] = .string(platform.deviceType)
        }
        for field in Self.routeFields where field != "deviceType" {
            object.removeValue(forKey: field)
        }
        if let field = platform.tokenField { object[field] = channel.pushChannel }
        if platform.provider == .fcm {
            let vendor = object["vendor"]?.string?.lowercased() ?? ""
            if !["", "fcm", "gcm"].contains(vendor) { object.removeValue(forKey: "vendor") }
        }
        if !channel.tags.isEmpty || object["channels"] != nil {
            object["channels"] = .array(channel.tags.map(JSONValue.string))
        }
        object["identity"] = userID.map(JSONValue.string)
        if userID == nil {
            for field in ["owner", "user"] { object.removeValue(forKey: field) }
        }
        object[HubTemplate.field] = .object(kept)
        return Self.routeFields.union(
            ["installationId", "channels", "identity", HubTemplate.field]
        )
    }

    /// The fields with the provider and the address of a device.
    package static let routeFields: ExactStringSet = [
        "deviceType", "deviceToken", "registrationId", "subscriptionUri", "pushType",
    ]

    /// The time after which nothing is sent to the device.
    package var expiresAt: Instant? { expirationTime.flatMap(HubJSON.instant) }

    /// The year 9000.
    private static let farFuture = Instant(milliseconds: 221_845_392_000_000)

    private var kept: JSONObject {
        var kept: JSONObject = ["platform": .string(platform.rawValue)]
        if platform.provider == nil { kept["pushChannel"] = channel.pushChannel }
        if let expirationTime { kept["expirationTime"] = .string(expirationTime) }
        if let registration { kept["registration"] = registration.kept }
        // Only a time that can come is indexed; a far one means "never".
        if let expiresAt, expiresAt < Self.farFuture {
            kept["expiresAt"] = .integer(expiresAt.milliseconds)
        }
        if !pushVariables.isEmpty { kept["pushVariables"] = .object(pushVariables) }
        if !channel.templates.isEmpty {
            // The name of a registration's template is not a tag.
            kept["templates"] = .object(
                registration == nil
                    ? channel.storedTemplates : channel.storedTemplates(areNamesTags: false)
            )
            kept["templateNames"] = .array(channel.templates.map { .string($0.name) })
        }
        if !secondaryTiles.isEmpty {
            var tiles = JSONObject()
            for (name, tile) in secondaryTiles.sortedByKey() {
                tiles[name] = [
                    "pushChannel": tile.pushChannel,
                    "tags": .array(tile.tags.map(JSONValue.string)),
                    "templates": .object(tile.storedTemplates),
                ]
            }
            kept["secondaryTiles"] = .object(tiles)
        }
        return kept
    }
}
