import JSON
import PushCore
import Testing

@testable import PushProviders

@Suite("Payloads with each device's own values", .timeLimit(.minutes(1)))
struct PayloadTemplateTests {
    private func template(
        _ platform: Platform,
        _ data: JSONObject,
        change: (inout PushRequest) -> Void = { _ in }
    ) throws -> PayloadTemplate {
        var request = PushRequest(audience: .installations(.init()), data: data)
        change(&request)
        return try PayloadTemplate.render(request, pushID: "p", for: platform)
    }

    private func text(_ template: PayloadTemplate, _ values: JSONObject?) throws -> String {
        String(decoding: try template.payload(values: values).body, as: UTF8.self)
    }

    @Test("A placeholder becomes the device's value, its fallback, or the empty string")
    func values() throws {
        let template = try template(.apns, ["alert": "Hi {{name|friend}}, {{n}} {{b}}.", "k": "v"])
        #expect(template.isPersonal)
        #expect(
            try text(template, ["name": "Ann", "n": 3, "b": true])
                == #"{"aps":{"alert":"Hi Ann, 3 true."},"k":"v"}"#
        )
        for values: JSONObject? in [nil, [:], ["name": .null, "n": []], ["name": "", "n": [:]]] {
            #expect(try text(template, values) == #"{"aps":{"alert":"Hi friend,  ."},"k":"v"}"#)
        }
        #expect(try !self.template(.apns, ["alert": "Hi"]).isPersonal)
    }

    private let nasty = "\"\\<&>'\u{1}\n{{name}} é🔔\u{E000}"

    @Test("A value is escaped for its place, also for JSON within JSON")
    func apnsEscapes() throws {
        let template = try template(.apns, ["alert": "{{v}}!", "deep": ["a": ["{{v}}"]]])
        let sent = try JSONValue.parse(try template.payload(values: ["v": .string(nasty)]).body)
        #expect(sent["aps"]?["alert"]?.string == nasty + "!")
        #expect(sent["deep"]?["a"]?[0]?.string == nasty)
    }

    @Test("FCM's token and time to live stay in place")
    func fcm() throws {
        let template = try template(
            .fcm,
            ["alert": "{{v}}", "title": "{{v}}", "o": ["deep": "{{v}}"], "k": "{{v}}"]
        ) { $0.expiration = .afterSeconds(60) }
        let payload = try template.payload(values: ["v": .string(nasty)])
        let body = FCMRequest.body(
            OutgoingNotification(
                notificationID: "id",
                target: DeviceTarget(provider: .fcm, token: "T"),
                payload: payload,
                expiration: 1_700_000_060
            ),
            at: Instant(seconds: 1_700_000_000)
        )
        let message = try #require(try JSONValue.parse(body)["message"])
        #expect(message["token"] == "T")
        #expect(message["android"]?["ttl"] == "60s")
        #expect(message["notification"]?["body"]?.string == nasty)
        #expect(message["notification"]?["title"]?.string == nasty)
        #expect(message["data"]?["k"]?.string == nasty)
        let inner = try JSONValue.parse(message["data"]?["o"]?.string ?? "")
        #expect(inner["deep"]?.string == nasty)
    }

    @Test("In XML a value is text, and JSON in an attribute stays JSON")
    func wns() throws {
        let value = #"a<b>&"c'"#
        let template = try template(.wns, ["alert": "{{v}}", "k": "{{v}}"])
        #expect(
            try text(template, ["v": .string(value)])
                == #"<toast launch="{&quot;k&quot;:&quot;a&lt;b&gt;&amp;\&quot;c&apos;&quot;}">"#
                + #"<visual><binding template="ToastGeneric">"#
                + "<text>a&lt;b&gt;&amp;&quot;c&apos;</text></binding></visual></toast>"
        )
        let raw = try self.template(.wns, ["k": "{{v}}"])
        #expect(try text(raw, ["v": .string(value)]) == #"{"k":"a<b>&\"c'"}"#)
    }

    @Test("Only the device whose payload becomes too large fails")
    func sizes() throws {
        func value(_ count: Int) -> JSONObject {
            ["v": .string(String(repeating: "é", count: count / 2))]
        }
        let apns = try template(.apns, ["alert": "{{v}}"])
        let frame = #"{"aps":{"alert":""}}"#.utf8.count
        #expect(try apns.payload(values: value(4096 - frame)).body.count == 4096)
        #expect(throws: RenderingError.tooLarge(bytes: 4098, limit: 4096)) {
            try apns.payload(values: value(4096 - frame + 2))
        }
        // FCM counts names and texts, not the JSON around them.
        let fcm = try template(.fcm, ["k": "{{v}}"])
        _ = try fcm.payload(values: value(4094))
        #expect(throws: RenderingError.tooLarge(bytes: 4097, limit: 4096)) {
            try fcm.payload(values: value(4096))
        }
        #expect(throws: RenderingError.self) {
            try template(.apns, ["alert": .string("{{v}}" + String(repeating: "x", count: 4096))])
        }
        // The marks themselves do not count.
        _ = try template(
            .apns,
            ["alert": .string("{{v}}" + String(repeating: "x", count: 4096 - frame))]
        )
    }

    @Test("Private-use characters of a push stay unchanged")
    func privateCharacters() throws {
        let template = try template(.apns, ["alert": "\u{E000}\"0\u{E000}{{v}}"])
        #expect(
            try text(template, ["v": "x"]) == "{\"aps\":{\"alert\":\"\u{E000}\\\"0\u{E000}x\"}}"
        )
    }

    @Test("An incremented badge is the device's own number, beside its own texts")
    func badges() throws {
        func body(_ platform: Platform, _ data: JSONObject, _ badge: Int?) throws -> String {
            let template = try template(platform, data)
            #expect(template.isPersonal)
            let payload = try template.payload(values: ["n": "x"], badge: badge)
            return String(decoding: payload.body, as: UTF8.self)
        }
        let data: JSONObject = ["alert": "{{n}}", "badge": "Increment"]
        #expect(try body(.apns, data, 41) == #"{"aps":{"alert":"x","badge":41}}"#)
        #expect(try body(.apns, data, nil) == #"{"aps":{"alert":"x","badge":1}}"#)
        #expect(try body(.fcm, data, 7).contains(#""notification_count":7,"#))
        #expect(try body(.wns, ["badge": "Increment"], 7) == #"<badge value="7"/>"#)
        let lower: JSONObject = ["badge": ["__op": "Decrement", "amount": 2]]
        #expect(try body(.apns, lower, 3) == #"{"aps":{"badge":3}}"#)
        #expect(try body(.apns, lower, nil) == #"{"aps":{"badge":0}}"#)
        #expect(
            try body(.mpns, ["wp": ["badge": "increment"]], 120).contains(
                "<wp:Count>99</wp:Count>"
            )
        )
        // A toast has no badge, so there is no difference.
        #expect(try !self.template(.wns, ["alert": "x", "badge": "Increment"]).isPersonal)
    }

    @Test("A native payload keeps its braces")
    func native() throws {
        let template = try template(.apns, ["alert": "{{v}}"]) {
            $0.native.apns = ["payload": ["aps": ["alert": "{{v}}"]]]
        }
        #expect(try text(template, ["v": "x"]) == #"{"aps":{"alert":"{{v}}"}}"#)
    }
}
