import JSON
import PushCore
import PushStorage
import Storage
import Support
import Testing

@Suite(
    "Audience and timing of a topic push",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct TopicPlanningTests {
    private func setFCM(_ fixture: StorageFixture) async throws {
        try await fixture.database.credentials.set(
            StoredCredential(
                app: StorageFixture.app,
                platform: .fcm,
                name: "",
                sealed: [1],
                summary: [:]
            )
        )
    }

    /// Makes an iPhone, a Windows PC and an Android phone in the channel, and an iPhone elsewhere.
    @discardableResult
    private func install(_ fixture: StorageFixture) async throws -> [Installation] {
        let phones: [JSONObject] = [
            ["deviceType": "ios", "deviceToken": "aa01", "channels": ["PUSH_RC"]],
            [
                "deviceType": "windows", "channels": ["PUSH_RC"],
                "subscriptionUri": "https://db5.notify.windows.com/?token=a",
            ],
            [
                "deviceType": "android", "registrationId": "android-1", "vendor": "fcm",
                "channels": ["PUSH_RC"],
            ],
            ["deviceType": "ios", "deviceToken": "aa02", "channels": ["other"]],
        ]
        var installed: [Installation] = []
        for phone in phones { installed.append(try await fixture.install(phone)) }
        return installed
    }

    /// Accepts a push and plans all of it.
    private func plan(
        _ fields: JSONObject,
        _ fixture: StorageFixture,
        session: Int,
        shardSize: Int? = 2
    ) async throws -> NewPush {
        let push = try fixture.push("stale", fields)
        let database = fixture.database
        let planned = try await database.intake.plan(session: session, [push])
        #expect(planned.planningPushIDs == [push.id])
        #expect(planned.deliveries.isEmpty)
        let claimed = try await database.planning.claim(session: session)
        #expect(claimed?.id == push.id)
        var page = try await database.planning.planPage(
            session: session,
            pushID: push.id,
            shardSize: shardSize
        )
        while !page.isFinished {
            page = try await database.planning.planPage(
                session: session,
                pushID: push.id,
                shardSize: shardSize
            )
        }
        return push
    }

    private func members(_ fixture: StorageFixture, session: Int) async throws -> [Delivery] {
        let shards = fixture.database.shards
        var members: [Delivery] = []
        for shard in try await shards.claim(session: session, limit: 100, holding: [:]) {
            members += try await shards.page(shard, after: nil, limit: 100).members
        }
        return members
    }

    @Test("FCM's subscribers are one delivery, and each channel member of another platform is one")
    func platforms() async throws {
        try await StorageFixture.run { fixture in
            try await setFCM(fixture)
            let installed = try await install(fixture)
            let database = fixture.database
            let session = try await database.sessions.open(name: "first")
            let push = try await plan(
                ["audience_topic": "/topics/PUSH_RC"],
                fixture,
                session: session
            )
            #expect(try await fixture.balancedLedger(of: push.id).targeted == 3)
            let due = try await database.due.claim(session: session, lane: 0, limit: 10)
            #expect(due.map(\.target) == ["topic:PUSH_RC"])
            let topic = try #require(due.first)
            #expect(topic.isForTopic)
            #expect(topic.installationID == nil)
            #expect(topic.device == DeviceTarget(provider: .fcm, token: "PUSH_RC"))
            let members = try await members(fixture, session: session)
            #expect(Set(members.map(\.target)) == Set(installed.prefix(2).map(\.objectID)))
            _ = try await database.ledger.record(session: session, [delivered(topic)])
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 1)
            #expect(ledger.pending == 2)
        }
    }

    @Test("The result is the same for a channel too large to find by name, and as rows")
    func otherWays() async throws {
        for shardSize in [1, nil] {
            try await StorageFixture.run { fixture in
                try await setFCM(fixture)
                try await install(fixture)
                let session = try await fixture.database.sessions.open(name: "first")
                let push = try await plan(
                    ["audience_topic": "PUSH_RC"],
                    fixture,
                    session: session,
                    shardSize: shardSize
                )
                #expect(try await fixture.balancedLedger(of: push.id).targeted == 3)
                let rows = try await fixture.server.query(
                    "select provider from deliveries order by provider"
                )
                #expect(rows == (shardSize == nil ? ["apns", "fcm", "wns"] : ["fcm"]))
                let members = try await members(fixture, session: session)
                #expect(members.count == (shardSize == nil ? 0 : 2))
            }
        }
    }

    @Test(
        "Without an FCM credential there is no topic delivery, and an empty audience ends at once"
    )
    func withoutFCM() async throws {
        try await StorageFixture.run { fixture in
            let session = try await fixture.database.sessions.open(name: "first")
            let push = try await plan(["audience_topic": "a"], fixture, session: session)
            #expect(try await fixture.balancedLedger(of: push.id).targeted == 0)
            #expect(try await fixture.database.pushes.find(push.id)?.status == .done)
        }
    }

    @Test("A dry run counts the topic's message once")
    func dryRun() async throws {
        try await StorageFixture.run { fixture in
            try await setFCM(fixture)
            try await install(fixture)
            let session = try await fixture.database.sessions.open(name: "first")
            let push = try fixture.push("dry", ["audience_topic": "PUSH_RC", "dry_run": true])
            _ = try await fixture.database.intake.plan(session: session, [push])
            let found = try await fixture.database.planning.claim(session: session)
            let counts = try await fixture.database.planning.countAudience(try #require(found))
            #expect(counts == [.apns: 1, .fcm: 1, .wns: 1])
        }
    }

    @Test("A device that has the version or a later one is left out, which the record shows")
    func fetched() async throws {
        for shardSize in [10, 1] {
            try await StorageFixture.run { fixture in
                try await setFCM(fixture)
                let installed = try await install(fixture)
                let old = try await fixture.install([
                    "deviceType": "ios", "deviceToken": "aa03", "channels": ["PUSH_RC"],
                ])
                for (phone, version) in [(installed[0], 8), (installed[1], 9), (old, 7)] {
                    _ = try await fixture.server.query(
                        """
                        insert into config_fetched (app, installation, version)
                        values ('\(phone.app)', '\(phone.objectID)', \(version))
                        """
                    )
                }
                let session = try await fixture.database.sessions.open(name: "first")
                let push = try await plan(
                    ["audience_topic": "PUSH_RC", "configVersion": "8"],
                    fixture,
                    session: session,
                    shardSize: shardSize
                )
                #expect(try await fixture.balancedLedger(of: push.id).targeted == 2)
                let members = try await members(fixture, session: session)
                #expect(members.map(\.target) == [old.objectID])
                let stored = try await fixture.database.pushes.find(push.id)
                #expect(stored?.notes["leftOut"]?.string?.contains("version 8") == true)
            }
        }
    }

    @Test("The topic's message of a cancelled push is suppressed like every delivery")
    func cancelled() async throws {
        try await StorageFixture.run { fixture in
            try await setFCM(fixture)
            try await install(fixture)
            let session = try await fixture.database.sessions.open(name: "first")
            let push = try await plan(["audience_topic": "PUSH_RC"], fixture, session: session)
            _ = try await fixture.database.pushes.cancel(push.id)
            let due = try await fixture.database.due.claim(session: session, lane: 0, limit: 10)
            #expect(due.map(\.suppression) == ["cancelled"])
            let members = try await members(fixture, session: session)
            #expect(members.map(\.suppression) == ["cancelled", "cancelled"])
        }
    }

    @Test(
        "A spread waits until all are counted, then one shard at a time, with the topic due at once"
    )
    func spreadShards() async throws {
        try await StorageFixture.run { fixture in
            try await setFCM(fixture)
            for number in 10..<40 {
                try await fixture.install([
                    "deviceType": "ios", "deviceToken": .string("aa\(number)"),
                    "channels": ["PUSH_RC"],
                ])
            }
            let database = fixture.database
            let session = try await database.sessions.open(name: "first")
            let push = try fixture.push("stale", ["audience_topic": "PUSH_RC", "spread": 30])
            _ = try await database.intake.plan(session: session, [push])
            _ = try await database.planning.claim(session: session)
            var page = try await database.planning.planPage(
                session: session,
                pushID: push.id,
                limit: 10,
                shardSize: 2
            )
            #expect(!page.isFinished)
            let first = try await database.due.claim(session: session, lane: 0, limit: 10)
            #expect(first.map(\.target) == ["topic:PUSH_RC"])
            let none = try await database.shards.claim(session: session, limit: 9, holding: [:])
            #expect(none.isEmpty)
            while !page.isFinished {
                page = try await database.planning.planPage(
                    session: session,
                    pushID: push.id,
                    limit: 10,
                    shardSize: 2
                )
            }
            let all = try await database.shards.members(of: [push.id])
            #expect(all == [push.id: 30])
            let one = try await database.shards.claim(session: session, limit: 9, holding: [:])
            #expect(one.map(\.shard) == [0])
        }
    }

    @Test(
        "Named devices and a small audience are also distributed over the spread",
        arguments: ["tokens", "installations", "channels", "where"]
    )
    func spreadRows(field: String) async throws {
        try await StorageFixture.run { fixture in
            var named: [JSONValue] = []
            for number in 10..<14 {
                var fields = fixture.iPhone("aa\(number)")
                fields["channels"] = ["news"]
                let phone = try await fixture.install(fields)
                named.append(
                    field == "tokens"
                        ? ["platform": "apns", "token": .string("bb\(number)")]
                        : .string(phone.objectID)
                )
            }
            let session = try await fixture.database.sessions.open(name: "first")
            let selector: JSONValue =
                switch field {
                case "channels": ["news"]
                case "where": ["deviceType": "ios"]
                default: .array(named)
                }
            let push = try await plan(
                [field: selector, "spread": 40],
                fixture,
                session: session
            )
            #expect(try await fixture.balancedLedger(of: push.id).targeted == 4)
            let due = try await fixture.server.query(
                """
                select round(extract(epoch from d.due_at - p.planned_until))::int
                from deliveries d join pushes p on p.id = d.push_id order by d.due_at
                """
            )
            #expect(due == ["0", "10", "20", "30"])
        }
    }
}
