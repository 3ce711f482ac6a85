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
struct StoreTests {
    @Test("Concurrent saves of one token give one installation")
    func oneTokenIsOneRow() async throws {
        try await StorageFixture.run { fixture in
            let ids = try await withThrowingTaskGroup(of: String.self) { group in
                for number in 0..<24 {
                    group.addTask {
                        var object = fixture.iPhone("AB12")
                        object["channels"] = [.string("channel\(number)")]
                        return try await fixture.install(object).objectID
                    }
                }
                return try await group.reduce(into: Set<String>()) { $0.insert($1) }
            }
            #expect(ids.count == 1)
            let all = try await fixture.database.installations.query(app: StorageFixture.app)
            #expect(all.map(\.objectID) == Array(ids))
            #expect(all.first?.token == "ab12")
            #expect(all.first?.object["deviceToken"] == "AB12")
        }
    }

    @Test("An installation is read back as it was saved, with unknown fields")
    func installationsAreKept() async throws {
        try await StorageFixture.run { fixture in
            let object: JSONObject = [
                "deviceType": "android", "registrationId": "reg:1", "installationId": "device",
                "channels": ["a", "日本"], "badge": 3, "timeZone": "Asia/Tokyo",
                "owner": ["__type": "Pointer", "className": "_User", "objectId": "user-42"],
                "city": ["name": "東京", "size": 1.5], "valid": true,
            ]
            let saved = try await fixture.install(object)
            #expect(saved.platform == .fcm)
            #expect(saved.token == "reg:1")
            #expect(saved.identity == "user-42")
            let store = fixture.database.installations
            let found = try #require(
                try await store.find(app: StorageFixture.app, objectID: saved.objectID)
            )
            #expect(found == saved)
            #expect(found.object == object)

            var filter = InstallationStore.Filter()
            filter.deviceType = "android"
            #expect(try await store.count(app: StorageFixture.app, filter) == 1)
            filter.identity = "user-1"
            #expect(try await store.count(app: StorageFixture.app, filter) == 0)
            #expect(
                try await store.delete(
                    app: StorageFixture.app,
                    objectIDs: [saved.objectID, "unknown"]
                ) == 1
            )
            let updated = try await store.update(
                app: StorageFixture.app,
                objectID: saved.objectID
            ) { _ in }
            #expect(updated == nil)
        }
    }

    @Test("A token that moves to another installation leaves its old one")
    func tokensMove() async throws {
        try await StorageFixture.run { fixture in
            var first = fixture.iPhone("aa11")
            first["installationId"] = "one"
            try await fixture.install(first)
            var second = fixture.iPhone("aa11")
            second["installationId"] = "two"
            let moved = try await fixture.install(second)
            let all = try await fixture.database.installations.query(app: StorageFixture.app)
            #expect(all.map(\.objectID) == [moved.objectID])
            #expect(all.first?.installationID == "two")
        }
    }

    @Test("App ids are unique without case, app keys are unique")
    func appsAreUnique() async throws {
        try await StorageFixture.run { fixture in
            for (id, key) in [("SHOP", "another"), ("other", "shop")] {
                let error = await #expect(throws: StorageError.self) {
                    try await fixture.database.apps.create(
                        StoredApp(
                            id: id,
                            appKeySealed: [1],
                            appKeyDigest: sha256(Array(key.utf8)),
                            masterKeySealed: [1],
                            masterKeyDigest: [1]
                        )
                    )
                }
                #expect(error?.kind == .conflict)
            }
            let known = try await fixture.database.apps.known(among: ["shop", "Shop"])
            #expect(known == ["shop"])
            let digest = sha256(Array("shop".utf8))
            let found = try await fixture.database.apps.find(appKeyDigest: digest)
            #expect(found?.id == "shop")
        }
    }

    @Test("A credential replaces the one of its name, and the dispatchers are notified")
    func credentialsAreReplaced() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.credentials
            let (told, teller) = AsyncStream.makeStream(of: String.self)
            try await fixture.database.onNotification(.credentials) { teller.yield($0) }
            for byte in [UInt8(1), 2] {
                try await store.set(
                    StoredCredential(
                        app: StorageFixture.app,
                        platform: .apns,
                        name: "com.example",
                        sealed: [byte, 0, 255],
                        summary: ["keyId": "K"]
                    )
                )
            }
            let all = try await store.list()
            #expect(all.map(\.sealed) == [[2, 0, 255]])
            #expect(all.first?.summary == ["keyId": "K"])
            var iterator = told.makeAsyncIterator()
            #expect(await iterator.next() == StorageFixture.app)
            await #expect(throws: StorageError.self) {
                try await store.set(
                    StoredCredential(
                        app: "unknown",
                        platform: .fcm,
                        name: "",
                        sealed: [],
                        summary: [:]
                    )
                )
            }
        }
    }

    @Test("Promise 1: an accepted push waits in the outbox until Kafka has it, and is planned once")
    func outboxKeepsWhatIsAccepted() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let push = try fixture.push("http", ["tokens": [["platform": "fcm", "token": "t"]]])
            let record = OutgoingRecord(
                topic: "push.requests",
                key: [7, 0],
                value: [1, 2],
                headers: [RecordHeader("content-type", "application/json")]
            )
            let accepted = try await database.pushes.accept(push, record: record)
            #expect(accepted.status == .queued)
            // The same id again is the same push, and is not sent twice.
            #expect(try await database.pushes.accept(push, record: record).id == push.id)
            #expect(try await database.outbox.count() == 1)
            let claimed = try await database.outbox.claim().records
            #expect(claimed.map(\.record) == [record])
            // Another relay sees it again when the lease of the first has expired, or Kafka is
            // unavailable.
            #expect(try await database.outbox.claim().records.isEmpty)
            try await database.outbox.finish(claimed.map { ($0, .unavailable) })
            let second = try await database.outbox.claim().records
            #expect(second.map(\.id) == claimed.map(\.id))
            // The first relay reports late: the claim is another's now, and stays.
            try await database.outbox.finish(claimed.map { ($0, .unavailable) })
            #expect(try await database.outbox.claim().records.isEmpty)
            #expect(try await database.outbox.count() == 1)
            try await database.outbox.finish(second.map { ($0, .acknowledged) })
            #expect(try await database.outbox.count() == 0)

            let session = try await database.sessions.open(name: "replica")
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.newPushIDs == [push.id])
            #expect(planned.deliveries.map(\.device.token) == ["t"])
            let again = try await database.intake.plan(session: session, [push])
            #expect(again.newPushIDs.isEmpty)
            #expect(try await fixture.balancedLedger(of: push.id).targeted == 1)
        }
    }

    @Test("Promise 8: a record that the broker rejects stays, and the others pass it")
    func refusedRecordsStepAside() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            for name in ["poison", "good"] {
                let push = try fixture.push(name, ["tokens": [["platform": "fcm", "token": "t"]]])
                let record = OutgoingRecord(
                    topic: "push.requests",
                    key: nil,
                    value: Array(name.utf8)
                )
                _ = try await database.pushes.accept(push, record: record)
            }
            let first = try await database.outbox.claim(limit: 1).records
            #expect(first.map(\.record.value) == [Array("poison".utf8)])
            try await database.outbox.finish(first.map { ($0, .refused) })
            // It is measured by the row's own clock, as this machine may be slow.
            let (due, refusals) = (
                try await fixture.server.query(
                    "select due_at > created_at + interval '1 second' from outbox where refusals > 0"
                ),
                try await fixture.server.query("select refusals from outbox order by id")
            )
            #expect(due == ["t"])
            #expect(refusals == ["1", "0"])
            let next = try await database.outbox.claim(limit: 1).records
            #expect(next.map(\.record.value) == [Array("good".utf8)])
            #expect(try await database.outbox.count() == 2)
        }
    }

    @Test("A machine with a wrong year drops nothing")
    func wrongYear() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            _ = try await database.maintenance.maintain(hostTime: .now())
            let tables = "select count(*) from pg_inherits where inhparent = 'deliveries'::regclass"
            let before = try await fixture.server.query(tables)
            for days: Int64 in [-400, 400] {
                await #expect(throws: StorageError.self) {
                    try await database.maintenance.maintain(
                        hostTime: Instant.now().adding(milliseconds: days * 86_400_000)
                    )
                }
            }
            #expect(try await fixture.server.query(tables) == before)
        }
    }

    @Test(
        "Promise 12: partitions are made ahead, old ones are dropped, and pending deliveries stay"
    )
    func maintenanceKeepsBounds() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let now = Instant.now()
            let reports = try await withThrowingTaskGroup(of: MaintenanceReport.self) { group in
                for _ in 0..<3 {
                    group.addTask { try await database.maintenance.maintain(now: now) }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(reports.map(\.partitionsCreated).reduce(0, +) <= 15)
            _ = try await database.maintenance.maintain(now: now)
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("old", ["tokens": [["platform": "fcm", "token": "t"]]])
            let planned = try await database.intake.plan(session: session, [push])
            let inDefault = try await fixture.server.query(
                "select count(*) from deliveries_default"
            )
            #expect(inDefault == ["0"])

            let later = now.adding(milliseconds: 9 * 86_400_000)
            _ = try await database.maintenance.maintain(now: later)
            #expect(try await database.pushes.audit(push.id)?.counted.pending == 1)
            _ = try await database.ledger.record(
                session: session,
                planned.deliveries.map(delivered)
            )
            let report = try await database.maintenance.maintain(now: later)
            // Of rows and of chunks.
            #expect(report.partitionsDropped == 2)
            #expect(report.eventKeysDeleted == 0)
            #expect(try await database.pushes.audit(push.id)?.counted.targeted == 0)
            let keys = try await database.maintenance.maintain(
                now: later.adding(milliseconds: 100 * 86_400_000)
            )
            #expect(keys.pushesDeleted == 1)
        }
    }
}
