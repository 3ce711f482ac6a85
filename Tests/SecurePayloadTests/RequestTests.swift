import HTTPServer
import JSON
import PushCore
import Testing

@testable import SecurePayload

@Suite("Requests of backends and devices")
struct RequestTests {
    private func read(_ object: JSONObject) throws -> NewNotification {
        try NewNotification(object.bytes)
    }

    private let least: JSONObject = ["identity": "ann", "payload": "content"]

    private func with(_ name: String, _ value: JSONValue) -> JSONObject {
        var object = least
        object[name] = value
        return object
    }

    @Test("An identity and a payload are required, and null counts as absent")
    func defaults() throws {
        let nulls: JSONObject = [
            "identity": "ann", "payload": "content", "visibleText": .null, "tag": .null,
            "expiresInSeconds": .null, "readOnce": .null, "sealed": .null,
        ]
        for object in [least, nulls] {
            let wanted = try read(object)
            #expect(wanted.payload == Array("content".utf8) && wanted.identity == "ann")
            #expect(wanted.lifetimeSeconds == 86_400)
            #expect(!wanted.readOnce && !wanted.isSealed)
            #expect(wanted.visibleText == nil && wanted.tag == nil)
        }
    }

    @Test(
        "An invalid field is refused by its name",
        arguments: [
            ("identity", ""), ("identity", 7), ("identity", .null), ("identity", "a\0b"),
            ("payload", ""), ("payload", 7), ("payload", .null),
            ("payload", .string(String(repeating: "x", count: 65_537))),
            ("visibleText", .string(String(repeating: "x", count: 1025))), ("visibleText", "\u{1}"),
            ("tag", ""), ("tag", "a &&"), ("tag", 7), ("expiresInSeconds", 59),
            ("expiresInSeconds", 2_592_001), ("expiresInSeconds", "60"),
            ("expiresInSeconds", 60.5), ("readOnce", 1), ("sealed", "true"), ("unknown", 1),
            ("Payload", "content"),
        ] as [(String, JSONValue)]
    )
    func refused(name: String, value: JSONValue) throws {
        let error = #expect(throws: SecureRequestError.self) { try read(with(name, value)) }
        #expect(error?.description.contains(name) == true)
    }

    @Test("Every legal payload fits into the body's bound, in any notation")
    func fits() throws {
        let escaped = String(repeating: "\\u0061", count: NewNotification.maximumPayloadBytes)
        let identity = String(repeating: "\\u0061", count: SecureIdentity.maximumBytes)
        let tag = (0..<6).map { _ in String(repeating: "\\u0061", count: 120) }
            .joined(separator: " && ")
        let visible = String(
            repeating: "\\u0061",
            count: NewNotification.maximumVisibleBytes
        )
        let body = """
            {"identity":"\(identity)","payload":"\(escaped)","visibleText":"\(visible)",
            "tag":"\(tag)","expiresInSeconds":2592000,"readOnce":false,"sealed":false}
            """
        #expect(body.utf8.count <= SecureSurface.maximumContentBody)
        let wanted = try NewNotification(Array(body.utf8))
        #expect(wanted.payload.count == NewNotification.maximumPayloadBytes)
    }

    @Test("A payload is stored as the exact text, whatever its content")
    func text() throws {
        let text = "e\u{301}\0\u{7f}\u{FFFF}" + String(repeating: "\u{301}", count: 5000)
        #expect(try read(with("payload", .string(text))).payload == Array(text.utf8))
    }

    @Test("A body that is not a JSON object is refused")
    func bodies() {
        for body in ["", "[]", "null", "{", "{\"identity\":", "\u{FEFF}{}"] {
            #expect(throws: SecureRequestError.self) { try NewNotification(Array(body.utf8)) }
        }
    }

    // MARK: The tutorial's devices

    private func register(_ object: JSONObject, as identity: String = "ann") throws
        -> Installation
    {
        let wanted = try DeviceRegistration(object.bytes, of: identity)
        var installation = Installation(app: "shop", objectID: "1", at: .now())
        try wanted.put(into: &installation, now: .now())
        return installation
    }

    @Test(
        "A device belongs to its identity, on every platform",
        arguments: [
            ("apns", String(repeating: "aB", count: 32), Platform.apns), ("gcm", "reg:1", .fcm),
            ("wns", "https://a.notify.windows.com/x", .wns),
            ("mpns", "https://a.notify.live.net/x", .mpns),
        ]
    )
    func platforms(name: String, handle: String, platform: Platform) throws {
        let installation = try register([
            "Platform": .string(name), "Handle": .string(handle), "Tags": ["news", "news"],
        ])
        #expect(installation.platform == platform)
        #expect(installation.token == DeviceToken.canonical(handle, for: platform))
        #expect(installation.identity == "ann")
        #expect(installation.channels == ["news", "username:ann"])
    }

    @Test("Names may be in lower case, tags may be absent, and unknown fields are ignored")
    func lenient() throws {
        let installation = try register([
            "platform": "gcm", "handle": "reg:1", "tags": .null, "Else": [1],
        ])
        #expect(installation.channels == ["username:ann"])
        #expect(
            try register(["Platform": "gcm", "Handle": "reg:1"], as: "Ann Smith/1").channels
                == ["username:Ann Smith/1"]
        )
    }

    @Test(
        "Another user's tag and an invalid device are refused",
        arguments: [
            ["Platform": "gcm", "Handle": "reg:1", "Tags": ["username:bob"]],
            ["Platform": "gcm", "Handle": "reg:1", "Tags": ["USERNAME:bob"]],
            ["Platform": "gcm", "Handle": "reg:1", "Tags": ["username:an\u{0144}"]],
            ["Platform": "gcm", "Handle": "reg:1", "Tags": ["a b"]],
            ["Platform": "gcm", "Handle": "reg:1", "Tags": "news"],
            ["Platform": "gcm", "Handle": "reg:1", "Tags": [7]],
            ["Platform": "adm", "Handle": "reg:1"], ["Platform": "gcm", "Handle": ""],
            ["Platform": "gcm"], [:],
        ] as [JSONObject]
    )
    func refusedDevices(object: JSONObject) {
        #expect(throws: SecureRequestError.self) { try register(object) }
    }

    @Test("Fields of another surface stay, except the route to the device")
    func change() throws {
        var installation = Installation(app: "shop", objectID: "1", at: .now())
        let before: JSONObject = [
            "deviceType": "ios", "deviceToken": .string(String(repeating: "a", count: 64)),
            "installationId": "phone", "note": "mine", "channels": ["old"], "badge": 3,
        ]
        try installation.take(before, changed: ExactStringSet(before.keys), now: .now())
        let wanted = try DeviceRegistration(
            (["Platform": "gcm", "Handle": "reg:1", "Tags": ["new"]] as JSONObject).bytes,
            of: "ann"
        )
        try wanted.put(into: &installation, now: .now())
        #expect(installation.platform == .fcm && installation.token == "reg:1")
        #expect(installation.fields["deviceToken"] == nil)
        #expect(installation.fields["note"] == "mine" && installation.badge == 3)
        #expect(installation.installationID == "phone")
        #expect(installation.channels == ["new", "username:ann"])
    }
}
