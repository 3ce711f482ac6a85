import JSON
import Support
import Testing

extension EndToEndTests {
    /// An operator's commands while the services run.
    @Suite("Operating", .runningStack, .serialized, .timeLimit(.minutes(3)))
    struct OperatedTests {
        private func carillon(_ bench: Bench, _ words: String...) async throws -> ProgramAnswer {
            try await run(
                Stack.executable("carillon"),
                words,
                environment: bench.stack.environment
            )
        }

        @Test(
            "The reasons of failed deliveries are in the push's record on every surface, with examples"
        )
        func failures() async throws {
            let bench = try await Bench()
            let (bad, good) = (makeAPNsToken(), makeAPNsToken())
            let failing = try await bench.registerPhone(token: bad, channels: ["a"])
            _ = try await bench.registerPhone(token: good, channels: ["a"])
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(bad), "status": 400,
                    "reason": "DeviceTokenNotForTopic",
                ]
            ])
            let (id, event) = bench.event(["a"])
            try await bench.stack.send(event)
            let push = try await bench.stack.finishedPush(event: id)
            let pushID = try #require(push["pushId"]?.string)
            let expected: JSONValue = [
                ["provider": "apns", "reason": "DeviceTokenNotForTopic", "count": 1]
            ]
            #expect(push["failures"] == expected)
            for (path, headers) in [
                ("1.1/tables/Notifications/\(pushID)", bench.app.masterHeaders),
                ("v1/notifications/\(pushID)", bench.app.masterHeaders),
                ("parse/classes/_PushStatus/\(pushID)", bench.app.parseHeaders),
            ] {
                let answer = try await http(
                    "GET",
                    "\(bench.registration)/\(path)",
                    headers: headers
                )
                #expect(answer.json?["failures"] == expected, "\(path): \(answer.text)")
            }
            let shown = try await carillon(bench, "push", "show", pushID).successful("show")
            #expect(shown.contains("1 at apns: DeviceTokenNotForTopic"))
            let told = try await carillon(bench, "push", "failures", String(pushID.prefix(13)))
                .successful("failures")
            #expect(told.contains("DeviceTokenNotForTopic"))
            #expect(told.contains(failing))
            let json = try JSONValue.parse(
                try await carillon(bench, "push", "failures", pushID, "--json").successful("json")
            )
            #expect(json["failures"]?.array?.first?["examples"] == [.string(failing)])
            let list = try await carillon(bench, "push", "list", bench.app.id).successful("list")
            #expect(list.contains("FAILED"))
            #expect(list.contains("Ding dong"))
        }

        @Test("A push that no platform accepts is refused, and otherwise fails on single platforms")
        func tooLarge() async throws {
            let bench = try await Bench()
            _ = try await bench.registerPhone(token: makeAPNsToken(), channels: ["a"])
            let windows = TestEnvironment.unique("wns-channel-")
            _ = try await bench.register([
                "deviceType": "windows", "channels": ["a"],
                "subscriptionUri": .string("\(bench.stack.origin)/wns/?token=\(windows)"),
            ])
            func body(_ size: Int) -> JSONObject {
                [
                    "channels": ["a"],
                    "data": ["alert": .string(String(repeating: "x", count: size))],
                ]
            }
            let refused = try await http(
                "POST",
                "\(bench.registration)/parse/push",
                headers: bench.app.parseHeaders,
                body: .object(body(9000))
            )
            #expect(refused.json?["code"]?.integer == 116, "\(refused.text)")
            #expect(refused.json?["error"]?.string?.contains("too large") == true)
            let azure = try await carillon(
                bench,
                "push",
                "send",
                bench.app.id,
                "--channel",
                "a",
                "--alert",
                String(repeating: "x", count: 9000)
            )
            #expect(azure.exit == .status(64))
            #expect(azure.errors.contains("the payload is too large"))

            let id = TestEnvironment.unique("large-")
            var record = body(9000)
            record["id"] = .string(id)
            record["app"] = .string(bench.app.id)
            try await bench.stack.send(.object(record))
            let letter = try #require(try await bench.stack.deadLetters(1, key: id).first)
            let reason = letter.headers.first { $0.name == "error.reason" }
            #expect(reason?.value == "too_large")

            // 4,600 bytes are too many for APNs, and not for WNS.
            var fits = body(4600)
            let event = TestEnvironment.unique("mixed-")
            fits["id"] = .string(event)
            fits["app"] = .string(bench.app.id)
            try await bench.stack.send(.object(fits))
            let push = try await bench.stack.finishedPush(event: event)
            #expect(push["delivered"]?.integer == 1)
            #expect(
                push["failures"]
                    == [["provider": "apns", "reason": "the payload is too large", "count": 1]]
            )
        }

        @Test(
            "A push to every device needs a confirmation, is counted by --dry-run, and sent by --all"
        )
        func everyone() async throws {
            let bench = try await Bench()
            for _ in 0..<3 {
                _ = try await bench.registerPhone(token: makeAPNsToken(), channels: ["a"])
            }
            let app = bench.app.id
            let asked = try await carillon(bench, "push", "send", app, "--alert", "x")
            #expect(asked.exit == .status(64))
            #expect(asked.errors.contains("--all"))
            let both = try await carillon(
                bench,
                "push",
                "send",
                app,
                "--alert",
                "x",
                "--all",
                "--channel",
                "a"
            )
            #expect(both.exit == .status(64))
            let counted = try await carillon(
                bench,
                "push",
                "send",
                app,
                "--alert",
                "x",
                "--dry-run"
            ).successful("dry run")
            #expect(counted.contains("3 devices: apns 3"))
            #expect(!counted.contains("{"))
            let json = try JSONValue.parse(
                try await carillon(
                    bench,
                    "push",
                    "send",
                    app,
                    "--alert",
                    "x",
                    "--channel",
                    "none",
                    "--dry-run",
                    "--json"
                ).successful("dry run")
            )
            #expect(json["targeted"]?.integer == 0)
            let sent = try await carillon(
                bench,
                "push",
                "send",
                app,
                "--alert",
                "x",
                "--all",
                "--wait"
            )
            #expect(sent.exit == .status(0), "\(sent)")
        }

        @Test("Ids are accepted by a prefix, and installations are listed and shown")
        func beginnings() async throws {
            let bench = try await Bench()
            var ids: [String] = []
            for name in ["news", "mets"] {
                ids.append(
                    try await bench.registerPhone(token: makeAPNsToken(), channels: [name])
                )
            }
            let app = bench.app.id
            let list = try await carillon(bench, "installations", "list", app).successful("list")
            for id in ids { #expect(list.contains(id)) }
            let some = try await carillon(
                bench,
                "installations",
                "list",
                app,
                "--where",
                #"{"channels": "news"}"#
            ).successful("list")
            #expect(some.contains(ids[0]) && !some.contains(ids[1]))
            #expect(
                try await carillon(bench, "installations", "list", app, "--where", "{").exit
                    == .status(64)
            )
            // They were made in the same second: their ids begin alike.
            let alike = try await carillon(
                bench,
                "installations",
                "show",
                app,
                String(ids[0].prefix(6))
            )
            #expect(alike.exit == .status(1))
            #expect(alike.errors.contains("2 installations begin with"))
            #expect(alike.errors.contains(ids[1]))
            let one = try await carillon(
                bench,
                "installations",
                "show",
                app,
                String(ids[0].prefix(23))
            ).successful("show")
            #expect(one.contains(ids[0]) && one.contains("news") && !one.contains("{"))
            #expect(
                try await carillon(bench, "installations", "show", app, "nobody").exit
                    == .status(1)
            )
            #expect(try await carillon(bench, "push", "show", "abc").exit == .status(64))
            #expect(
                try await carillon(bench, "push", "show", "00000000").errors
                    .contains("no push whose id begins with")
            )
        }

        @Test("Output for people contains no JSON")
        func noJSON() async throws {
            let bench = try await Bench()
            let (id, event) = bench.event(["nobody"])
            var request = event.object ?? [:]
            request["colour"] = "red"
            try await bench.stack.send(.object(request))
            _ = try await bench.stack.finishedPush(event: id)
            for words in [
                ["app", "show", bench.app.id], ["credentials", "list"], ["doctor"],
                ["push", "show", "--event", id], ["push", "list", bench.app.id],
            ] {
                let answer = try await run(
                    Stack.executable("carillon"),
                    words,
                    environment: bench.stack.environment
                )
                #expect(!answer.output.contains("{"), "\(words): \(answer.output)")
                #expect(!answer.output.contains("\""), "\(words): \(answer.output)")
            }
        }

        @Test("An app is deleted with all of its data, and its keys are no longer valid")
        func deletes() async throws {
            let bench = try await Bench()
            let other = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["a"])
            _ = try await other.registerPhone(token: makeAPNsToken(), channels: ["a"])
            for one in [bench, other] {
                let (id, event) = one.event(["a"])
                try await one.stack.send(event)
                _ = try await one.stack.finishedPush(event: id)
            }
            let app = bench.app.id
            let asked = try await carillon(bench, "app", "delete", app)
            #expect(asked.exit == .status(64))
            #expect(asked.errors.contains("--yes"))
            let deleted = try JSONValue.parse(
                try await carillon(bench, "app", "delete", app, "--yes", "--json")
                    .successful("delete")
            )
            #expect(deleted["erased"]?["installations"]?.integer == 1)
            #expect(deleted["erased"]?["pushes"]?.integer == 1)
            #expect(deleted["erased"]?["deliveries"]?.integer == 1)
            #expect(try await carillon(bench, "app", "show", app).exit == .status(1))
            let audit = try await carillon(bench, "audit", app).successful("audit")
            #expect(audit.contains("app deleted") && audit.contains("installations 1"))
            let refused = try await http(
                "GET",
                "\(bench.registration)/1.1/installations",
                headers: bench.app.masterHeaders
            )
            #expect(refused.status == 401, "\(refused.text)")
            let kept = try await carillon(bench, "app", "show", other.app.id, "--json")
                .successful("show")
            #expect(try JSONValue.parse(kept)["installations"]?.integer == 1)
            let tables = ["installations", "pushes", "deliveries", "credentials"]
            for table in tables {
                #expect(
                    try await bench.stack.database.query(
                        "SELECT count(*) FROM \(table) WHERE app = '\(app)'"
                    ) == ["0"]
                )
            }
        }
    }
}

extension Stack.App {
    fileprivate var parseHeaders: [String: String] {
        ["X-Parse-Application-Id": id, "X-Parse-Master-Key": masterKey]
    }
}
