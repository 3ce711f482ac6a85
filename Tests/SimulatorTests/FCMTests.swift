import Cryptography
import HTTPServer
import JSON
import Testing

@testable import Simulator

/// RSA keys take long to generate: one for all tests.
private let accountKey = Result { try SigningKey.generateRSA(bits: 2048) }

private struct Sender {
    static let now: Int64 = 1_800_000_000
    static let audience = "https://127.0.0.1:8443/token"
    static let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"

    var checker = FCMChecker()
    let key: SigningKey

    init() throws {
        key = try accountKey.get()
        for project in ["shop", "other"] {
            checker.add(
                FCMAccount(
                    projectID: project,
                    clientEmail: "\(project)@example.com",
                    verifyingKey: key.verifyingKey
                )
            )
        }
    }

    mutating func fetch(
        _ changes: JSONObject = [:],
        grant: String = grant,
        key other: SigningKey? = nil
    ) throws -> HTTPServerResponse {
        var claims: JSONObject = [
            "iss": "shop@example.com", "aud": .string(Self.audience),
            "scope": "https://www.googleapis.com/auth/firebase.messaging",
            "iat": .integer(Self.now), "exp": .integer(Self.now + 3600),
        ]
        for (name, value) in changes { claims[name] = value }
        let assertion = try JWT.sign(header: ["typ": "JWT"], claims: claims, with: other ?? key)
        let request = try HTTPServerRequest(
            .post,
            "/token",
            body: Array("grant_type=\(grant)&assertion=\(assertion)".utf8)
        )
        return checker.grant(
            request,
            audiences: [Self.audience],
            now: Self.now,
            lifetime: 3599
        )
    }

    mutating func accessToken() throws -> String {
        let answer = try JSONValue.parse(try fetch().body)
        return try #require(answer["access_token"]?.string)
    }

    func check(
        _ body: String,
        token: String?,
        project: String = "shop",
        now: Int64 = now
    ) throws -> CheckResult {
        var headers = HTTPHeaders()
        if let token { headers.add("Authorization", "Bearer " + token) }
        let request = try HTTPServerRequest(
            .post,
            "/v1/projects/\(project)/messages:send",
            headers: headers,
            body: Array(body.utf8)
        )
        return checker.check(request, project: project, now: now)
    }
}

@Suite("Simulator: FCM", .timeLimit(.minutes(1)))
struct FCMTests {
    @Test("A signed grant gets a token in Google's form")
    func grant() throws {
        var sender = try Sender()
        let response = try sender.fetch()
        #expect(response.status == 200)
        let answer = try JSONValue.parse(response.body)
        #expect(answer["access_token"]?.string?.hasPrefix("ya29.") == true)
        #expect(answer["expires_in"] == 3599)
        #expect(answer["token_type"] == "Bearer")
    }

    @Test(
        "A grant that Google refuses is refused with OAuth's error",
        arguments: [
            (["iss": "nobody@example.com"], "invalid_grant"),
            (["aud": "https://example.com/token"], "invalid_grant"),
            (["exp": 1_800_003_601], "invalid_grant"), (["exp": 1_800_000_000], "invalid_grant"),
            (["iat": 1_800_000_301], "invalid_grant"), (["scope": "openid"], "invalid_scope"),
            (["iat": .integer(.min)], "invalid_grant"), (["exp": .integer(.max)], "invalid_grant"),
        ] as [(JSONObject, String)]
    )
    func refusedGrants(changes: JSONObject, error: String) throws {
        var sender = try Sender()
        let response = try sender.fetch(changes)
        #expect(response.status == 400)
        #expect(try JSONValue.parse(response.body)["error"]?.string == error)
    }

    @Test("A signature of another key, or another grant type, is refused")
    func refusedSignature() throws {
        var sender = try Sender()
        let response = try sender.fetch(key: try SigningKey.generateP256())
        #expect(try JSONValue.parse(response.body)["error"] == "invalid_grant")
        let other = try sender.fetch(grant: "password")
        #expect(try JSONValue.parse(other.body)["error"] == "unsupported_grant_type")
    }

    @Test("A message needs a valid token of its own project")
    func authorization() throws {
        var sender = try Sender()
        let message = #"{"message":{"token":"abc","data":{"a":"1"}}}"#
        let token = try sender.accessToken()
        #expect(try sender.check(message, token: token).status == 200)
        #expect(try sender.check(message, token: nil).status == 401)
        #expect(try sender.check(message, token: "ya29.c.forged").status == 401)
        #expect(try sender.check(message, token: token, now: Sender.now + 3599).status == 401)
        #expect(try sender.check(message, token: token, project: "other").status == 403)
        #expect(try sender.check(message, token: token, project: "unknown").status == 404)
        sender.checker.revokeTokens()
        #expect(try sender.check(message, token: token).status == 401)
    }

