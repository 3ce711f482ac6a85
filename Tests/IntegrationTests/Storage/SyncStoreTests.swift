import JSON
import PushCore
import PushEvents
import Storage
import Support
import SyncStorage
import Testing

@Suite(
    "Storage of push sync",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct SyncStoreTests {
    static let app = StorageFixture.app
    static let pool = "us-east-1:aa"
    static let owner = SyncIdentity(pool: pool, app: app, identity: "us-east-1:01")
    static let notes = SyncDatasetName(owner, "notes")

    static func link(_ fixture: StorageFixture) async throws {
        try await fixture.database.appLinks.link(AppLink(.cognitoPool, pool, app: app))
        _ = try await fixture.database.syncPools.configure(
            pool,
            app: app,
            pushSync: ["ApplicationArns": ["arn:aws:sns:us-east-1:1:app/APNS/com.example.shop"]],
            isPushing: true,
            streams: nil
        )
    }

    @discardableResult
    static func update(
        _ patches: [SyncPatch],
        of dataset: SyncDatasetName = notes,
        by device: String? = nil,
        _ database: PushDatabase
    ) async throws -> [SyncRecord] {
        try await database.syncDatasets.update(dataset, patches, by: device) { count in
            DatasetChangedRecord.record(
                DatasetChange(
                    pool: pool,
                    identity: dataset.owner.identity,
                    dataset: dataset.name,
                    syncCount: count,
                    device: device
                ),
                of: dataset.owner.app,
                KafkaTopics()
            )
        }
    }

    static func set(_ key: String, _ value: String?, _ count: Int) -> SyncPatch {
        SyncPatch(key: key, value: value, syncCount: count)
    }

    @Test("A call changes all of its records by one count, or fails as a whole")
    func allOrNothing() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            let made = try await Self.update(
                [Self.set("a", "1", 0), Self.set("b", nil, 0)],
                database
            )
            #expect(made.map(\.syncCount) == [1, 1] && made[1].value == nil)
            let refusal = await #expect(throws: SyncRefusal.self) {
                try await Self.update([Self.set("a", "2", 1), Self.set("b", "x", 0)], database)
            }
            #expect(refusal == .conflict(key: "b", current: 1, sent: 0))
            let page = try await database.syncDatasets.records(
                of: Self.notes,
                above: 0,
                after: nil,
                limit: 10
            )
            #expect(page.records.map(\.key) == ["a", "b"] && page.records[0].value == "1")
            #expect(page.syncCount == 1 && page.exists && !page.hasMore)
            #expect(try await database.outbox.count() == 1)
            let dataset = try await database.syncDatasets.find(Self.notes)
            #expect(dataset.records == 1 && dataset.bytes == 2)
        }
    }

    @Test("Keys that look alike but have other bytes are other records")
    func alike() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let (one, other) = ("caf\u{e9}", "cafe\u{301}")
            try await Self.update([Self.set(one, "1", 0)], fixture.database)
            try await Self.update(
                [Self.set(other, "2", 0), Self.set(one, "3", 1)],
                fixture.database
            )
            try await Self.update(
                [Self.set(one, "4", 2), Self.set(other, "5", 2)],
                fixture.database
            )
            #expect(try await fixture.database.syncDatasets.find(Self.notes).records == 2)
        }
    }

    @Test("A list of datasets continues after any of them, and a limit holds for devices")
    func lists() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            let other = SyncIdentity(pool: Self.pool, app: Self.app, identity: "us-east-1:00")
            for dataset in [
                Self.notes, SyncDatasetName(Self.owner, "inbox"), SyncDatasetName(other, "notes"),
            ] {
                try await Self.update([Self.set("a", "1", 0)], of: dataset, database)
            }
            var (names, after): ([String], (identity: String, name: String)?) = ([], nil)
            while true {
                let page = try await database.syncDatasets.list(
                    pool: Self.pool,
                    app: Self.app,
                    after: after,
                    limit: 1
                )
                names += page.datasets.map { "\($0.identity) \($0.name)" }
                guard page.hasMore, let last = page.datasets.last else { break }
                after = (last.identity, last.name)
            }
            #expect(names == ["us-east-1:00 notes", "us-east-1:01 inbox", "us-east-1:01 notes"])
            let foreign = try await database.syncDatasets.list(
                pool: Self.pool,
                app: "other",
                after: nil,
                limit: 10
            )
            #expect(foreign.datasets.isEmpty && !foreign.hasMore)

            let pools = try await database.syncPools.list(app: Self.app, after: nil, limit: 10)
            #expect(pools.pools.map(\.name) == [Self.pool] && !pools.hasMore)
            #expect(try await database.syncPools.entry(Self.pool, app: Self.app).isPushing)
            await #expect(throws: SyncRefusal.unknownPool) {
                _ = try await database.syncPools.entry(Self.pool, app: "other")
            }

            let phone = try await fixture.install(["deviceType": "web", "installationId": "phone"])
            for id in ["one", "two"] {
                try await database.syncDevices.register(
                    id,
                    of: Self.owner,
                    platform: "GCM",
                    installation: phone.objectID
                )
                try await database.syncDevices.subscribe(id, to: Self.notes)
            }
            let state = try await database.syncState.find(
                pool: Self.pool,
                identity: Self.owner.identity,
                maximumDevices: 1,
                maximumSubscriptions: 1
            )
            #expect(state?.devices.map(\.id) == ["one"])
            #expect(state?.subscriptions.map(\.device) == ["one"])
            #expect(state?.datasets.count == 2)
        }
    }

    @Test("Concurrent writers get a count each, and no record is lost")
    func races() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            let counts = try await withThrowingTaskGroup(of: [Int].self) { group in
                for writer in 0..<4 {
                    group.addTask {
                        var counts: [Int] = []
                        for number in 0..<25 {
                            let patch = Self.set("\(writer)-\(number)", "v", 0)
                            let records = try await Self.update([patch], database)
                            counts += records.map(\.syncCount)
                        }
                        return counts
                    }
                }
                return try await group.reduce(into: []) { $0 += $1 }
            }
            #expect(counts.sorted() == Array(1...100))
            let dataset = try await database.syncDatasets.find(Self.notes)
            #expect(dataset.records == 100 && dataset.syncCount == 100)
        }
    }

    @Test("Thirty concurrent writers for twenty places make twenty datasets")
    func places() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            let made = await withTaskGroup(of: Bool.self) { group in
                for number in 0..<30 {
                    group.addTask {
                        let dataset = SyncDatasetName(Self.owner, "d\(number)")
                        let records = try? await Self.update(
                            [Self.set("k", "v", 0)],
                            of: dataset,
                            database
                        )
                        return records != nil
                    }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(made == SyncLimits.datasets)
            #expect(try await database.syncDatasets.usage(of: Self.owner).datasets == made)
        }
    }

    @Test("A dataset has up to 1,024 records and 1 MiB, and a tombstone counts only its key")
    func limits() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            let full = (0..<SyncLimits.records).map { Self.set("k\($0)", "", 0) }
            try await Self.update(full, database)
            await #expect(throws: SyncRefusal.self) {
                try await Self.update([Self.set("more", "", 0)], database)
            }
            try await Self.update([Self.set("k0", nil, 1), Self.set("more", "", 0)], database)
            let big = SyncDatasetName(Self.owner, "big")
            let half = String(repeating: "x", count: SyncLimits.bytes / 2 - 1)
            try await Self.update(
                [Self.set("a", half, 0), Self.set("b", half, 0)],
                of: big,
                database
            )
            await #expect(throws: SyncRefusal.self) {
                try await Self.update([Self.set("c", "", 0)], of: big, database)
            }
            try await Self.update([Self.set("a", nil, 1)], of: big, database)
            let dataset = try await database.syncDatasets.find(big)
            #expect(dataset.bytes == SyncLimits.bytes / 2 && dataset.records == 1)
        }
    }

    @Test("A deleted record has a tombstone, and its counts continue")
    func deletion() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            try await Self.update([Self.set("a", "1", 0)], database)
            try await Self.update([Self.set("a", "2", 1)], database)
            #expect(try await database.syncDatasets.delete(Self.notes).syncCount == 2)
            await #expect(throws: SyncRefusal.unknownDataset) {
                try await database.syncDatasets.delete(Self.notes)
            }
            var page = try await database.syncDatasets.records(
                of: Self.notes,
                above: 0,
                after: nil,
                limit: 10
            )
            #expect(!page.exists && page.syncCount == 0 && page.deletedCount == 2)
            let again = try await Self.update([Self.set("a", "3", 0)], database)
            #expect(again[0].syncCount == 3)
            page = try await database.syncDatasets.records(
                of: Self.notes,
                above: 2,
                after: nil,
                limit: 10
            )
            #expect(page.exists && page.deletedCount == 2 && page.records.count == 1)
        }
    }

    @Test("Pages continue after the last record, and repeat one that moved")
    func pages() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let datasets = fixture.database.syncDatasets
            let three = ["a", "b", "c"].map { Self.set($0, "1", 0) }
            try await Self.update(three, fixture.database)
            let first = try await datasets.records(of: Self.notes, above: 0, after: nil, limit: 2)
            #expect(first.records.map(\.key) == ["a", "b"] && first.hasMore)
            try await Self.update([Self.set("a", "2", 1)], fixture.database)
            let second = try await datasets.records(
                of: Self.notes,
                above: 0,
                after: SyncCursor(syncCount: 1, key: "b"),
                limit: 2
            )
            #expect(second.records.map(\.key) == ["c", "a"] && !second.hasMore)
        }
    }

    @Test("A tombstone expires in time, and its key is new again")
    func tombstones() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            try await Self.update([Self.set("a", nil, 0), Self.set("b", "1", 0)], database)
            let keeping = database.syncKeeping
            #expect(try await keeping.forgetTombstones(olderThan: .seconds(60)) == 0)
            _ = try await fixture.server.query(
                "UPDATE sync_records SET modified_at = now() - interval '2 minutes'"
            )
            #expect(try await keeping.forgetTombstones(olderThan: .seconds(60)) == 1)
            #expect(try await keeping.forgetTombstones(olderThan: .seconds(60)) == 0)
            try await Self.update([Self.set("a", "2", 0)], database)
            #expect(try await database.syncDatasets.find(Self.notes).bytes == 4)
        }
    }

    @Test("An unlinked pool is not served, and keeps its data for the same app until it is erased")
    func links() async throws {
        try await StorageFixture.run { fixture in
            try await Self.link(fixture)
            let database = fixture.database
            try await Self.update([Self.set("a", "1", 0)], database)
            let link = AppLink(.cognitoPool, Self.pool, app: Self.app)
            #expect(try await database.appLinks.unlink(link))
            await #expect(throws: SyncRefusal.unknownPool) {
                try await database.syncDatasets.find(Self.notes)
            }
            try await fixture.createApp("other")
            let stolen = AppLink(.cognitoPool, Self.pool, app: "other")
            await #expect(throws: StorageError.self) { try await database.appLinks.link(stolen) }
            try await database.appLinks.link(link)
            #expect(try await database.syncDatasets.find(Self.notes).syncCount == 1)
            #expect(try await database.appLinks.unlink(link, isErasing: true))
            try await database.appLinks.link(stolen)
        }
    }
}
