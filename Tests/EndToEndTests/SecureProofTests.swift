import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Content is readable only by its identity", .serialized, .timeLimit(.minutes(10)))
    struct SecureProofTests {
        // MARK: Tokens

        @Test(
            "PyJWT tokens are accepted, and key rotation or a missing issuer needs no restart",
            .enabled(
                if: TestEnvironment.pythonWithSecure != nil,
                "CARILLON_PYTHON_SECURE is not set"
            )
        )
        func tokens() async throws {
            let (port, hidden) = (try freePort(), try freePort())
            let authority = try CertificateAuthority.make(commonName: "Issuer CA")
            let leaf = try authority.issue(hosts: ["localhost", "127.0.0.1"])
            try await Stack.with(["JWKS_HOSTS": "127.0.0.1:\(port)"]) { stack in
                let (shop, other) = (try await stack.makeApp(), try await stack.makeApp())
                let trusted = [
                    "PROVIDER_CA_FILE": try stack.write(authority.certificatePEM, to: "ca.pem")
                ]
                let service = try await SecureBench.start(
                    on: stack,
                    trusted.merging(["RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]) { $1 }
                )
                let environment = stack.environment.merging(trusted) { $1 }.merging([
                    "SECURE_URL": service.url, "APP": shop.id, "OTHER_APP": other.id,
                    "CARILLON": Stack.executable("carillon"), "ISSUER_PORT": "\(port)",
                    "HIDDEN_PORT": "\(hidden)", "PYTHONDONTWRITEBYTECODE": "1",
                    "CERTIFICATE": try stack.write(leaf.certificatePEM, to: "issuer.pem"),
                    "CERTIFICATE_KEY": try stack.write(leaf.privateKeyPEM, to: "issuer.key"),
                ]) { $1 }
                let answer = try await run(
                    try #require(TestEnvironment.pythonWithSecure),
                    [scriptFile("secure_client.py"), "tokens"],
                    environment: environment
                )
                #expect(answer.exit == .status(0), "\(answer.errors)")
                #expect(await service.process.stop() == .status(0))
                // A restart works without the issuer: its last keys are stored.
                let token = try #require(
                    try JSONValue.parse(answer.output)["token"]?.string
                )
                let again = try await SecureBench.start(on: stack, trusted)
                let bench = SecureBench(stack: stack, service: again, app: shop)
                let kept = try await bench.keep("content")
                let read = try await bench.read(kept.id, by: SecureBench.bearer(token))
                #expect(read.status == 200 && read.json?["Payload"] == "content")
                #expect(await again.process.stop() == .status(0))
            }
        }

        // MARK: Devices

        @Test("A device reads by its secret as long as it belongs to its identity")
        func devices() async throws {
            try await SecureBench.run { bench in
                let (ann, bob) = (
                    try await bench.proof(of: "ann"), try await bench.proof(of: "bob")
                )
                let phone = try await bench.register("gcm", "reg:1", by: ann)
                let device = try await bench.reader(phone, by: ann)
                let kept = try await bench.keep("content")
                #expect(try await bench.read(kept.id, by: device).json?["Read"] == false)
                #expect(try await bench.read(kept.id, by: ann).json?["Read"] == true)
                // Each reader's first read is reported: of the device, and of the identity.
                let outcomes = try await bench.stack.outcomes(2, event: "secure/\(kept.id)")
                #expect(
                    Set(outcomes.map { $0["installationId"]?.string ?? "" }) == [phone, ""]
                )
                let path = "/v1/installations/\(phone)/reader"
                #expect(try await bench.ask("PUT", path, bob, [:]).status == 404)
                let tablet = try await bench.register("gcm", "reg:2", by: ann)
                let another = "/v1/installations/\(tablet)/reader"
                #expect(try await bench.ask("PUT", another, device, [:]).status == 404)
                // A new secret revokes the old one.
                let renewed = try await bench.reader(phone, by: device)
                #expect(try await bench.read(kept.id, by: device).status == 401)
                #expect(try await bench.read(kept.id, by: renewed).status == 200)
                // A secret under another installation's name is refused.
                let secret = try #require(renewed["Authorization"])
                let text = String(
                    decoding: try Base64.decode(String(secret.dropFirst("Basic ".count))),
                    as: UTF8.self
                )
                let wrong = SecureBench.basic(tablet, String(text.drop { $0 != ":" }.dropFirst()))
                #expect(try await bench.read(kept.id, by: wrong).status == 401)
                // Bob logs in on that phone, and Ann again: her earlier secret is void for good.
                let registered = try await bench.ask(
                    "PUT",
                    "/api/register/\(phone)",
                    bob,
                    ["Platform": "gcm", "Handle": "reg:1", "Tags": []]
                )
                #expect(registered.status == 410)
                let taken = try await bench.stack.database.query(
                    """
                    UPDATE installations SET identity = 'bob' WHERE object_id = '\(phone)';
                    UPDATE installations SET identity = 'ann' WHERE object_id = '\(phone)'
                    """
                )
                #expect(taken.isEmpty)
                #expect(try await bench.read(kept.id, by: renewed).status == 401)
                let last = try await bench.reader(phone, by: bench.app.masterHeaders)
                #expect(try await bench.read(kept.id, by: last).status == 200)
                #expect(try await bench.ask("DELETE", path, ann).status == 204)
                #expect(try await bench.read(kept.id, by: last).status == 401)
                let gone = try await bench.reader(phone, by: ann)
                #expect(
                    try await bench.ask("DELETE", "/api/register/\(phone)", bob).status == 200
                )
                #expect(try await bench.read(kept.id, by: gone).status == 200, "it is not Bob's")
                for _ in 0..<2 {
                    #expect(
                        try await bench.ask("DELETE", "/api/register/\(phone)", ann).status == 200
                    )
                }
                #expect(try await bench.read(kept.id, by: gone).status == 401)
            }
        }

        @Test(
            "A token moves to its last registration, whose id others cannot change (410)"
        )
        func register() async throws {
            try await SecureBench.run { bench in
                let (ann, bob) = (
                    try await bench.proof(of: "ann"), try await bench.proof(of: "bob")
                )
                let annas = try await bench.register("gcm", "reg:1", by: ann, tags: ["news"])
                let found = try await bench.ask("POST", "/api/register?handle=reg:1", ann)
                #expect(found.json == .string(annas))
                let new = try await bench.ask("POST", "/api/register?handle=reg:1", bob)
                #expect(new.json != .string(annas))
                let bobs = try await bench.register("gcm", "reg:1", by: bob)
                let rows = try await bench.stack.database.query(
                    "SELECT object_id, identity, array_to_string(channels, ',') FROM installations"
                )
                #expect(rows == ["\(bobs)|bob|username:bob"], "it was known by its token alone")
                for (id, body, status) in [
                    (bobs, ["Platform": "gcm", "Handle": "reg:2"] as JSONValue, 410),
                    ("old-id-1", ["Platform": "gcm", "Handle": "reg:2"], 410),
                    (annas, ["Platform": "adm", "Handle": "reg:2"], 400),
                    (annas, ["Platform": "apns", "Handle": "not a token"], 400),
                    (annas, ["Platform": "gcm", "Handle": "r", "Tags": ["username:bob"]], 400),
                    (annas, "text", 400),
                ] {
                    let answer = try await bench.ask("PUT", "/api/register/\(id)", ann, body)
                    #expect(answer.status == status, "\(body.text)")
                }
                #expect(try await bench.ask("POST", "/api/register").status == 401)
                #expect(
                    try await bench.ask("POST", "/api/register", bench.app.masterHeaders).status
                        == 403
                )
            }
        }

        // MARK: Sealed for the device

        @Test(
            "Sealed content opens only on its phone, by pyhpke",
            .enabled(
                if: TestEnvironment.pythonWithSecure != nil,
                "CARILLON_PYTHON_SECURE is not set"
            )
        )
        func sealed() async throws {
            try await SecureBench.run { bench in
                let ann = try await bench.proof(of: "ann")
                let wanted: JSONValue = ["identity": "ann", "payload": "x", "sealed": true]
                let none = try await bench.ask(
                    "POST",
                    "/api/notifications",
                    bench.app.masterHeaders,
                    wanted
                )
                #expect(none.status == 409)
                var phones: [(id: String, key: [UInt8], proof: [String: String])] = []
                for number in 1...2 {
                    let keys = try HPKE.generateKeys()
                    let id = try await bench.register("gcm", "reg:\(number)", by: ann)
                    let proof = try await bench.reader(id, by: ann, sealingKey: keys.publicKey)
                    phones.append((id, keys.privateKey, proof))
                }
                let plain = try await bench.register("gcm", "reg:3", by: ann)
                let plainProof = try await bench.reader(plain, by: ann)
                for key in [
                    [UInt8](repeating: 0, count: 32), [1] + [UInt8](repeating: 0, count: 31),
                    [UInt8](repeating: 7, count: 31),
                ] {
                    let refused = try await bench.ask(
                        "PUT",
                        "/v1/installations/\(plain)/reader",
                        ann,
                        ["sealingKey": .string(Base64.encodeURL(key))]
                    )
                    #expect(refused.status == 400)
                }
                let content = "what only a phone reads"
                let kept = try await bench.keep(content, ["sealed": true])
                #expect(try await bench.read(kept.id, by: ann).status == 404)
                #expect(try await bench.read(kept.id, by: plainProof).status == 404)
                for (number, phone) in phones.enumerated() {
                    let answer =
                        number == 0
                        ? try await bench.read(kept.id, by: phone.proof)
                        : try await bench.read(kept.id, by: ann, "?installation=\(phone.id)")
                    #expect(answer.json?["Sealed"] == "hpke-x25519-sha256-aes256gcm")
                    #expect(answer.json?["Read"]?.bool == (number > 0))
                    let opened = try await play(
                        "open",
                        [
                            "payload": answer.json?["Payload"] ?? .null,
                            "privateKey": .string(Base64.encodeURL(phone.key)),
                            "aad": .string("\(bench.app.id)/\(kept.id)/\(phone.id)"),
                        ]
                    )
                    #expect(opened == content)
                }
                // The push goes to these two only, and the content is stored in no other form.
                let selected = try await bench.stack.database.query(
                    """
                    SELECT json_array_length(request->'installations'), p.content IS NULL
                    FROM pushes u JOIN secure_payloads p ON p.push_id = u.id
                    WHERE p.id = '\(kept.id)'
                    """
                )
                #expect(selected == ["2|t"], "\(selected)")
                // In the other direction.
                let sealed = try await play(
                    "seal",
                    [
                        "publicKey": .string(
                            Base64.encodeURL(try publicKey(of: bench, phones[0].id))
                        ),
                        "text": .string(content), "aad": "shop/12/phone",
                    ]
                )
                let opened = try HPKE.open(
                    try Base64.decodeURL(sealed),
                    with: phones[0].key,
                    info: Array("carillon secure payload v1".utf8),
                    authenticating: Array("shop/12/phone".utf8)
                )
                #expect(String(decoding: opened, as: UTF8.self) == content)
                // A phone that now belongs to another identity opens nothing more, and hides
                // nothing from its owner.
                #expect(
                    try await bench.ask("DELETE", "/api/notifications/\(kept.id)", ann).status
                        == 204
                )
                #expect(try await bench.read(kept.id, by: phones[0].proof).status == 404)
            }
        }

        private func publicKey(of bench: SecureBench, _ phone: String) async throws -> [UInt8] {
            let rows = try await bench.stack.database.query(
                """
                SELECT encode(sealing_key, 'hex') FROM secure_readers
                WHERE installation = '\(phone)'
                """
            )
            return try Hex.decode(rows.first ?? "")
        }

        private func play(_ scenario: String, _ input: JSONObject) async throws -> String {
            try await run(
                try #require(TestEnvironment.pythonWithSecure),
                [scriptFile("secure_client.py"), scenario],
                environment: ["PYTHONDONTWRITEBYTECODE": "1"],
                input: input.bytes
            ).successful("secure_client.py \(scenario)")
                .trimmingCharacters(in: .whitespacesAndNewlines)
        }
    }
}
