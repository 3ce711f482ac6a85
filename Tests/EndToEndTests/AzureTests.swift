import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Azure clients",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(5)),
        .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
    )
    struct AzureTests {
        // MARK: Tokens and installations

        @Test("A device registers with the app key, and is read back, patched and deleted")
        func installations() async throws {
            let hub = try await Hub()
            let id = TestEnvironment.unique("device-")
            let path = "installations/\(id)"
            let put = try await hub.call(
                "PUT",
                path,
                by: .listen,
                body: [
                    "installationId": .string(id), "platform": "apns", "pushChannel": "AbCd12",
                    "tags": ["news", "user:1"], "userId": "u@1",
                    "templates": ["t": ["body": #"{"aps":{"alert":"$(m)"}}"#]],
                ]
            )
            #expect(put.status == 200)
            #expect(put.body.isEmpty)
            #expect(put.header("TrackingId") != nil)
            #expect(put.header("x-ms-correlation-request-id") != nil)
            let got = try await hub.call("GET", path, by: .listen)
            #expect(got.status == 200)
            #expect(
                got.json == [
                    "installationId": .string(id), "pushChannel": "AbCd12",
                    "pushChannelExpired": false, "platform": "apns",
                    "expirationTime": "9999-12-31T23:59:59.9999999Z", "userId": "u@1",
                    "tags": ["news", "user:1"],
                    "templates": ["t": ["body": #"{"aps":{"alert":"$(m)"}}"#, "tags": ["t"]]],
                ]
            )
            let patch = try await hub.call(
                "PATCH",
                path,
                by: .listen,
                body: [
                    ["op": "add", "path": "/tags", "value": "vip"],
                    ["op": "remove", "path": "/tags/news"],
                    ["op": "replace", "path": "/pushChannel", "value": "beef"],
                ]
            )
            #expect(patch.status == 200)
            #expect(patch.body.isEmpty)
            let bad = try await hub.call(
                "PATCH",
                path,
                by: .listen,
                body: [
                    ["op": "add", "path": "/tags", "value": "lost"],
                    ["op": "add", "path": "/nothing", "value": "x"],
                ]
            )
            #expect(bad.status == 400)
            let again = try await hub.call("GET", path, by: .listen)
            #expect(again.json?["tags"] == ["user:1", "vip"])
            #expect(again.json?["pushChannel"] == "beef")
            // The other surface finds it too, and accepts its tags.
            let seen = try await http(
                "GET",
                "\(hub.bench.registration)/1.1/installations/\(try await objectID(of: id, hub))",
                headers: hub.bench.app.masterHeaders
            )
            #expect(seen.json?["channels"] == ["user:1", "vip"])
            #expect(seen.json?["deviceToken"] == "beef")
            for _ in 0..<2 {
                #expect(try await hub.call("DELETE", path, by: .listen).status == 204)
            }
            let gone = try await hub.call("GET", path, by: .listen)
            #expect(gone.status == 404)
            #expect(gone.header("content-type") == "application/xml; charset=utf-8")
            #expect(
                gone.text.hasPrefix(
                    "<Error><Code>404</Code><Detail>Installation not found.TrackingId:"
                )
            )
            #expect(
                try await hub.call(
                    "PATCH",
                    path,
                    by: .listen,
                    body: [["op": "add", "path": "/tags", "value": "x"]]
                ).status == 404
            )
        }

        @Test("A channel belongs to one device, and a patch of another field does not reclaim it")
        func channels() async throws {
            let hub = try await Hub()
            let token = makeAPNsToken()
            func put(_ id: String) async throws {
                let body: JSONValue = [
                    "installationId": .string(id), "platform": "apns",
                    "pushChannel": .string(token), "tags": [.string(id)],
                ]
                let answer = try await hub.call(
                    "PUT",
                    "installations/\(id)",
                    by: .listen,
                    body: body
                )
                #expect(answer.status == 200)
            }
            try await put("first")
            try await put("second")
            let patch: JSONValue = [["op": "add", "path": "/tags", "value": "more"]]
            for id in ["first", "second"] {
                #expect(
                    try await hub.call(
                        "PATCH",
                        "installations/\(id)",
                        by: .listen,
                        body: patch
                    ).status == 200
                )
            }
            let body = #"{"aps":{"alert":"x"}}"#
            for (tag, state) in [("first", "NoTargetFound"), ("second", "Completed")] {
                let sent = try await hub.send(
                    "apple",
                    body,
                    headers: ["ServiceBusNotification-Tags": "more && \(tag)"]
                )
                let details = try await hub.details(try hub.id(sent))
                #expect(details.contains("<State>\(state)</State>"), "\(tag)")
            }
            #expect(try await hub.bench.simulator.received(for: token).count == 1)
        }

        private func objectID(of installationID: String, _ hub: Hub) async throws -> String {
            let condition = "%7B%22installationId%22%3A%22\(installationID)%22%7D"
            let found = try await http(
                "GET",
                "\(hub.bench.registration)/1.1/installations?where=\(condition)",
                headers: hub.bench.app.masterHeaders
            )
            return try #require(found.json?["results"]?[0]?["objectId"]?.string)
        }

        @Test("A token of another key, host, hub or time is 401, with a body that SDKs read")
        func tokens() async throws {
            let hub = try await Hub()
            let url = hub.bench.registration
            func status(_ token: String) async throws -> Int {
                let answer = try await http(
                    "GET",
                    "\(url)/\(hub.name)/installations/none?api-version=2020-06",
                    headers: ["Authorization": token]
                )
                if answer.status == 401 {
                    #expect(answer.text.hasPrefix("<Error><Code>401</Code><Detail>Invalid"))
                }
                return answer.status
            }
            let app = hub.bench.app
            let listen = "DefaultListenSharedAccessSignature"
            let full = "DefaultFullSharedAccessSignature"
            let whole = "\(url)/\(app.id)/installations/none/"
            for (name, key) in [(listen, app.appKey), (full, app.masterKey)] {
                for style in ["js", "dotnet"] {
                    for resource in [url + "/", whole, "\(url)/\(app.id)"] {
                        let token = try await Hub.token(resource, name, key, style: style)
                        #expect(try await status(token) == 404, "\(style) \(resource)")
                    }
                }
            }
            for (resource, name, key, age) in [
                (url, listen, app.masterKey, 3600), (url, full, app.appKey, 3600),
                (url, "RootManageSharedAccessKey", app.masterKey, 3600),
                (url, full, app.masterKey, -10),
                ("http://other.example/", full, app.masterKey, 3600),
                (url + "/other", full, app.masterKey, 3600),
                ("\(url)/\(app.id)2", full, app.masterKey, 3600),
            ] {
                let token = try await Hub.token(resource, name, key, lifetime: age)
                #expect(try await status(token) == 401, "\(resource) \(name) \(age)")
            }
            #expect(try await status("") == 401)
            #expect(try await status("Bearer x") == 401)
            // The app key can register, but not send or read sent notifications.
            #expect(
                try await hub.send("apple", #"{"aps":{"alert":"x"}}"#, by: .listen).status == 403
            )
            #expect(try await hub.call("GET", "messages/x", by: .listen).status == 401)
            // The name of a hub is an app id without case.
            let token = try await Hub.token(url, full, app.masterKey)
            let shouted = try await http(
                "GET",
                "\(url)/\(app.id.uppercased())/installations/none",
                headers: ["Authorization": token]
            )
            #expect(shouted.status == 404)
        }

        @Test("Concurrent patches of one installation are all applied")
        func patchesAtOnce() async throws {
            let hub = try await Hub()
            let id = TestEnvironment.unique("device-")
            let path = "installations/\(id)"
            let put = try await hub.call(
                "PUT",
                path,
                by: .listen,
                body: [
                    "installationId": .string(id), "platform": "apns",
                    "pushChannel": .string(makeAPNsToken()),
                ]
            )
            #expect(put.status == 200)
            let tags = (0..<30).map { "t\($0)" }
            try await withThrowingTaskGroup(of: Int.self) { tasks in
                for tag in tags {
                    tasks.addTask {
                        try await hub.call(
                            "PATCH",
                            path,
                            by: .listen,
                            body: [["op": "add", "path": "/tags", "value": .string(tag)]]
                        ).status
                    }
                }
                for try await status in tasks { #expect(status == 200) }
            }
            let got = try await hub.call("GET", path, by: .listen)
            let kept = got.json?["tags"]?.array?.compactMap(\.string) ?? []
            #expect(Set(kept) == Set(tags))
        }

        @Test("Devices with the app key cannot use up the template names of a hub")
        func templateNames() async throws {
            let hub = try await Hub()
            func templates(_ range: Range<Int>) -> JSONValue {
                var object = JSONObject()
                for number in range { object["t\(number)"] = ["body": "{}"] }
                return .object(object)
            }
            for start in [0, 20] {
                try await hub.register(
                    "apns",
                    makeAPNsToken(),
                    templates: templates(start..<start + 20)
                )
            }
            func put(by key: Hub.Key) async throws -> HTTPAnswer {
                let id = TestEnvironment.unique("device-")
                return try await hub.call(
                    "PUT",
                    "installations/\(id)",
                    by: key,
                    body: [
                        "installationId": .string(id), "platform": "apns",
                        "pushChannel": .string(makeAPNsToken()), "templates": templates(35..<51),
                    ]
                )
            }
            let refused = try await put(by: .listen)
            #expect(refused.status == 403)
            #expect(refused.text.contains("only its full key may add another"))
            #expect(try await put(by: .full).status == 200)
            #expect(try await put(by: .listen).status == 200)
        }

        // MARK: Refusals

        @Test("A refusal is XML with the status that SDKs expect")
        func refusals() async throws {
            let hub = try await Hub()
            let body = #"{"aps":{"alert":"x"}}"#
            for (path, method) in [
                ("jobs", "POST"), ("jobs/1", "GET"),
            ] {
                let answer = try await hub.call(method, path, by: .full)
                #expect(answer.status == 501, "\(path)")
                #expect(answer.text.hasPrefix("<Error><Code>501</Code><Detail>"))
            }
            for tags in ["", "a &&", "(a", "a b", "!"] {
                let answer = try await hub.send(
                    "apple",
                    body,
                    headers: ["ServiceBusNotification-Tags": tags]
                )
                #expect(answer.status == 400, "\(tags)")
            }
            // Contradicting headers are refused, and unreadable ones are refused in XML, too.
            let twice = try await hub.send(
                "apple",
                body,
                headers: ["ServiceBusNotification-Tags": "a\r\nServiceBusNotification-Tags: b"]
            )
            #expect(twice.status == 400)
            #expect(twice.text.contains("ServiceBusNotification-Tags is there more than once"))
            let broken = try await hub.call("GET", "installations/%ff", by: .listen)
            #expect(broken.status == 400)
            #expect(broken.text.hasPrefix("<Error><Code>400</Code><Detail>"))
            #expect(try await hub.send("amiga", body).status == 400)
            #expect(try await hub.send("baidu", body).status == 501)
            let long = #"{"aps":{"alert":"\#(String(repeating: "x", count: 70_000))"}}"#
            let large = try await hub.send("apple", long)
            #expect(large.status == 413)
            #expect(large.text.hasPrefix("<Error><Code>413</Code>"))
            #expect(try await hub.call("GET", "messages/none", by: .full).status == 404)
            let wrong = try await hub.call("GET", "schedulednotifications", by: .full)
            #expect(wrong.status == 405)
            #expect(wrong.text.hasPrefix("<Error><Code>405</Code>"))
            // Paths of other surfaces stay theirs, whatever an app is called.
            let lean = try await http(
                "PATCH",
                "\(hub.bench.registration)/1.1/installations/x",
                headers: hub.bench.app.masterHeaders
            )
            #expect(lean.status == 405)
            #expect(lean.json?["code"] != nil)
        }
    }
}
