import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests.SecureProofTests {
    // MARK: Wrong secrets

    @Test(
        "Wrong secrets are delayed, but not a caller who knows the secret or has another credential"
    )
    func guessing() async throws {
        try await SecureBench.run(
            ["SECURE_FAILURES_PER_IDENTITY": "5", "RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]
        ) { bench in
            let chosen = "a chosen secret"
            let set = try await bench.ask(
                "PUT",
                "/v1/identities/ann/secret",
                bench.app.masterHeaders,
                ["secret": .string(chosen)]
            )
            #expect(set.status == 204)
            let ann = SecureBench.basic("ann", chosen)
            let bob = try await bench.proof(of: "bob")
            let phone = try await bench.register("gcm", "reg:1", by: ann)
            let device = try await bench.reader(phone, by: ann)
            let kept = try await bench.keep("content")
            var told: [Int] = []
            let begun = ContinuousClock.now
            for number in 0..<8 {
                let guess = SecureBench.basic("ann", "guess number \(number)")
                let answer = try await bench.read(kept.id, by: guess)
                told.append(answer.status)
                guard answer.status == 429 else { continue }
                let wait = Int(answer.header("retry-after") ?? "") ?? 0
                #expect((1...60).contains(wait))
            }
            // Another guess is allowed each twelve seconds.
            let later = Int((ContinuousClock.now - begun) / .seconds(12))
            let wrong = told.count { $0 == 401 }
            #expect((5...5 + later).contains(wrong) && told.prefix(5).allSatisfy { $0 == 401 })
            #expect(told.count { $0 == 429 } == told.count - wrong)
            for proof in [ann, device] {
                #expect(try await bench.read(kept.id, by: proof).status == 200)
            }
            #expect(try await bench.read(kept.id, by: bob).status == 404)
            // A changed secret is not cached, and has to wait with the wrong ones.
            let changed = "another secret"
            _ = try await bench.ask(
                "PUT",
                "/v1/identities/ann/secret",
                bench.app.masterHeaders,
                ["secret": .string(changed)]
            )
            #expect(try await bench.read(kept.id, by: ann).status == 429)
            #expect(
                try await bench.read(kept.id, by: SecureBench.basic("ann", changed)).status
                    == 429
            )
            // Ids that the reader cannot see, ten times as many.
            var statuses: [Int] = []
            for _ in 0..<60 {
                statuses.append(try await bench.read("12", by: bob).status)
            }
            #expect(statuses.filter { $0 == 404 }.count <= 51)
            #expect(statuses.last == 429)
            #expect(try await bench.read(kept.id, by: device).status == 200)
            let entries = try await bench.audit { $0.count { $0["status"] == 429 } >= 10 }
            #expect(entries.allSatisfy { $0["actor"] != "cli" })
            #expect(
                try await bench.count(#"secure_refused_total{reason="too_many"}"#) >= 10
            )
        }
    }

    @Test("A wrong secret costs the same for any identity, and the loops answer meanwhile")
    func equalWork() async throws {
        try await SecureBench.run(
            ["SECURE_FAILURES_PER_IDENTITY": "0", "RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]
        ) { bench in
            _ = try await bench.ask(
                "PUT",
                "/v1/identities/ann/secret",
                bench.app.masterHeaders,
                ["secret": "a chosen secret"]
            )
            let made = try await bench.proof(of: "made")
            // Nothing is hashed for these: a generated secret is compared at once.
            #expect(try await bench.read("12", by: made).status == 404)
            for (identity, app) in [
                ("ann", bench.app.id), ("made", bench.app.id), ("nobody", bench.app.id),
                ("ann", "no-such-app"),
            ] {
                let begun = ContinuousClock.now
                let answer = try await http(
                    "GET",
                    "\(bench.service.url)/api/notifications/12",
                    headers: SecureBench.basic(identity, "a wrong secret")
                        .merging(["X-LC-Id": app]) { $1 }
                )
                #expect(answer.status == 401)
                // At least as long as scrypt takes on any machine.
                #expect(
                    ContinuousClock.now - begun > .milliseconds(15),
                    "\(identity) of \(app)"
                )
            }
            try await floods(bench, made)
        }
    }

    /// Sends more wrong secrets than are accepted: some get 503, no other caller waits, and none is
    /// begun for clients that have left.
    private func floods(_ bench: SecureBench, _ made: [String: String]) async throws {
        let port = UInt16(try #require(URLComponents(string: bench.service.url)?.port))
        var sockets: [LoopbackSocket] = []
        for number in 0..<150 {
            let lines = SecureBench.basic("ann", "guess number \(number)")
                .merging(["X-LC-Id": bench.app.id, "Host": "x"]) { $1 }
                .map { "\($0.key): \($0.value)\r\n" }.joined()
            let socket = try LoopbackSocket(port: port)
            try socket.send(
                Array("GET /api/notifications/12 HTTP/1.1\r\n\(lines)\r\n".utf8)
            )
            sockets.append(socket)
        }
        let busy = #"secure_refused_total{reason="busy"}"#
        _ = try await eventually("some are refused") {
            try await bench.count(busy) > 0 ? true : nil
        }
        #expect(try await bench.count("secure_waiting_hashes") <= 100)
        let begun = ContinuousClock.now
        for _ in 0..<20 { #expect(try await bench.read("12", by: made).status == 404) }
        #expect(ContinuousClock.now - begun < .seconds(10))
        for socket in sockets { socket.close() }
        _ = try await eventually("nobody waits any more", within: .seconds(5)) {
            try await bench.count("secure_waiting_hashes") == 0 ? true : nil
        }
    }

    @Test(
        "A first read with an identity's own secret is served before wrong ones of 110 addresses",
        .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
    )
    func manyAddresses() async throws {
        try await SecureBench.run(
            ["SECURE_FAILURES_PER_IDENTITY": "0", "RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]
        ) { bench in
            for number in 0..<12 {
                let set = try await bench.ask(
                    "PUT",
                    "/v1/identities/reader-\(number)/secret",
                    bench.app.masterHeaders,
                    ["secret": .string("chosen by reader \(number)")]
                )
                #expect(set.status == 204)
            }
            let port = try #require(URLComponents(string: bench.service.url)?.port)
            let driver = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
                .deletingLastPathComponent().appendingPathComponent("Benchmarks/secure_guesses.py")
            let guesses = try await ChildProcess.start(
                try #require(TestEnvironment.python),
                [driver.path, String(port), bench.app.id, "110", "1", "1"]
            )
            let wrong = #"secure_refused_total{reason="unproved"}"#
            // Secrets are checked at a low priority: on a busy machine this takes minutes.
            _ = try await eventually("each address has failed", within: .seconds(540)) {
                try await bench.count(wrong) >= 120 ? true : nil
            }
            // The measure is not a clock: it is served before all but some of the wrong ones that
            // wait.
            for number in 0..<12 {
                let before = try await bench.count(wrong)
                let proof = SecureBench.basic("reader-\(number)", "chosen by reader \(number)")
                let answer = try await bench.read("12", by: proof)
                #expect(answer.status == 404, "reader \(number)")
                let guessed = try await bench.count(wrong) - before
                #expect(guessed <= 10, "reader \(number) waited behind \(guessed) guesses")
            }
            _ = await guesses.stop()
        }
    }

    // MARK: The app key

    @Test("The app key, as anyone can extract it, gives no content, no reader and no identity")
    func appKey() async throws {
        try await SecureBench.run([
            "SECURE_FAILURES_PER_IDENTITY": "0", "RATE_LIMIT_FAILURES_PER_ADDRESS": "0",
        ]) { bench in
            let registration = try await bench.stack.start("carillon-registration")
            let ann = try await bench.proof(of: "ann")
            let phone = try await bench.register("gcm", "reg:1", by: ann)
            let device = try await bench.reader(phone, by: ann)
            let kept = try await bench.keep("content")
            let thief = try HPKE.generateKeys()
            let digest = Hex.encode(sha256(Array("cds_mine".utf8)))
            // Every name that could have a meaning, on an installation of the attacker's and on
            // Ann's.
            var fields: JSONObject = [
                "identity": "ann",
                "user": [
                    "__type": "Pointer", "className": "_User",
                    "objectId": "ann",
                ], "secret": "cds_mine", "deviceSecret": "cds_mine",
                "digest": .string(digest),
                "reader": ["identity": "ann", "digest": .string(digest)],
                "sealingKey": .string(Base64.encodeURL(thief.publicKey)), "sealing_key": "x",
                "deviceType": "android", "registrationId": "reg:thief",
            ]
            let made = try await http(
                "POST",
                "\(registration.url)/1.1/installations",
                headers: bench.app.clientHeaders,
                body: .object(fields)
            )
            let own = made.json?["objectId"]?.string ?? "none"
            fields["registrationId"] = "reg:other"
            _ = try await http(
                "PUT",
                "\(registration.url)/1.1/installations/\(phone)",
                headers: bench.app.clientHeaders,
                body: .object(fields)
            )
            let key = bench.app.clientHeaders
            let proofs = [
                key, SecureBench.basic(own, "cds_mine"), SecureBench.basic(phone, "cds_mine"),
                SecureBench.basic("ann", bench.app.appKey),
                SecureBench.basic(bench.app.id, bench.app.appKey),
                SecureBench.bearer(bench.app.appKey),
            ]
            let asked: [(String, String, JSONValue?)] = [
                ("GET", "/api/notifications/\(kept.id)", nil),
                ("DELETE", "/api/notifications/\(kept.id)", nil),
                ("GET", "/api/notifications", nil),
                ("POST", "/api/notifications", ["identity": "ann", "payload": "x"]),
                ("PUT", "/v1/identities/ann/secret", ["secret": "my own secret"]),
                ("DELETE", "/v1/identities/ann/secret", nil),
                ("PUT", "/v1/installations/\(own)/reader", [:]),
                ("PUT", "/v1/installations/\(phone)/reader", [:]),
                ("DELETE", "/v1/installations/\(phone)/reader", nil),
                ("POST", "/api/register", nil),
                ("PUT", "/api/register/\(own)", ["Platform": "gcm", "Handle": "reg:thief"]),
                ("DELETE", "/api/register/\(phone)", nil),
            ]
            for proof in proofs {
                for (method, path, body) in asked {
                    let answer = try await bench.ask(method, path, proof, body)
                    let expected = proof == key ? 403 : 401
                    #expect(answer.status == expected, "\(method) \(path)")
                    #expect(!answer.text.contains("content"))
                }
            }
            // Ann's own still works, unless the attacker removed her phone's identity.
            #expect(try await bench.read(kept.id, by: ann).json?["Payload"] == "content")
            #expect(try await bench.read(kept.id, by: device).status == 200)
            let sealing = try await bench.stack.database.query(
                "SELECT count(*) FROM secure_readers WHERE sealing_key IS NOT NULL"
            )
            #expect(sealing == ["0"])
            #expect(await registration.process.stop() == .status(0))
        }
    }
}
