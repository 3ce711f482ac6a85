import Cryptography
import EventLoop
import Foundation
import HTTPServer
import JSON
import Support
import Synchronization
import Testing

extension EndToEndTests {
    @Suite("Commands of logins", .serialized, .timeLimit(.minutes(2)))
    struct LoginCommandTests {
        private static let issuer = "https://id.example"

        /// Runs the body with an operator, and an issuer on this machine that publishes the keys of
        /// the test.
        private func run(
            _ body: (Operator, Issuer) async throws -> Void
        ) async throws {
            let key = try SigningKey.generateP256()
            let shown = Shown()
            shown.set = .object(["keys": [try publicJWK(key, "k1")]])
            try await withLocalServer { request in
                guard let set = shown.set else { return HTTPServerResponse(status: 503) }
                return request.path == "/moved"
                    ? HTTPServerResponse(status: 302, headers: ["Location": "/jwks"])
                    : HTTPServerResponse.json(set)
            } _: { server, _ in
                try await withOperator { carillon in
                    let carillon = carillon.with([
                        "JWKS_HOSTS": "localhost:\(server.port)",
                        "PROVIDER_CA_FILE": server.caFile,
                    ])
                    try await carillon.says("migrate")
                    try await carillon.says("app", "create", "shop")
                    try await body(carillon, Issuer(server: server, key: key, shown: shown))
                }
            }
        }

        private final class Shown: Sendable {
            private let value = Mutex<JSONValue?>(nil)

            var set: JSONValue? {
                get { value.withLock { $0 } }
                set { value.withLock { $0 = newValue } }
            }
        }

        private struct Issuer {
            let server: LocalServer
            let key: SigningKey
            let shown: Shown

            var url: String { server.origin + "/jwks" }

            /// Writes a file with a token for the body.
            func withToken(
                _ changes: JSONObject = [:],
                _ body: (String) async throws -> Void
            ) async throws {
                var claims: JSONObject = [
                    "iss": .string(LoginCommandTests.issuer), "aud": "phones", "sub": "ann",
                    "exp": 4_000_000_000,
                ]
                for (name, value) in changes { claims[name] = value }
                let token = try JWT.sign(header: ["kid": "k1"], claims: claims, with: key)
                try await withFile(token + "\n", body)
            }

            func withFile(_ text: String, _ body: (String) async throws -> Void) async throws {
                let path =
                    FileManager.default.temporaryDirectory.path + "/"
                    + TestEnvironment.unique("login-")
                try text.write(toFile: path, atomically: true, encoding: .utf8)
                defer { try? FileManager.default.removeItem(atPath: path) }
                try await body(path)
            }
        }

        private static let login = ["--issuer", issuer, "--audience", "phones"]

        @Test(
            "A login is set once its keys are found, checked, listed and removed, and audited"
        )
        func lifetime() async throws {
            try await run { carillon, issuer in
                func set(_ more: String...) async throws -> ProgramAnswer {
                    try await carillon(
                        ["login", "set", "shop"] + Self.login + ["--jwks-url", issuer.url] + more
                    )
                }
                let rehearsed = try await set("--dry-run", "--json").successful("a rehearsal")
                #expect(try JSONValue.parse(rehearsed)["keys"] == [["kid": "k1", "alg": "ES256"]])
                #expect(try await carillon.json("login", "list", "shop") == [])
                let said = try await set().successful("login set")
                #expect(said.contains("set the login of \(Self.issuer) for phones to shop"))
                #expect(said.contains("1 key(s): ES256 k1"))
                let again = try JSONValue.parse(try await set("--json").successful("again"))
                #expect(again["replaced"] == true && again["identityClaim"] == "sub")

                let listed = try await carillon.json("login", "list", "shop")
                #expect(listed.array?.count == 1 && listed[0]?["jwksUrl"]?.string == issuer.url)
                #expect(try await carillon.says("login", "list", "shop").contains(issuer.url))

                // From now on the issuer has no keys.
                issuer.shown.set = nil
                let asked = issuer.server.received.count
                try await issuer.withToken { file in
                    let whose = try await carillon.json(
                        "login",
                        "check",
                        "shop",
                        "--token-file",
                        file
                    )
                    #expect(whose == ["app": "shop", "identity": "ann"])
                }
                try await issuer.withToken(["exp": 1_700_000_000]) { file in
                    let why = try await carillon.refuses(
                        "login",
                        "check",
                        "shop",
                        "--token-file",
                        file
                    )
                    #expect(why.contains("it has expired"))
                    let answer = try await carillon(
                        ["login", "check", "shop", "--token-file", file, "--json"]
                    )
                    #expect(answer.exit == .status(1))
                    #expect(try JSONValue.parse(answer.output)["refusal"] == "expired")
                }
                #expect(issuer.server.received.count == asked)

                _ = try await carillon(["login", "remove", "shop"] + Self.login)
                    .successful("login remove")
                let none = try await carillon(["login", "remove", "shop"] + Self.login)
                #expect(none.exit == .status(1))
                try await issuer.withToken { file in
                    let why = try await carillon.refuses(
                        "login",
                        "check",
                        "shop",
                        "--token-file",
                        file
                    )
                    #expect(why.contains("no login has this issuer"))
                }
                let audit = try await carillon.says("audit", "shop")
                for action in ["login set", "login remove", "issuer:\(Self.issuer)"] {
                    #expect(audit.contains(action))
                }
            }
        }

