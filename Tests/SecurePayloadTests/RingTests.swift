import Cryptography
import JSON
import PushCore
import Testing
import XML

@testable import SecurePayload

@Suite("The push that goes through providers")
struct RingTests {
    private let end = Instant(seconds: 1_800_000_000)

    private func ring(_ text: String?) -> SecurePush {
        SecurePush(id: "12", identity: "ann", visibleText: text, expiresAt: end)
    }

    private func native(_ text: String?) throws -> JSONObject {
        try #require(ring(text).request["native"]?.object)
    }

    @Test("Without a text each platform gets the id, and wakes the app")
    func silent() throws {
        #expect(
            try native(nil) == [
                "apns": [
                    "headers": ["apns-push-type": "background", "apns-priority": "5"],
                    "payload": ["aps": ["content-available": 1], "secureId": "12"],
                ],
                "fcm": [
                    "message": [
                        "data": ["secureId": "12"], "android": ["priority": "HIGH"],
                    ]
                ],
                "wns": ["type": "wns/raw", "body": "12"], "mpns": ["body": "12"],
            ]
        )
    }

    @Test("With a text the platforms that can show it do")
    func visible() throws {
        let native = try native("Hi <Ann> & Bob")
        #expect(
            native["apns"] == [
                "headers": ["apns-push-type": "alert", "apns-priority": "10"],
                "payload": [
                    "aps": [
                        "alert": "Hi <Ann> & Bob", "mutable-content": 1, "content-available": 1,
                    ],
                    "secureId": "12",
                ],
            ]
        )
        #expect(
            native["fcm"]?["message"]?["data"]
                == ["secureId": "12", "visibleText": "Hi <Ann> & Bob"]
        )
        #expect(native["fcm"]?["message"]?["notification"] == nil)
        let wns = try XMLElement.parse(Array(try #require(native["wns"]?["body"]?.string).utf8))
        #expect(wns.attribute("launch") == "secureId=12")
        #expect(native["wns"]?["type"] == "wns/toast")
        let mpns = try #require(native["mpns"]?["body"]?.string)
        #expect(mpns.contains("<wp:Text2>Hi &lt;Ann&gt; &amp; Bob</wp:Text2>"))
        #expect(mpns.contains("<wp:Param>?secureId=12</wp:Param>"))
        #expect(native["mpns"]?["headers"] == ["x-windowsphone-target": "toast"])
    }

    @Test("The push goes to the identity's devices and expires with the content")
    func request() throws {
        var ring = ring(nil)
        ring.tag = "news && !muted"
        ring.installations = ["one", "two"]
        let request = try PushRequest.parse(ring.request, now: end.adding(.seconds(-60)))
        guard case .installations(let selectors) = request.audience else {
            Issue.record("another audience")
            return
        }
        #expect(selectors.identities == ["ann"] && selectors.installations == ["one", "two"])
        #expect(selectors.condition != nil)
        #expect(request.expiresAt(acceptedAt: end) == end)
        #expect(request.unknownFields.isEmpty)
        #expect(ring.eventID == "secure/12")
    }

    @Test(
        "A text of any content fits and is shown unchanged",
        arguments: [
            "&", "<", ">", "\"", "'", "]]>", "]", "é", "🔔", "\n", "\t", "\u{FFFF}", "a", "]]&",
        ]
    )
    func sizes(piece: String) throws {
        var text = ""
        while text.utf8.count + piece.utf8.count <= NewNotification.maximumVisibleBytes {
            text += piece
        }
        let native = try native(text)
        let mpns = try #require(native["mpns"]?["body"]?.string)
        let wns = try #require(native["wns"]?["body"]?.string)
        #expect(wns.utf8.count <= 5000)
        // A text of nothing but CDATA ends may exceed the limit.
        if piece != "]]>" { #expect(mpns.utf8.count <= 3072) }
        #expect(try #require(native["apns"]?["payload"]).bytes.count <= 4096)
        let shown = text.replacing("\u{FFFF}", with: "\u{FFFD}")
        let element = try XMLElement.parse(Array("<text>\(SecurePush.xml(text))</text>".utf8))
        #expect(element.text == shown)
    }

    @Test("The end of a mark is found also before a combining mark")
    func marks() throws {
        let text = String(repeating: "&&&", count: 100) + "]]>\u{338}"
        let xml = SecurePush.xml(text)
        #expect(xml.utf8.starts(with: "<![CDATA[".utf8))
        let element = try XMLElement.parse(Array("<text>\(xml)</text>".utf8))
        #expect(element.text.isSame(as: text))
    }

    @Test("Control characters are not shown")
    func controls() {
        #expect(SecurePush.problem(ofVisible: "one\ttwo\nthree\r") == nil)
        for text in ["\0", "\u{1}", "\u{1B}[31m"] {
            #expect(SecurePush.problem(ofVisible: text) != nil)
        }
    }
}

@Suite("Content that is sealed to a device opens there, for its id only")
struct SealedForDeviceTests {
    @Test("Content does not open under another id, app or device")
    func bound() throws {
        let keys = try HPKE.generateKeys()
        let content = Array("what nobody else reads".utf8)
        let sealed = try SealedForDevice.seal(
            content,
            to: keys.publicKey,
            app: "shop",
            id: "12",
            installation: "phone"
        )
        func open(_ app: String, _ id: String, _ phone: String) throws -> [UInt8] {
            try HPKE.open(
                sealed,
                with: keys.privateKey,
                info: Array("carillon secure payload v1".utf8),
                authenticating: Array("\(app)/\(id)/\(phone)".utf8)
            )
        }
        #expect(try open("shop", "12", "phone") == content)
        for (app, id, phone) in [
            ("other", "12", "phone"), ("shop", "13", "phone"), ("shop", "12", "tablet"),
        ] {
            #expect(throws: CryptographyError.notAuthentic) { try open(app, id, phone) }
        }
    }
}
