import JSON
import PushCore
import PushStorage
import Support
import Testing

@Suite(
    "Device-local pushes",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct LocalTimeTests {
    /// Phones by their time zones; `""` means without one.
    private static let zones = [
        "Asia/Tokyo", "Asia/Kolkata", "America/New_York", "", "Mars/Olympus", "Etc/UTC", "UTC+3",
    ]

    /// Plans a push as soon as it is released, at any hour.
    private func released(
        _ object: JSONObject,
        _ fixture: StorageFixture,
        shardSize: Int? = 2,
        id: String = "local"
    ) async throws -> NewPush {
        let database = fixture.database
        let session = try await database.sessions.open(name: "planner")
        let push = try fixture.push(id, object)
        let planned = try await database.intake.plan(session: session, [push])
        #expect(planned.scheduledPushIDs == [push.id])
        _ = try await fixture.server.query(
            "update pushes set release_at = now() where id = '\(push.id)'"
        )
        #expect(
            try await database.schedules.release(session: session).pushes.map(\.id) == [push.id]
        )
        if try await database.planning.claim(session: session) != nil {
            while try await !database.planning.planPage(
                session: session,
                pushID: push.id,
                limit: 3,
                shardSize: shardSize
            ).isFinished {}
        }
        try await database.sessions.close(session)
        return push
    }

    private func phone(_ number: Int, zone: String) -> JSONObject {
        var object: JSONObject = [
            "deviceType": "ios", "deviceToken": .string("ab0\(number)"), "channels": ["all"],
        ]
        if !zone.isEmpty { object["timeZone"] = .string(zone) }
        return object
    }

    /// Returns the rows of a push: when each phone is due, in UTC, by its token.
    private func due(_ push: NewPush, _ fixture: StorageFixture) async throws -> [String: String] {
        let rows = try await fixture.server.query(
            """
            select token || ' ' || to_char(due_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI') || ' '
                || coalesce(to_char(expires_at at time zone 'UTC', 'HH24:MI'), '-')
            from deliveries where push_id = '\(push.id)'
            """
        )
        return Dictionary(
            uniqueKeysWithValues: rows.map { row in
                let parts = row.split(separator: " ", maxSplits: 1).map(String.init)
                return (parts[0], parts[1])
            }
        )
    }

    @Test("A named device is due by its own clock, and an unknown zone counts as UTC")
    func direct() async throws {
        try await StorageFixture.run { fixture in
            var names: [JSONValue] = []
            for (number, zone) in Self.zones.enumerated() {
                let saved = try await fixture.install(phone(number, zone: zone))
                names.append(.string(saved.objectID))
            }
            let push = try await released(
                [
                    "installations": .array(names), "push_time": "2027-01-15T09:00:00",
                    "expiration_interval": 3600,
                ],
                fixture
            )
            #expect(
                try await due(push, fixture) == [
                    "ab00": "2027-01-15 00:00 01:00", "ab01": "2027-01-15 03:30 04:30",
                    "ab02": "2027-01-15 14:00 15:00", "ab03": "2027-01-15 09:00 10:00",
                    "ab04": "2027-01-15 09:00 10:00", "ab05": "2027-01-15 09:00 10:00",
                    "ab06": "2027-01-15 09:00 10:00",
                ]
            )
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.pending == 7)
            // It stays valid until the last time zone on earth has had the hour.
            let record = try #require(try await fixture.database.pushes.find(push.id))
            #expect(record.expiresAt?.iso8601 == "2027-01-15T22:00:00.000Z")
            let owned = try await fixture.server.query(
                "select count(*) from deliveries where owner is not null or lane <> 0"
            )
            #expect(owned == ["0"])
        }
    }

    @Test(
        "A skipped time is an hour later, and a repeated time is the second one",
        arguments: [
            ("2027-03-14T02:30:00", "2027-03-14 07:30 -"),
            ("2027-03-14T01:59:00", "2027-03-14 06:59 -"),
            ("2027-03-14T03:00:00", "2027-03-14 07:00 -"),
            ("2027-11-07T01:30:00", "2027-11-07 06:30 -"),
            ("2027-11-07T00:59:00", "2027-11-07 04:59 -"),
        ]
    )
    func clocksChange(time: String, due: String) async throws {
        try await StorageFixture.run { fixture in
            try await fixture.install(phone(0, zone: "America/New_York"))
            let push = try await released(
                ["channels": ["all"], "push_time": .string(time)],
                fixture,
                shardSize: nil
            )
            #expect(try await self.due(push, fixture) == ["ab00": due])
        }
    }

    @Test("Tokens have no zone, and are due by UTC")
    func tokens() async throws {
        try await StorageFixture.run { fixture in
            let push = try await released(
                [
                    "tokens": [["platform": "fcm", "token": "one"]],
                    "push_time": "2027-01-15T09:00:00",
                ],
                fixture
            )
            #expect(try await due(push, fixture) == ["one": "2027-01-15 09:00 -"])
        }
    }

    @Test("A broadcast has shards by time, each device once, when its clock shows the time")
    func shards() async throws {
        try await StorageFixture.run { fixture in
            for (number, zone) in Self.zones.enumerated() {
                try await fixture.install(phone(number, zone: zone))
            }
            let push = try await released(
                [
                    "channels": ["all"], "push_time": "2027-01-15T09:00:00",
                    "expiration_interval": 3600,
                ],
                fixture,
                shardSize: 1
            )
            #expect(try await fixture.balancedLedger(of: push.id).pending == 7)
            let session = try await fixture.database.sessions.open(name: "sender")
            let store = fixture.database.shards
            #expect(try await store.claim(session: session, limit: 100, holding: [:]).isEmpty)
            var sent: [String] = []
            for (time, tokens) in [
                ("2027-01-15 00:00Z", ["ab00"]), ("2027-01-15 03:30Z", ["ab01"]),
                ("2027-01-15 09:00Z", ["ab03", "ab04", "ab05", "ab06"]),
                ("2027-01-15 14:00Z", ["ab02"]),
            ] {
                let waiting = try await store.nextDue()
                #expect(waiting == Instant(iso8601: time))
                _ = try await fixture.server.query(
                    "update shards set due_at = now() where due_at = '\(time)'"
                )
                var due: [String] = []
                for shard in try await store.claim(session: session, limit: 100, holding: [:]) {
                    #expect(shard.expiresAt == Instant(iso8601: time)?.adding(seconds: 3600))
                    let page = try await store.page(shard, after: nil, limit: 100)
                    due += page.members.map(\.device.token)
                    try await record(page.members, of: shard, fixture, session)
                }
                #expect(due.sorted() == tokens)
                sent += due
            }
            #expect(sent.sorted() == (0..<7).map { "ab0\($0)" })
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 7)
            #expect(try await fixture.database.pushes.find(push.id)?.status == .done)
        }
    }

    @Test("A device that changes its zone meanwhile gets the push once and is counted once")
    func travels() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.install(phone(0, zone: "Asia/Tokyo"))
            try await fixture.install(phone(1, zone: "America/New_York"))
            let push = try await released(
                ["channels": ["all"], "push_time": "2027-01-15T09:00:00"],
                fixture
            )
            _ = try await fixture.server.query("update shards set due_at = now()")
            let session = try await fixture.database.sessions.open(name: "sender")
            let store = fixture.database.shards
            let shards = try await store.claim(session: session, limit: 100, holding: [:])
            #expect(shards.count == 2)
            var members: [[Delivery]] = []
            for shard in shards {
                members.append(try await store.page(shard, after: nil, limit: 10).members)
            }
            #expect(members.map(\.count) == [1, 1])
            let tokyo = try #require(members.firstIndex { $0.first?.device.token == "ab00" })
            let newYork = 1 - tokyo
            // It got the push in Tokyo, and arrives in New York, whose page is read just before or
            // just after that is recorded.
            _ = try await fixture.server.query(
                "update installations set time_zone = 'America/New_York'"
            )
            let before = try await store.page(shards[newYork], after: nil, limit: 10).members
            #expect(before.count == 2)
            try await record(members[tokyo], of: shards[tokyo], fixture, session)
            let after = try await store.page(shards[newYork], after: nil, limit: 10).members
            #expect(after.map(\.device.token) == ["ab01"])
            try await record(before, of: shards[newYork], fixture, session)
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 2)
            #expect(ledger.targeted == 2)
        }
    }

    @Test("A row's age begins when its device is first due, and a release does not change it")
    func rowsAge() async throws {
        try await StorageFixture.run { fixture in
            var names: [JSONValue] = []
            for (number, zone) in ["America/New_York", ""].enumerated() {
                let saved = try await fixture.install(phone(number, zone: zone))
                names.append(.string(saved.objectID))
            }
            let time = "2034-01-15T09:00:00"
            let named: JSONObject = ["installations": .array(names), "push_time": .string(time)]
            _ = try await released(named, fixture)
            _ = try await released(
                ["tokens": [["platform": "fcm", "token": "one"]], "push_time": .string(time)],
                fixture,
                id: "tokens"
            )
            let session = try await fixture.database.sessions.open(name: "sender")
            let database = fixture.database
            for _ in 0..<2 {
                _ = try await fixture.server.query("update deliveries set due_at = now()")
                let due = try await database.due.claim(session: session, lane: 0, limit: 10)
                let begins = Dictionary(
                    uniqueKeysWithValues: due.map { ($0.device.token, $0.createdAt.iso8601) }
                )
                #expect(
                    begins == [
                        "ab00": "2034-01-15T14:00:00.000Z", "ab01": "2034-01-15T09:00:00.000Z",
                        "one": "2034-01-15T09:00:00.000Z",
                    ]
                )
                let later = Instant.now().adding(seconds: 3600)
                let postponed = due.map { retried($0, until: later) }
                #expect(
                    try await database.ledger.record(session: session, postponed).count == due.count
                )
            }
        }
    }

    @Test(
        "A shard's age begins when its devices are first due, and a release does not change it",
        arguments: [["channels": ["all"]], ["where": ["deviceType": "ios"]]] as [JSONObject]
    )
    func shardsAge(audience: JSONObject) async throws {
        try await StorageFixture.run { fixture in
            try await fixture.install(phone(0, zone: "America/New_York"))
            var object = audience
            object["push_time"] = "2034-01-15T09:00:00"
            _ = try await released(object, fixture)
            let session = try await fixture.database.sessions.open(name: "sender")
            let store = fixture.database.shards
            for _ in 0..<2 {
                _ = try await fixture.server.query("update shards set due_at = now()")
                let claimed = try await store.claim(session: session, limit: 1, holding: [:])
                let shard = try #require(claimed.first)
                let member = try await store.page(shard, after: nil, limit: 1).members.first
                #expect(shard.createdAt.iso8601 == "2034-01-15T14:00:00.000Z")
                #expect(member?.createdAt == shard.createdAt)
                let later = Instant.now().adding(seconds: 3600)
                try await store.release(session: session, claimed, dueAt: later)
            }
        }
    }

    @Test("A shard of an older version is as old as its devices, and stays so")
    func olderShardsAge() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.install(phone(0, zone: "America/New_York"))
            _ = try await released(
                ["channels": ["all"], "push_time": "2034-01-15T09:00:00"],
                fixture
            )
            // That version recorded only when it made the shard.
            _ = try await fixture.server.query(
                """
                update shards set created_at = '2024-01-15T00:00:00Z',
                    updated_at = '2024-01-15T00:00:00Z', due_at = '2024-01-15T14:00:00Z'
                """
            )
            _ = try await fixture.server.query("update pushes set created_at = '2024-01-14'")
            let session = try await fixture.database.sessions.open(name: "sender")
            let store = fixture.database.shards
            for _ in 0..<2 {
                let claimed = try await store.claim(session: session, limit: 1, holding: [:])
                #expect(claimed.map(\.createdAt.iso8601) == ["2024-01-15T14:00:00.000Z"])
                let later = Instant.now().adding(seconds: 3600)
                try await store.release(session: session, claimed, dueAt: later)
                _ = try await fixture.server.query("update shards set due_at = now()")
            }
        }
    }

    /// Records all members of a shard as delivered, and ends it.
    private func record(
        _ members: [Delivery],
        of shard: ClaimedShard,
        _ fixture: StorageFixture,
        _ session: Int
    ) async throws {
        _ = try await fixture.database.ledger.checkpoint(
            session: session,
            shard,
            ShardCheckpoint(
                cursor: members.map(\.target).max(),
                records: members.map {
                    delivered($0)
                },
                isFinished: true
            )
        )
    }
}

extension Instant {
    fileprivate func adding(seconds: Int64) -> Instant { adding(milliseconds: seconds * 1000) }
}
