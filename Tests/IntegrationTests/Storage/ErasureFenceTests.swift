import Cryptography
import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage
import StorageAdmin
import Support
import Testing

@Suite(
    "The fence of an erasure",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ErasureFenceTests {
    private static let app = StorageFixture.app
    private let entry = AuditEntry(app: app, actor: "test", action: "erase", status: 200)

    private func erase(_ name: String, _ database: PushDatabase) async throws {
        _ = try await database.erasures.erase(Subject(app: Self.app, .identity, name), by: entry)
    }

    private func late(_ names: [String]) -> AuditEntry {
        AuditEntry(
            app: Self.app,
            actor: "test",
            action: "late",
            targets: names,
            status: 200,
            at: Instant.now().adding(milliseconds: -60_000)
        )
    }

    private func lateTargets(_ database: PushDatabase) async throws -> [String] {
        let all = try await database.audit.list(app: Self.app, since: nil, limit: 100)
        return all.filter { $0.action == "late" }.flatMap(\.targets)
    }

    @Test("Names are fenced by a keyed digest, also under a rotated master key")
    func keyed() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await erase("ann", database)
            let plain = try await fixture.server.query(
                "select count(*) from erased_names where digest = sha256('shop/ann'::bytea)"
            )
            #expect(plain == ["0"])
            // `keys rotate` does the same.
            let old = try StorageFixture.keyRing()
            let text = "new:\(Base64.encode(randomBytes(32)))"
            let both = try KeyRing("\(text),\(StorageFixture.keys)")
            let value = try #require(
                try await database.sealed.all().first { $0.place == .erasureKey }
            )
            #expect(KeyRing.keyID(of: value.sealed) == old.primaryKeyID)
            let key = try both.open(value.sealed, context: value.context)
            #expect(
                try await database.sealed.replace(
                    value,
                    by: try both.seal(key, context: value.context)
                )
            )
            let rotated = PushDatabase(
                DatabaseConfiguration(uri: fixture.server.url),
                keys: try KeyRing(text),
                on: fixture.loop
            )
            try await rotated.audit.append([late(["ann", "bob"])])
            #expect(try await lateTargets(database) == ["[erased]", "bob"])
            await rotated.close()
            // A key ring without the key is not accepted.
            let wrong = PushDatabase(
                DatabaseConfiguration(uri: fixture.server.url),
                keys: try KeyRing("new:\(Base64.encode(randomBytes(32)))"),
                on: fixture.loop
            )
            await #expect(throws: StorageError.self) {
                try await wrong.audit.append([late(["ann"])])
            }
            await wrong.close()
        }
    }

    @Test("A push passes the erasure barrier before its row is written, over HTTP and from Kafka")
    func pushes() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            // Each row of a push records whether its transaction has the barrier's lock.
            _ = try await fixture.server.query(
                """
                create table passed (is_passed boolean);
                create function note_barrier() returns trigger language plpgsql as $$ begin
                    insert into passed select count(*) > 0 from pg_locks
                    where pid = pg_backend_pid() and locktype = 'advisory' and mode = 'ShareLock';
                    return null;
                end $$;
                create trigger note_barrier after insert on pushes
                    for each row execute function note_barrier()
                """
            )
            let session = try await database.sessions.open(name: "replica")
            let accepted = try fixture.push("http", ["identities": ["ann"]])
            _ = try await database.pushes.accept(
                accepted,
                record: OutgoingRecord(topic: "push.requests", key: [1], value: [2])
            )
            let planned = try fixture.push("kafka", ["channels": ["news"]])
            _ = try await database.intake.plan(session: session, [planned])
            #expect(
                try await fixture.server.query("select is_passed from passed") == ["t", "t"]
            )
        }
    }

    @Test("A plain digest of the version before is respected")
    func plain() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                insert into erased_names (app, digest, at)
                values ('shop', sha256('shop/carl'::bytea), now())
                """
            )
            try await fixture.database.audit.append([late(["carl", "dora"])])
            #expect(try await lateTargets(fixture.database) == ["[erased]", "dora"])
        }
    }

    @Test("The erasure of the version before is refused, and deletes nothing")
    func older() async throws {
        try await StorageFixture.run { fixture in
            await #expect(throws: (any Error).self) {
                try await fixture.server.query(
                    """
                    insert into erasures (app, kind, id, names) values ('shop', 'identity', 'u', '{}')
                    on conflict (app, kind, id) do update set touched_at = clock_timestamp()
                    """
                )
            }
        }
    }

    @Test("A program older than the schema neither begins nor ends an erasure")
    func newer() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install([
                "deviceType": "ios", "deviceToken": "aa11",
                "owner": ["__type": "Pointer", "className": "_User", "objectId": "ann"],
            ])
            _ = try await fixture.server.query(
                """
                insert into carillon_schema (version, oldest_usable) values (9999, 1);
                insert into erasure_jobs (app, kind, id, names, touched_at, wanted_by) values
                    ('shop', 'identity', 'bob', '{}', now() - interval '2 minutes', '{}')
                """
            )
            let error = await #expect(throws: SchemaTooNew.self) {
                try await erase("ann", database)
            }
            #expect(error?.description.contains("may be used to erase by services") == true)
            let found = try await database.installations.find(
                app: Self.app,
                objectID: phone.objectID
            )
            #expect(found != nil)
            #expect(try await database.maintenance.maintain(now: .now()).erasuresFinished == 0)
        }
    }

    @Test("A program without a key ring leaves an interrupted erasure to a dispatcher")
    func keyless() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                insert into erasure_jobs (app, kind, id, names, touched_at, wanted_by) values
                    ('shop', 'identity', 'bob', '{}', now() - interval '2 minutes', '{}')
                """
            )
            let bare = PushDatabase(
                DatabaseConfiguration(uri: fixture.server.url),
                on: fixture.loop
            )
            #expect(try await bare.maintenance.maintain(now: .now()).erasuresFinished == 0)
            await #expect(throws: StorageError.self) { try await erase("bob", bare) }
            await bare.close()
            let report = try await fixture.database.maintenance.maintain(now: .now())
            #expect(report.erasuresFinished == 1)
        }
    }

    @Test("A push to two people keeps its content until both are erased")
    func two() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            for (token, user) in [("aa11", "ann"), ("bb22", "bob")] {
                _ = try await fixture.install([
                    "deviceType": "ios", "deviceToken": .string(token),
                    "owner": [
                        "__type": "Pointer", "className": "_User", "objectId": .string(user),
                    ],
                ])
            }
            let push = try fixture.push(
                "both",
                ["identities": ["ann", "bob"], "data": ["alert": "For two"]]
            )
            _ = try await database.intake.plan(session: session, [push])
            func left() async throws -> [String] {
                try await fixture.server.query(
                    "select count(*) from pushes where strpos(request::text, 'For two') > 0"
                )
            }
            try await erase("ann", database)
            #expect(try await left() == ["1"])
            try await erase("bob", database)
            #expect(try await left() == ["0"])
        }
    }
}
