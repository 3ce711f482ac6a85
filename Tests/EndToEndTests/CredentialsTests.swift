import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Credentials are listed, checked and removed, and choose the APNs topic",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(3))
    )
    struct CredentialsTests {
        /// The folder of the simulator's credentials.
        private static func folder(_ bench: Bench) -> String {
            "\(bench.stack.folder)/credentials"
        }

        private static func account(_ name: String, in folder: String) throws -> JSONValue {
            let data = try #require(FileManager.default.contents(atPath: "\(folder)/\(name)"))
            return try JSONValue.parse([UInt8](data))
        }

        /// Sets a credential for another topic of the app, with the simulator's key or an unknown
        /// one.
        private func set(
            _ topic: String,
            _ bench: Bench,
            isKnown: Bool = true,
            _ more: String...
        ) async throws -> ProgramAnswer {
            let folder = Self.folder(bench)
            let account = try Self.account("apns.json", in: folder)
            var file = "\(folder)/apns.p8"
            if !isKnown {
                file = "/tmp/" + TestEnvironment.unique("carillon-key-")
                try SigningKey.generateP256().privateKeyPEM()
                    .write(toFile: file, atomically: true, encoding: .utf8)
            }
            defer { if !isKnown { try? FileManager.default.removeItem(atPath: file) } }
            return try await carillon(
                bench,
                [
                    "credentials", "set", "apns", bench.app.id, "--topic", topic, "--key-file",
                    file, "--key-id",
                    isKnown ? account["keyId"]?.string ?? "" : "UNKNOWN123", "--team-id",
                    account["teamId"]?.string ?? "",
                ] + more
            )
        }

        private func carillon(_ bench: Bench, _ words: [String]) async throws -> ProgramAnswer {
            try await run(
                Stack.executable("carillon"),
                words,
                environment: bench.stack.environment
            )
        }

        private func push(_ bench: Bench) async throws -> JSONValue {
            let event = TestEnvironment.unique("event-")
            try await bench.stack.send([
                "id": .string(event), "app": .string(bench.app.id), "where": [:],
                "data": ["alert": "Ring"],
            ])
            return try await bench.stack.finishedPush(event: event)
        }

        @Test("An appIdentifier selects the topic, and a device without one gets the default")
        func topics() async throws {
            let bench = try await Bench()
            let news = "com.example.news"
            var tokens: [String: String] = [:]
            var ids: [JSONValue] = []
            for identifier in [bench.app.bundleID, news, "", "com.example.none", "own"] {
                tokens[identifier] = makeAPNsToken()
                var body: JSONObject = [
                    "deviceType": "ios", "deviceToken": .string(tokens[identifier] ?? ""),
                    "apnsEnvironment": "production",
                ]
                if !identifier.isEmpty { body["appIdentifier"] = .string(identifier) }
                // A topic of its own takes precedence.
                if identifier == "own" {
                    body["apnsTopic"] = .string(news)
                    body["appIdentifier"] = .string(bench.app.bundleID)
                }
                let made = try await http(
                    "POST",
                    "\(bench.registration)/parse/installations",
                    headers: [
                        "X-Parse-Application-Id": bench.app.id,
                        "X-Parse-REST-API-Key": bench.app.appKey,
                    ],
                    body: .object(body)
                )
                #expect(made.status == 201)
                ids.append(try #require(made.json?["objectId"]))
            }
            _ = try await set(news, bench).successful("set")
            let expected = [
                bench.app.bundleID: bench.app.bundleID, news: news, "": bench.app.bundleID,
                "own": news,
            ]
            func expectTopics(default topic: String) async throws {
                let pushed = try await push(bench)
                #expect(pushed["delivered"] == 4 && pushed["failed"] == 1)
                for (identifier, token) in tokens {
                    let last = try await bench.simulator.received(for: token).last
                    let wanted = identifier.isEmpty ? topic : expected[identifier]
                    #expect(last?.header("apns-topic") == wanted, "\(identifier)")
                }
            }
            try await expectTopics(default: bench.app.bundleID)
            // Named devices are sent to in the same way.
            let event = TestEnvironment.unique("event-")
            try await bench.stack.send([
                "id": .string(event), "app": .string(bench.app.id), "installations": .array(ids),
                "data": ["alert": "Ring"],
            ])
            #expect(try await bench.stack.finishedPush(event: event)["delivered"] == 4)

            let marked = try await carillon(
                bench,
                [
                    "credentials", "set", "apns", bench.app.id, "--topic", news, "--default",
                    "--json",
                ]
            ).successful("default")
            #expect(try JSONValue.parse(marked)["default"] == true)
            try await expectTopics(default: news)
            // A missing credential is found before it is needed.
            let doctor = try await carillon(bench, ["doctor", "--json"])
            let check = try JSONValue.parse(doctor.output)["checks"]?.array?.first {
                $0["name"]?.string == "devices \(bench.app.id) apns"
            }
            #expect(check?["status"] == "warning")
            #expect(check?["detail"]?.string?.contains("1 of 5") == true)
        }

        @Test("Commands make an app whose credentials each provider accepts")
        func commands() async throws {
            let bench = try await Bench()
            let app = TestEnvironment.unique("app-")
            let folder = Self.folder(bench)
            let apns = try Self.account("apns.json", in: folder)
            let wns = try Self.account("wns.json", in: folder)
            let secret = try bench.stack.write(wns["clientSecret"]?.string ?? "", to: "\(app).wns")
            for command in [
                ["app", "create", app],
                [
                    "credentials", "set", "apns", app, "--topic", "com.example.shop",
                    "--key-file", "\(folder)/apns.p8", "--key-id", apns["keyId"]?.string ?? "",
                    "--team-id", apns["teamId"]?.string ?? "",
                ],
                [
                    "credentials", "set", "fcm", app, "--service-account-file",
                    "\(folder)/service-account.json",
                ],
                [
                    "credentials", "set", "wns", app, "--client-id", wns["clientId"]?.string ?? "",
                    "--client-secret-file", secret, "--tenant", wns["tenant"]?.string ?? "",
                ],
            ] {
                _ = try await carillon(bench, command).successful("\(command.prefix(3))")
            }
            let checked = try await carillon(bench, ["credentials", "check", app, "--json"])
                .successful("check")
            let checks = try JSONValue.parse(checked)["checks"]?.array ?? []
            #expect(checks.map { $0["provider"]?.string } == ["apns", "fcm", "wns"])
            #expect(checks.allSatisfy { $0["status"] == "ok" })
        }

        @Test(
            "Each provider is asked to check a credential, and a rejected one is named"
        )
        func checks() async throws {
            let bench = try await Bench()
            let fine = try await carillon(bench, ["credentials", "check", bench.app.id, "--json"])
            #expect(fine.exit == .status(0), "\(fine.output)")
            let checks = try JSONValue.parse(fine.output)["checks"]?.array ?? []
            #expect(checks.map { $0["provider"]?.string } == ["apns", "fcm", "wns"])
            #expect(checks.allSatisfy { $0["status"] == "ok" })
            _ = try await set("com.example.typo", bench, isKnown: false).successful("set")
            let wrong = try await carillon(bench, ["credentials", "check", bench.app.id])
            #expect(wrong.exit == .status(1))
            let lines = wrong.output.split(separator: "\n").filter { $0.hasPrefix("failed") }
            #expect(lines.count == 1)
            #expect(lines.first?.contains("com.example.typo") == true)
            #expect(lines.first?.contains("InvalidProviderToken") == true)
        }

        @Test("A credential is removed after a confirmation, and the audit records it")
        func removes() async throws {
            let bench = try await Bench()
            let typo = "com.example.typo"
            _ = try await bench.registerPhone(token: makeAPNsToken(), channels: [])
            _ = try await set(typo, bench, isKnown: true).successful("set")
            let list = try await carillon(bench, ["credentials", "list", bench.app.id])
                .successful("list")
            let marked = list.split(separator: "\n").filter { $0.contains(" default ") }
            #expect(marked.count == 1, "\(list)")
            #expect(marked.first?.contains(bench.app.bundleID) == true)
            let words = ["credentials", "remove", bench.app.id, "apns"]
            for (more, told) in [
                ([], "--topic"), (["--topic", typo], "--yes"),
                (["--topic", "com.example.none", "--yes"], "com.example.none"),
            ] {
                let refused = try await carillon(bench, words + more)
                #expect(refused.exit == .status(more.contains("--yes") ? 1 : 64), "\(more)")
                #expect(refused.errors.contains(told))
            }
            _ = try await carillon(bench, words + ["--topic", typo, "--yes"]).successful("remove")
            let again = try await carillon(bench, words + ["--topic", typo, "--yes"])
            #expect(again.exit == .status(1))
            let audit = try await bench.stack.carillon("audit", bench.app.id)
            #expect(audit.contains("credentials remove") && audit.contains("apns \(typo)"))
            // The remaining one is the app's own; without it none of its devices is reached.
            #expect(try await push(bench)["delivered"] == 1)
            _ = try await set(typo, bench).successful("set")
            _ = try await carillon(
                bench,
                words + ["--topic", bench.app.bundleID, "--yes"]
            ).successful("remove")
            let doctor = try await carillon(bench, ["doctor"])
            #expect(doctor.exit == .status(1))
            #expect(doctor.output.contains("name a topic that no credential is for"))
        }
    }
}
