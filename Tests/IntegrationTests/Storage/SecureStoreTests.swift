import Cryptography
import JSON
import PushCore
import PushStorage
import SecureStorage
import Storage
import Support
import Testing

@Suite(
    "Storage of secure payloads",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct SecureStoreTests {
    private func key(_ name: String, _ body: String = "body") -> IdempotencyKey {
        IdempotencyKey(
            app: StorageFixture.app,
            key: name,
            bodyMarks: [sha256(Array(body.utf8))]
        )
    }

    @Test("Content is stored with its push and record, all or nothing")
    func keptTogether() async throws {
        try await StorageFixture.run { fixture in
            let secret = try fixture.secret("the code is 4711", for: "ann")
            #expect(try await fixture.keep(secret) == .stored)
            #expect(try await fixture.database.pushes.find(secret.push.id)?.status == .queued)
            #expect(
                try await fixture.database.outbox.claim().records.map(\.record) == [secret.record]
            )
            #expect(
                try await fixture.server.query("SELECT secure_payloads::text FROM secure_payloads")
                    .allSatisfy { !$0.contains("4711") && !$0.contains("34373131") }
            )
            // The id is used, and so is the push: nothing of the second is stored.
            var other = try fixture.secret("another", for: "bob", id: secret.payload.id)
            #expect(try await fixture.keep(other, key: key("k")) == .idTaken)
            #expect(try await fixture.database.securePayloads.answered(key("k")) == nil)
            // The number is free again, while the record of its old push is still there.
            other = try fixture.secret("another", for: "bob")
            other.push = other.push.with(id: secret.push.id)
            #expect(try await fixture.keep(other) == .idTaken)
            #expect(try await fixture.server.query("SELECT count(*) FROM secure_payloads") == ["1"])
            #expect(try await fixture.database.outbox.count() == 1)
            let foreign = try fixture.secret("x", for: "ann", app: "none")
            #expect(try await fixture.keep(foreign) == .noApp)
            #expect(
                try await fixture.keep(
                    foreign,
                    key: IdempotencyKey(app: "none", key: "k", bodyMarks: [[1]])
                ) == .noApp
            )
        }
    }

    @Test(
        "Request bodies differ by their marks under each key, and one of a removed key is accepted"
    )
    func requestMarks() async throws {
        try await StorageFixture.run { fixture in
            func marked(_ marks: [UInt8]...) -> IdempotencyKey {
                IdempotencyKey(app: StorageFixture.app, key: "k", bodyMarks: marks)
            }
            func mark(_ key: UInt8, _ body: UInt8) -> [UInt8] {
                [1, 1, key] + [UInt8](repeating: body, count: 32)
            }
            let payloads = fixture.database.securePayloads
            let first = try fixture.secret("x", for: "ann")
            #expect(try await fixture.keep(first, key: marked(mark(1, 7))) == .stored)
            let answer = IdempotencyResult.same(
                IdempotentResponse(
                    id: first.payload.id,
                    pushID: first.push.id,
                    expiresAt: first.payload.expiresAt
                )
            )
            #expect(try await payloads.answered(marked(mark(2, 7), mark(1, 7))) == answer)
            #expect(try await payloads.answered(marked(mark(2, 8), mark(1, 8))) == .otherBody)
            #expect(try await payloads.answered(marked(mark(2, 8))) == answer)
        }
    }

    @Test("An idempotency key belongs to the first request, and another body with it is refused")
    func requestKeys() async throws {
        try await StorageFixture.run { fixture in
            let payloads = fixture.database.securePayloads
            let first = try fixture.secret("x", for: "ann")
            #expect(try await fixture.keep(first, key: key("k")) == .stored)
            let answer = IdempotentResponse(
                id: first.payload.id,
                pushID: first.push.id,
                expiresAt: first.payload.expiresAt
            )
            #expect(try await payloads.answered(key("k")) == .same(answer))
            #expect(try await payloads.answered(key("k", "other")) == .otherBody)
            let second = try fixture.secret("x", for: "ann")
            #expect(try await fixture.keep(second, key: key("k")) == .repeated(answer))
            #expect(try await fixture.keep(second, key: key("k", "other")) == .otherBody)
            #expect(try await fixture.server.query("SELECT count(*) FROM secure_payloads") == ["1"])
            // The same key of another app is another key.
            try await fixture.createApp("other")
            let foreign = try fixture.secret("x", for: "ann", app: "other")
            let theirs = IdempotencyKey(app: "other", key: "k", bodyMarks: [[1]])
            #expect(try await fixture.keep(foreign, key: theirs) == .stored)
        }
    }

    @Test("One of many concurrent requests with one key is stored, and all get its response")
    func requestKeysCollide() async throws {
        try await StorageFixture.run { fixture in
            let secrets = try (0..<10).map { _ in try fixture.secret("x", for: "ann") }
            let outcomes = try await withThrowingTaskGroup(of: SecurePayloadResult.self) { group in
                for secret in secrets {
                    group.addTask { try await fixture.keep(secret, key: key("k")) }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(outcomes.count { $0 == .stored } == 1)
            let answers = outcomes.compactMap {
                if case .repeated(let answer) = $0 { answer.id } else { nil }
            }
            #expect(answers.count == 9)
            let kept = try await fixture.server.query("SELECT id FROM secure_payloads")
            #expect(Set(answers) == Set(kept) && kept.count == 1)
            #expect(try await fixture.database.outbox.count() == 1)
            #expect(try await fixture.server.query("SELECT count(*) FROM pushes") == ["1"])
        }
    }

    @Test("Content is visible only to its identity, and all other reads find nothing")
    func onlyItsReader() async throws {
        try await StorageFixture.run { fixture in
            let payloads = fixture.database.securePayloads
            try await fixture.createApp("other")
            let id = try await fixture.stored("for Ann", for: "ann")
            let expired = try await fixture.stored("late", for: "ann", expiresIn: -1)
            let deleted = try await fixture.stored("gone", for: "ann")
            let ann = fixture.reader("ann")
            #expect(try await payloads.delete(deleted, for: ann))
            #expect(try await fixture.read(id, ann)?.text == "for Ann")
            for (id, reader) in [
                (id, fixture.reader("bob")), (id, SecureReader(app: "other", identity: "ann")),
                (id, fixture.reader("Ann")), (id, fixture.reader("")),
                (id, fixture.reader("ann\0")),
                (SecureID.make(.random), ann), (SecureID.make(.int31), ann), ("", ann),
                ("../x\0", ann), (expired, ann), (deleted, ann), (id.uppercased(), ann),
            ] {
                #expect(try await payloads.look(id, for: reader) == nil, "\(id) \(reader)")
                #expect(try await !payloads.exists(id, for: reader))
                #expect(try await !payloads.delete(id, for: reader))
            }
            #expect(try await payloads.exists(id, for: ann))
            #expect(try await payloads.look(id, for: ann)?.bytes.isEmpty == false)
        }
    }

    @Test("A row that was moved to another id, app or identity does not open")
    func movedRows() async throws {
        try await StorageFixture.run { fixture in
            let (payloads, server) = (fixture.database.securePayloads, fixture.server)
            try await fixture.createApp("other")
            let ids = [
                try await fixture.stored("a", for: "ann"),
                try await fixture.stored("b", for: "ann"),
                try await fixture.stored("c", for: "ann"),
                try await fixture.stored("d", for: "ann"),
            ]
            let moved = SecureID.make(.random)
            for change in [
                "id = '\(moved)' WHERE id = '\(ids[0])'",
                "app = 'other' WHERE id = '\(ids[1])'",
                "identity = 'bob' WHERE id = '\(ids[2])'",
                """
                content = set_byte(content, 30, get_byte(content, 30) # 1)
                WHERE id = '\(ids[3])'
                """,
            ] { _ = try await server.query("UPDATE secure_payloads SET \(change)") }
            for (id, reader) in [
                (moved, fixture.reader("ann")),
                (ids[1], SecureReader(app: "other", identity: "ann")),
                (ids[2], fixture.reader("bob")), (ids[3], fixture.reader("ann")),
            ] {
                let content = try #require(try await payloads.look(id, for: reader))
                let keys = try StorageFixture.keyRing()
                #expect(throws: CryptographyError.self) {
                    try keys.open(content.bytes, context: content.context)
                }
            }
        }
    }

    @Test("The first read of each reader is confirmed once, and exactly one gets Read false")
    func confirmed() async throws {
        try await StorageFixture.run { fixture in
            let id = try await fixture.stored("x", for: "ann")
            let devices = ["one", "two", nil]
            _ = try await fixture.database.outbox.finish(
                try await fixture.database.outbox.claim().records.map { ($0, .acknowledged) }
            )
            let reads = try await withThrowingTaskGroup(of: Bool?.self) { group in
                for number in 0..<30 {
                    let reader = fixture.reader("ann", devices[number % 3])
                    group.addTask { try await fixture.read(id, reader)?.wasRead }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(reads.count { $0 == false } == 1 && reads.count { $0 == true } == 29)
            let pushID = try #require(
                try await fixture.database.securePayloads.find(id, app: StorageFixture.app)
            ).pushID
            #expect(try await fixture.database.pushes.find(pushID)?.confirmed == 3)
            let keys = try await fixture.database.outbox.claim().records.map {
                String(decoding: $0.record.key ?? [], as: UTF8.self)
            }
            #expect(keys.sorted() == ["identity:ann", "one", "two"])
            // Once more, by an earlier reader.
            let again = try await fixture.read(id, fixture.reader("ann", "one"))
            #expect(again?.wasRead == true)
            #expect(try await fixture.database.outbox.count() == 3)
            // Content without a device belongs to the identity, from whichever device it reads.
            let named = SecureReader(app: StorageFixture.app, identity: "ann", named: "three")
            #expect(try await fixture.read(id, named)?.wasRead == true)
            #expect(try await fixture.database.pushes.find(pushID)?.confirmed == 3)
            let records = try await fixture.database.pushes.query(
                app: StorageFixture.app,
                where: .everything
            )
            #expect(records.map(\.confirmed) == [3])
        }
    }

    @Test("Read-once content is readable within its grace period, and by no reader after it")
    func readOnce() async throws {
        try await StorageFixture.run { fixture in
            let id = try await fixture.stored("once", for: "ann", readOnce: true)
            let reads = try await withThrowingTaskGroup(of: String?.self) { group in
                for number in 0..<50 {
                    let reader = fixture.reader("ann", "device-\(number)")
                    group.addTask { try await fixture.read(id, reader)?.text }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(reads == Array(repeating: "once", count: 50))
            let payloads = fixture.database.securePayloads
            let entry = try await payloads.find(id, app: StorageFixture.app)
            #expect(entry?.state == .read && entry?.readAt != nil)
            _ = try await fixture.server.query(
                "UPDATE secure_payloads SET ends_at = now() - interval '1 millisecond'"
            )
            #expect(try await fixture.read(id, fixture.reader("ann", "device-1")) == nil)
            #expect(try await payloads.find(id, app: StorageFixture.app)?.state == .deleted)
            #expect(try await payloads.emptyExpired() == .init(expired: 0, consumed: 1))
            #expect(try await fixture.server.query("SELECT content FROM secure_payloads") == [])

            // Without a grace period it ends with its first read, which still gets the content.
            let short = try await fixture.stored("at once", for: "ann", readOnce: true)
            let reader = fixture.reader("ann")
            #expect(try await fixture.read(short, reader, grace: .zero)?.text == "at once")
            #expect(try await fixture.read(short, reader) == nil)
            // Content that was deleted between read and mark was not read.
            let lost = try await fixture.stored("lost", for: "ann")
            let content = try #require(try await payloads.look(lost, for: reader))
            #expect(try await payloads.delete(lost, app: StorageFixture.app))
            let marked = try await payloads.markRead(
                content,
                grace: .zero,
                confirming: fixture.confirmation(of: content)
            )
            #expect(marked == nil)
        }
    }

    @Test("Expired content loses its bytes, then its row, and its number can be used again")
    func over() async throws {
        try await StorageFixture.run { fixture in
            let (payloads, app) = (fixture.database.securePayloads, StorageFixture.app)
            let expired = try await fixture.stored("e", for: "ann", expiresIn: -1)
            let copies = [SealedCopy(installation: "one", bytes: [1, 2, 3])]
            let sealed = try await fixture.stored("", for: "ann", expiresIn: -1, sealed: copies)
            let here = try await fixture.stored("h", for: "ann")
            #expect(try await payloads.overdue(by: .seconds(60)) == nil)
            #expect(try await payloads.overdue(by: .zero)?.count == 2)
            #expect(try await payloads.emptyExpired(limit: 1).count == 1)
            #expect(try await payloads.emptyExpired() == .init(expired: 1, consumed: 0))
            #expect(try await payloads.emptyExpired().count == 0)
            #expect(try await payloads.overdue(by: .zero) == nil)
            #expect(
                try await fixture.server.query(
                    "SELECT id FROM secure_payloads WHERE content IS NOT NULL"
                ) == [here]
            )
            #expect(try await fixture.server.query("SELECT count(*) FROM secure_sealed") == ["0"])
            #expect(try await payloads.find(expired, app: app)?.state == .expired)
            // The backend may delete expired content, too: its status does not change.
            #expect(try await payloads.delete(expired, app: app))
            #expect(try await payloads.find(expired, app: app)?.state == .expired)
            #expect(try await payloads.forget(endedBefore: .seconds(60)) == 0)
            #expect(try await payloads.forget(endedBefore: .zero, limit: 1) == 1)
            #expect(try await payloads.forget(endedBefore: .zero) == 1)
            for id in [expired, sealed] {
                #expect(try await payloads.find(id, app: app) == nil)
                #expect(try await !payloads.delete(id, app: app))
            }
            var again = try fixture.secret("again", for: "bob", id: expired)
            // Only the record of its push may still be there.
            #expect(try await fixture.keep(again) == .idTaken)
            again.push = again.push.with(id: "00000000-0000-8000-8000-000000000001")
            #expect(try await fixture.keep(again) == .stored)
            try await StorageFixture.backdateKeys(fixture, key("k"))
        }
    }

    @Test("A deletion is immediate for all devices, and reports whether the content existed")
    func deleted() async throws {
        try await StorageFixture.run { fixture in
            let (payloads, app) = (fixture.database.securePayloads, StorageFixture.app)
            let id = try await fixture.stored("x", for: "ann")
            #expect(try await payloads.delete(id, for: fixture.reader("ann", "one")))
            #expect(try await !payloads.delete(id, for: fixture.reader("ann", "one")))
            #expect(try await fixture.read(id, fixture.reader("ann")) == nil)
            #expect(try await payloads.find(id, app: app)?.state == .deleted)
            #expect(try await payloads.delete(id, app: app))
            #expect(try await !payloads.delete(id, app: "other"))
            #expect(try await !payloads.delete("0", app: app))
            #expect(
                try await fixture.server.query(
                    "SELECT count(*) FROM secure_payloads WHERE content IS NOT NULL"
                ) == ["0"]
            )
        }
    }

    @Test("Lists go from newest to oldest in pages, and show an identity its waiting content")
    func lists() async throws {
        try await StorageFixture.run { fixture in
            let (payloads, app) = (fixture.database.securePayloads, StorageFixture.app)
            var ids: [String] = []
            for number in 0..<7 {
                ids.append(
                    try await fixture.stored("\(number)", for: number % 2 == 0 ? "ann" : "bob")
                )
            }
            // Several have the same millisecond.
            _ = try await fixture.server.query(
                """
                UPDATE secure_payloads SET created_at = date_trunc('second', now())
                WHERE id IN ('\(ids[0])', '\(ids[2])', '\(ids[3])')
                """
            )
            var (seen, after): ([SecureEntry], SecureCursor?) = ([], nil)
            repeat {
                let page = try await payloads.list(app: app, limit: 2, after: after)
                #expect(page.entries.count <= 2)
                seen += page.entries
                after = page.next.flatMap { SecureCursor($0.text) }
                #expect(after == page.next)
            } while after != nil
            #expect(Set(seen.map(\.id)) == Set(ids) && seen.count == 7)
            #expect(seen.map(\.createdAt) == seen.map(\.createdAt).sorted(by: >))
            let hers = try await payloads.list(app: app, identity: "ann")
            #expect(Set(hers.entries.map(\.id)) == [ids[0], ids[2], ids[4], ids[6]])
            #expect(hers.next == nil)
            #expect(try await payloads.list(app: app, identity: "ann\0").entries.isEmpty)
            #expect(try await payloads.list(app: "other").entries.isEmpty)

            _ = try await fixture.read(ids[4], fixture.reader("ann"))
            let copies = [SealedCopy(installation: "one", bytes: [1])]
            let sealed = try await fixture.stored("", for: "ann", sealed: copies)
            #expect(
                Set(try await payloads.waiting(for: fixture.reader("ann")).map(\.id))
                    == [ids[0], ids[2], ids[6]]
            )
            let onDevice = try await payloads.waiting(for: fixture.reader("ann", "one"))
            #expect(onDevice.first?.id == sealed && onDevice.count == 4)
            #expect(try await payloads.waiting(for: fixture.reader("carl")).isEmpty)
        }
    }

    @Test("A device sees only its own copy of sealed content, and no other reader sees any")
    func sealedToDevices() async throws {
        try await StorageFixture.run { fixture in
            let payloads = fixture.database.securePayloads
            let id = try await fixture.stored(
                "",
                for: "ann",
                sealed: [
                    SealedCopy(installation: "one", bytes: Array("for one".utf8)),
                    SealedCopy(installation: "two", bytes: Array("for two".utf8)),
                ]
            )
            func named(_ device: String?, _ identity: String = "ann") -> SecureReader {
                SecureReader(app: StorageFixture.app, identity: identity, named: device)
            }
            #expect(try await fixture.read(id, fixture.reader("ann", "one"))?.text == "for one")
            let two = try #require(try await fixture.read(id, named("two")))
            #expect(two.text == "for two" && two.wasRead)
            for reader in [
                fixture.reader("ann"), fixture.reader("ann", "three"), named("three"), named(nil),
                fixture.reader("bob", "one"), named("one", "bob"),
            ] {
                #expect(try await fixture.read(id, reader) == nil, "\(reader)")
                #expect(try await !payloads.exists(id, for: reader))
            }
            // An authenticated device gets its own, whatever id it names.
            let both = SecureReader(
                app: StorageFixture.app,
                identity: "ann",
                installation: "one",
                named: "two"
            )
            #expect(try await fixture.read(id, both)?.text == "for one")
            let entry = try #require(try await payloads.find(id, app: StorageFixture.app))
            #expect(entry.isSealed)
            #expect(try await fixture.database.pushes.find(entry.pushID)?.confirmed == 2)
            #expect(try await !payloads.delete(id, for: fixture.reader("ann", "three")))
            #expect(try await payloads.delete(id, for: fixture.reader("ann", "two")))
            #expect(try await fixture.server.query("SELECT count(*) FROM secure_sealed") == ["0"])
        }
    }

    @Test("The form of ids can change only without content, and no old form comes later")
    func forms() async throws {
        try await StorageFixture.run { fixture in
            let (apps, app) = (fixture.database.apps, StorageFixture.app)
            _ = try await apps.change(app, settings: ["secure-ids": "int31"])
            let hexadecimal = try fixture.secret("x", for: "ann")
            #expect(try await fixture.keep(hexadecimal) == .otherForm(.int31))
            let number = try fixture.secret("x", for: "ann", id: SecureID.make(.int31))
            #expect(try await fixture.keep(number) == .stored)
            // Repeating the same setting changes nothing, and is allowed.
            _ = try await apps.change(app, settings: ["secure-ids": "int31", "valid-days": 9])
            let error = await #expect(throws: StorageError.self) {
                try await apps.change(app, settings: ["secure-ids": "random", "valid-days": 8])
            }
            #expect(error?.kind == .conflict)
            #expect(try await apps.find(app)?.settings["valid-days"] == 9)
            // The empty row of expired content has an id, too.
            let payloads = fixture.database.securePayloads
            #expect(try await payloads.delete(number.payload.id, app: app))
            await #expect(throws: StorageError.self) {
                try await apps.change(app, settings: ["secure-ids": "random"])
            }
            #expect(try await payloads.forget(endedBefore: .zero) == 1)
            _ = try await apps.change(app, settings: ["secure-ids": "random"])
        }
    }

    @Test("While the form changes, no content is stored in the old form")
    func formsUnderLoad() async throws {
        try await StorageFixture.run { fixture in
            for round in 0..<10 {
                let app = "app\(round)"
                try await fixture.createApp(app)
                let secrets = try (0..<6).map { _ in
                    try fixture.secret("x", for: "ann", app: app)
                }
                await withTaskGroup(of: Void.self) { group in
                    for secret in secrets {
                        group.addTask { _ = try? await fixture.keep(secret) }
                    }
                    group.addTask {
                        _ = try? await fixture.database.apps.change(
                            app,
                            settings: ["secure-ids": "int31"]
                        )
                    }
                }
                let counts = try await fixture.server.query(
                    """
                    SELECT count(*) FILTER (WHERE length(id) = 32) FROM secure_payloads
                    WHERE app = '\(app)'
                    """
                )
                let form = try await fixture.database.apps.find(app).map {
                    AppSettings($0.settings).secureIDs
                }
                #expect(form == .random || counts == ["0"], "\(counts)")
            }
        }
    }

    @Test("At most one app is the default for requests that name no app")
    func unnamed() async throws {
        try await StorageFixture.run { fixture in
            let apps = fixture.database.apps
            #expect(try await apps.secureUnnamed() == nil)
            try await fixture.createApp("other")
            _ = try await apps.change("shop", settings: ["secure-unnamed": true])
            _ = try await apps.change("shop", settings: ["secure-unnamed": true])
            #expect(try await apps.secureUnnamed()?.id == "shop")
            let error = await #expect(throws: StorageError.self) {
                try await apps.change("other", settings: ["secure-unnamed": true])
            }
            #expect(error?.kind == .conflict && error?.description.contains("shop") == true)
            _ = try await apps.change("shop", settings: ["secure-unnamed": false])
            await withTaskGroup(of: Void.self) { group in
                for app in ["shop", "other"] {
                    group.addTask {
                        _ = try? await apps.change(app, settings: ["secure-unnamed": true])
                    }
                }
            }
            let meant = try await apps.list().filter {
                AppSettings($0.settings).meansUnnamedSecure
            }
            #expect(meant.count == 1)
        }
    }
}

extension StorageFixture {
    /// A request's key expires at its time, and not before.
    static func backdateKeys(_ fixture: StorageFixture, _ key: IdempotencyKey) async throws {
        let payloads = fixture.database.securePayloads
        #expect(try await fixture.keep(try fixture.secret("x", for: "ann"), key: key) == .stored)
        _ = try await fixture.server.query(
            "UPDATE secure_keys SET created_at = now() - interval '1 hour'"
        )
        #expect(try await payloads.forgetKeys(olderThan: .seconds(7200)) == 0)
        #expect(try await payloads.answered(key) != nil)
        #expect(try await payloads.forgetKeys(olderThan: .seconds(1800)) == 1)
        #expect(try await payloads.answered(key) == nil)
    }
}