        @Test("A login whose keys are unavailable, or that would mix identities, is not set")
        func refused() async throws {
            try await run { carillon, issuer in
                func set(_ words: String...) async throws -> String {
                    let answer = try await carillon(["login", "set", "shop"] + words)
                    #expect(answer.exit != .status(0), "\(words)")
                    return answer.errors
                }
                let (name, origin) = (Self.issuer, issuer.server.origin)
                func from(_ url: String) async throws -> String {
                    try await set("--issuer", name, "--audience", "phones", "--jwks-url", url)
                }
                #expect(try await from(origin + "/moved").contains("redirects"))
                let plain = "http://" + origin.dropFirst("https://".count) + "/jwks"
                #expect(try await from(plain).contains("may not be asked"))
                #expect(try await from("https://id.example/jwks").contains("may not be asked"))
                issuer.shown.set = ["keys": [["kty": "oct", "k": "c2VjcmV0"]]]
                #expect(try await from(issuer.url).contains("no key that could be used"))
                issuer.shown.set = nil
                #expect(try await from(issuer.url).contains("answers 503"))
                #expect(
                    try await set("--issuer", name, "--jwks-url", issuer.url)
                        .contains("--audience is missing")
                )
                #expect(
                    try await set("--issuer", name, "--audience", "phones").contains("--jwks-url")
                )
                #expect(try await carillon.json("login", "list", "shop") == [])

                let file = try JSONValue.object(["keys": [publicJWK(issuer.key, "k1")]]).text
                try await issuer.withFile(file) { file in
                    let words = ["login", "set", "shop", "--issuer", name, "--jwks-file", file]
                    _ = try await carillon(words + ["--audience", "phones"]).successful("the first")
                    let second = try await carillon(words + ["--audience", "tv"])
                    #expect(second.exit == .status(1))
                    #expect(second.errors.contains("needs an identity prefix"))
                    _ = try await carillon(
                        words + ["--audience", "tv", "--identity-prefix", "tv:"]
                    )
                    .successful("the second")
                    try await issuer.withToken(["aud": "tv"]) { token in
                        let whose = try await carillon.json(
                            "login",
                            "check",
                            "shop",
                            "--token-file",
                            token
                        )
                        #expect(whose["identity"] == "tv:ann")
                    }
                }
                try await issuer.withFile(#"{"keys": []}"#) { file in
                    let empty = try await set(
                        "--issuer",
                        name,
                        "--audience",
                        "x",
                        "--jwks-file",
                        file,
                        "--identity-prefix",
                        "x:"
                    )
                    #expect(empty.contains("no key for signatures"))
                }
            }
        }

        @Test("The doctor reports issuers that are unavailable, and keys that are not refreshed")
        func doctor() async throws {
            try await run { carillon, issuer in
                func check(_ name: String) async throws -> (status: String?, detail: String) {
                    let answer = try await carillon(["doctor", "--json"])
                    let checks = try JSONValue.parse(answer.output)["checks"]?.array ?? []
                    let check = checks.first { $0["name"]?.string == name }
                    return (check?["status"]?.string, check?["detail"]?.string ?? "")
                }
                let name = "jwks \(issuer.url)"
                #expect(try await check("logins").status == nil)
                _ = try await carillon(
                    ["login", "set", "shop"] + Self.login + ["--jwks-url", issuer.url]
                ).successful("login set")
                #expect(try await check("logins").status == "ok")
                #expect(try await check(name).status == "ok")
                _ = try await carillon.database.query(
                    "UPDATE jwks SET fresh_until = now() - interval '2 hours'"
                )
                let stale = try await check(name)
                #expect(stale.status == "warning" && stale.detail.contains("secure-payload"))
                issuer.shown.set = nil
                let away = try await check(name)
                #expect(away.status == "warning" && away.detail.contains("hold until"))
                _ = try await carillon.database.query(
                    "UPDATE jwks SET fresh_until = now() - interval '25 hours'"
                )
                #expect(try await check(name).status == "failed")
                _ = try await carillon.database.query(
                    """
                    UPDATE logins SET jwks_url = NULL, jwks = '{"keys": []}'
                    """
                )
                #expect(try await check("login shop \(Self.issuer)").status == "failed")
            }
        }
    }
}
