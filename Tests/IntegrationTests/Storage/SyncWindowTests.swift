import JSON
import PushCore
import PushEvents
import Storage
import StorageAdmin
import Support
import SyncStorage
import Synchronization
import Testing

@Suite(
    "Notifications of push sync",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct SyncWindowTests {
    private typealias Store = SyncStoreTests

    /// Makes a dataset of one record with a subscribed phone and tablet.
    private static func listeners(_ fixture: StorageFixture) async throws -> [String] {
        try await Store.link(fixture)
        try await Store.update([Store.set("a", "1", 0)], fixture.database)
        var installations: [String] = []
        for name in ["phone", "tablet"] {
            let device = try await fixture.install([
                "deviceType": "ios", "deviceToken": .string(name),
                "identity": .string(Store.owner.identity),
            ])
            try await fixture.database.syncDevices.register(
                name,
                of: Store.owner,
                platform: "APNS",
                installation: device.objectID
            )
            try await fixture.database.syncDevices.subscribe(name, to: Store.notes)
            installations.append(device.objectID)
        }
        return installations
    }

    private static func change(
        _ count: Int,
        by device: String? = nil,
        of dataset: String = "notes",
        isOwn: Bool = false
    ) -> DatasetChange {
        DatasetChange(
            pool: Store.pool,
            identity: Store.owner.identity,
            dataset: dataset,
            syncCount: count,
            device: device,
            isOwn: isOwn
        )
    }

    /// Ends all windows; returns the notified devices and their counts.
    private static func ring(_ fixture: StorageFixture) async throws -> [String: Int] {
        let told = Recorded()
        _ = try await fixture.database.syncWindows.endDueWindows(limit: 100) { item in
            told.add(item)
            return []
        }
        return told.counts
    }

    private static func note(
        _ changes: [DatasetChange],
        _ fixture: StorageFixture
    ) async throws -> [SyncChangeResult] {
        try await fixture.database.syncWindows.note(changes, coalesce: .zero)
    }

    @Test("Each subscriber is notified once, of the last count, and its writer is not")
    func once() async throws {
        try await StorageFixture.run { fixture in
            let devices = try await Self.listeners(fixture)
            for count in 1...3 {
                try await Store.update([Store.set("a", "x", count)], fixture.database)
            }
            let changes = [
                Self.change(2, by: "tablet"), Self.change(4, by: "tablet"),
                Self.change(3, by: "tablet"),
            ]
            #expect(try await Self.note(changes, fixture) == [.noted, .noted, .noted])
            #expect(try await Self.ring(fixture) == [devices[0]: 4])
            #expect(try await Self.ring(fixture) == [:])
        }
    }

    @Test("Both devices are notified if both have written in one window")
    func both() async throws {
        try await StorageFixture.run { fixture in
            let devices = try await Self.listeners(fixture)
            for count in 1...2 {
                try await Store.update([Store.set("a", "x", count)], fixture.database)
            }
            _ = try await Self.note([Self.change(2, by: "tablet")], fixture)
            _ = try await Self.note([Self.change(3, by: "phone")], fixture)
            #expect(try await Self.ring(fixture) == [devices[0]: 3, devices[1]: 3])
        }
    }

    @Test("A pool's application decides the topic of APNs if the app has one of that name")
    func topics() async throws {
        try await StorageFixture.run { fixture in
            _ = try await Self.listeners(fixture)
            let told = Recorded()
            for (count, topic) in [(2, nil), (3, "com.example.shop")] as [(Int, String?)] {
                if let topic {
                    _ = try await fixture.server.query(
                        """
                        INSERT INTO credentials (app, provider, name, sealed)
                        VALUES ('shop', 'apns', '\(topic)', '')
                        """
                    )
                }
                try await Store.update([Store.set("a", "x", count - 1)], fixture.database)
                _ = try await Self.note([Self.change(count)], fixture)
                _ = try await fixture.database.syncWindows.endDueWindows(limit: 10) { item in
                    told.add(item)
                    return []
                }
                #expect(told.topic == topic)
            }
        }
    }

    @Test("A repeat or a lower count notifies no device")
    func neverBack() async throws {
        try await StorageFixture.run { fixture in
            _ = try await Self.listeners(fixture)
            try await Store.update([Store.set("a", "x", 1)], fixture.database)
            _ = try await Self.note([Self.change(2)], fixture)
            #expect(try await Self.ring(fixture).count == 2)
            let verdicts = try await Self.note([Self.change(2), Self.change(1)], fixture)
            #expect(verdicts == [.silent, .silent])
            #expect(try await Self.ring(fixture) == [:])
        }
    }

    @Test("Records decide their count, and an empty dataset uses the reported one")
    func others() async throws {
        try await StorageFixture.run { fixture in
            _ = try await Self.listeners(fixture)
            let stranger = DatasetChange(
                pool: "us-east-1:ff",
                identity: Store.owner.identity,
                dataset: "notes",
                syncCount: 1
            )
            let verdicts = try await Self.note(
                [
                    Self.change(2), stranger, Self.change(5, of: "inbox"),
                    Self.change(3, of: "inbox"), Self.change(9, of: "ours", isOwn: true),
                ],
                fixture
            )
            #expect(verdicts == [.tooHigh, .unknownPool, .silent, .silent, .silent])
            let datasets = fixture.database.syncDatasets
            let inbox = SyncDatasetName(Store.owner, "inbox")
            #expect(try await datasets.find(inbox).syncCount == 5)
            #expect(try await datasets.find(Store.notes).syncCount == 1)
            await #expect(throws: SyncRefusal.unknownDataset) {
                try await datasets.find(SyncDatasetName(Store.owner, "ours"))
            }
            _ = try await Self.note([Self.change(8, of: "inbox")], fixture)
            #expect(try await datasets.find(inbox).syncCount == 8)
        }
    }

    @Test("A change in Kafka from before its dataset was deleted does not restore it")
    func deleted() async throws {
        try await StorageFixture.run { fixture in
            _ = try await Self.listeners(fixture)
            _ = try await fixture.database.syncDatasets.delete(Store.notes)
            #expect(try await Self.note([Self.change(1)], fixture) == [.silent])
            #expect(try await Self.note([Self.change(2, isOwn: true)], fixture) == [.silent])
            await #expect(throws: SyncRefusal.unknownDataset) {
                try await fixture.database.syncDatasets.find(Store.notes)
            }
            #expect(try await Self.note([Self.change(2)], fixture) == [.silent])
            #expect(try await fixture.database.syncDatasets.find(Store.notes).syncCount == 2)
        }
    }

    @Test("A bulk publish notifies every subscription in batches, and ends once a day")
    func bulk() async throws {
        try await StorageFixture.run { fixture in
            let devices = try await Self.listeners(fixture)
            let other = SyncDatasetName(Store.owner, "other")
            try await Store.update([Store.set("a", "1", 0)], of: other, fixture.database)
            try await fixture.database.syncDevices.subscribe("phone", to: other)
            let (pools, windows) = (fixture.database.syncPools, fixture.database.syncWindows)
            #expect(try await pools.bulk(of: Store.pool, app: Store.app) == nil)
            try await pools.startBulk(of: Store.pool, app: Store.app)
            await #expect(throws: SyncRefusal.bulkInProgress) {
                try await pools.startBulk(of: Store.pool, app: Store.app)
            }
            let told = Recorded()
            var portions: [Int] = []
            while let count = try await windows.resumeBulk(
                limit: 1,
                records: { item in
                    told.add(item)
                    return []
                }
            ) {
                portions.append(count)
            }
            #expect(portions == [2, 1, 0])
            #expect(told.counts == [devices[0]: 1, devices[1]: 1])
            let bulk = try #require(try await pools.bulk(of: Store.pool, app: Store.app))
            #expect(bulk.status == .succeeded && bulk.completedAt != nil)
            await #expect(throws: SyncRefusal.bulkDoneLately) {
                try await pools.startBulk(of: Store.pool, app: Store.app)
            }
        }
    }

    @Test("A pool that no longer pushes notifies no device")
    func off() async throws {
        try await StorageFixture.run { fixture in
            _ = try await Self.listeners(fixture)
            try await Store.update([Store.set("a", "x", 1)], fixture.database)
            #expect(try await Self.note([Self.change(1)], fixture) == [.silent])
            #expect(try await Self.note([Self.change(2)], fixture) == [.noted])
            _ = try await fixture.database.syncPools.configure(
                Store.pool,
                app: Store.app,
                pushSync: ["ApplicationArns": []],
                isPushing: false,
                streams: nil
            )
            #expect(try await Self.ring(fixture) == [:])
            #expect(try await Self.note([Self.change(2)], fixture) == [.silent])
        }
    }

    @Test("Erasing an identity deletes its datasets, devices and subscriptions, and counts them")
    func erasure() async throws {
        try await StorageFixture.run { fixture in
            _ = try await Self.listeners(fixture)
            try await Store.update([Store.set("a", "x", 1)], fixture.database)
            _ = try await Self.note([Self.change(2)], fixture)
            let subject = Subject(app: Store.app, .identity, Store.owner.identity)
            let erasures = fixture.database.erasures
            let export = try await erasures.export(subject)
            #expect(export[.syncDatasets].count == 1 && export[.syncDevices].count == 2)
            let names = ["syncDatasets", "syncRecords", "syncDevices", "syncSubscriptions"]
            let wanted = [1, 1, 2, 2]
            let dryRun = try await erasures.dryRun(subject)
            #expect(names.map { dryRun.byName[$0] ?? 0 } == wanted)
            let receipt = try await erasures.erase(
                subject,
                by: AuditEntry(app: Store.app, actor: "test", action: "erase", status: 200)
            )
            #expect(names.map { receipt.erased.byName[$0] ?? 0 } == wanted)
            for table in ["datasets", "records", "devices", "subscriptions", "windows"] {
                let rows = try await fixture.server.query("SELECT count(*) FROM sync_\(table)")
                #expect(rows == ["0"])
            }
            let left = try await fixture.server.query(
                "SELECT count(*) FROM outbox WHERE position('us-east-1:01'::bytea IN value) > 0"
            )
            #expect(left == ["0"])
        }
    }
}

/// The notifications by installation: called on the database's loop.
private final class Recorded: Sendable {
    private let lock = Mutex((counts: [String: Int](), topic: String?.none))

    func add(_ told: SyncWindowStore.WindowEnd) {
        lock.withLock { known in
            for id in told.installations { known.counts[id] = told.syncCount }
            known.topic = told.apnsTopic
        }
    }

    var counts: [String: Int] { lock.withLock { $0.counts } }
    var topic: String? { lock.withLock { $0.topic } }
}
