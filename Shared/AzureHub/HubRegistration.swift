package import JSON
package import PushCore
import XML

/// The data that a registration has beside its installation. Registrations are Azure's older model:
/// one channel with tags, or one channel with tags and one template.
package struct HubRegistration: Equatable, Sendable {
    /// Changes with each write.
    package var eTag: Int64 = 0
    /// Whether it is for template sends only. A native registration is reached like an
    /// installation.
    package var isTemplate = false
    package var templateName: String?

    /// The name under which every registration stores its template. They share one name, as a send
    /// makes one push for each name.
    package static let template = "registration"

    /// The stored form.
    package var kept: JSONValue {
        var kept: JSONObject = ["eTag": .integer(eTag), "isTemplate": .bool(isTemplate)]
        kept["templateName"] = templateName.map(JSONValue.string)
        return .object(kept)
    }

    /// `nil` for an installation.
    package init?(kept: JSONValue?) {
        guard let kept, let eTag = kept["eTag"]?.integer else { return nil }
        self.eTag = Int64(eTag)
        isTemplate = kept["isTemplate"]?.bool ?? false
        templateName = kept["templateName"]?.string
    }

    package init() {}
}

extension Installation {
    /// Whether it is a registration of Azure's older model.
    package var isHubRegistration: Bool {
        HubRegistration(kept: fields[HubTemplate.field]?["registration"]) != nil
    }
}

extension HubPlatform {
    /// The platform's name in registrations; `nil` if registrations do not support it.
    package var registrationName: String? {
        switch self {
        case .apns: "Apple"
        case .gcm, .fcm: "Gcm"
        case .fcmv1: "FcmV1"
        case .wns: "Windows"
        case .mpns: "Mpns"
        case .adm: "Adm"
        case .xiaomi: "Xiaomi"
        case .baidu, .browser: nil
        }
    }

    /// The element of a registration's channel, and its name in a filter.
    package var handleName: String? {
        switch self {
        case .apns: "DeviceToken"
        case .gcm, .fcm: "GcmRegistrationId"
        case .fcmv1: "FcmV1RegistrationId"
        case .wns, .mpns: "ChannelUri"
        case .adm: "AdmRegistrationId"
        case .xiaomi: "XiaomiRegistrationId"
        case .baidu, .browser: nil
        }
    }

    /// The element of a template's headers.
    package var headersName: String? {
        switch self {
        case .apns: "ApnsHeaders"
        case .wns: "WnsHeaders"
        case .mpns: "MpnsHeaders"
        case .gcm, .fcm, .fcmv1, .adm, .baidu, .browser, .xiaomi: nil
        }
    }

    fileprivate init?(registrationName name: String) {
        switch name.lowercased() {
        case "apple": self = .apns
        case "gcm", "fcm": self = .gcm
        case "fcmv1": self = .fcmv1
        case "windows": self = .wns
        case "mpns": self = .mpns
        case "adm": self = .adm
        case "baidu": self = .baidu
        case "browser": self = .browser
        case "xiaomi": self = .xiaomi
        default: return nil
        }
    }
}

// MARK: From a client

extension HubInstallation {
    private static let templateSuffix = "TemplateRegistrationDescription"
    private static let suffix = "RegistrationDescription"
    private static let maximumNameBytes = 200

    /// Parses the Atom entry of a `POST` or `PUT`.
    ///
    /// - Parameters:
    ///   - body: The request's body.
    ///   - contentType: The request's content type.
    ///   - id: The registration's id.
    /// - Throws: `AzureError` 400, or 501 for a platform that registrations do not support.
    package init(entry body: [UInt8], contentType: String?, id: String) throws(AzureError) {
        let root: XMLElement
        do throws(XMLError) {
            root = try XMLElement.parse(HubText.utf8(body, contentType: contentType))
        } catch {
            throw AzureError("the body is not XML: \(error.description)")
        }
        try self.init(description: try Self.description(in: root), id: id, tags: nil)
    }

    /// Parses a registration of a hub's export job. It has an id, and may have an expiry. A registration
    /// that shows an installation of the hub becomes that installation.
    ///
    /// - Throws: `AzureError`, also for a template of an installation: the export divides it from its
    ///   installation.
    package init(exported bytes: [UInt8]) throws(AzureError) {
        let root: XMLElement
        do throws(XMLError) {
            root = try XMLElement.parse(HubText.utf8(bytes, contentType: nil))
        } catch {
            throw AzureError("the body is not XML: \(error.description)")
        }
        let description = try Self.description(in: root)
        let all = Self.tags(description.value("Tags") ?? "")
        let installation = all.lazy.compactMap { Self.named("$InstallationId:", $0) }.first
        let user = all.lazy.compactMap { Self.named("$UserId:", $0) }.first
        guard let id = installation ?? description.value("RegistrationId") else {
            throw AzureError("RegistrationId is missing")
        }
        guard (1...256).contains(id.utf8.count) else {
            throw AzureError("RegistrationId must be 1 to 256 bytes")
        }
        try self.init(description: description, id: id, tags: all.filter { !$0.hasPrefix("$") })
        if installation != nil {
            guard registration?.isTemplate != true else {
                throw AzureError("the template of an installation must be in its installation")
            }
            registration = nil
        } else {
            registration?.eTag = description.value("ETag").flatMap { Int64($0) } ?? 1
        }
        userID = try user.map { name throws(AzureError) in try Self.userID(.string(name)) }
        if let time = description.value("ExpirationTime"), !time.hasPrefix("9999-") {
            expirationTime = try HubJSON.time(.string(time), "ExpirationTime")
        }
    }

