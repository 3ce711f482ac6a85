import InstallationStorage
import JSON
import PushCore
import Testing

@testable import Console

@Suite("Warnings about texts, from some devices of the audience")
struct SampleWarningsTests {
    private func sentences(
        _ data: JSONObject,
        devices: Int = 100,
        locales: [String: Int] = [:],
        missing: [String: Int] = [:]
    ) throws -> [String] {
        let request = try PushRequest.parse(["where": [:], "data": .object(data)], now: .now())
        let sample = AudienceSample(devices: devices, locales: locales, missing: missing)
        return SampleWarnings(sample: sample, request: request, t: Words(.english)).sentences
    }

    @Test("A placeholder is named if two of five devices lack its value, with what they get")
    func placeholders() throws {
        let data: JSONObject = ["alert": "Hi {{a}}, {{b|you}}, {{c}}"]
        #expect(try sentences(data, missing: ["a": 39, "b": 39]) == [])
        #expect(
            try sentences(data, missing: ["a": 40, "b": 41, "c": 100]) == [
                "40.0% of 100 devices have no value for {{a}}: nothing is shown in its place.",
                "41.0% of 100 devices have no value for {{b}}: they get “you”.",
                "No device that was looked at has a value for {{c}}. Compare the name with the app's fields.",
            ]
        )
        #expect(try sentences(data, devices: 0) == [])
        #expect(try sentences(["alert": "Hi"], missing: [:]) == [])
    }

    @Test("Languages without a text are named if they are a third of the devices")
    func languages() throws {
        let data: JSONObject = ["alert": "Hi", "alert-fr": "Salut", "alert-pt-BR": "Oi"]
        let locales = ["fr-CA": 40, "pt_BR": 26, "pt-PT": 10, "de": 20, "de_AT": 4]
        #expect(
            try sentences(data, locales: locales) == [
                "34.0% of 100 devices have a language without a text of its own: de, pt. They get the main text."
            ]
        )
        #expect(try sentences(data, locales: ["fr": 70, "de": 30]) == [])
        // Without a locale there is nothing to say.
        #expect(try sentences(data, locales: ["fr": 50, "": 50]) == [])
    }

    @Test("A text of one language is for the language of most devices")
    func oneLanguage() throws {
        #expect(try sentences(["alert": "Hi"], locales: ["en": 60, "en_GB": 20, "fr": 20]) == [])
        #expect(
            try sentences(["alert": "Hi"], locales: ["en": 50, "en-GB": 10, "fr": 40]) == [
                "The text has one language, but 40.0% of 100 devices have another one than most: fr. They get the same text."
            ]
        )
    }
}
