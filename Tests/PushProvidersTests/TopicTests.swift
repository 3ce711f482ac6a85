import JSON
import PushCore
import Testing

@testable import PushProviders

@Suite("Pushes to an audience topic", .timeLimit(.minutes(1)))
struct TopicTests {
    private func request(_ fields: JSONObject) throws -> PushRequest {
        var object = fields
        object["audience_topic"] = "/topics/PUSH_RC"
        return try PushRequest.parse(object, now: .now())
    }

    private func payload(_ fields: JSONObject) throws -> RenderedPayload {
        try PayloadTemplate.render(try request(fields), pushID: "p", for: .fcm).payload()
    }

    private func body(_ payload: RenderedPayload, expiration: Int64? = nil) throws -> JSONValue {
        let now = Instant(milliseconds: 1_790_000_000_000)
        let notification = OutgoingNotification(
            notificationID: "n",
            target: DeviceTarget(provider: .fcm, token: "PUSH_RC"),
            payload: payload,
            expiration: expiration
        )
        return try JSONValue.parse(FCMRequest.body(notification, at: now))
    }

    @Test("A topic push is one FCM message to the topic and has no token")
    func message() throws {
        let data: JSONValue = ["CONFIG_STATE": "STALE"]
        let silent = try payload(["native": ["fcm": ["message": ["data": data]]]])
        #expect(
            try body(silent)
                == [
                    "message": [
                        "topic": "PUSH_RC", "data": data, "android": ["priority": "NORMAL"],
                    ]
                ]
        )
        let shown = try payload(["data": ["alert": "Hi"], "expiration_interval": 60])
        let message = try body(shown, expiration: 1_790_000_060)["message"]
        #expect(message?["topic"] == "PUSH_RC")
        #expect(message?["token"] == nil)
        #expect(message?["notification"] == ["body": "Hi"])
        #expect(message?["android"]?["ttl"] == "60s")
    }

    @Test("A topic push has FCM's lower limit, to the byte")
    func limit() throws {
        func message(_ count: Int) -> JSONObject {
            let text = JSONValue.string(String(repeating: "x", count: count))
            return ["native": ["fcm": ["message": ["data": ["k": text]]]]]
        }
        _ = try payload(message(2047))
        #expect(throws: RenderingError.tooLarge(bytes: 2049, limit: 2048)) {
            try payload(message(2048))
        }
    }

    @Test("An unanswered topic push is sent again only if every repeat is the same")
    func repeats() throws {
        let silent: JSONObject = ["native": ["fcm": ["message": ["data": ["a": "b"]]]]]
        #expect(try !payload(silent).repeatOverwrites)
        var ours = silent
        ours["source"] = "carillon/config"
        #expect(try payload(ours).repeatOverwrites)
        ours["source"] = "carillon/configs"
        #expect(try !payload(ours).repeatOverwrites)
    }
}
