import Cryptography
import JSON
import PushCore
import SecureStorage
import Storage
import StorageAdmin
import Support
import Testing

@Suite(
    "Erasure and resealing of secure payloads",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct SecureErasureTests {
    private static let app = StorageFixture.app
    private static let entry = AuditEntry(app: app, actor: "test", action: "erase", status: 200)
    private static let tables = [
        "secure_payloads", "secure_sealed", "secure_reads", "secure_keys", "secure_readers",
        "identity_secrets", "outbox", "pushes", "installations", "audit",
    ]

    /// Makes a user with a device that reads, content of both kinds, a key, a secret, and a read in
    /// flight.
    private func settle(
        _ identity: String,
        token: String,
        _ fixture: StorageFixture
    ) async throws -> String {
        let database = fixture.database
        let device = try await fixture.device(token, of: identity)
        _ = try await database.secureReaders.set(
            app: Self.app,
            installation: device,
            identity: identity,
            digest: sha256(Array(token.utf8)),
            sealingKey: [1]
        )
        try await database.identitySecrets.set(
            app: Self.app,
            identity: identity,
            stored: "hash"
        )
        let plain = try fixture.secret("x", for: identity)
        #expect(
            try await fixture.keep(
                plain,
                key: IdempotencyKey(
                    app: Self.app,
                    key: "for \(identity)",
                    bodyMarks: [[1]]
                )
            ) == .stored
        )
        _ = try await fixture.read(plain.payload.id, fixture.reader(identity, device))
        _ = try await fixture.read(plain.payload.id, fixture.reader(identity))
        let copies = [SealedCopy(installation: device, bytes: [1, 2])]
        _ = try await fixture.stored("", for: identity, sealed: copies)
        let over = try await fixture.stored("y", for: identity, expiresIn: -1)
        #expect(try await database.securePayloads.emptyExpired().count == 1)
        try await database.audit.append([
            AuditEntry(
                app: Self.app,
                actor: "reader",
                action: "GET /api/notifications/:id",
                targets: [over, identity],
                status: 404
            )
        ])
        return device
    }

    private func tables(
        holding text: String,
        _ fixture: StorageFixture
    ) async throws -> [String] {
        var found: [String] = []
        for table in Self.tables {
            let columns =
                table == "outbox"
                ? "convert_from(value, 'UTF8') || convert_from(key, 'UTF8')" : "t::text"
            let count = try await fixture.server.query(
                "SELECT count(*) FROM \(table) t WHERE strpos(\(columns), '\(text)') > 0"
            )
            if count != ["0"] { found.append(table) }
        }
        return found
    }

    @Test("An erased identity leaves no content, secret or name, and the export has no content")
    func identity() async throws {
        try await StorageFixture.run { fixture in
            let erasures = fixture.database.erasures
            let (ann, bob) = ("user-ann-17", "user-bob-23")
            let device = try await settle(ann, token: "aa11", fixture)
            let theirs = try await settle(bob, token: "bb22", fixture)
            // The device was another's before, and has that one's content still.
            let copies = [device, theirs].map { SealedCopy(installation: $0, bytes: [3]) }
            _ = try await fixture.stored("", for: bob, sealed: copies)
            let subject = Subject(app: Self.app, .identity, ann)
            let export = try await erasures.export(subject)
            let json = JSONValue.object(export.json(of: subject, at: .now())).text
            #expect(export[.securePayloads].count == 3 && export[.secureReaders].count == 1)
            #expect(export[.secureSecrets].count == 1 && !json.contains("hash"))
            #expect(!json.contains("content"))
            let states = Set(export[.securePayloads].compactMap { $0["state"]?.string })
            #expect(states == ["read", "waiting", "expired"])

            let counted = try await erasures.dryRun(subject)
            let receipt = try await erasures.erase(subject, by: Self.entry)
            #expect(receipt.erased.json["securePayloads"] == 4)
            #expect(receipt.erased.json["secureReaders"] == 1)
            #expect(receipt.erased.json["secureSecrets"] == 1)
            // Three push requests, and two records that report a read.
            #expect(receipt.erased.json["outboxRecords"] == 5)
            #expect(counted == receipt.erased)
            #expect(try await tables(holding: ann, fixture) == [])
            #expect(try await tables(holding: device, fixture) == [])
            #expect(try await tables(holding: bob, fixture).count == Self.tables.count - 2)
            #expect(
                try await fixture.server.query("SELECT count(*) FROM secure_sealed") == ["2"]
            )
            // Only the waiting content refers to it, and that is enough.
            _ = try await fixture.stored("x", for: "carl")
            let carl = Subject(app: Self.app, .identity, "carl")
            #expect(try await !erasures.export(carl).isEmpty)
            #expect(try await !erasures.erase(carl, by: Self.entry).isUnknownSubject)
            #expect(try await erasures.erase(carl, by: Self.entry).isUnknownSubject)
        }
    }

    @Test("An erased device loses its secret and its sealed copies, and its identity loses nothing")
    func installation() async throws {
        try await StorageFixture.run { fixture in
            let (erasures, ann) = (fixture.database.erasures, "user-ann-17")
            let device = try await settle(ann, token: "aa11", fixture)
            let subject = Subject(app: Self.app, .installation, device)
            let export = try await erasures.export(subject)
            #expect(export[.securePayloads].count == 1 && export[.secureReaders].count == 1)
            #expect(export[.secureSecrets].isEmpty)
            let counted = try await erasures.dryRun(subject)
            let receipt = try await erasures.erase(subject, by: Self.entry)
            #expect(receipt.erased.json["securePayloads"] == 1)
            #expect(receipt.erased.json["secureReaders"] == 1)
            #expect(receipt.erased.json["secureSecrets"] == 0)
            #expect(counted == receipt.erased)
            #expect(try await tables(holding: device, fixture) == [])
            #expect(
                try await fixture.server.query("SELECT count(*) FROM secure_payloads") == ["3"]
            )
            #expect(
                try await fixture.database.identitySecrets.find(app: Self.app, identity: ann)
                    == "hash"
            )
        }
    }

    @Test("An erasure deletes more than one batch, and leaves later content")
    func manyPayloads() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                INSERT INTO secure_payloads (id, app, identity, push_id, content, is_sealed,
                    read_once, expires_at, ends_at)
                SELECT md5(n::text), 'shop', 'ann', gen_random_uuid(), 'x', false, false,
                    now() + interval '1 day', now() + interval '1 day'
                FROM generate_series(1, 1001) n;
                INSERT INTO secure_keys (app, key, digest, identity, payload, push_id, expires_at)
                SELECT 'shop', n::text, '', 'ann', md5(n::text), gen_random_uuid(), now()
                FROM generate_series(1, 2100) n
                """
            )
            let subject = Subject(app: Self.app, .identity, "ann")
            let receipt = try await fixture.database.erasures.erase(subject, by: Self.entry)
            #expect(receipt.erased.json["securePayloads"] == 1001)
            for table in ["secure_payloads", "secure_keys"] {
                #expect(try await fixture.server.query("SELECT count(*) FROM \(table)") == ["0"])
            }
            let id = try await fixture.stored("new", for: "ann")
            #expect(try await fixture.read(id, fixture.reader("ann"))?.text == "new")
        }
    }

    @Test("A deleted app leaves no secure payload, and its neighbour keeps all")
    func deletedApp() async throws {
        try await StorageFixture.run { fixture in
            _ = try await settle("ann", token: "aa11", fixture)
            try await fixture.createApp("other")
            let theirs = try fixture.secret("x", for: "ann", app: "other")
            #expect(try await fixture.keep(theirs) == .stored)
            // During the deletion it stores nothing more.
            let late = try fixture.secret("x", for: "ann")
            _ = try await fixture.server.query(
                "UPDATE apps SET app_key_sealed = '' WHERE id = 'shop'"
            )
            #expect(try await fixture.keep(late) == .noApp)
            let deletion = try await fixture.database.apps.delete(Self.app)
            #expect(deletion.securePayloads == 3 && deletion.secureReaders == 1)
            #expect(deletion.secureSecrets == 1)
            #expect(
                try await fixture.server.query("SELECT app FROM secure_payloads") == ["other"]
            )
            for table in [
                "secure_sealed", "secure_reads", "secure_keys", "secure_readers",
                "identity_secrets",
            ] {
                #expect(
                    try await fixture.server.query("SELECT count(*) FROM \(table)") == ["0"],
                    "\(table)"
                )
            }
        }
    }

    @Test("Content is counted by key without being opened, and replaced only if unchanged")
    func sealedAnew() async throws {
        try await StorageFixture.run { fixture in
            let sealed = fixture.database.sealed
            let old = "old:" + Base64.encode(Array(repeating: 1, count: 32))
            let new = "new:" + Base64.encode(Array(repeating: 2, count: 32))
            let long = String(repeating: "long ", count: 12_000)
            var ids: [String] = []
            for (text, keys) in [("a", old), (long, old), ("b", old), ("c", new)] {
                let secret = try fixture.secret(text, for: "ann", keys: keys)
                #expect(try await fixture.keep(secret) == .stored)
                ids.append(secret.payload.id)
            }
            // The ids of these keys begin alike, and one value is sealed by no key.
            let longer = try fixture.secret("d", for: "ann", keys: "new-\(new)")
            #expect(try await fixture.keep(longer) == .stored)
            var broken = try fixture.secret("e", for: "ann")
            broken.payload.content = .atRest([1])
            #expect(try await fixture.keep(broken) == .stored)
            let copies = [SealedCopy(installation: "i", bytes: [1])]
            _ = try await fixture.stored("", for: "ann", sealed: copies)
            func counts() async throws -> [String: Int] {
                Dictionary(
                    uniqueKeysWithValues: try await sealed.secureHeads().map {
                        (KeyRing.keyID(of: $0.head) ?? "?", $0.count)
                    }
                )
            }
            #expect(try await counts() == ["old": 3, "new": 1, "new-new": 1, "?": 1])

            let ring = try KeyRing("\(new),\(old),new-\(new)")
            var (values, last): ([SealedValue], String?) = ([], nil)
            repeat {
                let page = try await sealed.securePage(
                    notUnder: ring.primaryHead,
                    after: last,
                    limit: 2
                )
                values += page.values
                last = page.last
            } while last != nil
            #expect(values.count == 5)
            let readable = values.filter { $0.sealed != [1] }
            let anew = try readable.map { value in
                let opened = try ring.open(value.sealed, context: value.context)
                return (value: value, sealed: try ring.seal(opened, context: value.context))
            }
            // One was deleted meanwhile, and one resealed by another process.
            #expect(
                try await fixture.database.securePayloads.delete(ids[0], app: Self.app)
            )
            let other = try #require(anew.first { $0.value.name.contains(ids[2]) })
            #expect(try await sealed.replace(other.value, by: other.sealed))
            #expect(try await sealed.replace(anew) == 2)
            #expect(try await sealed.replace(anew) == 0)
            #expect(try await counts() == ["new": 4, "?": 1])
            let content = try #require(
                try await fixture.database.securePayloads.look(ids[1], for: fixture.reader("ann"))
            )
            let opened = try KeyRing(new).open(content.bytes, context: content.context)
            #expect(String(decoding: opened, as: UTF8.self) == long)
        }
    }
}
