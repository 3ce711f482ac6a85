import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests.SecureTests {
    // MARK: Read once

    @Test("Fifty concurrent reads get the same content, which is gone after the grace period")
    func readOnce() async throws {
        try await SecureBench.run(["SECURE_READ_GRACE": "6s"]) { bench in
            let ann = try await bench.proof(of: "ann")
            // The secret is cached, so that fifty do not wait for each other.
            _ = try await bench.ask("GET", "/api/notifications", ann)
            let kept = try await bench.keep("content", ["readOnce": true])
            // The response is cut off on the way.
            let socket = try LoopbackSocket(
                port: UInt16(try #require(URLComponents(string: bench.service.url)?.port))
            )
            let lines = ann.merging(["X-LC-Id": bench.app.id, "Host": "x"]) { $1 }
                .map { "\($0.key): \($0.value)\r\n" }.joined()
            try socket.send(
                Array("GET /api/notifications/\(kept.id) HTTP/1.1\r\n\(lines)\r\n".utf8)
            )
            _ = try await eventually("it is read") {
                try await bench.count(#"secure_read_total{first="true"}"#) == 1 ? true : nil
            }
            socket.close()
            let answers = try await withThrowingTaskGroup(of: HTTPAnswer.self) { group in
                for _ in 0..<50 { group.addTask { try await bench.read(kept.id, by: ann) } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            for answer in answers {
                #expect(answer.status == 200)
                #expect(answer.json?["Payload"] == "content" && answer.json?["Read"] == true)
            }
            _ = try await eventually("the grace is over") {
                try await bench.read(kept.id, by: ann).status == 404 ? true : nil
            }
            _ = try await eventually("its bytes are gone") {
                let left = try await bench.stack.database.query(
                    "SELECT count(*) FROM secure_payloads WHERE content IS NOT NULL"
                )
                return left == ["0"] ? true : nil
            }
            let shown = try await bench.read(kept.id, by: bench.app.masterHeaders)
            #expect(shown.json?["state"] == "deleted" && shown.json?["Read"] == true)
            #expect(shown.json?["Payload"] == nil)
            #expect(
                try await bench.count(#"secure_expired_total{end="read_once"}"#) == 1
            )
        }
    }

    // MARK: Content that is not found

    @Test("An invented, foreign, expired, deleted or consumed id gets the same response")
    func alike() async throws {
        try await SecureBench.run(["SECURE_READ_GRACE": "0s"]) { bench in
            let other = bench.beside(try await bench.stack.makeApp())
            let (ann, bob) = (
                try await bench.proof(of: "ann"), try await bench.proof(of: "bob")
            )
            let bobs = try await bench.keep("content", for: "bob")
            let theirs = try await other.keep("content")
            let expired = try await bench.keep("content")
            let deleted = try await bench.keep("content")
            let consumed = try await bench.keep("content", ["readOnce": true])
            #expect(try await bench.read(consumed.id, by: ann).status == 200)
            #expect(
                try await bench.ask("DELETE", "/api/notifications/\(deleted.id)", ann).status
                    == 204
            )
            // The shortest lifetime is a minute, which ends now.
            _ = try await bench.stack.database.query(
                """
                UPDATE secure_payloads SET expires_at = now() - interval '1 second',
                    ends_at = now() - interval '1 second' WHERE id = '\(expired.id)'
                """
            )
            let made = [String(repeating: "0", count: 32), "12", "no-id", "0", "%20"]
            let ids = made + [bobs, theirs, expired, deleted, consumed].map(\.id)
            for method in ["GET", "HEAD", "DELETE"] {
                var answers: Set<String> = []
                for id in ids {
                    let answer = try await bench.ask(method, "/api/notifications/\(id)", ann)
                    #expect(answer.status == 404)
                    let headers = answer.headers.filter { $0.name != "date" }
                        .map { "\($0.name): \($0.value)" }
                    answers.insert(headers.joined(separator: "\n") + answer.text)
                }
                #expect(answers.count == 1, "\(method): \(answers)")
            }
            #expect(try await bench.read(bobs.id, by: bob).json?["Read"] == false)
            let states = try await bench.ask(
                "GET",
                "/api/notifications",
                bench.app.masterHeaders
            )
            let all = (states.json?["notifications"]?.array ?? []).map {
                "\($0["identity"]?.string ?? "") \($0["state"]?.string ?? "")"
            }
            #expect(all == ["ann deleted", "ann deleted", "ann expired", "bob read"])
            // Without a credential no id makes a difference.
            var refused: Set<String> = []
            for id in ids {
                for proof in [[:], SecureBench.basic("phone", "cds_wrong")] {
                    let answer = try await bench.ask("GET", "/api/notifications/\(id)", proof)
                    #expect(answer.status == 401)
                    #expect(
                        answer.header("www-authenticate") == "Basic realm=\"carillon\""
                    )
                    refused.insert(answer.text)
                }
            }
            #expect(refused.count == 1)
        }
    }

    @Test(
        "HEAD does not read, a device that missed a push finds its content, and a backend gets pages"
    )
    func lists() async throws {
        try await SecureBench.run { bench in
            let ann = try await bench.proof(of: "ann")
            var kept: [SecureBench.Kept] = []
            for number in 0..<5 { kept.append(try await bench.keep("content \(number)")) }
            try await bench.keep("content", for: "bob")
            let path = "/api/notifications/\(kept[0].id)"
            for _ in 0..<2 {
                let head = try await bench.ask("HEAD", path, ann)
                #expect(head.status == 200 && head.body.isEmpty)
            }
            #expect(try await bench.read(kept[0].id, by: ann).json?["Read"] == false)
            let waiting = try await bench.ask("GET", "/api/notifications", ann)
            let ids = (waiting.json?["notifications"]?.array ?? []).map { $0["Id"] }
            #expect(ids == kept.dropFirst().reversed().map(\.json))
            var pages: [JSONValue] = []
            var after = ""
            repeat {
                let page = try await bench.ask(
                    "GET",
                    "/api/notifications?identity=ann&limit=2\(after)",
                    bench.app.masterHeaders
                )
                pages += page.json?["notifications"]?.array ?? []
                after = page.json?["next"]?.string.map { "&after=\($0)" } ?? ""
            } while !after.isEmpty && pages.count < 20
            #expect(pages.map { $0["Id"] } == kept.reversed().map(\.json))
            #expect(pages.allSatisfy { $0["Payload"] == nil && $0["identity"] == "ann" })
            for query in ["limit=0", "limit=1001", "limit=x", "after=x", "identity="] {
                let refused = try await bench.ask(
                    "GET",
                    "/api/notifications?\(query)",
                    bench.app.masterHeaders
                )
                #expect(refused.status == 400, "\(query)")
            }
        }
    }

    // MARK: Content that does not open

    @Test("A row that was changed, or moved from another, is 500, and never bytes")
    func tampered() async throws {
        try await SecureBench.run { bench in
            let other = bench.beside(try await bench.stack.makeApp())
            let (ann, bob) = (
                try await bench.proof(of: "ann"), try await bench.proof(of: "bob")
            )
            let good = try await bench.keep("content")
            let (changed, moved) = (try await bench.keep("one"), try await bench.keep("two"))
            let given = try await bench.keep("for ann", for: "ann")
            let foreign = try await other.keep("theirs", for: "ann")
            let database = bench.stack.database
            _ = try await database.query(
                """
                UPDATE secure_payloads SET content = set_byte(content, length(content) - 1,
                    get_byte(content, length(content) - 1) # 1) WHERE id = '\(changed.id)';
                UPDATE secure_payloads SET content = (SELECT content FROM secure_payloads
                    WHERE id = '\(good.id)') WHERE id = '\(moved.id)';
                UPDATE secure_payloads SET identity = 'bob' WHERE id = '\(given.id)';
                UPDATE secure_payloads SET app = '\(bench.app.id)' WHERE id = '\(foreign.id)'
                """
            )
            for (id, proof) in [
                (changed.id, ann), (moved.id, ann), (given.id, bob), (foreign.id, ann),
            ] {
                let answer = try await bench.read(id, by: proof)
                #expect(answer.status == 500)
                for text in ["one", "two", "for ann", "theirs", "content"] {
                    #expect(!answer.text.contains("\"\(text)\""))
                }
                let entry = try await bench.read(id, by: bench.app.masterHeaders)
                #expect(entry.json?["Read"] == false, "what does not open was not read")
            }
            #expect(try await bench.count("secure_tampered_total") == 4)
            let entries = try await bench.audit { $0.count { $0["status"] == 500 } == 4 }
            let entry = try #require(entries.first { $0["status"] == 500 })
            #expect(entry["actor"] == "reader")
            #expect(entry["targets"]?.array?.contains(.string(foreign.id)) == true)
            #expect(try await bench.read(good.id, by: ann).status == 200)
        }
    }

    @Test(
        "The service does not start without master keys",
        arguments: [nil, "", "k1", "k1:short", "k1:!!!!"] as [String?]
    )
    func masterKeys(keys: String?) async throws {
        var environment = [
            "DATABASE_URL": "postgresql://127.0.0.1:1/none",
            "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "LOG_FORMAT": "json",
        ]
        environment["CARILLON_MASTER_KEYS"] = keys
        let answer = try await run(
            Stack.executable("carillon-secure-payload"),
            environment: environment
        )
        #expect(answer.exit == .status(78))
        #expect((answer.output + answer.errors).contains("CARILLON_MASTER_KEYS"))
    }
}
