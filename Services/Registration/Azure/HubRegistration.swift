import HTTPServer
import JSON
import PushCore
import XML

/// The data that a registration has beside its installation. Registrations are Azure's older model:
/// one channel with tags, or one channel with tags and one template.
struct HubRegistration: Equatable, Sendable {
    /// Changes with each write.
    var eTag: Int64 = 0
    /// Whether it is for template sends only. A native registration is reached like an
    /// installation.
    var isTemplate = false
    var templateName: String?

    /// The name under which every registration stores its template. They share one name, as a send
    /// makes one push for each name.
    static let template = "registration"

    /// The stored form.
    var kept: JSONValue {
        var kept: JSONObject = ["eTag": .integer(eTag), "isTemplate": .bool(isTemplate)]
        kept["templateName"] = templateName.map(JSONValue.string)
        return .object(kept)
    }

    /// `nil` for an installation.
    init?(kept: JSONValue?) {
        guard let kept, let eTag = kept["eTag"]?.integer else { return nil }
        self.eTag = Int64(eTag)
        isTemplate = kept["isTemplate"]?.bool ?? false
        templateName = kept["templateName"]?.string
    }

    init() {}
}

extension Installation {
    /// Whether it is a registration of Azure's older model.
    var isHubRegistration: Bool {
        HubRegistration(kept: fields[HubTemplate.field]?["registration"]) != nil
    }
}

