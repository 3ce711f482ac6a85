import JSON
import PushCore
import Testing

@testable import PushProviders

@Suite("Pushes in several languages", .timeLimit(.minutes(1)))
struct LocaleTests {
    private func body(
        _ platform: Platform,
        _ data: JSONObject,
        _ locale: String?
    ) throws -> String {
        let request = PushRequest(audience: .installations(.init()), data: data)
        let payload = try RenderedPayload.render(
            request,
            pushID: "p",
            for: platform,
            locale: LocaleVariants(data).choose(for: locale)
        )
        return String(decoding: payload.body, as: UTF8.self)
    }

    private let data: JSONObject = [
        "alert": "plain", "title": "T", "alert-fr": "bonjour", "title-fr-CA": "Québec", "k": 1,
    ]

    @Test("Each text is the closest variant, and no variant is left in the payload")
    func apns() throws {
        #expect(
            try body(.apns, data, "en_US")
                == #"{"aps":{"alert":{"title":"T","body":"plain"}},"k":1}"#
        )
        #expect(
            try body(.apns, data, "fr_FR")
                == #"{"aps":{"alert":{"title":"T","body":"bonjour"}},"k":1}"#
        )
        #expect(
            try body(.apns, data, "fr_CA")
                == #"{"aps":{"alert":{"title":"Québec","body":"bonjour"}},"k":1}"#
        )
    }

    @Test("FCM and WNS get the variant too")
    func others() throws {
        #expect(
            try body(.fcm, data, "fr_CA").contains(
                #""notification":{"body":"bonjour","title":"Québec"}"#
            )
        )
        #expect(
            try body(.wns, data, "fr_CA").contains("<text>Québec</text><text>bonjour</text>")
        )
        for platform in [Platform.fcm, .wns] {
            #expect(!(try body(platform, data, "fr").contains("alert-fr")))
        }
    }

    @Test("A platform's own texts override the common ones, key by key")
    func subObjects() throws {
        let data: JSONObject = [
            "alert": "plain", "alert-fr": "bonjour", "alert-de": "hallo",
            "ios": ["alert": "ios", "alert-fr": "salut", "alert-de": .null],
        ]
        #expect(try body(.apns, data, "fr") == #"{"aps":{"alert":"salut"}}"#)
        #expect(try body(.apns, data, "de") == #"{"aps":{"alert":"ios"}}"#)
        #expect(try body(.wns, data, "fr").contains("<text>bonjour</text>"))
        #expect(try body(.wns, data, "de").contains("<text>hallo</text>"))
    }

    @Test("A device without a matching language or plain text gets no text")
    func nothingToSay() throws {
        for platform in [Platform.apns, .fcm, .wns] {
            #expect(throws: RenderingError.noContent(platform)) {
                try body(platform, ["alert-fr": "bonjour"], "en")
            }
            #expect(try body(platform, ["alert-fr": "bonjour"], "fr").contains("bonjour"))
        }
    }
}
