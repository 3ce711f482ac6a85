import Cryptography
import HTTPServer
import JSON
import Testing

@testable import Simulator

/// A sender with one key, and an APNs that knows the key.
private struct Sender {
    static let now: Int64 = 1_800_000_000

    let key: SigningKey
    /// The token of every request without its own: no two signatures are the same.
    private let usualToken: String
    var checker = APNsChecker()
    var connection = APNsConnection()

    init(environment: String? = nil) throws {
        key = try SigningKey.generateP256()
        usualToken = try Self.token(signedBy: key)
        checker.add(
            APNsKey(
                keyID: "KEY0000001",
                teamID: "TEAM000001",
                verifyingKey: key.verifyingKey,
                environment: environment
            )
        )
    }

    func token(
        kid: String = "KEY0000001",
        team: String = "TEAM000001",
        issuedAt: Int64 = now
    ) throws -> String {
        try Self.token(signedBy: key, kid: kid, team: team, issuedAt: issuedAt)
    }

    private static func token(
        signedBy key: SigningKey,
        kid: String = "KEY0000001",
        team: String = "TEAM000001",
        issuedAt: Int64 = now
    ) throws -> String {
        try JWT.sign(
            header: ["kid": .string(kid)],
            claims: ["iss": .string(team), "iat": .integer(issuedAt)],
            with: key
        )
    }

    func request(
        _ changes: [String: String?] = [:],
        path: String = "/3/device/" + String(repeating: "ab", count: 32),
        method: HTTPMethod = .post,
        body: String = #"{"aps":{"alert":"hi"}}"#,
        certificate: String? = nil
    ) throws -> HTTPServerRequest {
        var headers: HTTPHeaders = [
            "apns-topic": "com.example.shop", "apns-push-type": "alert",
            "authorization": "bearer " + usualToken,
        ]
        for (name, value) in changes { headers[name] = value }
        return try HTTPServerRequest(
            method,
            path,
            headers: headers,
            body: Array(body.utf8),
            scheme: "https",
            protocolVersion: .http2,
            clientCertificateSubject: certificate
        )
    }

    mutating func check(
        _ request: HTTPServerRequest,
        environment: String = "production",
        now: Int64 = now
    ) -> CheckResult {
        checker.check(request, environment: environment, now: now, connection: &connection)
    }
}

@Suite("Simulator: APNs", .timeLimit(.minutes(1)))
struct APNsTests {
    @Test("A valid request is accepted, and binds the connection to its team")
    func accepts() throws {
        var sender = try Sender()
        #expect(!sender.connection.isTrusted)
        let result = sender.check(try sender.request())
        #expect(result.status == 200)
        #expect(result.token == String(repeating: "ab", count: 32))
        #expect(result.topic == "com.example.shop")
        #expect(sender.connection.isTrusted)
        #expect(sender.connection.team == "TEAM000001")
    }

    @Test(
        "A header that Apple refuses is refused with its own reason",
        arguments: [
            ("apns-id", "not-a-uuid", 400, "BadMessageId"),
            ("apns-topic", nil, 400, "MissingTopic"),
            ("apns-topic", "a b", 400, "BadTopic"),
            ("apns-collapse-id", String(repeating: "é", count: 33), 400, "BadCollapseId"),
            ("apns-expiration", "soon", 400, "BadExpirationDate"),
            ("apns-priority", "7", 400, "BadPriority"),
            ("apns-push-type", "shout", 400, "InvalidPushType"),
            ("apns-push-type", "voip", 400, "BadTopic"),
            ("authorization", nil, 403, "MissingProviderToken"),
            ("authorization", "basic abc", 403, "MissingProviderToken"),
            ("authorization", "bearer a.b.c", 403, "InvalidProviderToken"),
        ] as [(String, String?, Int, String)]
    )
    func headers(name: String, value: String?, status: Int, reason: String) throws {
        var sender = try Sender()
        let result = sender.check(try sender.request([name: value]))
        #expect(result.status == status)
        #expect(result.reason == reason)
        #expect(!sender.connection.isTrusted)
    }

    @Test("A duplicate header is refused")
    func duplicates() throws {
        var sender = try Sender()
        var request = try sender.request(["apns-priority": "5"])
        request.headers.add("apns-priority", "5")
        #expect(sender.check(request).reason == "DuplicateHeaders")
    }

    @Test(
        "Paths and device tokens are validated",
        arguments: [
            ("/3/device/", 400, "MissingDeviceToken"), ("/3/device", 400, "MissingDeviceToken"),
            ("/3/device/xyz", 400, "BadDeviceToken"), ("/3/device/abc", 400, "BadDeviceToken"),
            ("/3/devices/abcd", 404, "BadPath"), ("/4/device/abcd", 404, "BadPath"),
        ]
    )
    func paths(path: String, status: Int, reason: String) throws {
        var sender = try Sender()
        let result = sender.check(try sender.request(path: path))
        #expect(result.status == status)
        #expect(result.reason == reason)
    }

    @Test("Only POST is a push")
    func methods() throws {
        var sender = try Sender()
        #expect(sender.check(try sender.request(method: .get)).reason == "MethodNotAllowed")
    }

    @Test("A provider token of another key, team, age or signature is refused")
    func tokens() throws {
        var sender = try Sender()
        let now = Sender.now
        let stranger = try Sender()
        let refusals: [(String, String)] = [
            (try sender.token(kid: "KEY0000002"), "InvalidProviderToken"),
            (try sender.token(team: "TEAM000002"), "InvalidProviderToken"),
            (try stranger.token(), "InvalidProviderToken"),
            (try sender.token(issuedAt: now - 3601), "ExpiredProviderToken"),
            (try sender.token(issuedAt: now + 301), "InvalidProviderToken"),
        ]
        for (token, reason) in refusals {
            let request = try sender.request(["authorization": "bearer " + token])
            #expect(sender.check(request).reason == reason)
        }
        let old = try sender.token(issuedAt: now - 3600)
        #expect(sender.check(try sender.request(["authorization": "Bearer " + old])).status == 200)
    }