extension HubPlatform {
    /// The platform's name in registrations; `nil` if registrations do not support it.
    var registrationName: String? {
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
    var handleName: String? {
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
    fileprivate var headersName: String? {
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
    init(entry body: [UInt8], contentType: String?, id: String) throws(AzureError) {
        let root: XMLElement
        do throws(XMLError) {
            root = try XMLElement.parse(HubText.utf8(body, contentType: contentType))
        } catch {
            throw AzureError("the body is not XML: \(error.description)")
        }
        let content = root.name == "entry" ? root.child("content")?.children.first : root
        guard let description = content, description.name.hasSuffix(Self.suffix) else {
            throw AzureError("the body must be an Atom entry with a registration description")
        }
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
        channel.tags = Self.tags(description.value("Tags") ?? "")
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

// MARK: For clients

/// One registration in lists and reads: a stored one, or one that shows a part of an installation.
struct HubRegistrationEntry: Equatable, Sendable {
    let id: String
    let eTag: Int64
    let platform: HubPlatform
    let channel: String
    let tags: [String]
    let pushVariables: JSONObject
    var template: HubChannel.Template?
    var templateName: String?
    let createdAt: Instant
    let updatedAt: Instant

    /// The prefix of ids of registrations that show parts of an installation.
    static let installationPrefix = "i-"

    /// Returns one entry for a registration. For an installation, returns one for itself and one
    /// for each of its templates.
    ///
    /// - Returns: Empty if registrations do not support the platform, or if there is no channel.
    static func entries(of installation: Installation) -> [HubRegistrationEntry] {
        let kept = HubInstallation(installation)
        guard kept.platform.registrationName != nil,
            let channel = kept.channel.pushChannel.string, !channel.isEmpty
        else { return [] }
        func entry(
            _ id: String,
            _ eTag: Int64,
            _ tags: [String],
            _ template: HubChannel.Template? = nil,
            name: String? = nil
        ) -> HubRegistrationEntry {
            HubRegistrationEntry(
                id: id,
                eTag: eTag,
                platform: kept.platform,
                channel: channel,
                tags: tags,
                pushVariables: kept.pushVariables,
                template: template,
                templateName: name,
                createdAt: installation.createdAt,
                updatedAt: installation.updatedAt
            )
        }
        if let registration = kept.registration {
            return [
                entry(
                    kept.id,
                    registration.eTag,
                    kept.channel.tags,
                    registration.isTemplate
                        ? kept.channel.template(HubRegistration.template) : nil,
                    name: registration.templateName
                )
            ]
        }
        let id = installationPrefix + installation.objectID
        let eTag = installation.updatedAt.milliseconds
        let tags = ["$InstallationId:{\(kept.id)}"] + kept.channel.tags
        return [entry(id, eTag, tags)]
            + kept.channel.templates.map { name, template in
                entry(
                    "\(id)-\(name)",
                    eTag,
                    (tags + template.tags + [name]).withoutRepeats(),
                    template,
                    name: name
                )
            }
    }

    /// The ETag, which is weak, like those of Azure.
    var entityTag: String { "W/\"\(eTag)\"" }

    private static let atom = "http://www.w3.org/2005/Atom"
    private static let connect =
        "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"

    /// Writes the entry.
    ///
    /// - Parameter base: The URL of all registrations.
    /// - Returns: An Atom entry.
    func xml(at base: String) -> String {
        let name =
            (platform.registrationName ?? "") + (template == nil ? "" : "Template")
            + "RegistrationDescription"
        return "<entry xmlns=\"\(Self.atom)\""
            + " xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\""
            + " m:etag=\"\(AzureXML.escaped(entityTag))\">"
            + AzureXML.element("id", "\(base)/\(id)")
            + "<title type=\"text\">\(AzureXML.escaped(id))</title>"
            + AzureXML.element("published", createdAt.iso8601)
            + AzureXML.element("updated", updatedAt.iso8601)
            + "<content type=\"application/xml\"><\(name) xmlns=\"\(Self.connect)\""
            + " xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">\(elements)</\(name)>"
            + "</content></entry>"
    }

    /// The elements in the order of .NET's data contract, which ignores an element at a later
    /// place.
    private var elements: String {
        var xml =
            AzureXML.element("ETag", "\(eTag)")
            + AzureXML.element("ExpirationTime", HubInstallation.noExpiry)
            + AzureXML.element("RegistrationId", id)
        if !tags.isEmpty { xml += AzureXML.element("Tags", tags.joined(separator: ",")) }
        if !pushVariables.isEmpty {
            xml += AzureXML.element("PushVariables", JSONValue.object(pushVariables).text)
        }
        xml += AzureXML.element(platform.handleName ?? "", channel)
        guard let template else { return xml }
        // A CDATA section cannot contain its own end.
        let body = AzureXML.representable(template.body)
            .replacing("]]>", with: "]]]]><![CDATA[>")
        xml += "<BodyTemplate><![CDATA[\(body)]]></BodyTemplate>"
        let name = templateName.map { AzureXML.element("TemplateName", $0) } ?? ""
        if platform == .apns {
            xml += template.expiry.map { AzureXML.element("Expiry", $0) } ?? ""
            return xml + name + headers(template)
        }
        return xml + headers(template) + name
    }

    private func headers(_ template: HubChannel.Template) -> String {
        // .NET requires this element for WNS, even if it is empty.
        guard let all = platform.headersName, !template.headers.isEmpty || platform == .wns else {
            return ""
        }
        let one = all.dropLast()
        let list = template.headers.map { name, value in
            "<\(one)>" + AzureXML.element("Header", name)
                + AzureXML.element("Value", value.string ?? "") + "</\(one)>"
        }
        return "<\(all)>\(list.joined())</\(all)>"
    }

    /// Returns a page of a list, as an Atom feed.
    static func feed(_ entries: [HubRegistrationEntry], at base: String, next: String?) -> String {
        let updated = entries.map(\.updatedAt).max() ?? .now()
        var xml =
            "<feed xmlns=\"\(atom)\"><title type=\"text\">Registrations</title>"
            + AzureXML.element("id", base) + AzureXML.element("updated", updated.iso8601)
            + "<link rel=\"self\" href=\"\(AzureXML.escaped(base))\"/>"
        if let next { xml += "<link rel=\"next\" href=\"\(AzureXML.escaped(next))\"/>" }
        return xml + entries.map { $0.xml(at: base) }.joined() + "</feed>"
    }
}
