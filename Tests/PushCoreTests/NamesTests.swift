import JSON
import PushCore
import Testing

@Suite(.timeLimit(.minutes(1)))
struct NamesTests {
    @Test(
        "An app's id is well-formed and does not begin with a route of ours, in any case",
        arguments: ["", "a b", "a/b", "ä", "V1", "parse", "1.1", "OpenAPI.json", "App", "oauth2"]
    )
    func refusesAppIDs(id: String) {
        #expect(AppID.problem(id) != nil)
    }

    @Test(arguments: ["shop", "a", "x.Y_z-9", "v10", "abcdefghijABCDEFGHIJ0123456789-gzGzoHsz"])
    func takesAppIDs(id: String) {
        #expect(AppID.problem(id) == nil)
        #expect(AppID.problem(String(repeating: id, count: 65)) != nil)
    }

    @Test("A prefix of an id is the range of ids between two")
    func beginnings() {
        let range = PushIdentity.range(beginning: "3c5d-")
        #expect(range == nil)
        #expect(
            PushIdentity.range(beginning: "3c5d8a10-f").map { "\($0.first) \($0.last)" }
                == "3c5d8a10-f000-0000-0000-000000000000 3c5d8a10-ffff-ffff-ffff-ffffffffffff"
        )
        for none in ["x", "3c5d8a10f", "é", String(repeating: "0", count: 37)] {
            #expect(PushIdentity.range(beginning: none) == nil)
        }
        let whole = "3c5d8a10-f000-8000-8000-0123456789ab"
        #expect(PushIdentity.range(beginning: whole)?.first == whole)
    }

    @Test("Secure, sync and config pushes have no push id, and their names are compared by bytes")
    func includesPushID() {
        for source in ["", "carillon/http", "carillon/cli", "shop", "carillon/secure2"] {
            #expect(PushIdentity.includesPushID(source: source))
        }
        for source in ["carillon/config", "carillon/secure", "carillon/sync"] {
            #expect(!PushIdentity.includesPushID(source: source))
        }
    }

    @Test("Promise 5: ids are derived, so a repeat has the same one, and are UUIDs")
    func derivesIDs() {
        // A fake hash that only shows its input.
        let digest: Digest = { bytes in
            var state: UInt64 = 14_695_981_039_346_656_037
            return (0..<32).map { index in
                for byte in bytes { state = (state ^ UInt64(byte)) &* 1_099_511_628_211 }
                state = (state ^ UInt64(index)) &* 1_099_511_628_211
                return UInt8(truncatingIfNeeded: state >> 32)
            }
        }
        let push = { (app: String, source: String, id: String) in
            PushIdentity.pushID(app: app, source: source, eventID: id, digest: digest)
        }
        #expect(push("a", "b", "c") == push("a", "b", "c"))
        #expect(push("a", "b", "c") != push("a", "bc", ""))
        #expect(push("ab", "", "c") != push("a", "b", "c"))
        var ids = NotificationIDs(pushID: push("a", "b", "c")) { $1 = digest($0) }
        let id = ids.id(of: "t")
        #expect(ids.id(of: "other") != id)
        #expect(ids.id(of: "t") == id)
        #expect(PushIdentity.isUUID(id))
        #expect(id == id.lowercased())
        #expect(Array(id)[14] == "8")
        #expect("89ab".contains(Array(id)[19]))
        #expect(!PushIdentity.isUUID(id + "0"))
        #expect(!PushIdentity.isUUID("x" + id.dropFirst()))
    }

    @Test("Object ids are ordered by time")
    func objectIDs() {
        let first = ObjectID.make(at: Instant(seconds: 1_790_000_000), random: .max)
        let second = ObjectID.make(at: Instant(seconds: 1_790_000_001), random: 0)
        #expect(first < second)
        #expect(ObjectID.isWellFormed(first))
        #expect(ObjectID.isWellFormed(second))
        #expect(!ObjectID.isWellFormed("ABCDEF"))
    }

    @Test("Instants are read and written as ISO 8601")
    func instants() throws {
        for text in [
            "1970-01-01T00:00:00.000Z", "2026-11-20T21:04:05.123Z", "2000-02-29T23:59:59.999Z",
            "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00.000Z",
        ] {
            #expect(try #require(Instant(iso8601: text)).iso8601 == text)
        }
        let instant = try #require(Instant(iso8601: "2026-11-20T21:04:05.123Z"))
        #expect(Instant(iso8601: "2026-11-20T22:04:05.123456+01:00") == instant)
        #expect(Instant(iso8601: "2026-11-20T16:04:05.1230-0500") == instant)
        #expect(instant.day == "2026-11-20")
        #expect(Instant(microseconds: -1).milliseconds == -1)
        for text in [
            "", "2026-11-20", "2026-11-20T21:04:05", "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z", "2026-11-20T25:00:00Z", "2026-11-20T21:04:05.Z",
            "2026-11-20T21:04:05Zz", "2026-11-20T21:04:05+1", "+026-11-20T21:04:05Z",
        ] {
            #expect(Instant(iso8601: text) == nil, "\(text)")
        }
    }
}

