import JSON
import PushCore
import Testing

@testable import PushProviders

/// The content of a push as its provider gets it, in every form that clients write.
@Suite("Content in every form that clients write", .timeLimit(.minutes(1)))
struct ContentTests {
    private let now = Instant(seconds: 1_700_000_000)

    private func payload(_ text: String, _ platform: Platform) throws -> RenderedPayload {
        let object = try #require(try JSONValue.parse(text).object)
        return try RenderedPayload.render(
            try PushRequest.parse(object, now: now),
            pushID: "push",
            for: platform
        )
    }

    private func outgoing(_ payload: RenderedPayload) -> OutgoingNotification {
        OutgoingNotification(
            notificationID: "id",
            target: DeviceTarget(provider: payload.platform, token: "T"),
            payload: payload
        )
    }

    private func message(_ text: String) throws -> JSONValue {
        let body = FCMRequest.body(outgoing(try payload(text, .fcm)), at: now)
        return try #require(try JSONValue.parse(body)["message"])
    }

    private func aps(_ text: String) throws -> JSONValue {
        try JSONValue.parse(try payload(text, .apns).body)
    }

    @Test(
        "A number is the same number, in aps and beside it",
        arguments: ["3", "3.0", "3e0", "30e-1", #""3""#]
    )
    func numbers(_ number: String) throws {
        for data in [
            #"{"alert": "x", "badge": \#(number)}"#,
            #"{"aps": {"alert": "x", "badge": \#(number)}}"#,
            #"{"alert": "x", "ios": {"badge": \#(number)}}"#,
            #"{"alert": "x", "ios": {"aps": {"badge": \#(number)}}}"#,
        ] {
            let body = try payload(#"{"data": \#(data)}"#, .apns).body
            #expect(String(decoding: body, as: UTF8.self).contains(#""badge":3"#))
            #expect(!String(decoding: body, as: UTF8.self).contains("3."))
        }
        let data = #"{"data": {"alert": "x", "badge": \#(number)}}"#
        #expect(
            try message(data)["android"]?["notification"]?["notification_count"] == .integer(3)
        )
    }

    @Test("A flag is 1 or 0", arguments: ["1", "1.0", "true", #""1""#, #""true""#])
    func flags(_ flag: String) throws {
        let beside = #"{"alert": "x", "content-available": \#(flag), "mutable-content": \#(flag)}"#
        let inside = #"{"aps": \#(beside)}"#
        for data in [beside, inside] {
            let aps = try aps(#"{"data": \#(data)}"#)["aps"]
            #expect(aps?["content-available"] == .integer(1))
            #expect(aps?["mutable-content"] == .integer(1))
        }
        let priority = try payload(
            #"{"data": {"alert": "x", "apns-priority": "5", "sound": {"critical": \#(flag)}}}"#,
            .apns
        )
        #expect(priority.header("apns-priority") == "5")
        #expect(
            try JSONValue.parse(priority.body)["aps"]?["sound"]?["critical"] == .integer(1)
        )
    }

    @Test("A complete aps has its badge counted in its place")
    func badgeInAps() throws {
        for data in [
            #"{"aps": {"alert": "x", "badge": "Increment"}}"#,
            #"{"ios": {"aps": {"alert": "x", "badge": "Increment"}}}"#,
        ] {
            let object = try #require(try JSONValue.parse(#"{"data": \#(data)}"#).object)
            let template = try PayloadTemplate.render(
                try PushRequest.parse(object, now: now),
                pushID: "push",
                for: .apns
            )
            let body = try JSONValue.parse(try template.payload(badge: 6).body)
            #expect(body["aps"] == ["alert": "x", "badge": 6])
        }
    }

    @Test("FCM gets arguments as strings, and no arguments without their key")
    func arguments() throws {
        let android = try message(
            """
            {"data": {"alert": {"loc-key": "L", "loc-args": ["a", 2, 3.5, true, {"k": 1}],
                "title-loc-args": ["lost"], "title": 7}}}
            """
        )
        #expect(
            android["android"]?["notification"]?["body_loc_args"]
                == ["a", "2", "3.5", "true", #"{"k":1}"#]
        )
        #expect(android["android"]?["notification"]?["body_loc_key"] == "L")
        #expect(android["android"]?["notification"]?["title_loc_args"] == nil)
        #expect(android["notification"]?["title"] == "7")
    }

    @Test("An app's keys stay unchanged, and those reserved by FCM get a _ in front")
    func keys() throws {
        let text = """
            {"data": {"alert": "x", "alert-id": "8812", "title-img": "i", "title-loc-key": "k",
                "gcmToken": "g", "gcm": "h", "googleEventId": "e", "google.x": "r", "from": "ann",
                "message_type": "m", "gcm.notification.title": "t"}}
            """
        let data = try message(text)["data"]
        #expect(
            data == [
                "alert-id": "8812", "title-img": "i", "title-loc-key": "k", "gcmToken": "g",
                "gcm": "h", "googleEventId": "e", "_google.x": "r", "_from": "ann",
                "_message_type": "m", "_gcm.notification.title": "t",
            ]
        )
        let apns = try aps(text)
        for (key, value) in [("alert-id", "8812"), ("title-img", "i"), ("from", "ann")] {
            #expect(apns[key]?.string == value)
        }
        #expect(apns["aps"]?["alert"] == "x")
    }

    @Test(
        "An immediate expiry has each provider's own form, and the delivery itself does not expire"
    )
    func nowOrNever() throws {
        for zero in ["0", "0.0", #""0""#] {
            let text = #"{"data": {"alert": "x"}, "expiration_interval": \#(zero)}"#
            #expect(try payload(text, .apns).header("apns-expiration") == "0")
            #expect(try message(text)["android"]?["ttl"] == "0s")
            let windows = try payload(text, .wns)
            #expect(windows.header("x-wns-ttl") == "0")
            #expect(windows.header("x-wns-cache-policy") == "no-cache")
            let request = try PushRequest.parse(
                try #require(try JSONValue.parse(text).object),
                now: now
            )
            #expect(request.expiresAt(acceptedAt: now) == nil)
            #expect(request.isNowOrNever)
        }
        let stated = try payload(
            """
            {"native": {"apns": {"headers": {"apns-expiration": "7"}, "payload": {"aps": {}}}},
                "expiration_interval": 0}
            """,
            .apns
        )
        #expect(stated.headers.filter { $0.name == "apns-expiration" }.map(\.value) == ["7"])
    }

    @Test("Parse's Android SDK gets its three strings, at high priority, without a notification")
    func parse() throws {
        let message = try message(
            """
            {"where": {}, "sdk": "parse", "expiration_interval": 60,
                "data": {"alert": "hi", "title": "t", "badge": 2, "aps": {"alert": "i"},
                    "thread-id": "x", "from": "ann", "n": {"k": [1]}}}
            """
        )
        #expect(message["notification"] == nil)
        #expect(message["android"]?["notification"] == nil)
        #expect(message["android"]?["priority"] == "HIGH")
        #expect(message["android"]?["ttl"] == "0s")
        let data = try #require(message["data"]?.object)
        #expect(Set(data.keys) == ["push_id", "time", "data"])
        #expect(data["push_id"] == "push")
        #expect(data["time"] == "2023-11-14T22:13:20.000Z")
        #expect(
            try JSONValue.parse(data["data"]?.string ?? "")
                == ["alert": "hi", "title": "t", "badge": 2, "from": "ann", "n": ["k": [1]]]
        )
    }

    @Test("A device's own values and badge are in Parse's string, too")
    func parseTemplates() throws {
        let object = try #require(
            try JSONValue.parse(
                #"{"where": {}, "sdk": "parse", "data": {"alert": "{{n}}", "badge": "Increment"}}"#
            ).object
        )
        let template = try PayloadTemplate.render(
            try PushRequest.parse(object, now: now),
            pushID: "push",
            for: .fcm
        )
        let payload = try template.payload(values: ["n": #"a"b"#], badge: 4)
        let body = try JSONValue.parse(FCMRequest.body(outgoing(payload), at: now))
        let data = body["message"]?["data"]?["data"]?.string ?? ""
        #expect(try JSONValue.parse(data) == ["alert": #"a"b"#, "badge": 4])
        #expect(body["message"]?["data"]?["time"] == "2023-11-14T22:13:20.000Z")
        #expect(body["message"]?["token"] == "T")
    }
}
