import ConfigStorage
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
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ErasureTests {
    private static let app = StorageFixture.app
    private static let entry = AuditEntry(app: app, actor: "test", action: "erase", status: 200)

    /// Returns the tables that contain a text anywhere, as a dump of the database would.
    private func tables(holding text: String, _ fixture: StorageFixture) async throws -> [String] {
        let all = try await fixture.server.query(
            """
            select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'public' and c.relkind = 'r' order by 1
            """
        )
        return try await fixture.server.query(
            all.map { table in
                "select '\(table)' from \(table) t where strpos(t::text, '\(text)') > 0 group by 1"
            }.joined(separator: " union all ") + " order by 1"
        )
    }

    private func phone(_ token: String, _ identity: String, _ id: String) -> JSONObject {
        [
            "deviceType": "ios", "deviceToken": .string(token), "installationId": .string(id),
            "owner": ["__type": "Pointer", "className": "_User", "objectId": .string(identity)],
            "name": "Alice", "channels": ["news"],
        ]
    }

    @Test("After an erasure no table names the user or the devices, and all books balance")
    func nothingIsLeft() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let (identity, other) = ("user-alice-42", "user-alice-421")
            let tokens = ["aa11bb22cc33dd44", "ee55ff66aa77bb88", "0123456789abcdef"]
            let mine = try await fixture.install(phone(tokens[0], identity, "device-one"))
            let second = try await fixture.install(phone(tokens[1], identity, "device-two"))
            let theirs = try await fixture.install(phone(tokens[2], other, "device-three"))
            _ = try await fixture.server.query(
                """
                insert into identities (app, id, fields)
                values ('shop', '\(identity)', '{"name": "Alice"}'), ('shop', '\(other)', '{}')
                """
            )
            try await database.configFetches.note(
                ["device-one", "device-three"].map {
                    ConfigFetchRecord(app: Self.app, appInstanceID: $0, version: 7)
                }
            )
            let session = try await database.sessions.open(name: "replica")
            let requests: [(String, JSONObject)] = [
                (
                    "settled",
                    ["identities": [.string(identity)], "data": ["alert": "Dear {{name}}"]]
                ),
                ("pending", ["identities": [.string(identity), .string(other)]]),
                ("owned", ["installations": [.string(mine.objectID), "device-three"]]),
                (
                    "tokens",
                    [
                        "tokens": [
                            ["platform": "apns", "token": .string(tokens[0].uppercased())],
                            ["platform": "apns", "token": .string(tokens[2])],
                        ]
                    ]
                ),
                (
                    "of \(identity)",
                    [
                        "channels": ["none"], "tags": .string("$userid:{\(identity)} || none"),
                        "data": ["u": .string(identity), "alert": .string("Dear \(identity)!")],
                    ]
                ),
            ]
            var pushes: [String: NewPush] = [:]
            for (name, request) in requests { pushes[name] = try fixture.push(name, request) }
            let planned = try await database.intake.plan(
                session: session,
                requests.compactMap { pushes[$0.0] }
            )
            let settled = try #require(pushes["settled"]).id
            let owned = try #require(pushes["owned"]).id
            _ = try await database.ledger.record(
                session: session,
                planned.deliveries.filter { $0.pushID == settled }.map(delivered)
            )
            _ = try await database.ledger.record(
                session: session,
                planned.deliveries.filter { ![settled, owned].contains($0.pushID) }.map {
                    retried($0, until: .now())
                }
            )
            // Only content of finished pushes is searched.
            _ = try await database.pushes.cancel(try #require(pushes["of \(identity)"]).id)
            let queued = try fixture.push("queued", ["identities": [.string(identity)]])
            var record = queued.object
            record["app"] = .string(Self.app)
            _ = try await database.pushes.accept(
                queued,
                record: OutgoingRecord(
                    topic: "push.requests",
                    key: [1],
                    value: JSONValue.object(record).bytes
                )
            )
            try await database.audit.append([
                AuditEntry(
                    app: Self.app,
                    actor: "master-key",
                    action: "GET /1.1/installations/:id",
                    targets: [mine.objectID, theirs.objectID],
                    status: 200
                )
            ])
            let subject = Subject(app: Self.app, .identity, identity)
            let export = try await database.erasures.export(subject)
            #expect(export[.installations].count == 2)
            let fetches = export.json(of: subject, at: .now())["configFetches"]?.array
            #expect(fetches?.map { $0["version"] } == [7])
            #expect(export[.identities].first?["name"] == "Alice")
            #expect(export[.deliveries].count == 6)
            #expect(export[.pushes].count == 6)
            #expect(export[.auditEntries].count == 1)

            let before = try await tables(holding: mine.objectID, fixture)
            let counted = try await database.erasures.dryRun(
                Subject(app: Self.app, .identity, identity)
            )
            #expect(try await tables(holding: mine.objectID, fixture) == before)
            #expect(
                try await database.installations.find(app: Self.app, objectID: mine.objectID)
                    == mine
            )
            let receipt = try await database.erasures.erase(
                Subject(app: Self.app, .identity, identity),
                by: Self.entry
            )
            #expect(receipt.erased.json["installations"] == 2)
            #expect(receipt.erased.json["configFetches"] == 1)
            #expect(receipt.erased.json["identities"] == 1)
            #expect(receipt.erased.json["deliveries"] == 6)
            #expect(receipt.erased.json["endedDeliveries"] == 4)
            #expect(receipt.erased.json["pushes"] == 6)
            #expect(receipt.erased.json["outboxRecords"] == 1)
            #expect(receipt.erased.json["eventKeys"] == 1)
            #expect(receipt.erased.json["auditEntries"] == 1)
            #expect(receipt.inFlight == 0)
            #expect(counted == receipt.erased, "a dry run counts what the run does")
            for name in [
                mine.objectID, second.objectID, "device-one", "device-two", tokens[0], tokens[1],
                tokens[0].uppercased(), "Alice\"",
            ] {
                let found = try await tables(holding: name, fixture)
                let isShared = name == "Alice\""
                #expect(found == (isShared ? ["installations"] : []), "\(name)")
            }
            // The other's id begins with the erased one's.
            let named = try await fixture.server.query(
                """
                select count(*) from pushes where request::text ~ '\(identity)([^0-9]|$)'
                    or event_id ~ '\(identity)([^0-9]|$)'
                """
            )
            #expect(named == ["0"])
            #expect(try await tables(holding: other, fixture).contains("pushes"))
            #expect(
                try await database.installations.find(
                    app: Self.app,
                    objectID: theirs.objectID
                ) == theirs
            )

            let ledgers = try await ledgersByName(pushes, fixture)
            #expect(ledgers["settled"]?.delivered == 2)
            #expect(ledgers["pending"]?.suppressed == 2)
            #expect(ledgers["pending"]?.pending == 1)
            #expect(ledgers["owned"]?.inDoubt == 1)
            #expect(ledgers["owned"]?.pending == 1)
            #expect(ledgers["tokens"]?.suppressed == 1)
            #expect(ledgers["tokens"]?.pending == 1)
            // A dispatcher with a delivery in flight finds that it does not own it any more.
            let late = try await database.ledger.record(
                session: session,
                planned.deliveries.filter { $0.pushID == owned }.map(delivered)
            )
            #expect(late.map(\.target) == [theirs.objectID])
            let books = try await fixture.balancedLedger(of: owned)
            #expect(books.delivered == 1 && books.inDoubt == 1 && books.pending == 0)
            #expect(try await database.pushes.find(owned)?.status == .done)

            // The waiting record is still a request, for all others.
            let kept = try await database.outbox.claim().records.first?.record.value ?? []
            let waiting = try PushRequest.parse(
                try #require(try JSONValue.parse(kept).object),
                now: .now()
            )
            #expect(waiting.audience == .installations(.init(identities: [])))

            let again = try await database.erasures.erase(
                Subject(app: Self.app, .identity, identity),
                by: Self.entry
            )
            #expect(again.erased.byName.values.allSatisfy { $0 == 0 }, "\(again.erased)")
            #expect(again.subject == receipt.subject)
            let audit = try await database.audit.list(app: Self.app, since: nil, limit: 10)
            #expect(audit.map(\.action) == ["erase", "erase", "GET /1.1/installations/:id"])
            #expect(audit[1].detail == receipt.json)
            #expect(audit[2].targets == ["[erased]", theirs.objectID])
        }
    }

    private func ledgersByName(
        _ pushes: [String: NewPush],
        _ fixture: StorageFixture
    ) async throws -> [String: Ledger] {
        var ledgers: [String: Ledger] = [:]
        for (name, push) in pushes { ledgers[name] = try await fixture.balancedLedger(of: push.id) }
        return ledgers
    }

    @Test(
        "A device is erased alone, its user and other devices stay, and an unknown one gives zeros"
    )
    func oneDeviceGoes() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let first = try await fixture.install(phone("aa11bb22", "user-1", "device-one"))
            let second = try await fixture.install(phone("cc33dd44", "user-1", "device-two"))
            let receipt = try await database.erasures.erase(
                Subject(app: Self.app, .installation, "device-one"),
                by: Self.entry
            )
            #expect(receipt.erased.json["installations"] == 1)
            let store = database.installations
            #expect(try await store.find(app: Self.app, objectID: first.objectID) == nil)
            #expect(try await store.find(app: Self.app, objectID: second.objectID) == second)
            for app in [Self.app, "nobody's"] {
                let nothing = try await database.erasures.export(
                    Subject(app: app, .installation, first.objectID)
                )
                #expect(nothing.isEmpty)
            }
            let unknown = try await database.erasures.erase(
                Subject(app: Self.app, .identity, "nobody"),
                by: Self.entry
            )
            #expect(unknown.isUnknownSubject)
            #expect(
                try await database.erasures.dryRun(Subject(app: Self.app, .identity, "nobody"))
                    .isNothing
            )
        }
    }

    @Test("Records that services write after an erasure do not name the erased")
    func lateAudit() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(phone("aa11bb22", "user-1", "device-one"))
            let before = Instant.now()
            _ = try await database.erasures.erase(
                Subject(app: Self.app, .identity, "user-1"),
                by: Self.entry
            )
            func entry(_ action: String, at: Instant) -> AuditEntry {
                AuditEntry(
                    app: Self.app,
                    actor: "master-key",
                    action: action,
                    targets: [phone.objectID, "user-1", "user-2"],
                    status: 200,
                    at: at
                )
            }
            let later = Instant.now().adding(milliseconds: 60_000)
            try await database.audit.append([
                entry("before", at: before), entry("anew", at: later),
            ])
            let audit = try await database.audit.list(app: Self.app, since: nil, limit: 10)
            #expect(audit.map(\.action) == ["anew", "erase", "before"])
            #expect(audit[2].targets == ["[erased]", "[erased]", "user-2"])
            // A user who comes back under the same name is another person.
            #expect(audit[0].targets == [phone.objectID, "user-1", "user-2"])
            let days: Int64 = 15 * 86_400_000
            _ = try await database.maintenance.maintain(
                now: Instant.now().adding(milliseconds: days + 1000)
            )
            #expect(try await fixture.server.query("select count(*) from erased_names") == ["0"])
        }
    }

    @Test("An interrupted erasure continues at the next call, over thousands of pushes")
    func erasuresResume() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(phone("aa11bb22", "user-1", "device-one"))
            let session = try await database.sessions.open(name: "replica")
            for start in stride(from: 0, to: 4500, by: 500) {
                let pushes = try (start..<start + 500).map { number in
                    let list: JSONValue =
                        number % 10 == 0 ? [.string(phone.objectID)] : ["somebody"]
                    return try fixture.push("p\(number)", ["installations": list])
                }
                _ = try await database.intake.plan(session: session, pushes)
            }
            // A call that was interrupted after its first step leaves this state.
            _ = try await fixture.server.query(
                """
                insert into erasure_jobs (app, kind, id, names, counts) values ('shop', 'identity',
                    'user-1', '{"objectIds": ["\(phone.objectID)"], "tokenHashes": [],
                    "texts": ["user-1", "\(phone.objectID)"]}', '{"installations": 1}');
                delete from installations
                """
            )
            let subject = Subject(app: Self.app, .identity, "user-1")
            let counted = try await database.erasures.dryRun(subject)
            let receipts = try await withThrowingTaskGroup(of: ErasureReceipt.self) { group in
                for _ in 0..<3 {
                    group.addTask {
                        try await database.erasures.erase(subject, by: Self.entry)
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            // Concurrent calls share the work, and count nothing twice.
            for (name, count) in [("installations", 1), ("deliveries", 450), ("pushes", 450)] {
                let total = receipts.reduce(0) { $0 + ($1.erased.json[name]?.integer ?? 0) }
                #expect(total == count, "\(name)")
                #expect(counted.json[name]?.integer == count, "\(name), in a dry run")
            }
            #expect(try await tables(holding: phone.objectID, fixture).isEmpty)
            let open = try await fixture.server.query(
                "select count(*) from pushes where pending <> 0 or targeted <> suppressed + in_doubt"
            )
            #expect(open == ["0"])
        }
    }

    @Test("An erasure waits for a shard that may have the device, and erases its records")
    func shardInFlight() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<10)
            let push = try await fixture.broadcast("in-flight", shardSize: 20)
            let session = try await database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard, by: 20)
            let target = fixture.objectID(3)
            let server = fixture.server
            // The lock delays the erasure until it has seen the shard and deletes the installation.
            async let held = server.query(
                """
                begin;
                select 1 from installations where object_id = '\(target)' for update;
                do $$ begin
                    while not exists (select from pg_locks l
                        where not l.granted and pg_backend_pid() = any (pg_blocking_pids(l.pid)))
                    loop perform pg_sleep(0.01); end loop;
                end $$;
                commit
                """
            )
            _ = try await eventually("the installation is held") {
                try await server.query(
                    """
                    select 1 from pg_stat_activity where query like 'begin;%'
                    and datname = current_database() and wait_event = 'PgSleep'
                    """
                ).isEmpty ? nil : true
            }
            async let erasure = database.erasures.erase(
                Subject(app: Self.app, .installation, target),
                by: Self.entry
            )
            _ = try await held
            // All other work takes no longer than this.
            for _ in 0..<50 { _ = try await database.pushes.find(push.id) }
            try await fixture.record(members, of: shard, session: session, isFinished: true)
            let receipt = try await erasure
            #expect(receipt.inFlight == 0)
            #expect(receipt.erased.json["deliveries"] == 1)
            #expect(try await tables(holding: target, fixture).isEmpty)
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 10)
        }
    }

    @Test("Concurrent calls erase everything, whichever ends last")
    func callsAtOnce() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            for round in 0..<5 {
                let user = "user-at-once-\(round)"
                let phone = try await fixture.install(phone("aa11bb2\(round)", user, "d\(round)"))
                let push = try fixture.push("p\(round)", ["channels": ["news"]])
                let targeted = try fixture.push(
                    "t\(round)",
                    ["installations": [.string(phone.objectID), "somebody"]]
                )
                _ = try await database.intake.plan(session: session, [push, targeted])
                let subject = Subject(app: Self.app, .identity, user)
                let total = try await withThrowingTaskGroup(of: Int.self) { group in
                    for _ in 0..<5 {
                        group.addTask {
                            try await database.erasures.erase(subject, by: Self.entry).erased
                                .json["installations"]?.integer ?? 0
                        }
                    }
                    return try await group.reduce(0, +)
                }
                #expect(total == 1)
                #expect(try await tables(holding: phone.objectID, fixture).isEmpty)
            }
        }
    }

    @Test("Maintenance finishes an interrupted erasure for its requester, and no other one")
    func maintenanceFinishes() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            for (id, age) in [("user-left", "2 minutes"), ("user-under-way", "0 seconds")] {
                let push = try fixture.push(id, ["identities": [.string(id), "somebody"]])
                _ = try await database.intake.plan(session: session, [push])
                // A call that was interrupted after its first step leaves this state.
                _ = try await fixture.server.query(
                    """
                    insert into erasure_jobs (app, kind, id, names, counts, touched_at, wanted_by)
                    values ('shop', 'identity', '\(id)', '{"objectIds": [], "tokenHashes": [],
                        "texts": ["\(id)"]}', '{"identities": 1}', now() - interval '\(age)',
                        '{"actor": "cli:ann", "action": "erase", "status": 0}')
                    """
                )
            }
            #expect(try await database.maintenance.maintain(now: .now()).erasuresFinished == 1)
            #expect(try await tables(holding: "user-left", fixture).isEmpty)
            #expect(
                try await fixture.server.query("select id from erasure_jobs") == ["user-under-way"]
            )
            let audit = try await database.audit.list(app: Self.app, since: nil, limit: 10)
            #expect(audit.map(\.actor) == ["cli:ann"])
            #expect(audit.first?.status == 0)
            #expect(audit.first?.detail["erased"]?["identities"] == 1)
            #expect(audit.first?.detail["erased"]?["pushes"] == 1)
            #expect(try await database.maintenance.maintain(now: .now()).erasuresFinished == 0)
        }
    }

    @Test("A user who comes back during an interrupted erasure keeps the new data")
    func whoComesBack() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            _ = try await fixture.server.query(
                """
                insert into erasure_jobs (app, kind, id, names, touched_at, wanted_by)
                values ('shop', 'identity', 'user-back', '{"objectIds": [], "tokenHashes": [],
                    "texts": ["user-back"]}', now() - interval '2 minutes', '{}')
                """
            )
            _ = try await fixture.install(phone("aa11bb22", "user-back", "device-new"))
            let push = try fixture.push("later", ["identities": ["user-back"]])
            _ = try await database.pushes.accept(
                push,
                record: OutgoingRecord(
                    topic: "push.requests",
                    key: nil,
                    value: JSONValue.object(["app": "shop", "identities": ["user-back"]]).bytes
                )
            )
            try await database.audit.append([
                AuditEntry(
                    app: Self.app,
                    actor: "master-key",
                    action: "anew",
                    targets: ["user-back"],
                    status: 200,
                    at: Instant.now().adding(milliseconds: 2000)
                )
            ])
            #expect(try await database.maintenance.maintain(now: .now()).erasuresFinished == 1)
            let kept = try await database.pushes.find(push.id)
            #expect(kept?.request["identities"] == ["user-back"])
            let waiting = try await database.outbox.claim().records.first?.record.value ?? []
            #expect(String(decoding: waiting, as: UTF8.self).contains("user-back"))
            let audit = try await database.audit.list(app: Self.app, since: nil, limit: 10)
            #expect(audit.first { $0.action == "anew" }?.targets == ["user-back"])
            // A push that is planned for the new device ends normally.
            let session = try await database.sessions.open(name: "replica")
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.deliveries.map(\.device.token) == ["aa11bb22"])
            #expect(try await fixture.balancedLedger(of: push.id).pending == 1)
        }
    }

    @Test("A user with hundreds of devices is erased in every push, for any number of names")
    func manyNames() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            var pushes: [NewPush] = []
            var ids: [String] = []
            for number in 0..<250 {
                let token = "00000000" + String(number + 0x1000_0000, radix: 16)
                let phone = phone(token, "user-1", "device-\(number)")
                let id = try await fixture.install(phone).objectID
                ids.append(id)
                let list: JSONValue = [.string(id), "somebody"]
                pushes.append(try fixture.push("p\(number)", ["installations": list]))
            }
            _ = try await database.intake.plan(session: session, pushes)
            let subject = Subject(app: Self.app, .identity, "user-1")
            let export = try await database.erasures.export(subject)
            #expect(export[.pushes].count == 250)
            #expect(export[.deliveries].count == 250)
            let receipt = try await database.erasures.erase(subject, by: Self.entry)
            for name in ["installations", "deliveries", "pushes"] {
                #expect(receipt.erased.json[name] == 250, "\(name)")
            }
            for id in [ids[0], ids[124], ids[249], "user-1"] {
                #expect(try await tables(holding: id, fixture).isEmpty)
            }
        }
    }
}