@Suite(.timeLimit(.minutes(1)))
struct InstallationTests {
    private let now = Instant(milliseconds: 1_790_000_000_000)

    private func make(_ object: JSONObject) throws -> Installation {
        var installation = Installation(app: "shop", objectID: "id", at: now)
        try installation.take(object, changed: ExactStringSet(object.keys), now: now)
        return installation
    }

    @Test(
        "A platform follows from the device type, and its token from that platform's field",
        arguments: [
            (["deviceType": "ios", "deviceToken": "AB12"], Platform.apns, "ab12"),
            (["deviceType": "android", "registrationId": "r:1"], .fcm, "r:1"),
            (["deviceType": "android", "deviceToken": "d", "pushType": "gcm"], .fcm, "d"),
            (["deviceType": "android", "deviceToken": "d"], nil, nil),
            (["deviceType": "android", "registrationId": "r", "vendor": "mi"], nil, nil),
            (["deviceType": "android", "installationId": "i"], .connection, "i"),
            (["deviceType": "android", "installationId": "i", "vendor": "mi"], .connection, "i"),
            (["deviceType": "android", "installationId": "i", "vendor": "fcm"], nil, nil),
            (["deviceType": "ios", "installationId": "i"], nil, nil),
            (
                ["deviceType": "windows", "subscriptionUri": "https://a.notify.windows.com/?t"],
                .wns, "https://a.notify.windows.com/?t"
            ),
            (
                ["deviceType": "wp", "subscriptionUri": "https://a.notify.windows.com/?t"], .wns,
                "https://a.notify.windows.com/?t"
            ),
            (
                ["deviceType": "wp", "subscriptionUri": "http://a.notify.live.net/x?y=%2b"], .mpns,
                "http://a.notify.live.net/x?y=%2b"
            ),
            (
                ["deviceType": "wp", "subscriptionUri": "https://127.0.0.1:8443/mpns/1"], .mpns,
                "https://127.0.0.1:8443/mpns/1"
            ),
            (["deviceType": "web", "installationId": "i"], .connection, "i"),
        ] as [(JSONObject, Platform?, String?)]
    )
    func routes(object: JSONObject, platform: Platform?, token: String?) throws {
        let installation = try make(object)
        #expect(installation.platform == platform)
        #expect(installation.token == token)
        // A device with a connection is found by its installation id alone.
        let key = platform == .connection ? nil : token
        #expect(try Installation.Keys(object).token == key)
    }

    @Test(
        "A value that cannot be stored is refused with LeanCloud's code",
        arguments: [
            (["deviceToken": "ab"], 135), (["deviceType": 1], 111),
            (["deviceType": "ios", "deviceToken": "a b"], 114),
            (["deviceType": "ios", "channels": "a"], 111),
            (["deviceType": "ios", "channels": ["a b"]], 112),
            (["deviceType": "ios", "badge": "x"], 111), (["deviceType": "ios", "$a": 1], 121),
            (["deviceType": "ios", "a.b": 1], 105),
            (["deviceType": "ios", "apnsEnvironment": "test"], 111),
            (["deviceType": "ios", "city": "a\u{0}b"], 111),
        ] as [(JSONObject, Int)]
    )
    func refuses(object: JSONObject, code: Int) throws {
        let error = #expect(throws: InstallationError.self) { _ = try make(object) }
        #expect(error?.code == code)
    }

    @Test("A dead token is valid again when its device names it, and a muted device stays muted")
    func revives() throws {
        let object: JSONObject = ["deviceType": "ios", "deviceToken": "ab"]
        var dead = try make(object)
        dead.isValid = false
        dead.invalidReason = "Unregistered"
        var other = dead
        try other.take(other.object, changed: ["badge"], now: now)
        #expect(!other.isValid)
        try dead.take(dead.object, changed: ["deviceToken"], now: now.adding(milliseconds: 5))
        #expect(dead.isValid)
        #expect(dead.tokenUpdatedAt == now.adding(milliseconds: 5))

        var muted = try make(["deviceType": "ios", "deviceToken": "ab", "valid": false])
        #expect(!muted.isValid)
        try muted.take(muted.object, changed: ["deviceToken"], now: now)
        #expect(!muted.isValid)
    }

    @Test("An identity is the target of owner or user, or the identity itself")
    func identities() throws {
        let pointer: JSONValue = ["__type": "Pointer", "className": "_User", "objectId": "u"]
        #expect(try make(["deviceType": "ios", "owner": pointer]).identity == "u")
        #expect(try make(["deviceType": "ios", "user": pointer]).identity == "u")
        #expect(
            try make(["deviceType": "ios", "user": pointer, "identity": "me"]).identity == "me"
        )
        #expect(try make(["deviceType": "ios", "owner": "u"]).identity == nil)
    }
}