    @Test("A token expires while it is in use")
    func ageing() throws {
        var sender = try Sender()
        let request = try sender.request()
        #expect(sender.check(request).status == 200)
        #expect(sender.check(request, now: Sender.now + 3600).status == 200)
        #expect(sender.check(request, now: Sender.now + 3601).reason == "ExpiredProviderToken")
    }

    @Test("Another token within 20 minutes is refused on the same connection, and not on a new one")
    func tokenUpdates() throws {
        var sender = try Sender()
        #expect(sender.check(try sender.request()).status == 200)
        let soon = Sender.now + 1199
        let next = try sender.request([
            "authorization": "bearer " + (try sender.token(issuedAt: Sender.now + 1))
        ])
        let result = sender.check(next, now: soon)
        #expect(result.status == 429)
        #expect(result.reason == "TooManyProviderTokenUpdates")
        #expect(sender.check(next, now: soon + 1).status == 200)
        sender.connection = APNsConnection()
        #expect(sender.check(next, now: soon).status == 200)
    }

    @Test("A connection serves one team")
    func teams() throws {
        var sender = try Sender()
        let other = try SigningKey.generateP256()
        sender.checker.add(
            APNsKey(keyID: "KEY0000009", teamID: "TEAM000009", verifyingKey: other.verifyingKey)
        )
        #expect(sender.check(try sender.request()).status == 200)
        let token = try JWT.sign(
            header: ["kid": "KEY0000009"],
            claims: ["iss": "TEAM000009", "iat": .integer(Sender.now)],
            with: other
        )
        let request = try sender.request(["authorization": "bearer " + token])
        #expect(sender.check(request).reason == "InvalidProviderToken")
        sender.connection = APNsConnection()
        #expect(sender.check(request).status == 200)
    }

    @Test("A key that Apple bound to one environment is refused in the other")
    func environments() throws {
        var sender = try Sender(environment: "sandbox")
        let request = try sender.request()
        #expect(sender.check(request).reason == "BadEnvironmentKeyIdInToken")
        #expect(sender.check(request, environment: "sandbox").status == 200)
    }

    @Test("Payloads are limited to 4096 bytes, and 5120 for voip")
    func sizes() throws {
        var sender = try Sender()
        let body = { (count: Int) in
            #"{"aps":{},"x":""# + String(repeating: "y", count: count - 17) + #""}"#
        }
        #expect(sender.check(try sender.request(body: body(4096))).status == 200)
        #expect(sender.check(try sender.request(body: body(4097))).reason == "PayloadTooLarge")
        let voip: [String: String?] = [
            "apns-push-type": "voip", "apns-topic": "com.example.shop.voip",
        ]
        #expect(sender.check(try sender.request(voip, body: body(5120))).status == 200)
        #expect(sender.check(try sender.request(voip, body: body(5121))).status == 413)
        #expect(sender.check(try sender.request(body: "")).reason == "PayloadEmpty")
        #expect(sender.check(try sender.request(body: "[]")).reason == "PayloadEmpty")
    }

    @Test("A background push has priority 5, content-available and nothing to show")
    func background() throws {
        var sender = try Sender()
        let silent = #"{"aps":{"content-available":1}}"#
        let check = { (sender: inout Sender, priority: String, body: String) in
            sender.check(
                try sender.request(
                    ["apns-push-type": "background", "apns-priority": priority],
                    body: body
                )
            )
        }
        #expect(try check(&sender, "5", silent).status == 200)
        #expect(try check(&sender, "10", silent).reason == "BadPriority")
        let loud = #"{"aps":{"content-available":1,"sound":"default"}}"#
        #expect(try check(&sender, "5", loud).reason == "BadPriority")
        #expect(try check(&sender, "5", #"{"aps":{}}"#).reason == "InvalidPushType")
    }

    @Test("A client certificate replaces the token, and allows its own topic")
    func certificates() throws {
        var sender = try Sender()
        let subject = "CN=Apple Push Services: com.example.shop,UID=com.example.shop"
        let changes: [String: String?] = ["authorization": nil, "apns-topic": nil]
        let result = sender.check(try sender.request(changes, certificate: subject))
        #expect(result.status == 200)
        #expect(result.topic == "com.example.shop")
        #expect(sender.connection.isTrusted)
        let other: [String: String?] = ["authorization": nil, "apns-topic": "com.example.other"]
        #expect(
            sender.check(try sender.request(other, certificate: subject)).reason
                == "TopicDisallowed"
        )
    }

    @Test("Responses have apns-id, a reason, and for 410 the timestamp")
    func answers() {
        let taken = APNsAnswer.make(
            status: 200,
            reason: nil,
            timestamp: 0,
            notificationID: "id",
            environment: "sandbox"
        )
        #expect(taken.headers["apns-id"] == "id")
        #expect(taken.headers["apns-unique-id"] != nil)
        #expect(taken.body.isEmpty)
        let gone = APNsAnswer.make(
            status: 410,
            reason: nil,
            timestamp: 42,
            notificationID: "id",
            environment: "production"
        )
        #expect(gone.headers["apns-id"] == "id")
        #expect(
            String(decoding: gone.body, as: UTF8.self)
                == #"{"reason":"Unregistered","timestamp":42}"#
        )
    }
}
