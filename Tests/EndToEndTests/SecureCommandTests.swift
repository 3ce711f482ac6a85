import Cryptography
import Foundation
import Glibc
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests {
    @Suite("Commands of secure payloads", .serialized, .timeLimit(.minutes(4)))
    struct SecureCommandTests {
        private func withApp(_ body: (Operator) async throws -> Void) async throws {
            try await withOperator { carillon in
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                try await body(carillon)
            }
        }

        /// Writes rows as the service does, sealed by the first of these keys.
        private func keep(
            _ texts: [String],
            for identity: String,
            keys: String,
            expiresIn interval: String = "1 day",
            _ carillon: Operator
        ) async throws -> [String] {
            let ring = try KeyRing(keys)
            var ids: [String] = []
            // As many as fit into a command line.
            for start in stride(from: 0, to: texts.count, by: 200) {
                let rows = try texts[start..<min(start + 200, texts.count)].map { text in
                    let id = SecureID.make(.random)
                    ids.append(id)
                    let sealed = try ring.seal(
                        Array(text.utf8),
                        context: "secure/shop/\(id)/\(identity)"
                    )
                    let hex = sealed.map { String(format: "%02x", $0) }.joined()
                    return "('\(id)', 'shop', '\(identity)', gen_random_uuid(), '\\x\(hex)')"
                }
                _ = try await carillon.database.query(
                    """
                    INSERT INTO secure_payloads (id, app, identity, push_id, content, is_sealed,
                        read_once, expires_at, ends_at)
                    SELECT v.id, v.app, v.identity, v.push, v.content::bytea, false, false,
                        now() + interval '\(interval)', now() + interval '\(interval)'
                    FROM (VALUES \(rows.joined(separator: ", ")))
                        AS v(id, app, identity, push, content)
                    """
                )
            }
            return ids
        }

        @Test(
            "A generated secret is shown once and stored as a digest, and a chosen one is hashed slowly"
        )
        func secrets() async throws {
            try await withApp { carillon in
                func stored() async throws -> String? {
                    try await carillon.database.query("SELECT stored FROM identity_secrets").first
                }
                let made = try await carillon.json("identity", "set-secret", "shop", "ann")
                let secret = try #require(made["secret"]?.string)
                #expect(secret.utf8.count == 43)
                let digest = try PasswordHash(stored: try #require(try await stored()))
                #expect(!digest.isSlow && digest.matches(Array(secret.utf8)))
                let said = try await carillon.says("identity", "set-secret", "shop", "ann")
                #expect(said.contains("not shown again"))
                #expect(!digest.matches(Array(said.utf8)))

                let file =
                    FileManager.default.temporaryDirectory.path + "/"
                    + TestEnvironment.unique("secret-")
                defer { try? FileManager.default.removeItem(atPath: file) }
                for (own, exit) in [
                    ("short", 64), ("cds_of-a-device", 64), ("correct horse battery", 0),
                ] as [(String, Int32)] {
                    try own.write(toFile: file, atomically: true, encoding: .utf8)
                    let answer = try await carillon([
                        "identity", "set-secret", "shop", "ann", "--secret-file", file,
                    ])
                    #expect(answer.exit == .status(exit), "\(answer.errors)")
                    #expect(!(answer.output + answer.errors).contains(own))
                }
                let hash = try PasswordHash(stored: try #require(try await stored()))
                #expect(hash.isSlow && hash.matches(Array("correct horse battery".utf8)))
                _ = try await carillon.refuses("identity", "set-secret", "none", "ann")
                try await carillon.says("identity", "remove-secret", "shop", "ann")
                #expect(try await stored() == nil)
                let none = try await carillon.refuses("identity", "remove-secret", "shop", "ann")
                #expect(none.contains("has no secret"))
                let audit = try await carillon.says("audit", "shop")
                #expect(audit.contains("identity set-secret") && !audit.contains(secret))
                #expect(audit.contains("identity remove-secret"))
            }
        }

        @Test("Payloads are listed without their content, and deleted")
        func payloads() async throws {
            try await withApp { carillon in
                let empty = try await carillon.says("secure", "list", "shop")
                #expect(empty.contains("no secure payload"))
                let keys = carillon.masterKeys
                let ann = try await keep(["one", "two"], for: "ann", keys: keys, carillon)
                let bob = try await keep(["three"], for: "bob", keys: keys, carillon)
                let all = try await carillon.json("secure", "list", "shop").array ?? []
                #expect(all.count == 3 && all.allSatisfy { $0["state"] == "waiting" })
                #expect(all.allSatisfy { $0["Payload"] == nil && $0["content"] == nil })
                let his = try await carillon.json("secure", "list", "shop", "--identity", "bob")
                #expect(his.array?.compactMap { $0["Id"]?.string } == bob)
                let some = try await carillon.says("secure", "list", "shop", "--limit", "2")
                #expect(some.contains("there are more"))

                try await carillon.says("secure", "delete", "shop", ann[0])
                let left = try await carillon.database.query(
                    "SELECT id FROM secure_payloads WHERE content IS NOT NULL"
                )
                #expect(Set(left) == [ann[1], bob[0]])
                let list = try await carillon.says("secure", "list", "shop", "--identity", "ann")
                #expect(list.contains("deleted") && list.contains("waiting"))
                for id in [SecureID.make(.random), "0", "x"] {
                    _ = try await carillon.refuses("secure", "delete", "shop", id)
                }
                let audit = try await carillon.says("audit", "shop")
                #expect(audit.contains("secure delete") && audit.contains(ann[0]))
                let export = try await carillon.says("export", "shop", "--identity", "bob")
                #expect(export.contains(bob[0]) && export.contains("\"secureSecrets\":[]"))

                // Settings that others, or stored content, forbid.
                let form = try await carillon.refuses("app", "set", "shop", "secure-ids=int31")
                #expect(form.contains("keeps no secure payload"), "\(form)")
                try await carillon.says("app", "set", "shop", "secure-unnamed=on")
                try await carillon.says("app", "create", "other")
                let other = try await carillon.refuses("app", "set", "other", "secure-unnamed=on")
                #expect(other.contains("is on for shop"), "\(other)")
                let deleted = try await carillon.json("app", "delete", "shop", "--yes")
                #expect(deleted["erased"]?["secure payloads"] == 3, "\(deleted)")
                try await carillon.says("app", "set", "other", "secure-unnamed=on")
                try await carillon.says("app", "set", "other", "secure-ids=int31")
            }
        }

        @Test(
            "The doctor finds content under an unknown key, expired content, and an unreachable service"
        )
        func examined() async throws {
            try await withApp { carillon in
                func findings() async throws -> [(status: String?, detail: String)] {
                    let answer = try await carillon(["doctor", "--json"])
                    let checks = try JSONValue.parse(answer.output)["checks"]?.array ?? []
                    return checks.filter {
                        $0["name"]?.string?.hasPrefix("secure payloads") == true
                    }.map { ($0["status"]?.string, $0["detail"]?.string ?? "") }
                }
                #expect(try await findings().map(\.status) == ["ok"])
                let foreign = "other:\(Base64.encode(randomBytes(32)))"
                _ = try await keep(["x", "y"], for: "ann", keys: foreign, carillon)
                _ = try await keep(
                    ["z"],
                    for: "ann",
                    keys: carillon.masterKeys,
                    expiresIn: "-1 hour",
                    carillon
                )
                try await carillon.says("app", "set", "shop", "secure-unnamed=on")
                let found = try await findings()
                #expect(found.map(\.status) == ["failed", "warning", "warning"])
                #expect(found.first?.detail.contains("2 are under the key other") == true)
                #expect(
                    found.dropFirst().first?.detail.contains("is carillon-secure-payload running")
                        == true
                )
                #expect(found.last?.detail.contains("no identity can authenticate") == true)
                try await carillon.says("identity", "set-secret", "shop", "ann")
                #expect(try await findings().count == 2)
            }
        }

        @Test("keys rotate reseals payloads while they are read, and resumes after an interruption")
        func rotated() async throws {
            try await withApp { carillon in
                let old = carillon.masterKeys
                let new = "next:\(Base64.encode(randomBytes(32)))"
                let texts = (0..<3000).map { "secret \($0)" }
                let ids = try await keep(texts, for: "ann", keys: old, carillon)
                _ = try await keep(["new"], for: "ann", keys: new, carillon)
                let both = carillon.with(["CARILLON_MASTER_KEYS": "\(new),\(old)"])
                let before = try await both.json("keys", "status")
                // Two of them are the app's.
                #expect(before["toRotate"] == 3002)
                #expect(before["securePayloads"] == ["next": 1, "test": 3000])
                #expect(before["mayGo"] == [])

                let ring = try KeyRing("\(new),\(old)")
                let database = carillon.database
                let reading = Task {
                    var reads = 0
                    while !Task.isCancelled {
                        let place = Int.random(in: 0..<ids.count)
                        let rows = try await database.query(
                            """
                            SELECT encode(content, 'hex') FROM secure_payloads
                            WHERE id = '\(ids[place])'
                            """
                        )
                        let opened = try ring.open(
                            Self.bytes(ofHex: rows.first ?? ""),
                            context: "secure/shop/\(ids[place])/ann"
                        )
                        #expect(String(decoding: opened, as: UTF8.self) == texts[place])
                        reads += 1
                    }
                    return reads
                }
                // A killed rotation keeps its progress.
                let cut = try await cutShort(both)
                let rest = try await both.json("keys", "rotate")
                reading.cancel()
                #expect(try await reading.value > 0)
                #expect(rest["unreadable"] == 0 && rest["left"] == 0)
                #expect((rest["rotated"]?.integer ?? 0) + cut == 3002)
                let after = try await both.json("keys", "status")
                #expect(after["keys"] == ["next": 3003] && after["toRotate"] == 0)
                #expect(after["securePayloads"] == ["next": 3001])
                #expect(after["mayGo"] == ["test"])
                let status = try await both.says("keys", "status")
                #expect(status.contains("may go") && status.contains("test"))
                // Without the key it is an error, and nothing is changed.
                let lacking = try await carillon(["keys", "rotate", "--json"])
                #expect(lacking.exit == .status(1))
                #expect(try JSONValue.parse(lacking.output)["unreadable"] == 3003)
                #expect(lacking.errors.split(separator: "\n").count < 40)
                let unknown = try await carillon(["keys", "status", "--json"])
                #expect(unknown.exit == .status(1))
                #expect(try JSONValue.parse(unknown.output)["unreadable"] == 3003)
            }
        }

        /// Stops a rotation with Ctrl-C while a row that it needs is locked.
        ///
        /// - Returns: The number of resealed rows.
        private func cutShort(_ carillon: Operator) async throws -> Int {
            let middle =
                try await carillon.database.query(
                    "SELECT id FROM secure_payloads ORDER BY id OFFSET 1500 LIMIT 1"
                ).first ?? ""
            let holding = Task {
                try await carillon.database.query(
                    """
                    BEGIN; SELECT id FROM secure_payloads WHERE id = '\(middle)' FOR UPDATE;
                    SET LOCAL application_name = 'holder'; SELECT pg_sleep(60)
                    """
                )
            }
            func backends(_ condition: String) async throws -> [String] {
                try await carillon.database.query(
                    """
                    SELECT pid FROM pg_stat_activity
                    WHERE datname = current_database() AND \(condition)
                    """
                )
            }
            let holder = try await eventually("the row to be held") {
                try await backends("application_name = 'holder' AND state = 'active'").first
            }
            let process = try await carillon.start("keys", "rotate", "--json")
            _ = try await eventually("the rotation to wait for it") {
                try await backends("wait_event_type = 'Lock' AND query LIKE 'UPDATE secure%'").first
            }
            process.signal(SIGINT)
            _ = try await carillon.database.query("SELECT pg_terminate_backend(\(holder))")
            _ = try? await holding.value
            #expect(await process.exit() == .status(130), "\(process.finalBytes)")
            let said = try #require(process.events.last)
            let rotated = try #require(said["rotated"]?.integer)
            #expect(rotated < 3002 && said["left"]?.integer == 3002 - rotated, "\(said)")
            return rotated
        }

        private static func bytes(ofHex text: String) -> [UInt8] {
            let digits = Array(text.utf8)
            return stride(from: 0, to: digits.count - 1, by: 2).compactMap {
                UInt8(String(decoding: digits[$0...$0 + 1], as: UTF8.self), radix: 16)
            }
        }
    }
}
