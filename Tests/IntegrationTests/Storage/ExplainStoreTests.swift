import Explain
import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage
import Support
import Testing

@testable import ConnectionStorage

/// The facts of explanations, read from a real database, in the forms in which the ledger stores
/// deliveries: rows, chunks, one row for push and deliveries, shards.
@Suite(
    "Explanations from the database",
    .timeLimit(.minutes(5)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ExplainStoreTests {
    private func explain(
        _ push: NewPush?,
        _ installation: String,
        _ fixture: StorageFixture
    ) async throws -> Explanation {
        var stored: StoredPush?
        if let push {
            let found = try await fixture.database.pushes.find(push.id)
            let known: StoredPush = try #require(found)
            stored = known
        }
        return try await fixture.database.explanations.explain(
            stored,
            app: StorageFixture.app,
            installation: installation
        )
    }

    /// Saves a phone in a channel.
    private func phone(
        _ token: String,
        _ more: JSONObject = [:],
        in fixture: StorageFixture
    ) async throws -> Installation {
        var object = fixture.iPhone(token)
        object["channels"] = ["news"]
        for (key, value) in more { object[key] = value }
        return try await fixture.install(object)
    }

    /// Claims all shards of the app, and ends their members.
    private func send(
        _ fixture: StorageFixture,
        isFinished: Bool = true,
        _ end: (Delivery) -> DeliveryRecord = { delivered($0) }
    ) async throws {
        let session = try await fixture.database.sessions.open(name: "sender")
        for shard in try await fixture.claim(session) {
            let members = try await fixture.members(of: shard, by: 100)
            _ = try await fixture.database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(
                    cursor: members.last?.target,
                    records: members.map(end),
                    isFinished: isFinished
                )
            )
        }
        try await fixture.database.sessions.close(session)
    }

    @Test("Not in the audience then: the device joined, or registered, after it was chosen")
    func notThen() async throws {
        try await StorageFixture.run { fixture in
            let other = try await phone("aa01", ["channels": ["chess"]], in: fixture)
            _ = try await phone("aa02", in: fixture)
            let push = try await fixture.broadcast("late", ["channels": ["news"]], shardSize: 10)
            try await send(fixture)
            var found = try await explain(push, other.objectID, fixture)
            #expect(found.reason == .notInAudience)
            #expect(found.sentence.text.contains("channels contains one of news"))
            #expect(found.sentence.text.contains("not changed since"))
            let clause = found.clauses.first { $0.condition.text.hasPrefix("channels") }
            #expect(clause?.now == false && clause?.then == false && clause?.value == "chess")

            _ = try await phone("aa01", in: fixture)
            found = try await explain(push, other.objectID, fixture)
            #expect(found.reason == .notInAudienceThen)
            #expect(found.notes.first?.text.hasPrefix("It was saved last at") == true)
            let joined = found.clauses.first { $0.condition.text.hasPrefix("channels") }
            #expect(joined?.now == true && joined?.then == nil)
            let new = try await phone("aa03", in: fixture)
            found = try await explain(push, new.objectID, fixture)
            #expect(found.reason == .notInAudienceThen)
            #expect(found.notes.first?.text.hasPrefix("It was first saved at") == true)
        }
    }

    @Test("An invalid token: by this push, and by an earlier one")
    func invalidToken() async throws {
        try await StorageFixture.run { fixture in
            let saved = try await phone("aa01", in: fixture)
            let first = try await fixture.broadcast("one", ["channels": ["news"]], shardSize: 10)
            try await send(fixture) { gone($0, at: .now().adding(milliseconds: 1000)) }
            let second = try await fixture.broadcast("two", ["channels": ["news"]], shardSize: 10)
            let by = try await explain(first, saved.objectID, fixture)
            #expect(by.reason == .tokenInvalid)
            #expect(by.sentence.text.contains("rejected this push"))
            #expect(by.attempts.map(\.status) == [410])
            let before = try await explain(second, saved.objectID, fixture)
            #expect(before.reason == .tokenInvalid)
            #expect(before.sentence.text.contains("before this push"))
            #expect(before.sentence.text.contains("APNs: Unregistered"))
            #expect(try await explain(nil, saved.objectID, fixture).reason == .tokenInvalid)
        }
    }

    @Test("A muted device, with the time, which later saves and logins keep")
    func muted() async throws {
        try await StorageFixture.run { fixture in
            let web: JSONObject = [
                "deviceType": "web", "installationId": "web-1", "channels": ["news"],
            ]
            let saved = try await fixture.install(web)
            var object = web
            object["valid"] = false
            _ = try await fixture.install(object)
            let muted = try await explain(nil, saved.objectID, fixture)
            #expect(muted.reason == .muted)
            #expect(muted.sentence.values.contains { $0.name == "time" })
            object["name"] = "later"
            _ = try await fixture.install(object)
            _ = try await fixture.server.query(
                "UPDATE installations SET updated_at = updated_at - interval '2 h'"
            )
            let login = DeviceLogin(app: StorageFixture.app, installationID: "web-1")
            #expect(try await fixture.database.connections.logIn([login]).count == 1)
            let later = try await explain(nil, saved.objectID, fixture)
            #expect(later.sentence == muted.sentence)
            let push = try await fixture.broadcast("m", ["channels": ["news"]], shardSize: 10)
            #expect(try await explain(push, saved.objectID, fixture).reason == .muted)
            // Named, it is reported as suppressed.
            let named = try fixture.push("n", ["installations": [.string(saved.objectID)]])
            let session = try await fixture.database.sessions.open(name: "replica")
            let planned = try await fixture.database.intake.plan(session: session, [named])
            _ = try await fixture.database.ledger.record(
                session: session,
                planned.deliveries.map(suppressed)
            )
            let suppression = try await explain(named, saved.objectID, fixture)
            #expect(suppression.reason == .muted)
            // One that is muted from its first save on.
            let born = try await phone("aa09", ["valid": false], in: fixture)
            let since = try await explain(nil, born.objectID, fixture)
            #expect(since.reason == .muted)
            #expect(since.sentence.values.map(\.value) == [.time(born.createdAt)])
            _ = try await fixture.database.installations.delete(
                app: StorageFixture.app,
                objectIDs: [born.objectID]
            )
            object["valid"] = true
            _ = try await fixture.install(object)
            #expect(
                try await fixture.server.query("SELECT invalidated_at IS NULL FROM installations")
                    == ["t"]
            )
        }
    }

    @Test("The wrong environment, of a token that names none, and of one that names its own")
    func environment() async throws {
        try await StorageFixture.run { fixture in
            let plain = try await phone("aa01", in: fixture)
            let own = try await phone("aa02", ["apnsEnvironment": "sandbox"], in: fixture)
            let push = try await fixture.broadcast("env", ["channels": ["news"]], shardSize: 10)
            try await send(fixture) { delivery in
                delivery.device.environmentIsExplicit
                    ? gone(
                        delivery,
                        at: .now().adding(milliseconds: 1000),
                        reason: "BadDeviceToken"
                    ) : ended(delivery, .failed, status: 400, reason: "BadDeviceToken")
            }
            for (phone, used, other) in [
                (plain, "production", "sandbox"), (own, "sandbox", "production"),
            ] {
                let found = try await explain(push, phone.objectID, fixture)
                #expect(found.reason == .wrongEnvironment)
                #expect(found.sentence.text.contains("belong to \(used)"))
                #expect(found.sentence.text.contains("belongs to \(other)"))
            }
            let next = try await fixture.broadcast("next", ["channels": ["news"]], shardSize: 10)
            let found = try await explain(next, own.objectID, fixture)
            #expect(found.reason == .wrongEnvironment)
            #expect(found.sentence.text.contains("an earlier push"))
        }
    }

    @Test("Expired, too large and suppressed deliveries, with the figures of their rows")
    func endsOfRows() async throws {
        try await StorageFixture.run { fixture in
            let phones = [
                try await phone("aa01", in: fixture), try await phone("aa02", in: fixture),
                try await phone("aa03", in: fixture),
            ].map(\.objectID)
            let push = try fixture.push(
                "ends",
                [
                    "installations": .array(phones.map(JSONValue.string)),
                    "expiration_interval": 1,
                ]
            )
            let session = try await fixture.database.sessions.open(name: "replica")
            let planned = try await fixture.database.intake.plan(session: session, [push])
            let ends = [
                (Outcome.expired, "expired before it was sent"),
                (.failed, "the payload is too large: 4131 bytes of at most 4096"),
                (.suppressed, "erased"),
            ]
            let records = zip(planned.deliveries.sorted { $0.target < $1.target }, ends).map {
                ended($0, $1.0, attempts: 0, reason: $1.1)
            }
            _ = try await fixture.database.ledger.record(session: session, records)
            _ = try await fixture.server.query(
                "UPDATE deliveries SET expires_at = updated_at - interval '4 min'"
            )
            let order = phones.sorted()
            let expired = try await explain(push, order[0], fixture)
            #expect(expired.reason == .expired)
            #expect(expired.sentence.text.contains("4 min after the push had expired"))
            #expect(expired.attempts.isEmpty)
            let large = try await explain(push, order[1], fixture)
            #expect(large.reason == .tooLarge && large.sentence.text.contains("4131 bytes"))
            let suppressed = try await explain(push, order[2], fixture)
            #expect(suppressed.reason == .suppressed)
        }
    }

    @Test("A device that was deleted between planning and its turn")
    func deleted() async throws {
        try await StorageFixture.run { fixture in
            let saved = try await phone("aa01", ["city": "Oslo"], in: fixture)
            _ = try await phone("aa02", ["city": "Oslo"], in: fixture)
            let push = try await fixture.broadcast(
                "gone",
                ["where": ["city": "Oslo"]],
                shardSize: 10
            )
            let waiting = try await explain(push, saved.objectID, fixture)
            #expect(waiting.reason == .waiting)
            #expect(
                try await fixture.database.installations.delete(
                    app: StorageFixture.app,
                    objectIDs: [saved.objectID]
                ) == 1
            )
            try await fixture.database.audit.append([
                AuditEntry(
                    app: StorageFixture.app,
                    actor: "master-key",
                    action: "DELETE /1.1/installations/:id",
                    targets: [saved.objectID],
                    status: 200
                )
            ])
            try await send(fixture)
            let found = try await explain(push, saved.objectID, fixture)
            #expect(found.reason == .suppressed)
            #expect(found.sentence.text.contains("after planning and before its turn"))
            let none = try await explain(nil, saved.objectID, fixture)
            #expect(none.reason == .installationUnknown)
            #expect(none.sentence.text.contains("by master-key"))
            #expect(try await explain(push, "nobody", fixture).reason == .installationUnknown)
        }
    }

    @Test("A provider that does not answer: of rows with answers, and of the rest of a shard")
    func breaker() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<30)
            let push = try await fixture.broadcast("sick", shardSize: 100)
            let session = try await fixture.database.sessions.open(name: "sender")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard, by: 25)
            let later = Instant.now().adding(milliseconds: 60_000)
            let failed = members.prefix(25).map {
                retried($0, until: later, status: 503, reason: "ServiceUnavailable")
            }
            _ = try await fixture.database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(
                    cursor: failed.last?.delivery.target,
                    records: failed,
                    isFinished: false
                )
            )
            try await fixture.database.shards.release(session: session, [shard], dueAt: later)
            let first = try await explain(push, fixture.objectID(3), fixture)
            #expect(first.reason == .retrying)
            #expect(first.attempts.map(\.status) == [503])
            // Rows that failed say nothing of the others: the dispatcher does.
            #expect(try await explain(push, fixture.objectID(29), fixture).reason == .waiting)
            try await report(fixture)
            let last = try await explain(push, fixture.objectID(29), fixture)
            #expect(last.reason == .breaker)
            #expect(last.sentence.text.contains("ServiceUnavailable"))
            #expect(last.steps[2].state == .stopped && last.steps[3].state == .notReached)
            // Without a credential that is the nearer reason.
            #expect(try await explain(nil, fixture.objectID(29), fixture).reason == .noCredential)
            try await fixture.database.credentials.set(
                StoredCredential(
                    app: StorageFixture.app,
                    platform: .apns,
                    name: "com.example.shop",
                    sealed: [1],
                    summary: [:]
                )
            )
            #expect(try await explain(nil, fixture.objectID(29), fixture).reason == .breaker)
        }
    }

    /// Stores the report of a dispatcher whose circuit breaker of APNs is open.
    private func report(_ fixture: StorageFixture) async throws {
        let now = Instant.now()
        var state = ServiceState()
        state.breakers = [
            OpenBreaker(
                app: StorageFixture.app,
                provider: .apns,
                since: now.adding(milliseconds: -5000),
                retryAt: now.adding(milliseconds: 5000)
            )
        ]
        try await fixture.database.instances.report(
            ServiceInstance(
                id: "00000000-0000-4000-8000-000000000001",
                service: "dispatcher",
                host: "dispatcher-0:1",
                version: "1",
                state: state
            )
        )
    }

    @Test("Each attempt is stored with its answer, and a postponed delivery adds no attempt")
    func attempts() async throws {
        try await StorageFixture.run { fixture in
            let saved = try await phone("aa01", in: fixture)
            let push = try fixture.push("try", ["installations": [.string(saved.objectID)]])
            let session = try await fixture.database.sessions.open(name: "replica")
            var delivery = try #require(
                try await fixture.database.intake.plan(session: session, [push]).deliveries.first
            )
            let ledger = fixture.database.ledger
            for (number, status) in [503, 429, 0].enumerated() {
                let end =
                    status == 0
                    ? DeliveryRecord(
                        delivery,
                        DeliveryEnd(
                            .release(at: .now()),
                            reason: LocalWait.breaker.rawValue,
                            attempts: delivery.attempts,
                            unanswered: 0,
                            at: .now()
                        )
                    )
                    : retried(
                        delivery,
                        attempts: number + 1,
                        status: status,
                        reason: "try again"
                    )
                #expect(try await ledger.record(session: session, [end]).count == 1)
                delivery = try #require(
                    try await fixture.database.due.claim(session: session, lane: 0, limit: 1).first
                )
                #expect(delivery.attempts == min(number + 1, 2))
            }
            let waits = try await explain(push, saved.objectID, fixture)
            #expect(waits.reason == .breaker)
            #expect(waits.attempts.map(\.status) == [503, 429])
            let sent = ended(delivery, .delivered, attempts: 3, status: 200)
            #expect(try await ledger.record(session: session, [sent]).count == 1)
            let found = try await explain(push, saved.objectID, fixture)
            #expect(found.attempts.map(\.number) == [1, 2, 3])
            #expect(found.attempts.map(\.status) == [503, 429, 200])
            #expect(found.attempts.map(\.at) == found.attempts.map(\.at).sorted())
        }
    }

    @Test("A cancelled push, and who cancelled it")
    func cancelled() async throws {
        try await StorageFixture.run { fixture in
            let saved = try await phone("aa01", in: fixture)
            let push = try await fixture.broadcast("stop", ["channels": ["news"]], shardSize: 10)
            _ = try await fixture.database.pushes.cancel(push.id)
            try await fixture.database.audit.append([
                AuditEntry(
                    app: StorageFixture.app,
                    actor: "cli:mira",
                    action: "push cancel",
                    targets: [push.id],
                    status: 0
                )
            ])
            for isEnded in [false, true] {
                if isEnded { #expect(try await fixture.suppressRest() == 1) }
                let found = try await explain(push, saved.objectID, fixture)
                #expect(found.reason == .cancelled)
                #expect(found.sentence.text.hasPrefix("cli:mira cancelled the push at"))
            }
        }
    }

    @Test("An accepted push that the device never reported, in a chunk and in the push's own row")
    func neverConnected() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<20)
            let push = try await fixture.broadcast("quiet", shardSize: 100)
            try await send(fixture)
            let chunks = try await fixture.server.query("SELECT count(*) FROM delivery_chunks")
            #expect(chunks == ["1"])
            let found = try await explain(push, fixture.objectID(7), fixture)
            #expect(found.reason == .neverConnected)
            #expect(found.attempts.map(\.status) == [200])
            #expect(found.causes.first?.rank == .likely)
            #expect(found.payload?.body.contains("Ring") == true)
            // A device reports: this push, then only another one.
            for (who, target) in [(7, push.id), (8, "event/other")] {
                _ = try await fixture.server.query(
                    """
                    INSERT INTO push_receipts (app, target, kind, who)
                    VALUES ('shop', '\(target)', 2, '\(fixture.objectID(who))')
                    """
                )
            }
            #expect(try await explain(push, fixture.objectID(7), fixture).reason == .received)
            #expect(try await explain(push, fixture.objectID(8), fixture).reason == .accepted)
            #expect(try await explain(push, fixture.objectID(9), fixture).reason == .neverConnected)

            let named = try fixture.push(
                "one",
                ["installations": [.string(fixture.objectID(11))]]
            )
            let looked = try await fixture.database.fewDevices.lookUp([named]).first
            guard case .new(let deliveries, let at, let hasRow)? = looked else {
                Issue.record("it is new")
                return
            }
            let session = try await fixture.database.sessions.open(name: "replica")
            let sent = SentPush(
                push: named,
                createdAt: at,
                hasRow: hasRow,
                deliveries: deliveries.map(delivered)
            )
            _ = try await fixture.database.fewDevices.write(session: session, [sent])
            let row = try await explain(named, fixture.objectID(11), fixture)
            #expect(row.reason == .neverConnected && row.attempts.count == 1)
            let other = try await explain(named, fixture.objectID(12), fixture)
            #expect(other.reason == .notInAudience)
            #expect(other.sentence.text.contains("installation is one of"))
        }
    }

    @Test("A message that waits for a device without a provider")
    func waitingMessage() async throws {
        try await StorageFixture.run { fixture in
            let saved = try await fixture.install([
                "deviceType": "web", "installationId": "web-1", "channels": ["news"],
            ])
            let push = try await fixture.broadcast("wait", ["channels": ["news"]], shardSize: 10)
            _ = try await fixture.database.connections.keep(
                [
                    NewMessage(
                        .init(
                            app: StorageFixture.app,
                            pushID: push.id,
                            eventID: push.eventID,
                            body: Array("{}".utf8)
                        ),
                        for: DeviceKey(app: StorageFixture.app, installationID: "web-1"),
                        id: "00000000-0000-8000-8000-000000000001",
                        target: saved.objectID
                    )
                ],
                for: .seconds(3600)
            )
            try await send(fixture)
            let found = try await explain(push, "web-1", fixture)
            #expect(found.installationID == saved.objectID)
            #expect(found.reason == .neverConnected)
            #expect(found.sentence.text.contains("has not connected"))
            #expect(try await explain(nil, "web-1", fixture).reason == .neverConnected)
        }
    }

    @Test(
        "Each kind of condition has its words, its verdict by the database, and the device's value"
    )
    func conditions() async throws {
        try await StorageFixture.run { fixture in
            let saved = try await phone(
                "5ec7e7",
                ["city": "Bergen", "age": 30, "identity": "ann"],
                in: fixture
            )
            let condition: JSONValue = [
                "city": ["$in": ["Oslo", "Bergen"]], "age": ["$gte": 18, "$lt": 25],
                "deviceToken": "5ec7e7", "name": ["$exists": false],
                "$or": [["city": "Oslo"], ["age": 30]],
                "owner": [
                    "$inQuery": ["className": "_User", "where": ["vip": true]]
                ],
            ]
            let push = try await fixture.broadcast(
                "all",
                ["channels": ["news", "chess"], "identities": ["ann"], "where": condition],
                shardSize: 10
            )
            let found = try await explain(push, saved.objectID, fixture)
            let clauses = Dictionary(
                found.clauses.map { ($0.condition.text, $0) }
            ) { first, _ in first }
            let expected: [(String, Bool, String?)] = [
                ("channels contains one of news, chess", true, "news"),
                ("identity is one of ann", true, "ann"),
                ("city is one of Oslo, Bergen", true, "Bergen"),
                ("age is at least 18", true, "30"), ("age is less than 25", false, "30"),
                ("deviceToken meets a condition on its value", true, nil),
                ("name is not set", true, "not set"),
                ("one of: city is Oslo; age is 30", true, nil),
                ("owner is in the result of a query", false, "not set"),
                ("It receives more than template sends", true, nil),
            ]
            for (words, holds, value) in expected {
                let clause = try #require(
                    clauses[words],
                    "\(words): \(clauses.keys.sorted())"
                )
                #expect(clause.now == holds, "\(words)")
                #expect(clause.value == value, "\(words)")
            }
            #expect(clauses.count == expected.count + 2)
            #expect(found.reason == .notInAudience)
            #expect(found.sentence.text.contains("age is less than 25"))
        }
    }

    @Test("The content is that of the device: its language, its placeholders, and its size")
    func content() async throws {
        try await StorageFixture.run { fixture in
            let saved = try await phone(
                "aa01",
                ["name": "Ann", "localeIdentifier": "fr-CA"],
                in: fixture
            )
            let push = try await fixture.broadcast(
                "text",
                [
                    "channels": ["news"],
                    "data": ["alert": "Hello {{name}}", "alert-fr": "Bonjour {{name}}"],
                ],
                shardSize: 10
            )
            let payload = try #require(try await explain(push, saved.objectID, fixture).payload)
            #expect(payload.locale == "fr" && payload.problem == nil)
            #expect(
                payload.body.contains("Bonjour Ann") && payload.bytes == payload.body.utf8.count
            )
            _ = try await phone(
                "aa01",
                ["name": .string(String(repeating: "x", count: 5000))],
                in: fixture
            )
            let large = try #require(try await explain(push, saved.objectID, fixture).payload)
            #expect(large.problem?.hasPrefix("the payload is too large") == true)
        }
    }
}
