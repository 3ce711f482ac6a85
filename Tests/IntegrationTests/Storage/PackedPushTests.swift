import JSON
import PushCore
import Support
import Testing

@testable import PushStorage
@testable import Storage
@testable import StorageAdmin

/// Pushes whose deliveries are in their own row, as the ledger writes those that HTTP accepted.
@Suite("A push that has its deliveries in its own row", .timeLimit(.minutes(2)))
struct PackedPushTests {
    /// Sends a push over HTTP to a phone and a token, of `age` days: one delivered, one failed.
    private func pack(
        _ event: String,
        to phone: String,
        age: Int = 0,
        _ fixture: StorageFixture
    ) async throws -> String {
        let database = fixture.database
        let push = try fixture.push(event, ["installations": [.string(phone), "token-hash"]])
        _ = try await database.pushes.accept(
            push,
            record: OutgoingRecord(topic: "push.requests", key: [1], value: [2])
        )
        let found = try await database.fewDevices.lookUp([push]).first
        guard case .new(let deliveries, let at, let hasRow)? = found else {
            Issue.record("it is new")
            return push.id
        }
        let token = Delivery(
            key: DeliveryKey(day: at.day, pushID: push.id, target: "token-hash"),
            app: push.app,
            device: DeviceTarget(provider: .fcm, token: "t", environment: .none),
            lane: 0,
            attempts: 0,
            unanswered: 0,
            createdAt: at
        )
        let whole = SentPush(
            push: push,
            createdAt: at,
            hasRow: hasRow,
            deliveries: [
                DeliveryRecord(
                    deliveries[0],
                    DeliveryEnd(
                        .settle(.delivered),
                        status: 200,
                        attempts: 1,
                        unanswered: 0,
                        at: at
                    )
                ),
                DeliveryRecord(
                    token,
                    DeliveryEnd(
                        .settle(.failed),
                        status: 400,
                        reason: "BadThing",
                        messageID: "m-1",
                        attempts: 2,
                        unanswered: 0,
                        at: at
                    )
                ),
            ]
        )
        let session = try await database.sessions.open(name: "replica")
        #expect(try await database.fewDevices.write(session: session, [whole]).ids == [push.id])
        #expect(try await text(fixture, "select count(*) from deliveries") == ["0"])
        _ = try await fixture.server.query(
            """
            update pushes set created_at = created_at - interval '\(age) days',
                finished_at = finished_at - interval '\(age) days' where id = '\(push.id)'
            """
        )
        return push.id
    }

    private func text(_ fixture: StorageFixture, _ sql: String) async throws -> [String] {
        try await fixture.server.query(sql)
    }

    @Test("A packed push is read, counted and listed as rows are")
    func read() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11")).objectID
            let id = try await pack("e1", to: phone, fixture)
            let ledger = try await fixture.balancedLedger(of: id)
            #expect(ledger.delivered == 1 && ledger.failed == 1 && ledger.targeted == 2)
            let states = try await database.deliveries.states(pushID: id)
            #expect(Set(states.map(\.target)) == [phone, "token-hash"])
            let failed = try #require(states.first { $0.target == "token-hash" })
            #expect(failed.attempts == 2 && failed.status == 400 && failed.reason == "BadThing")
            #expect(failed.installationID == nil && failed.state == .failed)
            let record = try #require(try await database.pushes.find(id))
            let examples = try await database.deliveries.examples(
                of: record.failures,
                in: id,
                limit: 3
            )
            #expect(examples.map(\.targets) == [["token-hash"]])
            #expect(try await database.deliveries.counts(of: [id]).map(\.count) == [1, 1])
            let recent = try await database.deliveries.recent(
                of: [phone],
                app: record.app,
                pushes: 10,
                withinMilliseconds: 5000
            )
            #expect(recent?.deliveries.map(\.pushID) == [id])
            #expect(recent?.deliveries.map(\.state) == [.delivered])
        }
    }

    @Test("An export shows the phone, an erasure removes it, and the books balance")
    func erasure() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            _ = try await database.maintenance.maintain(now: .now())
            let phone = try await fixture.install(fixture.iPhone("aa11bb22cc33dd44")).objectID
            let other = try await fixture.install(fixture.iPhone("ee11bb22cc33dd44")).objectID
            let mine = try await pack("mine", to: phone, fixture)
            let theirs = try await pack("theirs", to: other, fixture)
            let subject = Subject(app: "shop", .installation, phone)
            let export = try await database.erasures.export(subject)
            #expect(export[.deliveries].count == 1 && export[.pushes].count == 1)
            let receipt = try await database.erasures.erase(
                subject,
                by: AuditEntry(app: "shop", actor: "test", action: "erase", status: 200)
            )
            #expect(receipt.erased["deliveries"] == 1 && receipt.erased["pushes"] == 1)
            for table in ["pushes", "deliveries", "event_keys"] {
                #expect(
                    try await text(
                        fixture,
                        "select count(*) from \(table) t where strpos(t::text, '\(phone)') > 0"
                    ) == ["0"]
                )
            }
            #expect(try await fixture.balancedLedger(of: mine).delivered == 1)
            #expect(try await fixture.balancedLedger(of: theirs).delivered == 1)
            #expect(
                try await text(fixture, "select count(*) from pushes where deliveries is not null")
                    == ["1"]
            )
        }
    }

    @Test(
        "A client can hide it, its deliveries expire with those of other days, and it goes with its app"
    )
    func keeping() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            _ = try await database.maintenance.maintain(now: .now())
            let phone = try await fixture.install(fixture.iPhone("aa11")).objectID
            let hidden = try await pack("hidden", to: phone, fixture)
            let old = try await pack("old", to: phone, age: 9, fixture)
            let new = try await pack("new", to: phone, age: 5, fixture)
            #expect(try await database.pushes.hide(app: "shop", ids: [hidden]) == 1)
            #expect(try await fixture.balancedLedger(of: hidden).delivered == 1)
            _ = try await database.maintenance.maintain(now: .now())
            #expect(try await database.deliveries.states(pushID: old).isEmpty)
            #expect(try await database.pushes.find(old)?.ledger.delivered == 1)
            #expect(try await database.deliveries.states(pushID: new).count == 2)
            #expect(try await database.apps.delete("shop").pushes == 3)
            #expect(try await text(fixture, "select count(*) from all_deliveries") == ["0"])
        }
    }
}