    @Test("A topic message has one target, and rules match its name as a token")
    func topics() throws {
        var sender = try Sender()
        let token = try sender.accessToken()
        let topic = try sender.check(#"{"message":{"topic":"PUSH_RC"}}"#, token: token)
        #expect(topic.status == 200)
        #expect(topic.topic == "PUSH_RC")
        #expect(topic.target(of: .fcm) == "PUSH_RC")
        #expect(topic.target(of: .apns) == nil)
        for message in [
            #"{"topic":"a","token":"b"}"#, #"{"topic":"a","condition":"'a' in topics"}"#,
            #"{"topic":"/topics/a"}"#, #"{"topic":"a b"}"#, #"{"data":{"a":"b"}}"#,
        ] {
            let result = try sender.check(#"{"message":\#(message)}"#, token: token)
            #expect(result.status == 400, "\(message)")
            #expect(result.reason == "INVALID_ARGUMENT")
        }
    }

    @Test(
        "Valid messages are accepted, in snake case and in camel case",
        arguments: [
            #"{"message":{"topic":"news","notification":{"title":"a","body":"b"}}}"#,
            #"{"message":{"condition":"'a' in topics && 'b' in topics","data":{}}}"#,
            #"{"validateOnly":true,"message":{"token":"a:b","android":{"collapseKey":"k","#
                + #""ttl":"3.5s","priority":"high","notification":{"channel_id":"c","tag":"t"}}}}"#,
            #"{"message":{"token":"a","apns":{"headers":{"apns-priority":"5"},"payload":{"aps":{}}}}}"#,
        ]
    )
    func accepted(body: String) throws {
        var sender = try Sender()
        let token = try sender.accessToken()
        let result = try sender.check(body, token: token)
        #expect(result.status == 200, "\(result)")
        #expect(result.isDryRun == body.contains("validateOnly"))
    }

    @Test(
        "A message that FCM refuses is refused with the field's name",
        arguments: [
            ("[]", nil, nil), ("{", nil, nil), ("{}", "INVALID_ARGUMENT", "message"),
            (#"{"mesage":{}}"#, nil, ""), (#"{"message":{"tokn":"a"}}"#, nil, "message"),
            (#"{"message":{}}"#, "INVALID_ARGUMENT", "message.token"),
            (#"{"message":{"token":"a","topic":"b"}}"#, "INVALID_ARGUMENT", "message.token"),
            (#"{"message":{"token":"a b"}}"#, "INVALID_ARGUMENT", "message.token"),
            (#"{"message":{"topic":"/topics/a"}}"#, "INVALID_ARGUMENT", "message.topic"),
            (#"{"message":{"token":"a","data":{"k":1}}}"#, nil, "message.data[0].value"),
            (
                #"{"message":{"token":"a","data":{"from":"x"}}}"#, "INVALID_ARGUMENT",
                "message.data.from"
            ),
            (
                #"{"message":{"token":"a","data":{"gcm.notification.x":"x"}}}"#, "INVALID_ARGUMENT",
                "message.data.gcm.notification.x"
            ),
            (#"{"message":{"token":"a","android":{"ttl":3}}}"#, nil, "message.android.ttl"),
            (#"{"message":{"token":"a","android":{"ttl":"3"}}}"#, nil, "message.android.ttl"),
            (
                #"{"message":{"token":"a","android":{"ttl":"2419201s"}}}"#, "INVALID_ARGUMENT",
                "message.android.ttl"
            ),
            (
                #"{"message":{"token":"a","android":{"priority":"urgent"}}}"#, nil,
                "message.android.priority"
            ),
            (
                #"{"message":{"token":"a","android":{"notification":{"body_loc_args":["x"]}}}}"#,
                "INVALID_ARGUMENT", "message.android.notification.body_loc_args"
            ),
            (
                #"{"message":{"token":"a","notification":{"title":5}}}"#, nil,
                "message.notification.title"
            ),
            (
                #"{"message":{"token":"a","webpush":{"fcm_options":{"link":"http://a"}}}}"#,
                "INVALID_ARGUMENT", "message.webpush.fcm_options.link"
            ),
        ] as [(String, String?, String?)]
    )
    func refused(body: String, code: String?, field: String?) throws {
        var sender = try Sender()
        let token = try sender.accessToken()
        let result = try sender.check(body, token: token)
        #expect(result.status == 400)
        #expect(result.reason == code)
        #expect(result.field == field)
    }

    @Test("Payloads are limited to 4096 bytes, and 2048 for a topic")
    func sizes() throws {
        var sender = try Sender()
        let token = try sender.accessToken()
        let body = { (target: String, count: Int) in
            #"{"message":{"\#(target)":"a","data":{"k":""#
                + String(repeating: "x", count: count - 1) + #""}}}"#
        }
        #expect(try sender.check(body("token", 4096), token: token).status == 200)
        #expect(try sender.check(body("token", 4097), token: token).status == 400)
        #expect(try sender.check(body("topic", 2048), token: token).status == 200)
        #expect(try sender.check(body("topic", 2049), token: token).status == 400)
    }

    @Test("An error has FCM's form, with the detail by which senders classify it")
    func errors() throws {
        let gone = FCMAnswer.refused(
            status: 404,
            errorCode: "UNREGISTERED",
            message: nil,
            field: nil
        )
        let error = try JSONValue.parse(gone.body)["error"]
        #expect(error?["code"] == 404)
        #expect(error?["status"] == "NOT_FOUND")
        #expect(error?["details"]?[0]?["errorCode"] == "UNREGISTERED")
        #expect(
            error?["details"]?[0]?["@type"]
                == "type.googleapis.com/google.firebase.fcm.v1.FcmError"
        )
        let stale = FCMAnswer.refused(status: 401, errorCode: nil, message: nil, field: nil)
        #expect(try JSONValue.parse(stale.body)["error"]?["details"] == nil)
    }
}
