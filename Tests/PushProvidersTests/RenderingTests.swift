import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

private let pushID = "0b1e4d1c-9d3b-8a6f-b0c4-5f6a7b8c9d0e"
private let now = Instant(seconds: 1_700_000_000)

private func request(
    _ data: JSONObject?,
    change: (inout PushRequest) -> Void = { _ in }
) -> PushRequest {
    var request = PushRequest(audience: .installations(.init()), data: data)
    change(&request)
    return request
}

private func render(
    _ platform: Platform,
    _ data: JSONObject?,
    change: (inout PushRequest) -> Void = { _ in }
) throws -> RenderedPayload {
    try RenderedPayload.render(request(data, change: change), pushID: pushID, for: platform)
}

private func text(_ payload: RenderedPayload) -> String {
    String(decoding: payload.body, as: UTF8.self)
}

private func outgoing(
    _ payload: RenderedPayload,
    token: String = "ab12",
    expiration: Int64? = nil,
    topic: String? = nil
) -> OutgoingNotification {
    OutgoingNotification(
        notificationID: "id",
        target: DeviceTarget(provider: payload.platform, token: token),
        payload: payload,
        expiration: expiration,
        apnsTopic: topic
    )
}

@Suite("APNs requests", .timeLimit(.minutes(1))) struct APNsRendering {
    private func headers(_ payload: RenderedPayload) -> [String: String] {
        Dictionary(payload.headers.map { ($0.name, $0.value) }) { first, _ in first }
    }

    struct Golden: CustomTestStringConvertible {
        var data: JSONObject
        var body: String
        var type = "alert"
        var priority = "10"

        var testDescription: String { body }
    }

    static let goldens = [
        Golden(data: ["alert": "Hi"], body: #"{"aps":{"alert":"Hi"}}"#),
        Golden(
            data: ["title": "T", "alert": "Hi", "badge": 3, "sound": "a.caf", "id": 7],
            body: #"{"aps":{"alert":{"title":"T","body":"Hi"},"badge":3,"sound":"a.caf"},"id":7}"#
        ),
        Golden(
            data: ["alert": ["loc-key": "K", "loc-args": ["x"]], "title": "T"],
            body: #"{"aps":{"alert":{"loc-key":"K","loc-args":["x"],"title":"T"}}}"#
        ),
        Golden(data: ["title": "T"], body: #"{"aps":{"alert":{"title":"T"}}}"#),
        Golden(
            data: [
                "alert": "top", "ios": ["alert": "ios", "x": 1], "android": ["alert": "android"],
                "wp-param": "/p", "silent": true,
            ],
            body: #"{"aps":{"alert":"ios"},"x":1}"#
        ),
        Golden(
            data: ["alert": "top", "sound": "a", "ios": ["sound": .null]],
            body: #"{"aps":{"alert":"top"}}"#
        ),
        Golden(
            data: ["aps": ["alert": "ready", "future": 1], "badge": 0, "k": "v"],
            body: #"{"aps":{"alert":"ready","future":1,"badge":0},"k":"v"}"#
        ),
        Golden(
            data: ["content-available": 1, "k": "v"],
            body: #"{"aps":{"content-available":1},"k":"v"}"#,
            type: "background",
            priority: "5"
        ),
        Golden(
            data: ["CONFIG_STATE": "STALE"],
            body: #"{"aps":{"content-available":1},"CONFIG_STATE":"STALE"}"#,
            type: "background",
            priority: "5"
        ),
        Golden(
            data: [
                "alert": "Hi", "content-available": true, "mutable-content": 1, "category": "c",
                "thread-id": "t", "apns-priority": 5,
            ],
            body: #"{"aps":{"alert":"Hi","category":"c","thread-id":"t","content-available":1,"#
                + #""mutable-content":1}}"#,
            priority: "5"
        ),
        Golden(
            data: ["content-available": 1, "apns-priority": 10],
            body: #"{"aps":{"content-available":1}}"#,
            type: "background",
            priority: "5"
        ),
    ]

    @Test("data becomes aps and its siblings", arguments: goldens)
    func golden(_ golden: Golden) throws {
        let payload = try render(.apns, golden.data)
        #expect(text(payload) == golden.body)
        #expect(headers(payload)["apns-push-type"] == golden.type)
        #expect(headers(payload)["apns-priority"] == golden.priority)
        #expect(headers(payload)["apns-collapse-id"] == pushID)
        #expect(payload.repeatOverwrites)
    }

    @Test("Collapse id and priority are those of the push, if it has them")
    func stated() throws {
        let payload = try render(.apns, ["alert": "x"]) {
            $0.collapseID = "score"
            $0.priority = .normal
        }
        #expect(headers(payload)["apns-collapse-id"] == "score")
        #expect(headers(payload)["apns-priority"] == "5")
        let own = try render(.apns, ["alert": "x", "collapse-id": "mine"])
        #expect(headers(own)["apns-collapse-id"] == "mine")
    }

    @Test("A native payload is sent as it is, with the missing fields added")
    func native() throws {
        let payload = try render(.apns, ["alert": "not this"]) {
            $0.native.apns = [
                "headers": ["apns-push-type": "voip", "APNS-Expiration": 0],
                "payload": ["aps": [:], "call": ["from": "A"]],
            ]
        }
        #expect(text(payload) == #"{"aps":{},"call":{"from":"A"}}"#)
        #expect(headers(payload)["apns-push-type"] == "voip")
        #expect(headers(payload)["apns-expiration"] == "0")
        #expect(headers(payload)["apns-priority"] == "10")
    }

    @Test("A payload that APNs would refuse is refused first")
    func refused() throws {
        let long = String(repeating: "x", count: 4090)
        let cases: [(JSONObject, RenderingError)] = [
            (["alert": .string(long)], .tooLarge(bytes: 4090 + 20, limit: 4096)),
            (
                ["alert": "x", "apns-push-type": "nonsense"],
                .invalid(field: "data.apns-push-type", problem: "is not a push type")
            ),
            (
                ["alert": "x", "apns-push-type": "background"],
                .invalid(
                    field: "data.apns-push-type",
                    problem: "cannot be background beside an alert, badge or sound"
                )
            ),
            (
                ["alert": "x", "collapse-id": .string(String(repeating: "é", count: 33))],
                .invalid(field: "data.collapse-id", problem: "must be 1 to 64 bytes of text")
            ),
            (
                ["badge": "many"],
                .invalid(field: "data.badge", problem: "must be a whole number")
            ),
        ]
        for (data, error) in cases {
            #expect(throws: error) { try render(.apns, data) }
        }
        #expect(throws: RenderingError.noContent(.apns)) {
            try render(.apns, nil) { $0.native.fcm = ["message": [:]] }
        }
        for name in ["authorization", "apns-id", "content-type"] {
            #expect(throws: RenderingError.self) {
                try render(.apns, nil) {
                    $0.native.apns = ["headers": [name: "x"], "payload": ["aps": [:]]]
                }
            }
        }
        #expect(throws: RenderingError.self) {
            try render(.apns, nil) {
                $0.native.apns = [
                    "headers": ["apns-collapse-id": "a\r\nb: c"], "payload": ["aps": [:]],
                ]
            }
        }
        // voip has a limit of its own.
        let voip = try render(.apns, nil) {
            $0.native.apns = [
                "headers": ["apns-push-type": "voip"], "payload": ["k": .string(long + "xxxxxxxx")],
            ]
        }
        #expect(voip.body.count > 4096)
    }

    @Test("The request has topic, expiry and identity")
    func make() throws {
        let payload = try render(.apns, ["alert": "x"])
        let made = APNsRequest.headers(
            outgoing(payload, expiration: 1_700_000_060),
            topic: "com.a",
            bearer: "jwt"
        )
        #expect(APNsRequest.path == "/3/device/")
        #expect(made.shared.contains(HTTPField("authorization", "bearer jwt")))
        #expect(made.shared.contains(HTTPField("apns-topic", "com.a")))
        // Values that differ between pushes stay out of the connections' header tables.
        #expect(
            Set(made.own) == [
                HTTPField("apns-expiration", "1700000060"), HTTPField("apns-collapse-id", pushID),
            ]
        )
        #expect(Set(made.shared.map(\.name)).count == made.shared.count)
        let other = APNsRequest.headers(
            outgoing(payload, topic: "com.b"),
            topic: "com.a",
            bearer: nil
        )
        #expect(other.shared.contains(HTTPField("apns-topic", "com.b")))
        #expect(!other.shared.contains { $0.name == "authorization" })
        #expect(!other.own.contains { $0.name == "apns-expiration" })
    }

    @Test("A push type adds its suffix to the topic, once")
    func topicSuffix() throws {
        let payload = try render(.apns, nil) {
            $0.native.apns = [
                "headers": ["apns-push-type": "liveactivity"], "payload": ["aps": [:]],
            ]
        }
        for topic in ["com.a", "com.a.push-type.liveactivity"] {
            let made = APNsRequest.headers(outgoing(payload), topic: topic, bearer: nil)
            #expect(
                made.shared.contains(HTTPField("apns-topic", "com.a.push-type.liveactivity"))
            )
        }
    }
}