    /// Returns the name in an automatic tag, `$InstallationId:{…}`.
    private static func named(_ prefix: String, _ tag: String) -> String? {
        guard tag.hasPrefix(prefix) else { return nil }
        let name = tag.dropFirst(prefix.count)
        guard name.hasPrefix("{"), name.hasSuffix("}") else { return String(name) }
        return String(name.dropFirst().dropLast())
    }

    private static func description(in root: XMLElement) throws(AzureError) -> XMLElement {
        let content = root.name == "entry" ? root.child("content")?.children.first : root
        guard let description = content, description.name.hasSuffix(Self.suffix) else {
            throw AzureError("the body must be an Atom entry with a registration description")
        }
        return description
    }

    /// Reads a description; `tags` replaces its tags, unless it is `nil`.
    private init(
        description: XMLElement,
        id: String,
        tags: [String]?
    ) throws(AzureError) {
        let isTemplate = description.name.hasSuffix(Self.templateSuffix)
        let name = description.name.dropLast((isTemplate ? Self.templateSuffix : Self.suffix).count)
        guard let platform = HubPlatform(registrationName: String(name)) else {
            throw AzureError("unknown registration description \"\(description.name.prefix(60))\"")
        }
        guard let handleName = platform.handleName else {
            throw .notSupported("A registration of the platform \(platform.rawValue)")
        }
        let fcm = platform == .gcm ? description.value("FcmRegistrationId") : nil
        guard let handle = description.value(handleName) ?? fcm else {
            throw AzureError("\(handleName) is missing")
        }
        self.init(id: id, platform: platform, channel: HubChannel(pushChannel: .string(handle)))
        channel.tags = tags ?? Self.tags(description.value("Tags") ?? "")
        if let text = description.value("PushVariables") {
            guard let object = (try? JSONValue.parse(Array(text.utf8)))?.object else {
                throw AzureError("PushVariables must be a JSON object")
            }
            pushVariables = object.filtered
        }
        var registration = HubRegistration()
        if isTemplate {
            registration.isTemplate = true
            registration.templateName = description.value("TemplateName")
            guard registration.templateName.map({ $0.utf8.count <= Self.maximumNameBytes }) ?? true
            else { throw AzureError("TemplateName has at most \(Self.maximumNameBytes) bytes") }
            channel.templates = [
                (HubRegistration.template, try Self.template(description, platform))
            ]
        }
        self.registration = registration
        try check()
    }

    private static func tags(_ text: String) -> [String] {
        text.split(separator: ",").map { $0.trimmedBlanks }.filter { !$0.isEmpty }
            .withoutRepeats()
    }

    private static func template(
        _ description: XMLElement,
        _ platform: HubPlatform
    ) throws(AzureError) -> HubChannel.Template {
        guard let body = description.child("BodyTemplate")?.text, !body.isEmpty else {
            throw AzureError("BodyTemplate is missing")
        }
        var headers: JSONObject = [:]
        for header in platform.headersName.flatMap(description.child)?.children ?? [] {
            guard let name = header.value("Header") else {
                throw AzureError("a header of the template has no Header")
            }
            headers[name] = .string(header.value("Value") ?? "")
        }
        // The iOS SDK has its own element for the priority.
        let names = headers.map { $0.key.lowercased() }
        if platform == .apns, !names.contains("apns-priority"),
            let priority = description.value("Priority")
        {
            headers["apns-priority"] = .string(priority)
        }
        var expiry = description.value("Expiry")
        if let text = expiry, !HubChannel.isExpression(text), text != "0" {
            guard let time = HubTime.instant(text, now: .earliest) else {
                throw AzureError("Expiry must be a time, 0 or an expression")
            }
            expiry = Instant(iso8601: text) == nil ? time.iso8601 : text
        }
        return HubChannel.Template(body: body, headers: headers, expiry: expiry, tags: [])
    }
}

extension XMLElement {
    /// Returns the trimmed text of a child; `nil` if it is absent or empty.
    fileprivate func value(_ name: String) -> String? {
        child(name).map { $0.text[...].trimmedBlanks }.flatMap { $0.isEmpty ? nil : $0 }
    }
}

extension Substring {
    fileprivate var trimmedBlanks: String {
        let inner = drop { $0.isWhitespace }
        guard let last = inner.lastIndex(where: { !$0.isWhitespace }) else { return "" }
        return String(inner[...last])
    }
}
