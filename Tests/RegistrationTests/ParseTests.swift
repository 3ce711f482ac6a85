import HTTPServer
import JSON
import PushCore
import Registration
import Testing

@Suite("Parse calls by headers and by body", .timeLimit(.minutes(1)))
struct ParseCallTests {
    /// A call, with the fields that its surface reads first.
    @dynamicMemberLookup
    private struct Read {
        let call: ParseCall
        let credential: ParseCredential?

        subscript<Value>(dynamicMember path: KeyPath<ParseCall, Value>) -> Value {
            call[keyPath: path]
        }
    }

    private func call(
        _ method: HTTPMethod,
        _ target: String,
        headers: HTTPHeaders = [:],
        body: String = ""
    ) throws -> Read {
        let request = try HTTPServerRequest(
            method,
            target,
            headers: headers,
            body: Array(body.utf8)
        )
        let credential = ParseCredential(request) { _ in }
        return Read(
            call: try ParseCall(request, forMaster: credential?.masterKey != nil),
            credential: credential
        )
    }

    @Test("A REST client authenticates by headers, under any of Parse's key names")
    func headers() throws {
        for name in [
            "X-Parse-REST-API-Key", "X-Parse-Client-Key", "X-Parse-Javascript-Key",
            "X-Parse-Windows-Key",
        ] {
            let call = try call(
                .get,
                "/parse/installations/abc?keys=a,b",
                headers: [
                    "X-Parse-Application-Id": "shop", name: "k", "X-Parse-Installation-Id": "i-1",
                    "X-Parse-Request-Id": "r-1",
                ]
            )
            #expect(call.method == .get)
            #expect(call.path == ["installations", "abc"])
            #expect(call.parameters == ["keys": "a,b"])
            #expect(call.credential?.app == "shop")
            #expect(call.credential?.clientKey == "k")
            #expect(call.credential?.masterKey == nil)
            #expect(call.installationID == "i-1")
            #expect(call.requestID == "r-1")
        }
    }

    @Test("Parse's package sends all of it in the body of a POST, whatever the body's type")
    func body() throws {
        let call = try call(
            .post,
            "/parse/classes/_Installation",
            headers: ["Content-Type": "text/plain"],
            body: """
                {"where": {"badge": {"$gt": 1}}, "limit": 5, "_method": "GET",
                 "_ApplicationId": "shop", "_JavaScriptKey": "js", "_ClientVersion": "js8.6.0",
                 "_InstallationId": "I-1", "_SessionToken": "r:1", "_context": "{}"}
                """
        )
        #expect(call.method == .get)
        #expect(call.path == ["classes", "_Installation"])
        #expect(call.parameters == ["where": ["badge": ["$gt": 1]], "limit": 5])
        #expect(call.credential?.app == "shop")
        #expect(call.credential?.clientKey == "js")
        #expect(call.installationID == "I-1")
        let master = try self.call(
            .post,
            "/parse/push",
            body: #"{"_ApplicationId": "shop", "_MasterKey": "m", "channels": ["a"]}"#
        )
        #expect(master.method == .post)
        #expect(master.credential?.masterKey == "m")
        #expect(master.parameters == ["channels": ["a"]])
    }

    @Test("Headers take precedence over the body, and only a POST can mean another method")
    func precedence() throws {
        let call = try call(
            .put,
            "/parse/users/u",
            headers: ["X-Parse-Application-Id": "a", "X-Parse-Master-Key": "m"],
            body: #"{"_method": "DELETE", "_ApplicationId": "b", "_MasterKey": "n", "x": 1}"#
        )
        #expect(call.method == .put)
        #expect(call.credential?.app == "a")
        #expect(call.credential?.masterKey == "m")
        #expect(call.parameters == ["x": 1])
    }

    @Test("A call without an app has no credential, and an empty body or null has no parameters")
    func nothing() throws {
        #expect(try call(.get, "/parse/health").credential == nil)
        #expect(try call(.get, "/parse/users/u", body: "null").parameters == [:])
        #expect(try call(.get, "/parse/users/").path == ["users"])
    }

    @Test("An invalid id is 107, and an invalid app id counts as absent")
    func names() throws {
        for body in [
            #"{"_InstallationId": "a\u0000b"}"#, #"{"_RequestId": "\u0001"}"#,
            "{\"_InstallationId\": \"\(String(repeating: "i", count: 257))\"}",
        ] {
            #expect(throws: ObjectError.self) { try call(.post, "/parse/push", body: body) }
        }
        #expect(throws: ObjectError.self) { try call(.get, "/parse/users/a%01") }
        #expect(throws: ObjectError.self) {
            try call(.get, "/parse/users/" + String(repeating: "u", count: 257))
        }
        let batch = try call(.post, "/parse/batch", body: #"{"_ApplicationId": "a\u0000"}"#)
        #expect(batch.credential == nil)
        for target in ["/parse/users/a\0", "/parse/users/a%00", "/parse/users/\u{7f}"] {
            #expect(throws: ObjectError.self) {
                try ParseCall(method: .get, target: target, body: [:], of: batch.call)
            }
        }
    }

    @Test(
        "A body that is not an object is 107",
        arguments: ["{", "[]", "1", #"{"_method": "FLY"}"#, #"{"_method": 1}"#]
    )
    func malformed(body: String) {
        #expect {
            try call(.post, "/parse/push", body: body)
        } throws: { error in
            (error as? ObjectError)?.code == 107 && (error as? ObjectError)?.status == 400
        }
    }
}

