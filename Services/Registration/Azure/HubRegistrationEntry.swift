import AzureHub
import HTTPServer
import JSON
import PushCore

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
