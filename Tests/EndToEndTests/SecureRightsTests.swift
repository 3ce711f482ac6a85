import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Access rights of secure payloads",
        .serialized,
        .timeLimit(.minutes(5))
    )
    struct SecureRightsTests {
        @Test("Every route answers every credential as rights-secure.md says")
        func rights() async throws {
            try await SecureBench.run([
                "RATE_LIMIT_FAILURES_PER_ADDRESS": "0", "SECURE_FAILURES_PER_IDENTITY": "0",
            ]) { bench in
                let other = bench.beside(try await bench.stack.makeApp())
                let keys = try Keys()
                try await keys.login(bench)
                let ann = try await bench.proof(of: "ann")
                let phone = try await bench.register("gcm", "reg:ann", by: ann)
                let tablet = try await bench.register("gcm", "reg:ann-2", by: ann)
                let device = try await bench.reader(phone, by: ann)
                let bob = try await bench.proof(of: "bob")
                let app = bench.app
                let columns: [(String, [String: String])] = [
                    ("nothing", [:]),
                    ("the app key (`X-LC-Key`)", app.clientHeaders),
                    ("a wrong key (`X-LC-Key`)", ["X-LC-Id": app.id, "X-LC-Key": "wrong,master"]),
                    ("the app key (Basic)", SecureBench.basic(app.id, app.appKey)),
                    ("the master key of another app", other.app.masterHeaders),
                    ("a token of Ann's", SecureBench.bearer(try keys.token(of: "ann"))),
                    ("a token of Bob's", SecureBench.bearer(try keys.token(of: "bob"))),
                    ("a token that nobody signed", SecureBench.bearer("a.b.c")),
                    ("Ann with her secret", ann), ("Bob with his secret", bob),
                    ("Ann with a wrong secret", SecureBench.basic("ann", "a wrong secret")),
                    ("Ann's secret at another app", try await other.proof(of: "ann")),
                    ("Ann's phone with its secret", device),
                    ("Ann's phone with a wrong secret", SecureBench.basic(phone, "cds_wrong")),
                    ("the master key (`X-LC-Key`)", app.masterHeaders),
                    ("the master key (Basic)", SecureBench.basic(app.id, app.masterKey)),
                ]
                var table = RightsTable(
                    columns.map {
                        RightsTable.Credential(name: $0.0, about: $0.0, headers: $0.1)
                    },
                    head: Self.head
                )
                for action in RightsTable.routes(of: bench.service) {
                    let parts = action.split(separator: " ", maxSplits: 1).map(String.init)
                    var cells: [String] = []
                    for credential in table.credentials {
                        cells.append(
                            try await ask(
                                bench,
                                parts[0],
                                parts[1],
                                credential.headers,
                                phone,
                                tablet
                            )
                        )
                    }
                    table.add(action, cells)
                }
                try table.compare(with: "rights-secure.md")
            }
        }

        /// Requests an object of Ann's that exists each time; a deleted one is not a device that
        /// other credentials use.
        private func ask(
            _ bench: SecureBench,
            _ method: String,
            _ pattern: String,
            _ headers: [String: String],
            _ phone: String,
            _ tablet: String
        ) async throws -> String {
            var path = pattern.replacing(":app", with: bench.app.id)
                .replacing(":identity", with: "carol")
            var body: JSONValue?
            switch (method, pattern) {
            case (_, _) where pattern.hasSuffix("/api/notifications/:id"):
                path = path.replacing(":id", with: try await bench.keep("content").id)
            case (_, _) where pattern.hasSuffix("/reader"):
                path = path.replacing(":id", with: tablet)
                if method == "PUT" { body = [:] }
            case ("PUT", _) where pattern.contains("register"):
                path = path.replacing(":id", with: phone)
                body = ["Platform": "gcm", "Handle": "reg:ann"]
            case ("DELETE", _) where pattern.contains("register"):
                path = path.replacing(":id", with: "000000000000000000000000")
            case ("POST", _) where pattern.hasSuffix("/api/notifications"):
                body = ["identity": "ann", "payload": "content"]
            case ("PUT", _): body = [:]
            default: break
            }
            // The app is not in a header, unless the credential has one.
            let isBelowApp = pattern.hasPrefix("/:app")
            let named = isBelowApp || headers["X-LC-Id"] != nil ? [:] : ["X-LC-Id": bench.app.id]
            let answer = try await http(
                method,
                bench.service.url + path,
                headers: named.merging(headers) { $1 },
                body: body
            )
            return String(answer.status)
        }

        /// An issuer whose keys Carillon gets in a file.
        private struct Keys {
            private let key: SigningKey

            init() throws { key = try SigningKey.generateP256() }

            func login(_ bench: SecureBench) async throws {
                let path = try bench.stack.write(
                    JSONValue.object(["keys": [try publicJWK(key, "k1")]]).text,
                    to: "keys.json"
                )
                try await bench.stack.carillon(
                    "login",
                    "set",
                    bench.app.id,
                    "--issuer",
                    "https://issuer.example",
                    "--audience",
                    "shop",
                    "--jwks-file",
                    path
                )
            }

            func token(of identity: String) throws -> String {
                try JWT.sign(
                    header: ["kid": "k1"],
                    claims: [
                        "iss": "https://issuer.example", "aud": "shop", "sub": .string(identity),
                        "exp": .integer(Int64(Date().timeIntervalSince1970) + 3600),
                    ],
                    with: key
                )
            }
        }

        private static let head = """
            # Who may do what with secure payloads

            Made by the test `EndToEndTests.SecureRightsTests`, which asks the built service of secure
            payloads for every route that it has, by every way to say who calls, and compares the answers
            with this file. With `CARILLON_RENEW_RIGHTS=1` it writes the file again: look at what changes.

            A cell is the answer's status. What is asked for is Ann's and there: content, or her tablet,
            which is not the phone that has a secret; it is registered anew as her phone, and what is
            removed is nobody's. The secret that is set is Carol's. What a body must be, it is, so that
            400 never hides who may. A path without the app in it comes with its id in `X-LC-Id`.


            """
    }
}
