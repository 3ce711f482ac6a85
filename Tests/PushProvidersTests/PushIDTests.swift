import JSON
import PushCore
import Testing

@testable import PushProviders

/// `receipts=on`.
@Suite("The push id in payloads, for receipts", .timeLimit(.minutes(1)))
struct PushIDTests {
    private static let id = "3c5d8a10-f000-8000-8000-0123456789ab"

    private func rendered(
        _ object: JSONObject,
        _ platform: Platform,
        includesPushID: Bool = true
    ) throws -> String {
        var request = try PushRequest.parse(object, now: .now())
        request.includesPushID = includesPushID
        let payload = try RenderedPayload.render(request, pushID: Self.id, for: platform)
        // Each device's token will be here.
        return String(decoding: payload.body, as: UTF8.self)
            .replacing(#""token":,"#, with: #""token":"t","#)
    }

    private func json(_ object: JSONObject, _ platform: Platform) throws -> JSONValue {
        try JSONValue.parse(try rendered(object, platform))
    }

    @Test("The push id is a custom key of its platform and overrides the sender's own of that name")
    func custom() throws {
        let push: JSONObject = ["data": ["alert": "Ring", "pushId": "mine", "more": 1]]
        let apns = try json(push, .apns)
        #expect(apns["pushId"]?.string == Self.id && apns["more"] == 1)
        #expect(apns["aps"] == ["alert": "Ring"])
        let fcm = try json(push, .fcm)["message"]?["data"]
        #expect(fcm == ["pushId": .string(Self.id), "more": "1"])
        #expect(try rendered(push, .wns).contains("{&quot;pushId&quot;:&quot;\(Self.id)&quot;"))
        let raw = try json(["data": ["more": 1]], .wns)
        #expect(raw["pushId"]?.string == Self.id && raw["more"] == 1)
        #expect(try json(["data": ["more": 1]], .mpns)["pushId"]?.string == Self.id)
        for platform in Platform.allCases {
            let text = try rendered(["data": ["alert": "Ring"]], platform, includesPushID: false)
            #expect(!text.contains("pushId"))
        }
    }

    @Test("A payload without custom keys has no push id and keeps its kind")
    func without() throws {
        let badge: JSONObject = ["data": ["badge": 3]]
        #expect(try rendered(badge, .wns) == #"<badge value="3"/>"#)
        #expect(try rendered(badge, .mpns).contains("<wp:Tile>"))
        let named: JSONObject = ["data": ["alert": "Ring", "wp-param": "/orders"]]
        #expect(try rendered(named, .wns).contains(#"launch="/orders""#))
        for platform in [Platform.wns, .mpns] {
            #expect(try !rendered(named, platform).contains("pushId"))
        }
        for platform in [Platform.fcm, .wns, .mpns] {
            #expect(throws: RenderingError.noContent(platform)) {
                _ = try rendered(["data": [:]], platform)
            }
        }
    }

    @Test("A LeanCloud receiver finds the push id in the data that it reads")
    func action() throws {
        let push: JSONObject = ["data": ["alert": "Ring", "action": "com.example.RING"]]
        let data = try json(push, .fcm)["message"]?["data"]
        let whole = try JSONValue.parse(try #require(data?["com.avos.avoscloud.Data"]?.string))
        #expect(whole["pushId"]?.string == Self.id && data?["pushId"]?.string == Self.id)
    }

    @Test("Native messages of APNs and FCM have the push id, and those of Windows stay unchanged")
    func native() throws {
        let apns = try json(["native": ["apns": ["payload": ["aps": ["alert": "x"]]]]], .apns)
        #expect(apns == ["aps": ["alert": "x"], "pushId": .string(Self.id)])
        let headers: JSONValue = ["apns-push-type": "mdm"]
        let mdm: JSONValue = ["headers": headers, "payload": ["mdm": "magic"]]
        #expect(try json(["native": ["apns": mdm]], .apns) == ["mdm": "magic"])
        let message: JSONValue = [
            "notification": ["title": "x"], "android": ["data": ["a": "b"]],
        ]
        let fcm = try json(["native": ["fcm": ["message": message]]], .fcm)["message"]
        #expect(fcm?["data"] == ["pushId": .string(Self.id)])
        #expect(fcm?["android"]?["data"] == ["a": "b", "pushId": .string(Self.id)])
        let toast = "<toast><visual/></toast>"
        let wns: JSONValue = ["type": "wns/toast", "body": .string(toast)]
        #expect(try rendered(["native": ["wns": wns]], .wns) == toast)
        let raw: JSONValue = ["body": "raw"]
        #expect(try rendered(["native": ["mpns": raw]], .mpns) == "raw")
    }

    @Test("The bytes of the push id count in the size check")
    func size() throws {
        let phone: JSONValue = [["platform": "apns", "token": "ab"]]
        // {"aps":{"alert":""}} is 20 bytes.
        let alert = JSONValue.string(String(repeating: "x", count: 4096 - 20))
        let object: JSONObject = ["tokens": phone, "data": ["alert": alert]]
        var request = try PushRequest.parse(object, now: .now())
        let bytes = JSONValue.object(object).text.utf8.count
        #expect(request.tooLargeEverywhere(bytes: bytes) == nil)
        request.includesPushID = true
        #expect(
            request.tooLargeEverywhere(bytes: bytes) == .tooLarge(bytes: 4096 + 48, limit: 4096)
        )
    }
}
