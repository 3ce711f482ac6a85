import Cryptography
import Foundation
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Access checks",
        .serialized,
        .timeLimit(.minutes(3))
    )
    struct RightsTests {
        /// A registration service without others, with an app of its own.
        private struct Door {
            let stack: Stack
            let app: Stack.App
            let url: String

            func set(_ settings: String...) async throws {
                for setting in settings {
                    try await stack.carillon("app", "set", app.id, setting)
                }
            }

            func call(
                _ method: String,
                _ path: String,
                _ headers: [String: String],
                _ body: JSONValue? = nil
            ) async throws -> HTTPAnswer {
                try await http(method, url + path, headers: headers, body: body)
            }
        }

        private func with(
            _ extra: [String: String] = [:],
            _ body: (Door) async throws -> Void
        ) async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration", extra)
                try await body(Door(stack: stack, app: app, url: service.url))
                #expect(await service.process.stop() == .status(0))
            }
        }

        private func signed(
            _ app: Stack.App,
            at milliseconds: Int64,
            isMaster: Bool = true
        ) -> [String: String] {
            let key = isMaster ? app.masterKey : app.appKey
            let digest = Hex.encode(md5(Array("\(milliseconds)\(key)".utf8)))
            return [
                "X-LC-Id": app.id,
                "X-LC-Sign": "\(digest),\(milliseconds)\(isMaster ? ",master" : "")",
            ]
        }

        private static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

        @Test("A compressed body is inflated only for an authenticated caller")
        func compressedBodies() async throws {
            try await with { door in
                let (app, wrong) = (door.app, "wrong")
                let hub = "/\(app.id)/installations/phone"
                func azure(_ key: String) -> [String: String] {
                    ["Authorization": sharedAccessSignature("http://127.0.0.1/", key: key)]
                }
                func parse(_ key: String) -> [String: String] {
                    ["X-Parse-Application-Id": app.id, "X-Parse-Master-Key": key]
                }
                let leanCloud = ["X-LC-Id": app.id, "X-LC-Key": wrong]
                let cases: [(String, String, [String: String], Int)] = [
                    ("POST", "/1.1/installations", leanCloud, 401),
                    ("POST", "/1.1/installations", [:], 401),
                    ("POST", "/1.1/installations", app.clientHeaders, 400),
                    ("POST", "/parse/installations", parse(wrong), 403),
                    ("POST", "/parse/installations", [:], 403),
                    ("POST", "/parse/installations", parse(app.masterKey), 400),
                    ("PUT", hub, azure(wrong), 401), ("PUT", hub, [:], 401),
                    ("PUT", hub, azure(app.masterKey), 400),
                ]
                // Inflating it would fail.
                for coding in ["gzip", "zstd"] {
                    for (method, path, headers, status) in cases {
                        let answer = try await http(
                            method,
                            door.url + path,
                            headers: headers.merging(["Content-Encoding": coding]) { $1 },
                            bytes: [1, 2, 3]
                        )
                        #expect(answer.status == status, "\(path) \(headers.keys.sorted())")
                    }
                }
            }
        }

        @Test("The app key sees the times of scheduled pushes, but not content and audience")
        func schedule() async throws {
            try await with { door in
                try await door.set("client-push=on")
                let time = Instant(milliseconds: Self.now + 86_400_000).iso8601
                let push: JSONValue = [
                    "where": ["secretField": "s3cret"], "channels": ["insiders"],
                    "data": ["alert": "Not before nine"], "push_time": .string(time),
                ]
                let sent = try await eventually("the setting is taken up") {
                    () -> HTTPAnswer? in
                    let answer = try await door.call(
                        "POST",
                        "/1.1/push",
                        door.app.clientHeaders,
                        push
                    )
                    guard answer.status != 403 else { return nil }
                    #expect(answer.status == 200, "\(answer.text)")
                    return answer
                }
                let path = "/1.1/scheduledPushMessages"
                func listed(_ headers: [String: String], _ query: String) async throws -> JSONValue
                {
                    let answer = try await door.call("GET", path + query, headers)
                    #expect(answer.status == 200)
                    return try #require(answer.json?["results"]?.array?.first)
                }
                for query in ["", "?where=%7B%7D"] {
                    let master = try await listed(door.app.masterHeaders, query)
                    #expect(master["push_msg"]?["msg"]?["alert"] == "Not before nine")
                    #expect(master.text.contains("s3cret") && master.text.contains("insiders"))
                    let client = try await listed(door.app.clientHeaders, query)
                    for secret in ["Not before nine", "s3cret", "secretField", "insiders"] {
                        #expect(!client.text.contains(secret), "\(secret)")
                    }
                    // It is enough to recognise and cancel it.
                    #expect(client["push_msg"]?["id"] == sent.json?["objectId"])
                    #expect(client["push_time"] == .string(time))
                    #expect(client["id"] == master["id"] && client["id"] != nil)
                }
            }
        }

        @Test(
            "A wrong master key of Parse's is refused, even with a right client key beside it"
        )
        func parseMasterKey() async throws {
            try await with { door in
                let path = "/parse/installations/none"
                let client = [
                    "X-Parse-Application-Id": door.app.id, "X-Parse-REST-API-Key": door.app.appKey,
                ]
                #expect(try await door.call("GET", path, client).status == 404)
                let both = client.merging(["X-Parse-Master-Key": "wrong"]) { $1 }
                let refused = try await door.call("GET", path, both)
                #expect(refused.status == 403)
                #expect(refused.json == ["error": "unauthorized"])
                let form: JSONValue = [
                    "_method": "GET", "_ApplicationId": .string(door.app.id),
                    "_JavaScriptKey": .string(door.app.appKey), "_MasterKey": "wrong",
                ]
                #expect(try await door.call("POST", path, [:], form).status == 403)
                let right = client.merging(["X-Parse-Master-Key": door.app.masterKey]) { $1 }
                #expect(try await door.call("GET", path, right).status == 404)
            }
        }

        @Test("An id that was only queried has no data to export")
        func unknownExport() async throws {
            try await with { door in
                let id = "of-another-app"
                let headers = door.app.masterHeaders
                #expect(
                    try await door.call("GET", "/1.1/installations/\(id)", headers).status == 404
                )
                let read: JSONValue = [
                    "method": "GET", "path": .string("/1.1/installations/\(id)"),
                ]
                let batch = try await door.call(
                    "POST",
                    "/1.1/batch",
                    headers,
                    ["requests": [read]]
                )
                #expect(batch.status == 200)
                // These queries are in the audit, with the id.
                _ = try await eventually("the questions are in the audit") {
                    try await door.stack.carillon("audit", door.app.id, "--json")
                        .split(separator: "\n").filter { $0.contains(id) }.count == 2 ? true : nil
                }
                let export = try await door.call("GET", "/v1/installations/\(id)/export", headers)
                #expect(export.status == 404)
                let told = try await run(
                    Stack.executable("carillon"),
                    ["export", door.app.id, "--installation", id],
                    environment: door.stack.environment
                )
                #expect(told.exit == .status(1))
            }
        }

        @Test("A signature is valid for signature-max-age seconds, or for ever if that is not set")
        func signatureAge() async throws {
            try await with { door in
                let path = "/1.1/installations/none"
                let old = signed(door.app, at: 978_307_200_000)
                #expect(try await door.call("GET", path, old).status == 404)
                try await door.set("signature-max-age=600")
                // It is read by each loop of the service, whichever gets the connection.
                let refused = try await eventually("the setting is taken up") {
                    for _ in 0..<15 {
                        let answer = try await door.call("GET", path, old)
                        if answer.status != 401 { return nil as HTTPAnswer? }
                    }
                    return try await door.call("GET", path, old)
                }
                #expect(refused.json?["code"] == 401)
                #expect(refused.json?["error"]?.string?.contains("old") == true)
                let own = try await door.call("GET", "/v1/notifications/none", old)
                #expect(own.status == 401)
                #expect(own.header("content-type") == "application/problem+json")
                for (age, status) in [
                    (Int64(0), 404), (500_000, 404), (700_000, 401), (-500_000, 404),
                    (-700_000, 401),
                ] {
                    for isMaster in [true, false] {
                        let headers = signed(door.app, at: Self.now - age, isMaster: isMaster)
                        let answer = try await door.call("GET", path, headers)
                        #expect(answer.status == status, "\(age) ms ago")
                    }
                }
                // A number that no clock shows, and keys themselves, which have no age.
                let digits = "99999999999999999999"
                let digest = Hex.encode(md5(Array("\(digits)\(door.app.appKey)".utf8)))
                let far = ["X-LC-Id": door.app.id, "X-LC-Sign": "\(digest),\(digits)"]
                #expect(try await door.call("GET", path, far).status == 401)
                for headers in [door.app.clientHeaders, door.app.masterHeaders] {
                    #expect(try await door.call("GET", path, headers).status == 404)
                }
            }
        }

        @Test("Wrong feedback addresses are counted, and reads of a right one are in the audit")
        func feedback() async throws {
            let limits = ["RATE_LIMIT_FAILURES_PER_ADDRESS": "1", "RATE_LIMIT_BURST": "3"]
            try await with(limits) { door in
                let hub = "/" + door.app.id
                let token = sharedAccessSignature(
                    "http://127.0.0.1/\(door.app.id)",
                    key: door.app.masterKey
                )
                let container = try await door.call(
                    "GET",
                    hub + "/feedbackcontainer",
                    ["Authorization": token]
                )
                #expect(container.status == 200)
                #expect(try await http("GET", container.text).status == 200)
                let statuses = try await (0..<12).asyncMap { number in
                    try await http("GET", container.text + "\(number)").status
                }
                #expect(statuses.first == 401)
                #expect(statuses.contains(429), "\(statuses)")
                // A caller with the address has access all the same.
                #expect(try await http("GET", container.text).status == 200)
                _ = try await eventually("what was told is in the audit") {
                    try await door.stack.carillon("audit", door.app.id)
                        .contains("GET /:hub/feedback ") ? true : nil
                }
            }
        }
    }
}

extension Range where Bound == Int {
    fileprivate func asyncMap<Value>(
        _ transform: (Int) async throws -> Value
    ) async rethrows -> [Value] {
        var values: [Value] = []
        for element in self { values.append(try await transform(element)) }
        return values
    }
}

/// Makes a token for Azure's surface, of the key's default name.
func sharedAccessSignature(
    _ resource: String,
    key: String,
    named name: String = "DefaultFullSharedAccessSignature",
    expiry: Int64 = Int64(Date().timeIntervalSince1970) + 3600
) -> String {
    let text = resource.replacing("/", with: "%2f").replacing(":", with: "%3a")
    let signature = Base64.encode(
        hmacSHA256(key: Array(key.utf8), Array("\(text)\n\(expiry)".utf8))
    )
    let escaped = signature.replacing("+", with: "%2b").replacing("/", with: "%2f")
        .replacing("=", with: "%3d")
    return "SharedAccessSignature sr=\(text)&sig=\(escaped)&se=\(expiry)&skn=\(name)"
}
