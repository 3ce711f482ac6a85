import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Access rights of remote config",
        .serialized,
        .timeLimit(.minutes(5))
    )
    struct ConfigRightsTests {
        @Test("Every route answers every credential as rights-config.md says")
        func rights() async throws {
            try await Stack.with { stack in
                let (shop, other) = (try await stack.makeApp(), try await stack.makeApp())
                try await stack.carillon("app", "set", shop.id, "config-fetches-per-hour=0")
                let linked = TestEnvironment.unique("a-key-of-google-s-")
                try await stack.carillon("app", "link", shop.id, "--firebase-api-key", linked)
                let service = try await ConfigBench.startWatcher(
                    on: stack,
                    ["LOG_LEVEL": "debug", "RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]
                )
                let ci = try await stack.configToken(of: shop.id, named: "ci")
                let bench = ConfigBench(stack: stack, watcher: service, app: shop, token: ci)
                for value in ["one", "two"] {
                    try await bench.publish(ConfigBench.template(value))
                }
                let reader = try await stack.configToken(
                    of: shop.id,
                    named: "reader",
                    isReadOnly: true
                )
                let theirs = try await stack.configToken(of: other.id, named: "ci")
                var table = RightsTable(
                    Self.credentials(shop, other, linked, ci: ci, reader: reader, theirs: theirs),
                    head: Self.head
                )
                for action in RightsTable.routes(of: service) {
                    let parts = action.split(separator: " ", maxSplits: 1).map(String.init)
                    var cells: [String] = []
                    for credential in table.credentials {
                        let headers = credential.headers
                        cells.append(try await ask(parts[0], parts[1], headers, bench))
                    }
                    table.add(action, cells)
                }
                try table.compare(with: "rights-config.md")
                // Nothing is inflated for a caller without write access: invalid compressed bytes
                // are not even read.
                for path in ["remoteConfig", "remoteConfig:rollback"] {
                    let answer = try await http(
                        path == "remoteConfig" ? "PUT" : "POST",
                        "\(bench.project)/\(path)",
                        headers: [
                            "Authorization": "Bearer \(reader)", "If-Match": "*",
                            "Content-Encoding": "gzip",
                        ],
                        bytes: [1, 2, 3]
                    )
                    #expect(answer.status == 403, "\(answer.text)")
                    #expect(answer.json?["error"]?["status"] == "PERMISSION_DENIED")
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        /// - Returns: The status. A stream has no end, so only its start is waited for.
        private func ask(
            _ method: String,
            _ pattern: String,
            _ headers: [String: String],
            _ bench: ConfigBench
        ) async throws -> String {
            var url = bench.watcher.url + pattern.replacing(":project", with: bench.app.id)
            if pattern.hasSuffix(":downloadDefaults") { url += "?format=JSON" }
            var headers = headers.merging(["Content-Type": "application/json"]) { $1 }
            var body = ""
            switch method {
            case "PUT":
                headers["If-Match"] = "*"
                body = "{}"
            case "POST": body = pattern.hasSuffix(":rollback") ? #"{"versionNumber":"1"}"# : "{}"
            default: break
            }
            var arguments = ["-s", "-X", method, "-o", "/dev/null", "-w", "%{http_code}"]
            if pattern.lowercased().contains(":stream") { arguments += ["--max-time", "0.5"] }
            for (name, value) in headers { arguments += ["-H", "\(name): \(value)"] }
            if !body.isEmpty { arguments += ["-d", body] }
            return try await run("/usr/bin/curl", arguments + [url]).output
        }

        private static func credentials(
            _ shop: Stack.App,
            _ other: Stack.App,
            _ linked: String,
            ci: String,
            reader: String,
            theirs: String
        ) -> [RightsTable.Credential] {
            func bearer(_ token: String) -> [String: String] {
                ["Authorization": "Bearer \(token)"]
            }
            func basic(_ key: String) -> [String: String] {
                ["Authorization": "Basic " + Base64.encode(Array("\(shop.id):\(key)".utf8))]
            }
            func key(_ key: String) -> [String: String] { ["X-Goog-Api-Key": key] }
            let columns: [(String, [String: String])] = [
                ("nothing", [:]),
                ("a bearer that is no token", bearer("ya29." + String(repeating: "x", count: 30))),
                ("a config token of another app", bearer(theirs)),
                ("a config token that only reads", bearer(reader)),
                ("a config token", bearer(ci)),
                ("the bearer `owner`", bearer("owner")),
                ("a wrong key (`X-Goog-Api-Key`)", key("wrong")),
                ("the app key of another app (`X-Goog-Api-Key`)", key(other.appKey)),
                ("the app key (`X-Goog-Api-Key`)", key(shop.appKey)),
                ("a Google API key that is linked to the app", key(linked)),
                ("the master key as `X-Goog-Api-Key`", key(shop.masterKey)),
                ("a config token as `X-Goog-Api-Key`", key(ci)),
                ("the app key (`X-LC-Key`)", shop.clientHeaders),
                ("the master key (`X-LC-Key`)", shop.masterHeaders),
                ("the master key of another app (`X-LC-Key`)", other.masterHeaders),
                ("the app key (Basic)", basic(shop.appKey)),
                ("the master key (Basic)", basic(shop.masterKey)),
            ]
            return columns.map { about, headers in
                RightsTable.Credential(name: about, about: about, headers: headers)
            }
        }

        private static let head = """
            # Who may do what with remote config

            Made by the test `EndToEndTests.ConfigRightsTests`, which asks the built config watcher for
            every route that it has, by every way to say who calls, and compares the answers with this
            file. With `CARILLON_RENEW_RIGHTS=1` it writes the file again: look at what changes.

            A cell is the answer's status. What a body must be, it is, so that 400 never hides who may.


            """
    }
}