@Suite("FCM requests", .timeLimit(.minutes(1))) struct FCMRendering {
    struct Golden: CustomTestStringConvertible {
        var data: JSONObject
        var message: String
        var overwrites = true

        var testDescription: String { message }
    }

    static let tag = #""tag":"\#(pushID)""#

    static let goldens = [
        Golden(
            data: ["alert": "Hi"],
            message: #"{"token":"T","notification":{"body":"Hi"},"#
                + #""android":{"notification":{\#(tag)},"priority":"HIGH"}}"#
        ),
        Golden(
            data: [
                "alert": "Hi", "title": "T", "sound": "s", "badge": 2, "k": "v", "n": 7,
                "o": ["a": [1]], "b": true, "category": "ios only", "wp-param": "/p",
            ],
            message: #"{"token":"T","notification":{"body":"Hi","title":"T"},"#
                + #""data":{"k":"v","n":"7","o":"{\"a\":[1]}","b":"true"},"#
                + #""android":{"notification":{"sound":"s","notification_count":2,\#(tag)},"#
                + #""priority":"HIGH"}}"#
        ),
        Golden(
            data: ["alert": "top", "android": ["alert": "droid", "action": "com.a.GO"]],
            message: #"{"token":"T","notification":{"body":"droid"},"data":{"action":"com.a.GO","#
                + #""com.avos.avoscloud.Channel":"","com.avos.avoscloud.Data":"#
                + #""{\"alert\":\"droid\",\"action\":\"com.a.GO\"}","#
                + #""payload":"{\"alert\":\"droid\",\"action\":\"com.a.GO\"}"},"#
                + #""android":{"notification":{\#(tag)},"priority":"HIGH"}}"#
        ),
        // The keys that LeanCloud's clients read in a receiver of their own.
        Golden(
            data: ["action": "com.a.GO", "name": "n", "o": ["a": 1]],
            message: #"{"token":"T","data":{"action":"com.a.GO","name":"n","o":"{\"a\":1}","#
                + #""com.avos.avoscloud.Channel":"","com.avos.avoscloud.Data":"#
                + #""{\"action\":\"com.a.GO\",\"name\":\"n\",\"o\":{\"a\":1}}","#
                + #""payload":"{\"action\":\"com.a.GO\",\"name\":\"n\",\"o\":{\"a\":1}}"},"#
                + #""android":{"priority":"NORMAL"}}"#,
            overwrites: false
        ),
        Golden(
            data: [
                "alert": [
                    "title": "T", "loc-key": "K", "loc-args": ["a"], "title-loc-key": "TK",
                ]
            ],
            message: #"{"token":"T","notification":{"title":"T"},"android":{"notification":"#
                + #"{"title_loc_key":"TK","body_loc_key":"K","body_loc_args":["a"],\#(tag)},"#
                + #""priority":"HIGH"}}"#
        ),
        Golden(
            data: ["CONFIG_STATE": "STALE"],
            message: #"{"token":"T","data":{"CONFIG_STATE":"STALE"},"#
                + #""android":{"priority":"NORMAL"}}"#,
            overwrites: false
        ),
        Golden(
            data: ["alert": "Hi", "silent": true, "k": "v"],
            message: #"{"token":"T","data":{"alert":"Hi","k":"v"},"#
                + #""android":{"priority":"NORMAL"}}"#,
            overwrites: false
        ),
    ]

    @Test("data becomes notification, data and android", arguments: goldens)
    func golden(_ golden: Golden) throws {
        let payload = try render(.fcm, golden.data)
        let body = FCMRequest.body(outgoing(payload, token: "T"), at: now)
        #expect(String(decoding: body, as: UTF8.self) == #"{"message":\#(golden.message)}"#)
        #expect(payload.repeatOverwrites == golden.overwrites)
        #expect(!golden.message.contains("collapse_key"))
    }

    @Test("Tag, channel, priority and the remaining time are set")
    func options() throws {
        let payload = try render(.fcm, ["alert": "x"]) {
            $0.collapseID = "score"
            $0.androidChannel = "news"
            $0.priority = .normal
            $0.expiration = .afterSeconds(60)
        }
        func body(_ at: Int64) throws -> JSONValue {
            try JSONValue.parse(
                FCMRequest.body(
                    outgoing(payload, token: #"a"b"#, expiration: 1_700_000_060),
                    at: Instant(seconds: at)
                )
            )
        }
        let message = try #require(try body(1_700_000_000)["message"])
        #expect(message["token"] == #"a"b"#)
        #expect(message["android"]?["ttl"] == "60s")
        #expect(message["android"]?["priority"] == "NORMAL")
        #expect(message["android"]?["notification"]?["tag"] == "score")
        #expect(message["android"]?["notification"]?["channel_id"] == "news")
        // A retry has less time left, and never a negative one.
        #expect(try body(1_700_000_050)["message"]?["android"]?["ttl"] == "10s")
        #expect(try body(1_700_000_090)["message"]?["android"]?["ttl"] == "0s")
        // Four weeks is the maximum.
        #expect(try body(1_600_000_000)["message"]?["android"]?["ttl"] == "2419200s")
    }

    @Test("A native message is sent as it is, with the missing fields added")
    func native() throws {
        let payload = try render(.fcm, ["alert": "not this"]) {
            $0.native.fcm = [
                "message": [
                    "notification": ["title": "N"],
                    "android": ["ttl": "5s", "notification": ["tag": "mine"]],
                    "webpush": ["headers": ["TTL": "1"]],
                ]
            ]
            $0.expiration = .afterSeconds(60)
        }
        let body = FCMRequest.body(outgoing(payload, token: "T"), at: now)
        #expect(
            String(decoding: body, as: UTF8.self)
                == #"{"message":{"token":"T","notification":{"title":"N"},"#
                + #""webpush":{"headers":{"TTL":"1"}},"android":{"ttl":"5s","#
                + #""notification":{"tag":"mine"},"priority":"HIGH"}}}"#
        )
    }

    @Test("A payload that FCM would refuse is refused first")
    func refused() throws {
        for key in ["from", "message_type", "google.x", "gcm.notification.x"] {
            #expect(
                throws: RenderingError.invalid(
                    field: "native.fcm.message.data.\(key)",
                    problem: "is a key that FCM reserves"
                )
            ) { try render(.fcm, nil) { $0.native.fcm = ["message": ["data": [key: "v"]]] } }
        }
        #expect(throws: RenderingError.self) {
            try render(.fcm, ["k": .string(String(repeating: "x", count: 4096))])
        }
        _ = try render(.fcm, ["k": .string(String(repeating: "x", count: 4095))])
        #expect(throws: RenderingError.noContent(.fcm)) { try render(.fcm, ["badge": 1]) }
        for key in ["token", "topic", "condition"] {
            #expect(throws: RenderingError.self) {
                try render(.fcm, nil) { $0.native.fcm = ["message": [key: "x"]] }
            }
        }
        #expect(
            throws: RenderingError.invalid(
                field: "native.fcm.message.data.n",
                problem: "must be a string"
            )
        ) {
            try render(.fcm, nil) { $0.native.fcm = ["message": ["data": ["n": 1]]] }
        }
    }
}

