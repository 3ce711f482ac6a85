import AzureHub
import JSON
import PushCore
import Testing

@testable import Registration

@Suite("Azure registrations", .timeLimit(.minutes(1)))
struct HubRegistrationTests {
    private func entry(_ name: String, _ inner: String) -> [UInt8] {
        Array(
            """
            <?xml version="1.0" encoding="utf-8"?><entry xmlns="http://www.w3.org/2005/Atom">
            <content type="application/xml"><\(name) xmlns:i="http://www.w3.org/2001/XMLSchema-instance"
            xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">\(inner)</\(name)>
            </content></entry>
            """.utf8
        )
    }

    private func read(_ name: String, _ inner: String) throws -> HubInstallation {
        try HubInstallation(entry: entry(name, inner), contentType: nil, id: "1-2-1")
    }

    private func kept(_ wanted: HubInstallation) throws -> Installation {
        var installation = Installation(app: "shop", objectID: "o", at: .init(milliseconds: 0))
        var object = installation.object
        let changed = wanted.write(to: &object, provider: nil)
        try installation.take(
            object,
            changed: changed,
            now: .init(milliseconds: 1000),
            isChannel: TagName.isValid
        )
        return installation
    }

    @Test("Characters that XML 1.0 does not allow are replaced, in a CDATA section as in text")
    func representable() {
        #expect(
            AzureXML.representable("a\u{1}\u{FFFF}\u{FFFE}\t<&") == "a\u{FFFD}\u{FFFD}\u{FFFD}\t<&"
        )
        #expect(AzureXML.escaped("\u{1}<\t") == "\u{FFFD}&lt;&#9;")
    }

    @Test("A native description is read, stored and returned, its elements in .NET's order")
    func native() throws {
        let wanted = try read(
            "AppleRegistrationDescription",
            "<ETag>7</ETag><Tags>a, b,a,</Tags><PushVariables>{&quot;v&quot;:&quot;1&quot;}</PushVariables>"
                + "<DeviceToken> AB12 </DeviceToken>"
        )
        let stored = try kept(wanted)
        #expect(stored.token == "ab12")
        #expect(stored.channels == ["a", "b"])
        #expect(stored.isHubRegistration)
        let shown = HubRegistrationEntry.entries(of: stored)
        #expect(shown.count == 1)
        #expect(
            shown[0].xml(at: "https://h/shop/registrations").contains(
                "<ETag>0</ETag><ExpirationTime>9999-12-31T23:59:59.9999999Z</ExpirationTime>"
                    + "<RegistrationId>1-2-1</RegistrationId><Tags>a,b</Tags>"
                    + "<PushVariables>{&quot;v&quot;:&quot;1&quot;}</PushVariables>"
                    + "<DeviceToken>AB12</DeviceToken></AppleRegistrationDescription>"
            )
        )
        let feed = HubRegistrationEntry.feed(shown, at: "https://h/shop/registrations", next: nil)
        #expect(feed.hasSuffix(shown[0].xml(at: "https://h/shop/registrations") + "</feed>"))
    }

    @Test(
        "A template description of each platform is returned unchanged",
        arguments: [
            (
                "Apple",
                "<DeviceToken>AB</DeviceToken><BodyTemplate><![CDATA[{\"aps\":{\"a\":\"$(m)\"}}]]></BodyTemplate>"
                    + "<Expiry>$(e)</Expiry><TemplateName>t</TemplateName>"
                    + "<ApnsHeaders><ApnsHeader><Header>apns-priority</Header><Value>$(p)</Value></ApnsHeader></ApnsHeaders>"
            ),
            (
                "Gcm",
                "<GcmRegistrationId>g</GcmRegistrationId><BodyTemplate><![CDATA[{\"data\":{}}]]></BodyTemplate>"
                    + "<TemplateName>t</TemplateName>"
            ),
            (
                "FcmV1",
                "<FcmV1RegistrationId>g</FcmV1RegistrationId><BodyTemplate><![CDATA[{\"message\":{}}]]></BodyTemplate>"
                    + "<TemplateName>t</TemplateName>"
            ),
            (
                "Windows",
                "<ChannelUri>https://h.notify.windows.com/?token=a%2b&amp;b=c</ChannelUri>"
                    + "<BodyTemplate><![CDATA[<toast>$(m)</toast>]]></BodyTemplate>"
                    + "<WnsHeaders><WnsHeader><Header>X-WNS-Type</Header><Value>wns/toast</Value></WnsHeader></WnsHeaders>"
                    + "<TemplateName>t</TemplateName>"
            ),
            (
                "Mpns",
                "<ChannelUri>https://h.notify.live.net/x</ChannelUri><BodyTemplate><![CDATA[<a>$(m)</a>]]></BodyTemplate>"
                    + "<MpnsHeaders><MpnsHeader><Header>X-NotificationClass</Header><Value>2</Value></MpnsHeader></MpnsHeaders>"
                    + "<TemplateName>t</TemplateName>"
            ),
        ]
    )
    func templates(_ platform: String, _ inner: String) throws {
        let name = platform + "TemplateRegistrationDescription"
        let wanted = try read(name, "<Tags>a</Tags>" + inner)
        #expect(wanted.registration?.isTemplate == true)
        let stored = try kept(wanted)
        // A send finds it by this name only, which is not a tag.
        #expect(stored.fields["_azure"]?["templateNames"] == ["registration"])
        #expect(stored.fields["_azure"]?["templates"]?["registration"]?["tags"] == [])
        let shown = HubRegistrationEntry.entries(of: stored)
        #expect(shown.map(\.tags) == [["a"]])
        #expect(shown[0].xml(at: "b").contains("<Tags>a</Tags>\(inner)</\(name)>"))
    }

    @Test(
        "An invalid registration is refused",
        arguments: [
            ("AppleRegistrationDescription", "", 400),
            ("AppleRegistrationDescription", "<DeviceToken>AB</DeviceToken><Tags>a b</Tags>", 400),
            ("AppleTemplateRegistrationDescription", "<DeviceToken>AB</DeviceToken>", 400),
            (
                "AppleTemplateRegistrationDescription",
                "<DeviceToken>AB</DeviceToken><BodyTemplate>no JSON</BodyTemplate>", 400
            ),
            (
                "AppleTemplateRegistrationDescription",
                "<DeviceToken>AB</DeviceToken><BodyTemplate>{}</BodyTemplate><Expiry>soon</Expiry>",
                400
            ),
            ("AmigaRegistrationDescription", "", 400), ("Other", "", 400),
            ("BaiduRegistrationDescription", "<BaiduUserId>u</BaiduUserId>", 501),
        ]
    )
    func refused(_ name: String, _ inner: String, _ status: Int) {
        let error = #expect(throws: AzureError.self) { try read(name, inner) }
        #expect(error?.status == status)
    }

    @Test("An installation is listed as itself and as each of its templates")
    func installations() throws {
        let stored = try kept(
            HubInstallation(
                [
                    "installationId": "i", "platform": "apns", "pushChannel": "AB", "tags": ["n"],
                    "templates": ["t": ["body": "{}", "tags": ["x"]]],
                ],
                id: "i"
            )
        )
        let shown = HubRegistrationEntry.entries(of: stored)
        #expect(shown.map(\.id) == ["i-o", "i-o-t"])
        #expect(
            shown.map(\.tags) == [
                ["$InstallationId:{i}", "n"], ["$InstallationId:{i}", "n", "x", "t"],
            ]
        )
        #expect(shown.map(\.templateName) == [nil, "t"])
    }

    @Test("If-Match is an ETag as each client quotes it, or a star")
    func matches() throws {
        for text in ["\"7\"", "W/\"7\"", "7"] { #expect(try ETagMatch(text) == .exactly(7)) }
        #expect(try ETagMatch("*") == .present)
        #expect(throws: AzureError.self) { try ETagMatch("\"\"") }
        func status(_ match: ETagMatch, _ eTag: Int64?) -> Int? {
            do throws(AzureError) {
                try match.check(eTag)
                return nil
            } catch {
                return error.status
            }
        }
        #expect(status(.any, nil) == nil)
        #expect(status(.present, nil) == 404)
        #expect(status(.present, 1) == nil)
        #expect(status(.exactly(7), 7) == nil)
        #expect(status(.exactly(7), 8) == 412)
        #expect(status(try ETagMatch("\"other\""), 8) == 412)
    }

    @Test(
        "A filter is one channel",
        arguments: [
            ("DeviceToken eq 'AB'", ["AB", "ab"], [Platform.apns]),
            ("deviceToken eq 'AB' ", ["AB", "ab"], [.apns]),
            ("GcmRegistrationId EQ 'it''s'", ["it's"], [.fcm]),
            (
                "ChannelUri eq 'https%3a%2f%2fh%2fX'",
                ["https%3a%2f%2fh%2fX", "https://h/X", "https%3a%2f%2fh%2fx", "https://h/x"],
                Platform.allCases
            ),
        ]
    )
    func filters(_ text: String, _ tokens: [String], _ platforms: [Platform]) throws {
        let filter = try RegistrationFilter(text)
        #expect(filter.tokens == tokens)
        #expect(filter.platforms == platforms)
    }

    @Test(
        "Another filter is refused by name",
        arguments: [
            "", "DeviceToken", "DeviceToken ne 'AB'", "DeviceToken eq AB", "Color eq 'red'",
        ]
    )
    func otherFilters(_ text: String) {
        #expect(throws: AzureError.self) { try RegistrationFilter(text) }
    }

    @Test("A position in a list is sent as a token, and any other text is refused")
    func places() throws {
        let place = ListPlace(objectID: "abc", skipped: 3)
        #expect(try ListPlace(token: place.token) == place)
        #expect(!place.token.contains { "+/=&%".contains($0) })
        for text in ["NEXT==", "!", "AAAA"] {
            #expect(throws: AzureError.self) { try ListPlace(token: text) }
        }
    }
}
