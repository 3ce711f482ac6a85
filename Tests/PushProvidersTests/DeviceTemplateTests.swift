import JSON
import PushCore
import Testing

@testable import PushProviders

@Suite("Azure templates", .timeLimit(.minutes(1)))
struct DeviceTemplateTests {
    private static let words: ExactStringMap<String> = [
        "name": "Ann", "title": "This is the title line", "n": "40", "f": "1.5", "e": "2e3",
        "negative": "-4", "text": "4x", "url": "a b/ü", "quote": "say \"hi\" & <go>\n",
        "trick": "$(name)",
    ]

    @Test(
        "Each expression of the language is evaluated",
        arguments: [
            ("$(name)", "Ann"), ("$(NAME)", "Ann"), ("$( name )", "Ann"), ("$(missing)", ""),
            ("$(title, 4)", "This"), ("$(name, 10)", "Ann"), ("$(name, 0)", ""),
            (".(title, 20)", "This is the title..."), (".(name, 3)", "Ann"), (".(name, 2)", ".."),
            (".(missing, 5)", ""), ("%(url)", "a%20b%2F%C3%BC"),
            ("'text'", "text"), ("\"text\"", "text"),
            ("{'Hi ' + $(name)}", "Hi Ann"), ("{ 'Hi ' + $(name) + \"!\" }", "Hi Ann!"),
            ("{$(name)}", "Ann"), ("{'n: ' + #(n)}", "n: 40"), ("{#(n)}", "40"),
            ("#(negative)", "-4"), ("#(text)", "4x"), ("#(missing)", ""), ("$(trick)", "$(name)"),
        ]
    )
    func expressions(_ expression: String, _ expected: String) throws {
        #expect(
            HubExpression.fill(.string(expression), Self.words) == .string(expected),
            "\(expression)"
        )
    }

    @Test("Headers and the expiry may be expressions, and an expiry of 0 means now or never")
    func expressionsBesideTheBody() throws {
        func native(_ expiry: String, _ words: ExactStringMap<String>) throws -> JSONObject? {
            let stored: JSONObject = [
                "body": "{}", "headers": ["apns-priority": "$(p)", "apns-topic": "plain"],
                "expiry": .string(expiry),
            ]
            return try DeviceTemplate(stored: JSONValue.object(stored).text)
                .native(for: .apns, words, now: .now()).apns?["headers"]?.object
        }
        #expect(
            try native("0", ["p": "5"])
                == ["apns-priority": "5", "apns-topic": "plain", "apns-expiration": "0"]
        )
        #expect(
            try native("$(until)", ["p": "10", "until": "2036-01-01T00:00:00Z"])
                == ["apns-priority": "10", "apns-topic": "plain"]
        )
        #expect(throws: RenderingError.self) {
            try native("$(until)", ["until": "2001-01-01T00:00:00Z"])
        }
    }

    @Test("A number is bare in JSON if it is a JSON number without a sign")
    func numbers() throws {
        let filled = HubExpression.fill(["a": "#(n)", "b": "#(f)", "c": "#(e)"], Self.words)
        #expect(filled?.text == #"{"a":40,"b":1.5,"c":2e3}"#)
    }

    @Test("Values above every push service's limit are not filled in")
    func bound() {
        let words: ExactStringMap<String> = ["long": String(repeating: "a", count: 10_000)]
        #expect(HubExpression.fill(["a": "$(long)"], words)?.text != nil)
        #expect(HubExpression.fill(["a": "$(long)", "b": "$(long)"], words)?.text == nil)
        #expect(HubExpression.fill("{$(long) + $(long)}", words)?.text == nil)
        #expect(HubExpression.fill(["a": "$(long)", "b": ".(long, 9)"], words)?.text != nil)
        #expect(HubExpression.fill(xml: "<a>$(long)</a>", words) != nil)
        #expect(HubExpression.fill(xml: "<a b='$(long)'>$(long)</a>", words) == nil)
    }

    @Test(
        "An expression must be the entire value, and anything else is text",
        arguments: [
            "Hi $(name)", "$(name)!", "$name", "$()", "{$(name) 'x'}", "{}", "{'open}", ".(name)",
            "%(name, 2)", "#(n, 1)", "$(a, x)", "$(a, -1)", "it's", "", "{'a' + }", "$(name",
        ]
    )
    func texts(_ text: String) {
        #expect(HubExpression.fill(.string(text), Self.words) == .string(text))
    }

    @Test("Only string values contain expressions, at any depth, and names do not")
    func places() throws {
        let template = try JSONValue.parse(
            Array(#"{"$(name)":{"a":["$(name)",1,null,true]},"b":{"c":{"d":"$(quote)"}}}"#.utf8)
        )
        #expect(
            HubExpression.fill(template, Self.words)
                == [
                    "$(name)": ["a": ["Ann", 1, .null, true]],
                    "b": ["c": ["d": "say \"hi\" & <go>\n"]],
                ]
        )
    }

    @Test("Texts and attributes in XML are escaped for their place")
    func xml() throws {
        let template = """
            <?xml version="1.0"?><!-- $(name) --><toast launch="{'id=' + $(n)}" x='$(quote)'>
            <text id="1"> $(quote) </text><text>plain $(name)</text><text>{&quot;Hi &quot; + $(name)}</text>
            <![CDATA[$(name)]]></toast>
            """
        #expect(
            HubExpression.fill(xml: template, Self.words) == """
                <?xml version="1.0"?><!-- $(name) --><toast launch="id=40" \
                x='say &quot;hi&quot; &amp; &lt;go&gt;&#10;'>
                <text id="1"> say &quot;hi&quot; &amp; &lt;go&gt;&#10; </text>\
                <text>plain $(name)</text><text>Hi Ann</text>
                <![CDATA[$(name)]]></toast>
                """
        )
        #expect(HubExpression.fill(xml: "<!DOCTYPE x><x/>", [:]) == nil)
        #expect(HubExpression.fill(xml: "<x a='", [:]) == nil)
    }

    private func native(
        _ platform: Platform,
        _ body: String,
        headers: JSONObject = [:]
    ) throws -> PushRequest.NativePayloads {
        let stored: JSONObject = ["body": .string(body), "headers": .object(headers)]
        return try DeviceTemplate(stored: JSONValue.object(stored).text)
            .native(for: platform, Self.words, now: .now())
    }

    @Test("A device's template becomes the message of its provider")
    func platforms() throws {
        #expect(
            try native(.apns, #"{"aps":{"alert":"$(name)"}}"#, headers: ["apns-priority": "5"]).apns
                == [
                    "headers": ["apns-priority": "5"], "payload": ["aps": ["alert": "Ann"]],
                ]
        )
        #expect(
            try native(.fcm, #"{"data":{"m":"$(name)"}}"#).fcm
                == ["message": ["data": ["m": "Ann"]]]
        )
        #expect(
            try native(.fcm, #"{"message":{"notification":{"title":"$(name)"}}}"#).fcm
                == ["message": ["notification": ["title": "Ann"]]]
        )
        #expect(
            try native(.wns, "<toast>$(name)</toast>").wns
                == ["type": "wns/toast", "headers": [:], "body": "<toast>Ann</toast>"]
        )
        #expect(
            try native(.wns, "$(name)", headers: ["X-WNS-Type": "wns/raw"]).wns
                == ["type": "wns/raw", "headers": [:], "body": "Ann"]
        )
        #expect(
            try native(.mpns, "<x>$(name)</x>", headers: ["X-WindowsPhone-Target": "toast"]).mpns
                == ["headers": ["X-WindowsPhone-Target": "toast"], "body": "<x>Ann</x>"]
        )
    }

    @Test("A deleted, unreadable or expired template sends nothing")
    func unusable() {
        #expect(throws: RenderingError.self) { try DeviceTemplate(stored: "") }
        #expect(throws: RenderingError.self) {
            try DeviceTemplate(stored: #"{"body":"{}","expiry":"2020-01-01T00:00:00Z"}"#)
                .native(for: .apns, [:], now: .now())
        }
        #expect(throws: RenderingError.self) { try native(.apns, "[]") }
        #expect(throws: RenderingError.self) { try native(.wns, "<x") }
    }
}