@Suite("WNS requests", .timeLimit(.minutes(1))) struct WNSRendering {
    private func headers(_ payload: RenderedPayload) -> [String: String] {
        Dictionary(payload.headers.map { ($0.name, $0.value) }) { first, _ in first }
    }

    struct Golden: CustomTestStringConvertible {
        var data: JSONObject
        var type: String
        var body: String

        var testDescription: String { body }
    }

    static func toast(_ inside: String, attributes: String = "", after: String = "") -> String {
        #"<toast\#(attributes)><visual><binding template="ToastGeneric">\#(inside)"#
            + "</binding></visual>\(after)</toast>"
    }

    static let goldens = [
        Golden(
            data: ["alert": "Hi"],
            type: "wns/toast",
            body: toast("<text>Hi</text>")
        ),
        Golden(
            data: ["title": "T", "alert": "a < b & \"c\"", "wp-param": "/page?x=1&y='2'"],
            type: "wns/toast",
            body: toast(
                "<text>T</text><text>a &lt; b &amp; &quot;c&quot;</text>",
                attributes: #" launch="/page?x=1&amp;y=&apos;2&apos;""#
            )
        ),
        Golden(
            data: [
                "alert": "top", "wp": ["alert": "win", "param": "/p"], "badge": 4, "action": "A",
            ],
            type: "wns/toast",
            body: toast("<text>win</text>", attributes: #" launch="/p""#)
        ),
        Golden(
            data: ["alert": ["title": "T", "subtitle": "S", "body": "B"], "k": "v"],
            type: "wns/toast",
            body: toast(
                "<text>T</text><text>S</text><text>B</text>",
                attributes: #" launch="{&quot;k&quot;:&quot;v&quot;}""#
            )
        ),
        Golden(
            data: ["alert": "\u{1}x", "sound": "ms-winsoundevent:Notification.Mail"],
            type: "wns/toast",
            body: toast(
                "<text>\u{FFFD}x</text>",
                after: #"<audio src="ms-winsoundevent:Notification.Mail"/>"#
            )
        ),
        Golden(data: ["badge": 4], type: "wns/badge", body: #"<badge value="4"/>"#),
        Golden(
            data: ["CONFIG_STATE": "STALE"],
            type: "wns/raw",
            body: #"{"CONFIG_STATE":"STALE"}"#
        ),
        Golden(
            data: ["alert": "Hi", "silent": true],
            type: "wns/raw",
            body: #"{"alert":"Hi"}"#
        ),
    ]

    @Test("data becomes a toast, a badge or raw data", arguments: goldens)
    func golden(_ golden: Golden) throws {
        let payload = try render(.wns, golden.data)
        #expect(text(payload) == golden.body)
        #expect(headers(payload)["x-wns-type"] == golden.type)
        let isRaw = golden.type == "wns/raw"
        #expect(
            headers(payload)["content-type"] == (isRaw ? "application/octet-stream" : "text/xml")
        )
        #expect(payload.repeatOverwrites == !isRaw)
        #expect((headers(payload)["x-wns-tag"] != nil) == (golden.type == "wns/toast"))
    }

    @Test("A tag has at most 16 letters and digits, and is the same for the same push")
    func tag() throws {
        #expect(WNSRequest.tag("score") == "score")
        let tag = WNSRequest.tag(pushID)
        #expect(tag.count == 16 && tag == WNSRequest.tag(pushID))
        #expect(WNSRequest.tag("not-alnum") != WNSRequest.tag("not_alnum"))
        #expect(try headers(render(.wns, ["alert": "x"]))["x-wns-tag"] == tag)
    }

    @Test("The time to live counts from now, and 0 is not cached")
    func timeToLive() throws {
        let payload = try render(.wns, ["alert": "x"]) { $0.priority = .high }
        func headers(_ expiration: Int64?) -> [HTTPField] {
            WNSRequest.make(
                outgoing(payload, token: "https://c/", expiration: expiration),
                bearer: "b",
                at: now,
                timeout: .seconds(1)
            ).headers
        }
        #expect(headers(1_700_000_030).contains(HTTPField("x-wns-ttl", "30")))
        #expect(headers(1_700_000_030).contains(HTTPField("x-wns-priority", "1")))
        #expect(headers(1_700_000_030).contains(HTTPField("authorization", "Bearer b")))
        let late = headers(1_699_999_999)
        #expect(late.contains(HTTPField("x-wns-ttl", "0")))
        #expect(late.contains(HTTPField("x-wns-cache-policy", "no-cache")))
        #expect(!headers(nil).contains { $0.name == "x-wns-ttl" })
    }

    @Test("A native payload is sent as it is, and one that WNS would refuse is refused first")
    func native() throws {
        let payload = try render(.wns, nil) {
            $0.native.wns = [
                "type": "wns/tile", "headers": ["X-WNS-Tag": "t1", "X-WNS-Cache-Policy": "cache"],
                "body": "<tile/>",
            ]
        }
        #expect(text(payload) == "<tile/>")
        #expect(headers(payload)["x-wns-tag"] == "t1")
        let refused: [JSONObject] = [
            ["type": "wns/other", "body": "x"], ["type": "wns/raw", "body": ""],
            ["type": "wns/raw", "body": "x", "headers": ["authorization": "x"]],
            ["type": "wns/raw", "body": "x", "headers": ["x-wns-type": "x"]],
            ["type": "wns/raw", "body": .string(String(repeating: "x", count: 5001))],
        ]
        for native in refused {
            #expect(throws: RenderingError.self) {
                try render(.wns, nil) { $0.native.wns = native }
            }
        }
        #expect(throws: RenderingError.noContent(.wns)) {
            try render(.wns, ["ios": ["alert": "x"]])
        }
    }
}
