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
struct DeliveryStoreTests {
    @Test("The same event from many consumers at once is one push, planned once")
    func sameEventIsOnePush() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.install(fixture.iPhone("aa01"))
            let pushes = try (0..<20).map { number in
                try fixture.push(
                    "event-\(number)",
                    ["tokens": [["platform": "fcm", "token": .string("token-\(number)")]]]
                )
            }
            let database = fixture.database
            let batches = try await withThrowingTaskGroup(of: PlannedBatch.self) { group in
                for _ in 0..<6 {
                    group.addTask {
                        let session = try await database.sessions.open(name: "replica")
                        return try await database.intake.plan(
                            session: session,
                            pushes.shuffled()
                        )
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(batches.map(\.newPushIDs.count).reduce(0, +) == 20)
            #expect(batches.map(\.deliveries.count).reduce(0, +) == 20)
            for push in pushes {
                #expect(try await fixture.balancedLedger(of: push.id).targeted == 1)
            }
        }
    }

    @Test("Promise 6: the books balance after every step, and agree with the rows")
    func booksBalance() async throws {
        try await StorageFixture.run { fixture in
            var names: [JSONValue] = []
            for number in 0..<6 {
                let saved = try await fixture.install(fixture.iPhone("ab0\(number)"))
                names.append(.string(saved.objectID))
            }
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("books", ["installations": .array(names)])
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.deliveries.count == 6)
            #expect(planned.deliveries.allSatisfy { $0.device.environment == .production })
            #expect(planned.deliveries.allSatisfy { !$0.device.environmentIsExplicit })
            var ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.pending == 6)
            for (index, outcome) in Outcome.allCases.enumerated() {
                let settled = ended(planned.deliveries[index], outcome)
                let keys = try await database.ledger.record(session: session, [settled])
                #expect(keys == [settled.delivery.key])
                ledger = try await fixture.balancedLedger(of: push.id)
                #expect(ledger[outcome] == 1)
                #expect(try await database.pushes.find(push.id)?.status == .sending)
            }
            // Twice in one batch, and once more afterwards: it is counted once.
            let last = delivered(planned.deliveries[5])
            #expect(
                try await database.ledger.record(session: session, [last, last]).count == 1
            )
            #expect(try await database.ledger.record(session: session, [last]).isEmpty)
            ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 2)
            #expect(ledger.isSettled)
            let record = try #require(try await database.pushes.find(push.id))
            #expect(record.status == .done)
            #expect(record.finishedAt != nil)
        }
    }

    @Test("A session that stalled beyond its lease cannot change anything")
    func stalledSessionIsFenced() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let stalled = try await database.sessions.open(name: "stalled")
            let push = try fixture.push(
                "fence",
                [
                    "tokens": [
                        ["platform": "fcm", "token": "one"], ["platform": "fcm", "token": "two"],
                    ]
                ]
            )
            let planned = try await database.intake.plan(session: stalled, [push])
            #expect(planned.deliveries.count == 2)
            #expect(try await database.sessions.reap().sessions == 0)
            _ = try await fixture.server.query(
                "update dispatchers set lease_until = now() - interval '1 s'"
            )
            let reaped = try await database.sessions.reap()
            #expect(reaped.sessions == 1)
            #expect(reaped.deliveries == 2)

            #expect(try await database.sessions.heartbeat(stalled) == false)
            let late = planned.deliveries.map(delivered)
            #expect(try await database.ledger.record(session: stalled, late).isEmpty)
            let again = retried(planned.deliveries[0], until: .now(), attempts: 5)
            #expect(try await database.ledger.record(session: stalled, [again]).isEmpty)
            await #expect(throws: StorageError.self) {
                try await database.intake.plan(
                    session: stalled,
                    [try fixture.push("later", ["identities": ["user"]])]
                )
            }
            #expect(try await fixture.balancedLedger(of: push.id).pending == 2)

            let next = try await database.sessions.open(name: "next")
            let claimed = try await database.due.claim(session: next, lane: 0, limit: 10)
            #expect(Set(claimed.map(\.key)) == Set(planned.deliveries.map(\.key)))
            #expect(try await database.ledger.record(session: next, late).count == 2)
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 2)
        }
    }

    @Test("Two concurrent claims never get the same delivery")
    func claimsAreExclusive() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "planner")
            let tokens = (0..<200).map { number -> JSONValue in
                ["platform": "fcm", "token": .string("token-\(number)")]
            }
            let push = try fixture.push("claims", ["tokens": .array(tokens)])
            _ = try await database.intake.plan(session: session, [push])
            try await database.sessions.close(session)
            let keys = try await withThrowingTaskGroup(of: [DeliveryKey].self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        let session = try await database.sessions.open(name: "claimer")
                        var keys: [DeliveryKey] = []
                        while true {
                            let claimed = try await database.due.claim(
                                session: session,
                                lane: 0,
                                limit: 7
                            )
                            if claimed.isEmpty { return keys }
                            keys += claimed.map(\.key)
                        }
                    }
                }
                return try await group.reduce(into: []) { $0 += $1 }
            }
            #expect(keys.count == 200)
            #expect(Set(keys).count == 200)
        }
    }

    @Test("Claims are fair: many due rows of one provider do not delay another's single row")
    func claimsAreFair() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "planner")
            let many = (0..<300).map { number -> JSONValue in
                ["platform": "fcm", "token": .string("token-\(number)")]
            }
            let few: [JSONValue] = [
                [
                    "platform": "apns", "environment": "production",
                    "token": .string(String(repeating: "ab", count: 32)),
                ]
            ]
            for (event, tokens) in [("many", many), ("few", few)] {
                let push = try fixture.push(event, ["tokens": .array(tokens)])
                _ = try await database.intake.plan(session: session, [push])
            }
            try await database.sessions.close(session)
            let next = try await database.sessions.open(name: "claimer")
            let first = try await database.due.claimFairly(
                session: next,
                lane: 0,
                limit: 20,
                after: nil
            )
            #expect(first.deliveries.count { $0.device.provider == .apns } == 1)
            #expect(first.deliveries.count { $0.device.provider == .fcm } == 10)
            #expect(first.last == nil)
            // Without others one gets all.
            let second = try await database.due.claimFairly(
                session: next,
                lane: 0,
                limit: 20,
                after: nil
            )
            #expect(second.deliveries.count == 20)
            // There are no rows behind the last.
            let behind = try await database.due.claimFairly(
                session: next,
                lane: 0,
                limit: 20,
                after: DueStore.Client(app: "zzzz", provider: "")
            )
            #expect(behind.deliveries.isEmpty && behind.last == nil)
        }
    }

    @Test("Promise 3: an audience is fixed, is recorded in pages, and resumes after a crash")
    func planningResumes() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            for number in 0..<25 {
                var object = fixture.iPhone("ac\(number)")
                object["channels"] = number < 20 ? ["Mets"] : ["Yankees"]
                try await fixture.install(object)
            }
            let session = try await database.sessions.open(name: "first")
            let push = try fixture.push("broadcast", ["channels": ["Mets"]])
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.planningPushIDs == [push.id])
            #expect(planned.deliveries.isEmpty)
            var late = fixture.iPhone("ad")
            late["channels"] = ["Mets"]
            try await fixture.install(late)

            #expect(try await database.planning.claim(session: session)?.id == push.id)
            let page = try await database.planning.planPage(
                session: session,
                pushID: push.id,
                limit: 8
            )
            #expect(page.inserted == 8)
            #expect(!page.isFinished)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 8)
            // The planner dies; another continues where it stopped.
            try await database.sessions.close(session)
            await #expect(throws: StorageError.self) {
                try await database.planning.planPage(session: session, pushID: push.id)
            }
            let next = try await database.sessions.open(name: "next")
            // Deliveries that are sent meanwhile do not end the push.
            let early = try await database.due.claim(session: next, lane: 1, limit: 100)
            #expect(early.count == 8)
            _ = try await database.ledger.record(session: next, early.map(delivered))
            #expect(try await database.pushes.find(push.id)?.status == .planning)

            #expect(try await database.planning.claim(session: next)?.id == push.id)
            var inserted = 8
            while true {
                let page = try await database.planning.planPage(
                    session: next,
                    pushID: push.id,
                    limit: 8
                )
                inserted += page.inserted
                if page.isFinished { break }
            }
            #expect(inserted == 20)
            #expect(try await fixture.balancedLedger(of: push.id).targeted == 20)
            #expect(try await database.planning.claim(session: next) == nil)
            let rest = try await database.due.claim(session: next, lane: 1, limit: 100)
            _ = try await database.ledger.record(session: next, rest.map(delivered))
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 20)
            #expect(try await database.pushes.find(push.id)?.status == .done)
        }
    }

    @Test(
        "Selectors narrow each other, and an empty list selects nothing, unlike a missing selector"
    )
    func selectorsNarrow() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            var ids: [String] = []
            for number in 0..<4 {
                var object = fixture.iPhone("ae\(number)")
                object["channels"] = number.isMultiple(of: 2) ? ["even"] : ["odd"]
                object["identity"] = number < 2 ? "low" : "high"
                object["installationId"] = .string("device-\(number)")
                ids.append(try await fixture.install(object).objectID)
            }
            let session = try await database.sessions.open(name: "replica")
            let audiences: [(JSONObject, Set<String>)] = [
                ([:], Set(ids)),
                (["channels": []], []),
                (["installations": []], []),
                (["identities": ["nobody"]], []),
                (["channels": ["even", "odd"]], Set(ids)),
                (["channels": ["even"], "identities": ["low"]], [ids[0]]),
                (["installations": [.string(ids[1]), .string(ids[2])]], [ids[1], ids[2]]),
                (["installations": ["device-3", .string(ids[3])]], [ids[3]]),
                (["identities": ["high"]], [ids[2], ids[3]]),
                (
                    ["identities": ["high"], "installations": [.string(ids[0]), .string(ids[2])]],
                    [ids[2]]
                ),
            ]
            for (index, audience) in audiences.enumerated() {
                let push = try fixture.push("audience-\(index)", audience.0)
                let planned = try await database.intake.plan(session: session, [push])
                while try await database.planning.claim(session: session) != nil {
                    var isFinished = false
                    while !isFinished {
                        isFinished = try await database.planning.planPage(
                            session: session,
                            pushID: push.id
                        ).isFinished
                    }
                }
                let states = try await database.deliveries.states(pushID: push.id)
                #expect(Set(states.compactMap(\.installationID)) == audience.1, "\(audience.0)")
                #expect(planned.newPushIDs == [push.id])
                let ledger = try await fixture.balancedLedger(of: push.id)
                #expect(ledger.targeted == audience.1.count)
                if audience.1.isEmpty {
                    #expect(try await database.pushes.find(push.id)?.status == .done)
                }
            }
        }
    }

    @Test("Promise 9: a dead token is not sent to again, and a renewed one stays valid")
    func tokensDieByTheTimestampRule() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let dying = try await fixture.install(fixture.iPhone("af01"))
            let renewed = try await fixture.install(fixture.iPhone("af02"))
            let replaced = try await fixture.install(fixture.iPhone("af03"))
            let registered = try #require(renewed.tokenUpdatedAt)
            let session = try await database.sessions.open(name: "replica")
            let all: JSONObject = [
                "installations": .array(
                    [dying, renewed, replaced].map { .string($0.objectID) }
                )
            ]
            let push = try fixture.push("dying", all)
            let planned = try await database.intake.plan(session: session, [push])
            // The device behind the third gets another token while the answer is in flight.
            _ = try await database.installations.update(
                app: StorageFixture.app,
                objectID: replaced.objectID
            ) { installation in
                var object = installation.object
                object["deviceToken"] = "af04"
                try installation.take(object, changed: ["deviceToken"], now: .now())
            }
            let answers = planned.deliveries.map { delivery in
                gone(
                    delivery,
                    at: delivery.installationID == renewed.objectID
                        ? registered.adding(milliseconds: -1) : Instant.now()
                )
            }
            #expect(try await database.ledger.record(session: session, answers).count == 3)
            let states = try await database.installations.query(app: StorageFixture.app)
            let valid = Set(states.filter(\.isValid).map(\.objectID))
            #expect(valid == [renewed.objectID, replaced.objectID])
            let dead = try #require(states.first { $0.objectID == dying.objectID })
            #expect(dead.invalidReason == "Unregistered")
            #expect(try await fixture.balancedLedger(of: push.id).invalidTokens == 3)

            let second = try fixture.push("second", all)
            let rest = try await database.intake.plan(session: session, [second])
            // A push that names the dead one has a delivery without a token, with a reason.
            let reachable = rest.deliveries.filter { $0.suppression == nil }
            #expect(Set(reachable.compactMap(\.installationID)) == valid)
            let suppressed = rest.deliveries.filter { $0.suppression != nil }
            #expect(suppressed.map(\.installationID) == [dying.objectID])
            #expect(suppressed.map(\.device.token) == [""])
            #expect(
                suppressed.compactMap(\.suppression)
                    == ["the installation is invalid: Unregistered"]
            )
            // An audience that does not name it omits it.
            let everyone = try fixture.push("everyone", [:])
            _ = try await database.intake.plan(session: session, [everyone])
            _ = try await database.planning.claim(session: session)
            let page = try await database.planning.planPage(
                session: session,
                pushID: everyone.id
            )
            #expect(page.inserted == 2)
            // The app is opened again: the device names its token, which is valid again.
            let revived = try await fixture.install(fixture.iPhone("af01"))
            #expect(revived.objectID == dying.objectID)
            #expect(revived.isValid)
        }
    }

    @Test("BadDeviceToken does not invalidate a token that a push named with the wrong environment")
    func wrongEnvironmentOfThePush() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let unnamed = try await fixture.install(fixture.iPhone("be01"))
            var object = fixture.iPhone("be02")
            object["apnsEnvironment"] = "sandbox"
            let named = try await fixture.install(object)
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "wrong",
                [
                    "tokens": .array(
                        ["be01", "be02"].map {
                            ["platform": "apns", "token": .string($0), "environment": "sandbox"]
                        }
                    )
                ]
            )
            let planned = try await database.intake.plan(session: session, [push])
            let answers = planned.deliveries.map {
                gone($0, at: .now(), reason: "BadDeviceToken")
            }
            #expect(try await database.ledger.record(session: session, answers).count == 2)
            let states = try await database.installations.query(app: StorageFixture.app)
            let valid = states.filter(\.isValid).map(\.objectID)
            #expect(valid == [unnamed.objectID])
            #expect(states.contains { $0.objectID == named.objectID && !$0.isValid })
        }
    }

    @Test("The push's prod decides for an installation without an environment")
    func prodDecides() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            var named = fixture.iPhone("ba01")
            named["apnsEnvironment"] = "production"
            let ids = [
                try await fixture.install(named).objectID,
                try await fixture.install(fixture.iPhone("ba02")).objectID,
            ]
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "dev",
                ["installations": .array(ids.map(JSONValue.string)), "prod": "dev"]
            )
            let tokens = try fixture.push(
                "dev-token",
                ["tokens": [["platform": "apns", "token": "ba03"]], "prod": "dev"]
            )
            let planned = try await database.intake.plan(session: session, [push, tokens])
            let environments = Dictionary(
                uniqueKeysWithValues: planned.deliveries.map { ($0.device.token, $0.device) }
            )
            #expect(environments["ba01"]?.environment == .production)
            #expect(environments["ba01"]?.environmentIsExplicit == true)
            #expect(environments["ba02"]?.environment == .sandbox)
            #expect(environments["ba02"]?.environmentIsExplicit == false)
            #expect(environments["ba03"]?.environment == .sandbox)
        }
    }

    @Test(
        "A delivery's topic is its installation's own, else its appIdentifier, truncated if long"
    )
    func topics() async throws {
        try await StorageFixture.run { fixture in
            let long = String(repeating: "x", count: 300)
            let fields: [(JSONObject, String?)] = [
                (
                    ["apnsTopic": "com.example.own", "appIdentifier": "com.example.app"],
                    "com.example.own"
                ),
                (["appIdentifier": "com.example.app"], "com.example.app"),
                (["appIdentifier": .string(long)], String(long.prefix(256))),
                ([:], nil),
            ]
            var expected: [String: String?] = [:]
            for (number, (more, topic)) in fields.enumerated() {
                var object = fixture.iPhone("bd0\(number)")
                for (key, value) in more { object[key] = value }
                expected[try await fixture.install(object).objectID] = topic
            }
            let session = try await fixture.database.sessions.open(name: "replica")
            let push = try fixture.push(
                "topics",
                [
                    "installations": .array(expected.keys.map { .string($0) }),
                    "topic": "com.example.push",
                ]
            )
            let planned = try await fixture.database.intake.plan(session: session, [push])
            let found = planned.deliveries.map { ($0.target, $0.apnsTopic) }
            #expect(Dictionary(uniqueKeysWithValues: found) == expected)
        }
    }

    @Test("Concurrent batches that settle the same rows of several pushes wait and never deadlock")
    func locksInOneOrder() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let tokens = (0..<60).map { number -> JSONValue in
                ["platform": "fcm", "token": .string("token-\(number)")]
            }
            let pushes = try (0..<6).map {
                try fixture.push("lock-\($0)", ["tokens": .array(tokens)])
            }
            let planned = try await database.intake.plan(session: session, pushes)
            let settled = planned.deliveries.map(delivered)
            #expect(settled.count == 360)
            let counts = try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<6 {
                    group.addTask {
                        try await database.ledger.record(session: session, settled.shuffled()).count
                    }
                }
                return try await group.reduce(0, +)
            }
            #expect(counts == 360)
            for push in pushes {
                #expect(try await fixture.balancedLedger(of: push.id).delivered == 60)
            }
            // A transaction that met one would have been repeated.
            #expect(
                try await fixture.server.query(
                    "select deadlocks from pg_stat_database where datname = current_database()"
                ) == ["0"]
            )
        }
    }

    @Test("An app is deleted once no session owns a delivery of it")
    func deletionWaits() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("owned", ["tokens": [["platform": "fcm", "token": "t"]]])
            let planned = try await database.intake.plan(session: session, [push])
            async let deletion = database.apps.delete(StorageFixture.app)
            _ = try await eventually("the push is cancelled") {
                try await database.pushes.find(push.id)?.status == .cancelled ? true : nil
            }
            // It exists as long as its session owns it, and its answer is recorded normally.
            for _ in 0..<100 { #expect(try await database.pushes.find(push.id) != nil) }
            let late = try await database.ledger.record(
                session: session,
                planned.deliveries.map(delivered)
            )
            #expect(late.count == 1)
            #expect(try await deletion.pushes == 1)
        }
    }

    @Test("A request with a number that jsonb rejects does not fail its batch")
    func oddRequestsAreKept() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let odd = try fixture.push(
                "odd",
                [
                    "tokens": [["platform": "apns", "token": "0dd"]], "colour": "red",
                    "weight": .number("1e99999"),
                ]
            )
            let planned = try await database.intake.plan(
                session: session,
                [odd, try fixture.push("plain", ["tokens": [["platform": "fcm", "token": "p"]]])]
            )
            #expect(planned.deliveries.count == 2)
            let record = try #require(try await database.pushes.find(odd.id))
            #expect(record.request["weight"] == .number("1e99999"))
            #expect(record.notes["unknownFields"] == ["colour", "weight"])
        }
    }
}
