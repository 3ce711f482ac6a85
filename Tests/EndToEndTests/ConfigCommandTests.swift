import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Commands of remote config", .serialized, .timeLimit(.minutes(2)))
    struct ConfigCommandTests {
        private func withApp(_ body: (Operator) async throws -> Void) async throws {
            try await withOperator { carillon in
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                try await body(carillon)
            }
        }

        private static let first: JSONValue = [
            "conditions": [["name": "phones", "expression": "device.os == 'ios'"]],
            "parameters": [
                "zeta": ["defaultValue": ["value": "1"]],
                "alpha": [
                    "defaultValue": ["value": "2"],
                    "conditionalValues": ["phones": ["value": "3"]],
                ],
            ],
        ]

        @Test(
            "A template can be fetched, edited, published, listed and rolled back, with a record each"
        )
        func edited() async throws {
            try await withApp { carillon in
                let none = try await carillon.json("config", "get", "shop")
                #expect(none["version"] == ["versionNumber": "0"])
                #expect(none["conditions"] == [] && none["parameters"] == [:])
                #expect(try await carillon.says("config", "versions", "shop").contains("nothing"))

                let folder = FileManager.default.temporaryDirectory.path
                let file = folder + "/" + TestEnvironment.unique("template-") + ".json"
                defer { try? FileManager.default.removeItem(atPath: file) }
                let published = try await carillon.json(
                    "config",
                    "put",
                    "shop",
                    "-",
                    "--description",
                    "the first",
                    input: Self.first.text
                )
                #expect(
                    published["versionNumber"] == "1" && published["description"] == "the first"
                )
                #expect(published["updateType"] == "INCREMENTAL_UPDATE")
                let user = try #require(published["updateUser"])
                let name = try #require(user["name"]?.string)
                #expect(name.hasPrefix("cli:"))
                #expect(user["email"]?.string == "\(name.dropFirst(4))@shop")

                try await carillon.says("config", "get", "shop", "--output", file)
                let text = try String(contentsOfFile: file, encoding: .utf8)
                let got = try #require(try JSONValue.parse(text).object)
                #expect(got["version"] == published)
                let parameters = try #require(got["parameters"]?.object)
                #expect(parameters.map(\.key) == ["zeta", "alpha"])
                #expect(parameters["alpha"]?["valueType"] == "STRING")
                #expect(text.contains("\n    \"zeta\": {\n"), "for people: \(text)")

                let edited = text.replacing("\"value\": \"1\"", with: "\"value\": \"one\"")
                try edited.write(toFile: file, atomically: true, encoding: .utf8)
                #expect(
                    try await carillon.says("config", "put", "shop", file).contains("version 2")
                )
                // It is still based on version 1.
                let stale = try await carillon.refuses("config", "put", "shop", file)
                #expect(stale.contains("made from version 1, and 2 is current"), "\(stale)")
                let unnamed = try await carillon.refuses(
                    "config",
                    "put",
                    "shop",
                    "-",
                    input: Self.first.text
                )
                #expect(unnamed.contains("--force"), "\(unnamed)")
                let forced = try await carillon.json("config", "put", "shop", file, "--force")
                #expect(forced["versionNumber"] == "3" && forced["updateType"] == "FORCED_UPDATE")

                for (version, problem) in [("3", "before the current one, 3"), ("9", "before")] {
                    let refusal = try await carillon.refuses(
                        "config",
                        "rollback",
                        "shop",
                        "--version",
                        version
                    )
                    #expect(refusal.contains(problem), "\(refusal)")
                }
                let back = try await carillon.json("config", "rollback", "shop", "--version", "1")
                #expect(back["versionNumber"] == "4" && back["rollbackSource"] == "1")
                let now = try await carillon.json("config", "get", "shop")
                #expect(now["parameters"]?["zeta"]?["defaultValue"] == ["value": "1"])
                #expect(now["version"] == back)
                let second = try await carillon.json("config", "get", "shop", "--version", "2")
                #expect(second["parameters"]?["zeta"]?["defaultValue"] == ["value": "one"])
                _ = try await carillon.refuses("config", "get", "shop", "--version", "9")

                let versions = try await carillon.json("config", "versions", "shop").array ?? []
                #expect(versions.map { $0["versionNumber"] } == ["4", "3", "2", "1"])
                #expect(versions.map { $0["current"] } == [true, false, false, false])
                #expect(versions.last?["description"] == "the first")
                let status = try await carillon.json("config", "status", "shop")["namespaces"]
                #expect(status?.array?.first?["current"]?["versionNumber"] == "4")
                #expect(status?.array?.first?["announcedVersion"] == .null)
                #expect(
                    try await carillon.says("config", "status", "shop").contains("pending")
                )

                let records = try await carillon.database.query(
                    "SELECT kafka_topic, order_key, convert_from(value, 'UTF8') FROM outbox ORDER BY id"
                )
                #expect(records.count == 4, "\(records)")
                for (index, record) in records.enumerated() {
                    #expect(record.hasPrefix("config.published|config/shop|"))
                    #expect(record.contains("\"version\":\"\(index + 1)\""), "\(record)")
                }
                let audit = try await carillon.says("audit", "shop")
                #expect(audit.contains("config put") && audit.contains("firebase 3"))
                #expect(audit.contains("config rollback"))
            }
        }

        @Test("An invalid template is refused with its place, and a dry run stores nothing")
        func checked() async throws {
            try await withApp { carillon in
                let broken = #"{"conditions": [{"name": "beta", "expression": "percent <= 101"}]}"#
                let refusal = try await carillon.refuses(
                    "config",
                    "put",
                    "shop",
                    "-",
                    input: broken
                )
                #expect(refusal.contains("condition beta: "), "\(refusal)")
                let text = try await carillon.refuses("config", "put", "shop", "-", input: "{,}")
                #expect(text.contains("is not JSON"), "\(text)")
                let missing = try await carillon.refuses(
                    "config",
                    "put",
                    "shop",
                    "/nonexistent",
                    code: 64
                )
                #expect(missing.contains("/nonexistent"))
                // This is another project's, whose number does not exist here.
                var foreign = Self.first.object ?? [:]
                foreign["version"] = ["versionNumber": "37", "updateOrigin": "CONSOLE"]
                let valid = try await carillon.says(
                    "config",
                    "put",
                    "shop",
                    "-",
                    "--validate-only",
                    input: JSONValue.object(foreign).text
                )
                #expect(valid.contains("is valid") && valid.contains("--force"), "\(valid)")
                for namespace in ["firebase", "firebase-server"] {
                    let refused = try await carillon.refuses(
                        "config",
                        "rollback",
                        "shop",
                        "--version",
                        "1",
                        "--namespace",
                        namespace
                    )
                    #expect(refused.contains("no valid stored version 1"), "\(refused)")
                }
                _ = try await carillon.refuses(
                    "config",
                    "get",
                    "shop",
                    "--namespace",
                    "other",
                    code: 64
                )
                #expect(try await carillon.database.query("SELECT * FROM config_versions") == [])

                // Each namespace has its own rules and numbers.
                let server = #"{"conditions": [{"name": "all", "condition": {"true": {}}}]}"#
                try await carillon.says(
                    "config",
                    "put",
                    "shop",
                    "-",
                    "--namespace",
                    "firebase-server",
                    input: server
                )
                let status = try await carillon.says("config", "status", "shop")
                #expect(
                    status.contains("not announced") && status.contains("version 1"),
                    "\(status)"
                )
            }
        }

        @Test("A config token is shown once and stored as a digest, and an operator may choose it")
        func tokens() async throws {
            try await withApp { carillon in
                let made = try await carillon.json("config", "token", "create", "shop")
                let token = try #require(made["token"]?.string)
                #expect(token.hasPrefix("cct_") && token.utf8.count == 47)
                #expect(made["name"] == "ci" && made["readOnly"] == false)
                let digest = try await carillon.database.query(
                    "SELECT digest = sha256(convert_to('\(token)', 'UTF8')) FROM config_tokens"
                )
                #expect(digest == ["t"])

                let file =
                    FileManager.default.temporaryDirectory.path + "/"
                    + TestEnvironment.unique("token-")
                defer { try? FileManager.default.removeItem(atPath: file) }
                for (own, isTaken) in [
                    ("too short a token", false), ("a-token-of-one-s-own", true),
                ] {
                    try own.write(toFile: file, atomically: true, encoding: .utf8)
                    let answer = try await carillon([
                        "config", "token", "create", "shop", "--name", "reader", "--read-only",
                        "--token-file", file,
                    ])
                    #expect(answer.exit == .status(isTaken ? 0 : 64), "\(answer.errors)")
                    #expect(!answer.output.contains(own))
                }
                let same = try await carillon.refuses("config", "token", "create", "shop")
                #expect(same.contains("of this name"), "\(same)")
                for name in ["master-key", "a b", ""] {
                    _ = try await carillon.refuses(
                        "config",
                        "token",
                        "create",
                        "shop",
                        "--name",
                        name,
                        code: 64
                    )
                }
                let list = try await carillon.says("config", "token", "list", "shop")
                #expect(list.contains("publishes") && list.contains("reads"))
                #expect(!list.contains(token))
                let near = try await carillon.refuses(
                    "config",
                    "token",
                    "remove",
                    "shop",
                    "raeder"
                )
                #expect(near.contains("did you mean reader?"), "\(near)")
                try await carillon.says("config", "token", "remove", "shop", "reader")
                let left = try await carillon.json("config", "token", "list", "shop").array ?? []
                #expect(left.map { $0["name"] } == ["ci"])
                let audit = try await carillon.says("audit", "shop")
                #expect(audit.contains("token:reader, read-only"))
                #expect(audit.contains("config token remove") && !audit.contains(token))
            }
        }

        @Test("Firebase names are linked to one app, and keys are stored as digests")
        func links() async throws {
            try await withApp { carillon in
                let key = "AIzaSyA-0123456789abcdefghijklmnopqrstu"
                try await carillon.says("app", "create", "other")
                try await carillon.says(
                    "app",
                    "link",
                    "shop",
                    "--fcm-project",
                    "shop-prod",
                    "--fcm-project",
                    "881233445566",
                    "--firebase-api-key",
                    key
                )
                let links = try await carillon.json("app", "show", "shop")["links"]?.array ?? []
                #expect(links.map { $0["name"] }.dropLast() == ["881233445566", "shop-prod"])
                let digest = try #require(links.last?["name"]?.string)
                #expect(digest.utf8.count == 8)
                let shown = try await carillon.says("app", "show", "shop")
                #expect(shown.contains("fcm-project shop-prod"))
                #expect(shown.contains("firebase-api-key \(digest)") && !shown.contains(key))

                for (words, problem) in [
                    (["--fcm-project", "shop-prod"], "linked to the app shop"),
                    (["--fcm-project", "shop"], "the id of another app"),
                    (["--firebase-api-key", key], "linked to the app shop"),
                ] {
                    let answer = try await carillon(["app", "link", "other"] + words)
                    #expect(answer.exit == .status(1))
                    #expect(answer.errors.contains(problem), "\(answer.errors)")
                }
                for words in [[], ["--fcm-project", "a/b"], ["--firebase-api-key", "short"]] {
                    #expect(
                        try await carillon(["app", "link", "other"] + words).exit == .status(64)
                    )
                }
                let taken = try await carillon.refuses("app", "create", "shop-prod")
                #expect(taken.contains("linked to the app shop"), "\(taken)")

                let doctor = try await carillon(["doctor"]).output
                #expect(doctor.contains("links shop") && doctor.contains("credential for FCM"))

                let unknown = try await carillon.refuses(
                    "app",
                    "unlink",
                    "shop",
                    "--fcm-project",
                    "nobody-s"
                )
                #expect(unknown.contains("nobody-s"))
                try await carillon.says(
                    "app",
                    "unlink",
                    "shop",
                    "--fcm-project",
                    "shop-prod",
                    "--firebase-api-key",
                    key
                )
                try await carillon.says("app", "link", "other", "--fcm-project", "shop-prod")
                let audit = try await carillon.says("audit", "shop")
                #expect(audit.contains("app unlink") && audit.contains(digest))
                #expect(!audit.contains(key))
            }
        }

        @Test("Refused templates and long delays are reported")
        func waiting() async throws {
            try await withApp { carillon in
                func doctor() async throws -> String { try await carillon(["doctor"]).output }
                try await carillon.says("config", "put", "shop", "-", input: Self.first.text)
                #expect(try await doctor().contains("all published templates were announced"))
                _ = try await carillon.database.query(
                    "UPDATE config_versions SET published_at = now() - interval '2 minutes'"
                )
                #expect(try await doctor().contains("not announced to clients"))
                _ = try await carillon.database.query(
                    """
                    UPDATE config_pending SET seen_at = now() - interval '2 minutes'
                    """
                )
                #expect(try await doctor().contains("version 1 is to be announced, and is not"))
                _ = try await carillon.database.query(
                    """
                    DELETE FROM config_pending;
                    INSERT INTO config_announcements (app, namespace, announced_version,
                        announced_at)
                    VALUES ('shop', 'firebase', 1, now())
                    """
                )
                _ = try await carillon.database.query(
                    """
                    INSERT INTO config_versions (app, namespace, version, template, published_at)
                    VALUES ('shop', 'firebase', 2, '{}', now() - interval '2 minutes')
                    """
                )
                #expect(try await doctor().contains("version 2 has not been looked at"))
                let unchecked = try await carillon.json("config", "status", "shop")
                let client = try #require(unchecked["namespaces"]?.array?.first)
                #expect(client["unchecked"] == ["2"] && client["announcedVersion"] == "1")
                #expect((120_000...180_000).contains(client["announcedAfterMs"]?.integer ?? 0))

                // A watcher marks it like this.
                let reason = "parameter 1bell: a key begins with a letter"
                _ = try await carillon.database.query(
                    "UPDATE config_versions SET state = 2, reason = '\(reason)' WHERE version = 2"
                )
                let examined = try await carillon(["doctor"])
                #expect(examined.exit == .status(1))
                #expect(examined.output.contains("version 2 is refused and not served: \(reason)"))
                for words in ["versions", "status"] {
                    let said = try await carillon.says("config", words, "shop")
                    #expect(said.contains("refused") && said.contains(reason), "\(said)")
                }
                let current = try await carillon.json("config", "get", "shop")
                #expect(current["version"]?["versionNumber"] == "1")
            }
        }
    }
}
