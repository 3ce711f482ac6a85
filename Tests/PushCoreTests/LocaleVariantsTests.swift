import JSON
import PushCore
import Testing

@Suite("The language of a device", .timeLimit(.minutes(1)))
struct LocaleVariantsTests {
    private let data: JSONObject = [
        "alert": "plain", "alert-fr": "f", "alert-fr_CA": "c", "title-zh-Hans": "z",
        "ios": ["alert-pt-BR": "b"],
    ]

    @Test(
        "A device gets its own locale, else its language, else the plain text",
        arguments: [
            "fr_CA": "fr-ca", "fr-CA": "fr-ca", "FR-ca": "fr-ca", "fr": "fr", "fr_FR": "fr",
            "fr_CA@calendar=gregorian": "fr-ca", "fr_CA.UTF-8": "fr-ca", "fr-CA-x": "fr-ca",
            "zh-Hans_CN": "zh-hans", "zh_CN": nil, "pt-BR": "pt-br", "pt": nil, "frp": nil,
            "en": nil, "": nil,
        ]
    )
    func chooses(locale: String, variant: String?) {
        #expect(LocaleVariants(data).choose(for: locale) == variant)
    }

    @Test("A device without a locale and a push without variants get the plain text")
    func none() {
        #expect(LocaleVariants(data).choose(for: nil) == nil)
        #expect(LocaleVariants(["alert": "x"]).choose(for: "fr") == nil)
        #expect(LocaleVariants(["alert": "x", "ios": ["sound": "s"]]).isEmpty)
        #expect(LocaleVariants(nil).isEmpty)
    }

    @Test(
        "A key that only looks like a locale is the app's own",
        arguments: [
            "alert-type", "title-img", "title-loc-key", "title-loc-args", "alert-url",
            "alert-en-img", "alert-xx", "title-", "alert-f", "alertfr", "sound-fr", "alert-fr-",
            "alert-12",
        ]
    )
    func otherKeys(key: String) {
        #expect(LocaleVariants.variant(key) == nil)
    }

    @Test("A language code that is also a word counts beside another language, or with a sentence")
    func words() {
        for (data, locales): (JSONObject, [String]) in [
            (["alert": "x", "alert-id": "8812"], []), (["alert": "x", "alert-id": 8812], []),
            (["alert": "x", "title-no": "17"], []),
            (["alert": "x", "alert-id": "Apa kabar"], ["id"]),
            (["alert": "x", "alert-id": ["body": "Halo"]], ["id"]),
            (["alert": "x", "alert-id": "Halo", "alert-fr": "f"], ["id", "fr"]),
            (["alert": "x", "alert-id-ID": "Halo"], ["id-id"]),
            (["alert": "x", "ios": ["alert-id": "8"], "alert-zh-yue": "y"], ["zh-yue", "id"]),
        ] {
            #expect(Set(LocaleVariants(data).locales) == Set(locales), "\(data)")
        }
        #expect(LocaleVariants(["alert-id": "8812"]).variant("alert-id") == nil)
        #expect(LocaleVariants(["alert-id": "Apa kabar"]).variant("alert-id")?.locale == "id")
    }
}
