import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Key rotation, rate limits and the audit trail",
        .serialized,
        .timeLimit(.minutes(3))
    )
    struct SecurityTests {
        private static let path = "/1.1/installations"

        /// Returns the status of a read of a missing object: 404 if the key is accepted.
        private func status(
            _ service: Stack.Service,
            _ headers: [String: String]
        ) async throws -> Int {
            try await http("GET", service.url + Self.path + "/none", headers: headers).status
        }

        private func signature(
            _ app: Stack.App,
            _ key: String,
            isMaster: Bool
        ) -> [String: String] {
            let digest = Hex.encode(md5(Array("1700000000000\(key)".utf8)))
            return [
                "X-LC-Id": app.id,
                "X-LC-Sign": "\(digest),1700000000000\(isMaster ? ",master" : "")",
            ]
        }

        @Test("A rotated key is valid beside the new one until its grace period ends, or is ended")
        func keysRotate() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                func rotate(_ words: String...) async throws -> JSONValue {
                    let words = ["app", "rotate-key", app.id, "--json"] + words
                    let answer = try await run(
                        Stack.executable("carillon"),
                        words,
                        environment: stack.environment
                    ).successful("rotate-key")
                    return try JSONValue.parse(answer)
                }
                #expect(try await status(service, app.clientHeaders) == 404)
                let newApp = try await rotate("--key", "app")
                let newMaster = try await rotate("--key", "master", "--grace", "7d")
                #expect(newApp["oldKeyUntil"]?.string != nil)
                let keys = (
                    app: try #require(newApp["appKey"]?.string),
                    master: try #require(newMaster["masterKey"]?.string)
                )
                let old = [
                    app.clientHeaders, app.masterHeaders,
                    signature(app, app.appKey, isMaster: false),
                    signature(app, app.masterKey, isMaster: true),
                ]
                let new = [
                    ["X-LC-Id": app.id, "X-LC-Key": keys.app],
                    ["X-LC-Id": app.id, "X-LC-Key": "\(keys.master),master"],
                    signature(app, keys.app, isMaster: false),
                    signature(app, keys.master, isMaster: true),
                ]
                for headers in new {
                    // A loop of the service is notified within a moment.
                    _ = try await eventually("the new key is taken up") {
                        try await status(service, headers) == 404 ? true : nil
                    }
                }
                for headers in old { #expect(try await status(service, headers) == 404) }
                // An old key gains no rights: the app's is not a master's.
                let crossed = ["X-LC-Id": app.id, "X-LC-Key": "\(app.appKey),master"]
                #expect(try await status(service, crossed) == 401)

                #expect(try await rotate("--key", "app", "--finish")["ended"] == 1)
                for headers in [old[0], old[2]] {
                    _ = try await eventually("the old key is refused") {
                        try await status(service, headers) == 401 ? true : nil
                    }
                }
                for headers in new + [old[1], old[3]] {
                    #expect(try await status(service, headers) == 404)
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("keys rotate seals everything under a new first key, and the old one can be removed")
        func masterKeysRotate() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                try await stack.carillon("app", "rotate-key", app.id, "--key", "app")
                let old = stack.environment["CARILLON_MASTER_KEYS"] ?? ""
                let new = "next:\(Data((0..<32).map { UInt8($0) }).base64EncodedString())"
                func carillon(
                    _ keys: String,
                    _ words: String...
                ) async throws -> (exit: ChildProcess.Exit, json: JSONValue?) {
                    let answer = try await run(
                        Stack.executable("carillon"),
                        words + ["--json"],
                        environment: stack.environment.merging(["CARILLON_MASTER_KEYS": keys]) {
                            $1
                        }
                    )
                    return (answer.exit, try? JSONValue.parse(answer.output))
                }
                // Two keys, one more of the app's earlier ones, three credentials.
                let before = try await carillon("\(new),\(old)", "keys", "status")
                #expect(before.json?["keys"]?["e2e"] == 6)
                #expect(before.json?["toRotate"] == 6)
                let rotated = try await carillon("\(new),\(old)", "keys", "rotate")
                #expect(rotated.exit == .status(0))
                #expect(rotated.json?["rotated"] == 6)
                let after = try await carillon(new, "keys", "status")
                #expect(after.exit == .status(0))
                #expect(after.json?["keys"] == ["next": 6])
                #expect(after.json?["toRotate"] == 0)
                // Without the key it is an error, and nothing is changed.
                let lacking = try await carillon(old, "keys", "rotate")
                #expect(lacking.exit == .status(1))
                #expect(lacking.json?["unreadable"] == 6)
                let service = try await stack.start(
                    "carillon-registration",
                    ["CARILLON_MASTER_KEYS": new]
                )
                #expect(try await status(service, app.clientHeaders) == 404)
                #expect(try await status(service, app.masterHeaders) == 404)
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test(
            "A client that guesses keys is limited, and its neighbours behind a trusted proxy are not"
        )
        func guessesAreLimited() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start(
                    "carillon-registration",
                    [
                        "RATE_LIMIT_FAILURES_PER_ADDRESS": "1", "RATE_LIMIT_BURST": "60",
                        "HTTP_TRUSTED_PROXIES": "127.0.0.0/8",
                    ]
                )
                func headers(_ key: String, from address: String) -> [String: String] {
                    ["X-LC-Id": app.id, "X-LC-Key": key, "X-Forwarded-For": address]
                }
                // Each loop counts for itself.
                let refused = try await eventually("a guess too many") {
                    let answer = try await http(
                        "GET",
                        service.url + Self.path + "/none",
                        headers: headers("guess", from: "192.0.2.1")
                    )
                    return answer.status == 429 ? answer : nil
                }
                #expect(refused.json?["code"] == 429)
                #expect(refused.json?["error"]?.string?.contains("Too many") == true)
                #expect(refused.header("content-type") == "application/json")
                #expect((refused.header("retry-after").flatMap { Int($0) } ?? 0) >= 1)
                for address in ["198.51.100.7", "192.0.2.1"] {
                    #expect(try await status(service, headers(app.appKey, from: address)) == 404)
                }
                // A client that invents apps learns nothing more, and limits no caller of a known
                // app.
                for number in 0..<50 {
                    var made = headers("guess", from: "192.0.2.1")
                    made["X-LC-Id"] = "made-up-\(number)"
                    let answered = try await status(service, made)
                    #expect(answered == 401 || answered == 429)
                }
                #expect(try await status(service, headers(app.appKey, from: "192.0.2.1")) == 404)
                let metrics = try await http("GET", service.url + "/metrics").text
                #expect(metrics.contains(#"registration_requests_limited_total{limit="failures"}"#))
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("Requests are counted by address and by key, and pushes by app")
        func callersAreCounted() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let limited: [[String: String]] = [
                    ["RATE_LIMIT_PER_ADDRESS": "1", "RATE_LIMIT_BURST": "5"],
                    ["RATE_LIMIT_PER_KEY": "1", "RATE_LIMIT_BURST": "5"],
                ]
                for limits in limited {
                    let service = try await stack.start("carillon-registration", limits)
                    _ = try await eventually("\(limits) is over") {
                        try await status(service, app.clientHeaders) == 429 ? true : nil
                    }
                    // Our own routes report it in their own form.
                    let own = try await eventually("our own routes are counted, too") {
                        let answer = try await http(
                            "GET",
                            service.url + "/v1/notifications/none",
                            headers: app.masterHeaders
                        )
                        return answer.status == 429 ? answer : nil
                    }
                    #expect(own.header("content-type") == "application/problem+json")
                    #expect(own.header("retry-after") != nil)
                    #expect(await service.process.stop() == .status(0))
                }
                try await stack.carillon("app", "set", app.id, "pushes-per-minute=1")
                let service = try await stack.start("carillon-registration")
                func push() async throws -> HTTPAnswer {
                    try await http(
                        "POST",
                        service.url + "/1.1/push",
                        headers: app.masterHeaders,
                        body: ["channels": ["nobody"], "data": ["alert": "Ding"]]
                    )
                }
                #expect(try await push().status == 200)
                let second = try await eventually("the second of a minute is refused") {
                    let answer = try await push()
                    return answer.status == 429 ? answer : nil
                }
                #expect(second.json?["code"] == 429)
                #expect(try await status(service, app.masterHeaders) == 404)
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("Uses of a master key are in the audit, and a graceful stop loses no entry")
        func masterKeysLeaveATrail() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                let phone = try await http(
                    "POST",
                    service.url + Self.path,
                    headers: app.clientHeaders,
                    body: ["deviceType": "ios", "deviceToken": .string(makeAPNsToken())]
                )
                let id = try #require(phone.json?["objectId"]?.string)
                let push = try await http(
                    "POST",
                    service.url + "/1.1/push",
                    headers: app.masterHeaders,
                    body: ["channels": ["nobody"], "data": ["alert": "secret words"]]
                )
                let batch: JSONValue = [
                    "requests": [["method": "GET", "path": .string("/1.1/installations/\(id)")]]
                ]
                _ = try await http(
                    "POST",
                    service.url + "/1.1/batch",
                    headers: app.masterHeaders,
                    body: batch
                )
                for number in 0..<20 {
                    _ = try await http(
                        "GET",
                        service.url + Self.path + "/id\(number)",
                        headers: app.masterHeaders
                    )
                }
                _ = try await http(
                    "DELETE",
                    service.url + Self.path + "/" + id,
                    headers: app.masterHeaders
                )
                try await stack.carillon("app", "set", app.id, "client-find=on")
                #expect(await service.process.stop() == .status(0))
                let lines = try await stack.carillon("audit", app.id, "--json", "--since", "1h")
                let entries = try lines.split(separator: "\n").map {
                    try JSONValue.parse(String($0))
                }
                let master = entries.filter { $0["actor"] == "master-key" }
                #expect(master.count == 23)
                #expect(master.first?["action"] == "DELETE /1.1/installations/:id")
                #expect(master.first?["targets"] == [.string(id)])
                #expect(master.first?["address"] == "127.0.0.1")
                #expect(master.first?["status"] == 200)
                #expect(master.filter { $0["status"] == 404 }.count == 20)
                let sent = master.first { $0["action"] == "POST /1.1/push" }
                #expect(sent?["targets"] == [push.json?["objectId"] ?? .null])
                let batched = master.first { $0["action"] == "POST /1.1/batch" }
                #expect(batched?["targets"] == [.string(id)])
                #expect(!lines.contains("secret words") && !lines.contains(app.masterKey))
                // The operator's own actions, with the name.
                let operators = entries.filter {
                    $0["actor"]?.string?.hasPrefix("cli:") == true
                }
                #expect(operators.map { $0["action"] } == ["app set"])
                #expect(try await stack.carillon("audit", app.id).contains("app set"))
            }
        }
    }

    @Suite(
        "Audit entries of calls in bodies",
        .serialized,
        .timeLimit(.minutes(3))
    )
    struct AuditedMethodTests {
        @Test("The audit records the method that a body names, and the items of a batch")
        func meantMethods() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let service = try await stack.start("carillon-registration")
                func form(_ path: String, _ method: String) async throws {
                    let body: JSONValue = [
                        "_method": .string(method), "_ApplicationId": .string(app.id),
                        "_MasterKey": .string(app.masterKey),
                    ]
                    _ = try await http(
                        "POST",
                        service.url + path,
                        headers: ["Content-Type": "text/plain"],
                        bytes: body.bytes
                    )
                }
                func batch(_ surface: String, _ headers: [String: String]) async throws {
                    let read: JSONValue = [
                        "method": "GET", "path": .string("\(surface)/installations/read"),
                    ]
                    let deletion: JSONValue = [
                        "method": "DELETE", "path": .string("\(surface)/installations/gone"),
                    ]
                    let answer = try await http(
                        "POST",
                        service.url + surface + "/batch",
                        headers: headers,
                        body: ["requests": [read, deletion, read]]
                    )
                    #expect(answer.status == 200)
                }
                let parse = [
                    "X-Parse-Application-Id": app.id, "X-Parse-Master-Key": app.masterKey,
                ]
                try await form("/1.1/installations/one", "DELETE")
                try await form("/parse/installations/two", "DELETE")
                try await form("/parse/classes/_Installation", "GET")
                try await batch("/1.1", app.masterHeaders)
                try await batch("/parse", parse)
                try await stack.carillon("app", "set", app.id, "client-find=on")
                #expect(await service.process.stop() == .status(0))
                let lines = try await stack.carillon("audit", app.id, "--json", "--since", "1h")
                let entries = try lines.split(separator: "\n").map {
                    try JSONValue.parse(String($0))
                }
                func entry(_ action: String) throws -> JSONValue {
                    let found = entries.filter { $0["action"]?.string == action }
                    #expect(found.count == 1, "\(action)")
                    return try #require(found.first)
                }
                #expect(try entry("DELETE /1.1/installations/:id")["targets"] == ["one"])
                let gone = try entry("DELETE /parse/classes/_Installation/:id")
                #expect(gone["targets"] == ["two"])
                #expect(try entry("GET /parse/classes/_Installation")["targets"] == [])
                for (surface, path) in [
                    ("/1.1", "/1.1/installations/:id"),
                    ("/parse", "/parse/classes/_Installation/:id"),
                ] {
                    let batch = try entry("POST \(surface)/batch")
                    #expect(batch["targets"] == ["read", "gone", "read"])
                    #expect(batch["detail"]?["items"]?["GET \(path)"] == 2)
                    #expect(batch["detail"]?["items"]?["DELETE \(path)"] == 1)
                }
            }
        }
    }

    @Suite(
        "Export and erasure of a device or a user in one call",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(3))
    )
    struct ErasureRouteTests {
        @Test("An export shows the stored data, an erasure removes it, and the receipt counts it")
        func erasure() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            let basic = Data("\(bench.app.id):\(bench.app.masterKey)".utf8).base64EncodedString()
            let credentials = ["Authorization": "Basic \(basic)"]
            let id = try await bench.register([
                "deviceType": "ios", "deviceToken": .string(token), "apnsEnvironment": "production",
                "apnsTopic": .string(bench.app.bundleID),
                "owner": ["__type": "Pointer", "className": "_User", "objectId": "user/ä 1"],
            ])
            let event = TestEnvironment.unique("event-")
            try await bench.stack.send([
                "id": .string(event), "app": .string(bench.app.id), "identities": ["user/ä 1"],
                "data": ["alert": "For you alone"],
            ])
            let push = try await bench.stack.finishedPush(event: event)
            #expect(push["delivered"] == 1)
            let pushID = try #require(push["id"]?.string ?? push["pushId"]?.string)

            let url = bench.registration + "/v1/identities/user%2F%C3%A4%201"
            let export = try await http("GET", url + "/export", headers: credentials)
            #expect(export.status == 200)
            let stored = try #require(export.json)
            #expect(stored["installations"]?.array?.compactMap { $0["objectId"] } == [.string(id)])
            #expect(stored["deliveries"]?.array?.first?["outcome"] == "delivered")
            let request = stored["pushes"]?.array?.first?["request"]
            #expect(request?["data"]?["alert"] == "For you alone")

            let client = try await http("DELETE", url, headers: bench.app.clientHeaders)
            #expect(client.status == 403)
            #expect(client.header("content-type") == "application/problem+json")
            let nobody = try await http("DELETE", url)
            #expect(nobody.status == 401)
            #expect(nobody.header("www-authenticate")?.hasPrefix("Basic") == true)

            _ = try await eventually("the export is in the audit") {
                try await bench.stack.carillon("audit", bench.app.id).contains("user/")
                    ? true : nil
            }
            let counted = try await bench.stack.carillon(
                "erase",
                bench.app.id,
                "--identity",
                "user/ä 1",
                "--dry-run",
                "--json"
            )
            let erased = try await http("DELETE", url, headers: bench.app.masterHeaders)
            #expect(try JSONValue.parse(counted) == erased.json?["erased"])
            #expect(erased.status == 200)
            #expect(erased.json?["erased"]?["installations"] == 1)
            #expect(erased.json?["erased"]?["deliveries"] == 1)
            #expect(erased.json?["erased"]?["pushes"] == 1)
            #expect(erased.json?["inFlight"] == 0)
            let gone = try await http(
                "GET",
                bench.registration + "/1.1/installations/\(id)",
                headers: bench.app.masterHeaders
            )
            #expect(gone.status == 404)
            // The ledger is unchanged.
            let ledger = try await http(
                "GET",
                bench.registration + "/v1/notifications/\(pushID)",
                headers: credentials
            )
            #expect(ledger.status == 200)
            #expect(ledger.json?["delivered"] == 1)
            #expect(ledger.json?.booksBalance == true)
            let shown = try await bench.stack.carillon("push", "show", pushID, "--json")
            #expect(!shown.contains("For you alone"))
            let dump = try await bench.stack.database.query(
                """
                select count(*) from deliveries t where strpos(t::text, '\(token)') > 0
                    or strpos(t::text, '\(id)') > 0
                """
            )
            #expect(dump == ["0"])

            // For an unknown subject all commands give the same error.
            for words in [["export"], ["erase", "--dry-run"], ["erase"], ["erase", "--json"]] {
                let again = try await run(
                    Stack.executable("carillon"),
                    words + [bench.app.id, "--installation", "nobody-s"],
                    environment: bench.stack.environment
                )
                #expect(again.exit == .status(1), "\(words)")
                #expect(again.errors.contains("no data is stored for this installation"))
                #expect(again.output.isEmpty)
            }
            for (method, path) in [("GET", url + "/export"), ("DELETE", url)] {
                let again = try await http(method, path, headers: credentials)
                #expect(again.status == 404 && again.header("location") == nil)
                #expect(again.json?["detail"] == "no data is stored for this identity")
            }
            let audit = try await bench.stack.carillon("audit", bench.app.id, "--json")
            #expect(audit.contains(erased.json?["subject"]?.string ?? "?"))
            #expect(!audit.contains("user/"))
            // A new query for the user stores no name.
            for _ in 0..<2 {
                #expect(try await http("GET", url + "/export", headers: credentials).status == 404)
                let subject = erased.json?["subject"]?.string ?? "?"
                _ = try await eventually("the question is in the audit") {
                    try await bench.stack.carillon("audit", bench.app.id, "--json")
                        .contains("sha256:\(subject)") ? true : nil
                }
            }
            let later = try await bench.stack.carillon("audit", bench.app.id, "--json")
            #expect(!later.contains("user/"))
        }
    }
}
