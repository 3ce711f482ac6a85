import Cryptography
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("The command", .serialized, .timeLimit(.minutes(2)))
    struct CommandTests {
        @Test("An unknown app is refused the same way by every command, with the most similar name")
        func noApp() async throws {
            try await withOperator { carillon in
                _ = try await carillon(["migrate"]).successful("migrate")
                _ = try await carillon(["app", "create", "shop"]).successful("create")
                let commands: [[String]] = [
                    ["app", "show", "*"], ["app", "set", "*", "mpns=off"],
                    ["app", "index", "*", "a"],
                    ["app", "rotate-key", "*", "--key", "app"], ["credentials", "list", "*"],
                    ["push", "send", "*", "--alert", "x", "--channel", "c"], ["push", "list", "*"],
                    ["push", "show", "--event", "e", "--app", "*"], ["audit", "*"],
                    ["audience", "explain", "*"], ["export", "*", "--identity", "u"],
                    ["erase", "*", "--identity", "u"],
                    ["app", "link", "*", "--fcm-project", "p"],
                    ["app", "unlink", "*", "--fcm-project", "p"],
                    ["config", "get", "*"], ["config", "versions", "*"], ["config", "status", "*"],
                    ["config", "rollback", "*", "--version", "1"],
                    ["config", "token", "create", "*"], ["config", "token", "list", "*"],
                    ["config", "token", "remove", "*", "ci"],
                    [
                        "installations", "restore", "--since", "1h", "--reason", "r", "--app", "*",
                    ],
                ]
                for command in commands {
                    for name in ["shpo", "no such app"] {
                        let answer = try await carillon(command.map { $0 == "*" ? name : $0 })
                        #expect(answer.exit == .status(1), "\(command): \(answer.errors)")
                        let refusal = "carillon: there is no app \(name)"
                        #expect(answer.errors.hasPrefix(refusal), "\(command): \(answer.errors)")
                        if name == "shpo", command[1] != "send" {
                            #expect(
                                answer.errors == refusal + "; did you mean shop?",
                                "\(command)"
                            )
                        }
                    }
                }
            }
        }

        @Test("Several settings are set in one call, all or nothing")
        func settings() async throws {
            try await withOperator { carillon in
                _ = try await carillon(["migrate"]).successful("migrate")
                _ = try await carillon(["app", "create", "shop"]).successful("create")
                let refused = try await carillon([
                    "app", "set", "shop", "mpns=off", "valid-days=0",
                ])
                #expect(refused.exit == .status(64))
                func shown() async throws -> JSONValue? {
                    try JSONValue.parse(
                        try await carillon(["app", "show", "shop", "--json"]).successful("show")
                    )["settings"]
                }
                #expect(try await shown()?["mpns"]?.bool == true)
                _ = try await carillon([
                    "app", "set", "shop", "mpns=off", "valid-days=90", "client-push=on",
                ]).successful("set")
                let settings = try #require(try await shown())
                #expect(settings["mpns"]?.bool == false)
                #expect(settings["valid-days"]?.integer == 90)
                #expect(settings["client-push"]?.bool == true)
                let audit = try await carillon(["audit", "shop"]).successful("audit")
                #expect(audit.contains("mpns=off, valid-days=90, client-push=on"))
            }
        }
    }
}
