import Cryptography
import JSON
import Kafka
import PushCore
import Support
import Testing

extension EndToEndTests {
    @Suite("The operator's command", .serialized, .timeLimit(.minutes(2)))
    struct OperatorTests {
        @Test(
            "An invalid argument is refused with 64 and its name, and an invalid variable with 78"
        )
        func refusals() async throws {
            let refused: [([String], String)] = [
                (["app", "create"], "app"), (["app", "create", "shop", "--bogus"], "--bogus"),
                (["app", "create", "v1"], "v1"), (["sing"], "sing"),
                (["ingest", "type"], "see carillon ingest type --help"),
                (["app", "link", "shop"], "--fcm"),
                (["app", "rotate-key", "shop"], "--key"),
                (["app", "rotate-key", "shop", "--key", "other"], "--key takes app or master"),
                (["app", "rotate-key", "shop", "--key", "app", "--grace", "x"], "--grace"),
                (["erase", "shop"], "--identity"), (["audit", "shop", "--limit", "0"], "--limit"),
                (["credentials", "set", "mpns", "shop"], "--certificate-file"),
                (["app", "set", "shop"], "name=value"), (["app", "set", "shop", "a=b"], "a"),
                (["app", "set", "shop", "mpns=maybe"], "mpns"),
                (["push", "sned"], #"did you mean "carillon push send"?"#),
                (["psh", "send"], #"did you mean "carillon push"?"#),
                (["push", "send", "shop", "--alrt", "x"], "did you mean --alert?"),
                (["push", "send", "shop", "--bogus"], "see carillon push send --help"),
                (["push", "frobnicate"], "see carillon push --help"),
                (["credentials", "set", "apn"], "see carillon credentials set --help"),
                (["app", "set", "shop", "mpns=off", "valid-dsys=3"], "did you mean valid-days?"),
                (["app", "set", "shop", "mpns=off", "mpns=on"], "mpns is given twice"),
                (["completions", "fish"], "bash and zsh"),
                (["app", "set", "shop", "secure-ids=hex"], "random or int31"),
                (["identity", "set-secret", "shop", "a:b"], "colon"),
                (["secure", "list", "shop", "--limit", "0"], "--limit"),
                (["app", "set", "shop", "valid-days=0"], "valid-days must be a whole number"),
                (["push", "send", "shop"], "--alert"),
                (["push", "send", "shop", "--alert", "x", "--where", #"{"a": {"$b": 1}}"#], "$b"),
                (["push", "send", "shop", "--alert", "x", "--where", "{"], "--where"),
                (["audience", "explain", "shop", "--tags", "a &&"], "tags"),
                (["app", "index", "shop"], "field"), (["app", "index", "shop", "badge"], "badge"),
                (["app", "index", "shop", "a", "--type", "list"], "--type"),
                (
                    [
                        "push", "send", "shop", "--alert", "x", "--channel",
                        String(repeating: "a", count: 257),
                    ], "channels[0]"
                ),
                (["push", "show", "no-id"], "no-id"),
                (["credentials", "set", "apns", "shop", "--key-file", "/none"], "--topic"),
            ]
            for (words, named) in refused {
                let answer = try await run(Stack.executable("carillon"), words)
                #expect(answer.exit == .status(64), "\(words)")
                #expect(answer.errors.contains(named), "\(words): \(answer.errors)")
                #expect(answer.output.isEmpty)
            }
            let missing = try await run(Stack.executable("carillon"), ["app", "list"])
            #expect(missing.exit == .status(78))
            #expect(missing.errors.contains("DATABASE_URL"))
            for url in ["postgres//nobody:s3cret@h/db", "postgresql://h:70000/db", "host=x s3cret"]
            {
                let began = ContinuousClock.now
                let unusable = try await run(
                    Stack.executable("carillon"),
                    ["app", "list"],
                    environment: ["DATABASE_URL": url]
                )
                #expect(unusable.exit == .status(78), "\(url)")
                #expect(unusable.errors.contains("DATABASE_URL"))
                #expect(!unusable.errors.contains("s3cret"))
                #expect(ContinuousClock.now - began < .seconds(5))
            }
            let badKeys = try await run(
                Stack.executable("carillon"),
                ["app", "create", "shop"],
                environment: [
                    "CARILLON_MASTER_KEYS": "a:c2hvcnQ=", "DATABASE_URL": "postgresql:///",
                ]
            )
            #expect(badKeys.exit == .status(78))
            #expect(badKeys.errors.contains("CARILLON_MASTER_KEYS"))
            #expect(!badKeys.errors.contains("c2hvcnQ"))
        }

        @Test("Keys are shown once, credentials are checked when set, and secrets are never shown")
        func secrets() async throws {
            try await withOperator { carillon in
                #expect(try await carillon(["app", "list"]).errors.contains("carillon migrate"))
                for _ in 0..<2 {
                    _ = try await carillon(["migrate"]).successful("migrate")
                }
                let created = try JSONValue.parse(
                    try await carillon(["app", "create", "shop", "--json"]).successful("create")
                )
                let appKey = try #require(created["appKey"]?.string)
                #expect(appKey.utf8.count >= 32)
                #expect(appKey != created["masterKey"]?.string)
                let again = try await carillon(["app", "create", "SHOP"])
                #expect(again.exit == .status(1))

                let folder = "/tmp/" + TestEnvironment.unique("carillon-operator-")
                _ = try await run("/bin/mkdir", [folder]).successful("mkdir")
                let key = try SigningKey.generateP256().privateKeyPEM()
                let wrong = try SigningKey.generateRSA(bits: 2048).privateKeyPEM()
                for (name, text) in [("right.p8", key), ("wrong.p8", wrong)] {
                    _ = try await run(
                        "/usr/bin/tee",
                        ["\(folder)/\(name)"],
                        input: Array(text.utf8)
                    )
                    .successful("tee")
                }
                let set = [
                    "credentials", "set", "apns", "shop", "--topic", "com.example.shop", "--key-id",
                    "ABC123DEFG", "--team-id", "DEF123GHIJ", "--key-file",
                ]
                let refused = try await carillon(set + ["\(folder)/wrong.p8"])
                #expect(refused.exit == .status(64))
                #expect(refused.errors.contains("--key-file"))
                _ = try await carillon(set + ["\(folder)/right.p8"]).successful("set")
                _ = try await run("/bin/rm", ["-r", folder]).successful("rm")

                let secret = try #require(
                    key.split(separator: "\n").first { !$0.hasPrefix("-----") }
                )
                for words in [
                    ["app", "show", "shop", "--json"], ["app", "list", "--json"],
                    ["credentials", "list"], ["doctor", "--json"],
                ] {
                    let shown = try await carillon(words).successful("\(words)")
                    #expect(shown.contains("shop"))
                    #expect(!shown.contains(appKey))
                    #expect(!shown.contains(secret))
                }
            }
        }

        @Test("The doctor reports problems, and ends with 1 if there are any")
        func doctor() async throws {
            try await withOperator { carillon in
                func statuses(_ answer: ProgramAnswer) throws -> [String: String] {
                    let checks = try JSONValue.parse(answer.output)["checks"]?.array ?? []
                    return Dictionary(
                        uniqueKeysWithValues: checks.compactMap { check in
                            guard let name = check["name"]?.string else { return nil }
                            return (name, check["status"]?.string ?? "")
                        }
                    )
                }
                let before = try await carillon(["doctor", "--json"])
                #expect(before.exit == .status(1))
                #expect(try statuses(before)["schema"] == "failed")
                _ = try await carillon(["migrate"]).successful("migrate")
                let after = try await carillon(["doctor", "--json"])
                #expect(after.exit == .status(0))
                let checks = try statuses(after)
                for name in ["kafka", "postgres", "schema", "master keys", "topic push.requests"] {
                    #expect(checks[name] == "ok")
                }
                let groups = try JSONValue.parse(after.output)["groups"]?.array ?? []
                #expect(groups.count == 4 + BuiltInIngestType.allCases.count)
                for group in groups {
                    let (name, topic) = (group["group"]?.string, group["kafkaTopic"]?.string)
                    #expect(checks["group \(name ?? "") \(topic ?? "")"] == "ok")
                    #expect(group["lag"] == 0)
                }
            }
        }

        @Test("A push is written with the given id, and is pending")
        func sends() async throws {
            try await withOperator { carillon in
                _ = try await carillon(["migrate"]).successful("migrate")
                let unknown = try await carillon(["push", "send", "shop", "--alert", "Ring"])
                #expect(unknown.exit == .status(1))
                #expect(unknown.errors.contains("there is no app shop"))
                _ = try await carillon(["app", "create", "shop"]).successful("create")
                var ids: Set<String> = []
                for _ in 0..<2 {
                    let sent = try await carillon([
                        "push", "send", "shop", "--alert", "Ring", "--all", "--id", "e1", "--json",
                    ]).successful("send")
                    ids.insert(try #require(try JSONValue.parse(sent)["pushId"]?.string))
                }
                #expect(ids.count == 1)
                let late = try await carillon([
                    "push", "send", "shop", "--alert", "Ring", "--all", "--wait", "--timeout",
                    "200ms",
                ])
                #expect(late.exit == .status(1))
                #expect(late.errors.contains("not finished"))
                let shown = try await carillon(["push", "show", ids.first ?? ""])
                #expect(shown.exit == .status(1))
            }
        }
    }
}