@Suite("Parse pushes", .timeLimit(.minutes(1)))
struct ParsePushTests {
    @Test("Epoch seconds are an instant, and text is kept, as one without a zone is device-local")
    func times() throws {
        let request = try ParsePush.request([
            "channels": ["a"], "data": ["alert": "x"], "push_time": 1_900_000_000,
            "expiration_time": 1_900_003_600.5,
        ])
        #expect(request["push_time"] == "2030-03-17T17:46:40.000Z")
        #expect(request["expiration_time"] == "2030-03-17T18:46:40.500Z")
        let local = try ParsePush.request([
            "where": [:], "data": [:], "push_time": "2030-01-01T08:00:00",
        ])
        #expect(local["push_time"] == "2030-01-01T08:00:00")
        _ = try PushRequest.parse(request, now: Instant(seconds: 1_800_000_000))
    }

    @Test("An end without a zone is in UTC, a date alone its midnight, an interval any number")
    func ends() throws {
        for (given, kept): (JSONValue, JSONValue) in [
            ("2030-01-01T08:00:00", "2030-01-01T08:00:00Z"),
            ("2030-01-01T08:00:00+01:00", "2030-01-01T08:00:00+01:00"),
            ("2030-01-01", "2030-01-01T00:00:00Z"),
            (["__type": "Date", "iso": "2030-01-01T08:00:00.000Z"], "2030-01-01T08:00:00.000Z"),
        ] {
            let request = try ParsePush.request([
                "where": [:], "data": [:], "expiration_time": given,
            ])
            #expect(request["expiration_time"] == kept)
            let read = try PushRequest.parse(request, now: Instant(seconds: 1_800_000_000))
            #expect(read.sdk == .parse)
        }
        let part = try ParsePush.request([
            "where": [:], "data": [:], "expiration_interval": 3600.5,
        ])
        #expect(
            try PushRequest.parse(part, now: .now()).expiration == .afterSeconds(3601)
        )
    }

    @Test("Headers beside data are Apple's, as Parse's adapter reads them")
    func headersBeside() throws {
        let request = try ParsePush.request([
            "where": [:], "data": ["alert": "x"], "push_type": "background", "priority": 5,
        ])
        #expect(request["data"]?["apns-push-type"] == "background")
        #expect(request["data"]?["apns-priority"] == 5)
        #expect(request["priority"] == nil && request["push_type"] == nil)
        let own = try ParsePush.request(["where": [:], "data": [:], "priority": "high"])
        #expect(try PushRequest.parse(own, now: .now()).priority == .high)
    }

    @Test("Parse's own fields are stored under Carillon's names, and returned as they came")
    func words() throws {
        let data: JSONObject = [
            "alert": "x", "badge": 7, "push_type": "alert", "priority": 5,
            "custom": ["priority": 1], "threadId": "t", "interruptionLevel": "passive",
            "targetContentIdentifier": "c", "collapseId": "co",
        ]
        let request = try ParsePush.request(["where": [:], "data": .object(data)])
        let kept = try #require(request["data"]?.object)
        #expect(kept["badge"] == ["__op": "Set", "amount": 7])
        #expect(kept["apns-push-type"] == "alert")
        #expect(kept["apns-priority"] == 5)
        #expect(kept["priority"] == nil && kept["push_type"] == nil)
        for (name, value): (String, JSONValue) in [
            ("thread-id", "t"), ("interruption-level", "passive"), ("target-content-id", "c"),
            ("collapse-id", "co"),
        ] { #expect(kept[name] == value) }
        #expect(ParsePush.sent(kept) == data)
        _ = try PushRequest.parse(request, now: .now())
        // Names that Apple does not know are the app's own.
        let own: JSONObject = [
            "priority": "high", "push_type": "chat", "threadId": 7, "collapseId": "",
        ]
        let taken = try ParsePush.request(["where": [:], "data": .object(own)])
        #expect(taken["data"]?.object == own)
        _ = try PushRequest.parse(taken, now: .now())
    }

    @Test(
        "A push that Parse refuses, or accepts and then fails, is 115 at once",
        arguments: [
            #"{"data": {}}"#, #"{"channels": ["a"], "where": {}, "data": {}}"#,
            #"{"channels": ["a"]}"#, #"{"channels": ["a"], "data": "x"}"#,
            #"{"where": [], "data": {}}"#, #"{"where": null, "data": {}}"#,
            #"{"where": "{}", "data": {}}"#,
            #"{"where": {}, "data": {}, "push_time": true}"#,
            #"{"where": {}, "data": {}, "push_time": 1e300}"#,
            #"{"where": {}, "data": {}, "expiration_time": {}}"#,
            #"{"where": {}, "data": {}, "expiration_interval": 0}"#,
            #"{"where": {}, "data": {}, "expiration_interval": "60"}"#,
            #"{"where": {}, "data": {}, "expiration_interval": -5}"#,
            #"{"where": {}, "data": {}, "expiration_interval": 5, "expiration_time": 9e9}"#,
        ]
    )
    func refusals(body: String) throws {
        let object = try #require(try JSONValue.parse(body).object)
        #expect {
            try ParsePush.request(object)
        } throws: { error in
            (error as? ObjectError)?.code == 115 && (error as? ObjectError)?.status == 400
        }
    }

    @Test("A condition with an unknown operator is refused by its name")
    func unknownOperator() {
        #expect {
            try ParsePush.request(["where": ["a": ["$above": 1]], "data": [:]])
        } throws: { error in
            (error as? WhereError)?.code == 102 && "\(error)".contains("$above")
        }
    }
}
