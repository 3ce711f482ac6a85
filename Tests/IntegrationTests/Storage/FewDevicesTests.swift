import JSON
import PushCore
import Support
import Testing

@testable import InstallationStorage
@testable import PushStorage
@testable import Storage
@testable import StorageAdmin

@Suite("Events for few devices, sent before they are stored", .timeLimit(.minutes(3)))
struct FewDevicesTests {
    /// Looks up a new push.
    private func lookUp(
        _ push: NewPush,
        _ database: PushDatabase
    ) async throws -> (deliveries: [Delivery], at: Instant, hasRow: Bool) {
        #expect(push.isForFewDevices)
        guard
            case .new(let deliveries, let at, let hasRow)? =
                try await database.fewDevices.lookUp([push]).first
        else { throw NotNew() }
        return (deliveries, at, hasRow)
    }

    private struct NotNew: Error {}

    private func sent(
        _ push: NewPush,
        _ found: (deliveries: [Delivery], at: Instant, hasRow: Bool),
        _ end: (Delivery) -> DeliveryRecord
    ) -> SentPush {
        SentPush(
            push: push,
            createdAt: found.at,
            hasRow: found.hasRow,
            deliveries: found.deliveries.map(end)
        )
    }

    @Test("A finished push is one row with the content of all of its rows")
    func oneRow() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "e1",
                ["installations": [.string(phone.objectID), "nobody"]]
            )
            let token = try fixture.push("e2", ["tokens": [["platform": "fcm", "token": "t"]]])
            let found = [try await lookUp(push, database), try await lookUp(token, database)]
            #expect(found[0].deliveries.map(\.target) == [phone.objectID])
            #expect(found[1].deliveries.map(\.device.token) == ["t"])
            let written = try await database.fewDevices.write(
                session: session,
                [
                    sent(push, found[0]) { delivered($0) },
                    sent(token, found[1]) {
                        ended(
                            $0,
                            .failed,
                            attempts: 2,
                            status: 400,
                            reason: "BadThing",
                            messageID: "m-1"
                        )
                    },
                ]
            )
            #expect(written.ids == [push.id, token.id] && written.erased.isEmpty)
            #expect(
                try await fixture.server.query(
                    "select (select count(*) from event_pushes), (select count(*) from pushes)"
                ) == ["2|0"]
            )
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 1)
            let ledger = try await fixture.balancedLedger(of: token.id)
            #expect(ledger.failed == 1 && ledger.targeted == 1)
            let record = try #require(try await database.pushes.find(token.id))
            #expect(record.status == .done && record.eventID == "e2")
            #expect(record.failures.map(\.reason) == ["BadThing"])
            let examples = try await database.deliveries.examples(
                of: record.failures,
                in: token.id,
                limit: 3
            )
            #expect(examples.map(\.targets) == [found[1].deliveries.map(\.target)])
            let states = try await database.deliveries.states(pushID: token.id)
            #expect(states.map(\.attempts) == [2] && states.map(\.installationID) == [nil])
            #expect(try await database.pushes.find(eventID: "e1").map(\.id) == [push.id])
            #expect(
                Set(try await database.pushes.list(app: "shop").map(\.id)) == [push.id, token.id]
            )
            #expect(
                try await database.deliveries.counts(of: [push.id, token.id]).map(\.count) == [
                    1, 1,
                ]
            )
        }
    }

    @Test("A repeated event is found, by any planner and from another day")
    func known() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            _ = try await database.maintenance.maintain(now: .now())
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("e1", ["installations": [.string(phone.objectID)]])
            let found = try await lookUp(push, database)
            let whole = sent(push, found) { delivered($0) }
            #expect(try await database.fewDevices.write(session: session, [whole]).ids == [push.id])
            #expect(try await database.fewDevices.write(session: session, [whole]).ids.isEmpty)
            _ = try await fixture.server.query("update event_pushes set day = day - 1")
            guard case .known? = try await database.fewDevices.lookUp([push]).first else {
                Issue.record("it is known")
                return
            }
            #expect(try await database.fewDevices.write(session: session, [whole]).ids.isEmpty)
            // It is also found as rows, by a version that does not know the table.
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.newPushIDs.isEmpty && planned.deliveries.isEmpty)
            #expect(try await fixture.server.query("select count(*) from pushes") == ["0"])
        }
    }

    @Test("Two replicas that write one event at the same time make one push")
    func atTheSameTime() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            for number in 0..<20 {
                let push = try fixture.push(
                    "e\(number)",
                    ["installations": [.string(phone.objectID)]]
                )
                let found = try await lookUp(push, database)
                let whole = sent(push, found) { delivered($0) }
                let open = sent(push, found) { inFlight($0) }
                let counts = try await withThrowingTaskGroup(of: Int.self) { group in
                    for writer in 0..<4 {
                        group.addTask {
                            let mine = writer.isMultiple(of: 2) ? whole : open
                            return try await database.fewDevices.write(session: session, [mine])
                                .ids.count
                        }
                    }
                    return try await group.reduce(0, +)
                }
                #expect(counts == 1)
                let ledger = try await fixture.balancedLedger(of: push.id)
                #expect(ledger.targeted == 1)
            }
            #expect(try await fixture.server.query("select count(*) from all_pushes") == ["20"])
        }
    }

    @Test("Unfinished deliveries become rows: due later, or owned by the session")
    func rows() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phones = [
                try await fixture.install(fixture.iPhone("aa11")),
                try await fixture.install(fixture.iPhone("bb22")),
                try await fixture.install(fixture.iPhone("cc33")),
            ]
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "e1",
                ["installations": .array(phones.map { .string($0.objectID) })]
            )
            let found = try await lookUp(push, database)
            let due = Instant.now().adding(milliseconds: 60_000)
            let mixed = sent(push, found) { delivery in
                switch delivery.target {
                case phones[0].objectID: delivered(delivery)
                case phones[1].objectID: inFlight(delivery)
                default:
                    retried(delivery, until: due, status: 503, reason: "ServiceUnavailable")
                }
            }
            #expect(try await database.fewDevices.write(session: session, [mixed]).ids == [push.id])
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 1 && ledger.pending == 2)
            let owned = try await database.due.owned(session: session)
            #expect(owned.map(\.target) == [phones[1].objectID])
            _ = try await database.ledger.record(
                session: session,
                [ended(owned[0], .delivered)]
            )
            let states = try await database.deliveries.states(pushID: push.id)
            let waiting = states.first { $0.target == phones[2].objectID }
            #expect(waiting?.owner == nil && waiting?.status == 503)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 1)
        }
    }

    @Test("A lost session writes nothing")
    func fence() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("e1", ["installations": [.string(phone.objectID)]])
            let whole = sent(push, try await lookUp(push, database)) { delivered($0) }
            try await database.sessions.close(session)
            await #expect(throws: StorageError.self) {
                try await database.fewDevices.write(session: session, [whole])
            }
            #expect(try await fixture.server.query("select count(*) from event_pushes") == ["0"])
        }
    }

    @Test(
        "An HTTP push is settled in its own row, and stays cancelled if it is cancelled in flight"
    )
    func accepted() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            for isCancelled in [false, true] {
                let push = try fixture.push(
                    "e\(isCancelled)",
                    ["installations": [.string(phone.objectID)]]
                )
                let record = OutgoingRecord(topic: "push.requests", key: [1], value: [2])
                _ = try await database.pushes.accept(push, record: record)
                let found = try await lookUp(push, database)
                #expect(found.hasRow)
                if isCancelled { _ = try await database.pushes.cancel(push.id) }
                let later = Instant.now().adding(milliseconds: 60_000)
                let whole = sent(push, found) {
                    isCancelled ? retried($0, until: later, status: 503) : delivered($0)
                }
                #expect(
                    try await database.fewDevices.write(session: session, [whole]).ids == [push.id]
                )
                let stored = try #require(try await database.pushes.find(push.id))
                #expect(stored.status == (isCancelled ? .cancelled : .done))
                let ledger = try await fixture.balancedLedger(of: push.id)
                #expect(isCancelled ? ledger.pending == 1 : ledger.delivered == 1)
                guard case .known? = try await database.fewDevices.lookUp([push]).first else {
                    Issue.record("it is known")
                    return
                }
            }
            #expect(
                try await fixture.server.query(
                    "select count(*) from deliveries where state = 0 and due_at <= now()"
                ) == ["1"],
                "what is left of a cancelled one is due at once"
            )
        }
    }

    @Test("An HTTP push that was cancelled before its record is not sent")
    func cancelledBefore() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let push = try fixture.push("e", ["installations": [.string(phone.objectID)]])
            let record = OutgoingRecord(topic: "push.requests", key: [1], value: [2])
            _ = try await database.pushes.accept(push, record: record)
            _ = try await database.pushes.cancel(push.id)
            guard case .known? = try await database.fewDevices.lookUp([push]).first else {
                Issue.record("it would be sent")
                return
            }
            #expect(try await database.pushes.find(push.id)?.status == .cancelled)
        }
    }

    @Test("An HTTP push that was cancelled in flight counts the answered deliveries")
    func cancelledOnItsWay() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phones = [
                try await fixture.install(fixture.iPhone("aa11")),
                try await fixture.install(fixture.iPhone("bb22")),
            ]
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "e",
                ["installations": .array(phones.map { .string($0.objectID) })]
            )
            let record = OutgoingRecord(topic: "push.requests", key: [1], value: [2])
            _ = try await database.pushes.accept(push, record: record)
            let found = try await lookUp(push, database)
            _ = try await database.pushes.cancel(push.id)
            let later = Instant.now().adding(milliseconds: 3_600_000)
            let mixed = sent(push, found) { delivery in
                delivery.target == phones[0].objectID
                    ? delivered(delivery) : retried(delivery, until: later, status: 503)
            }
            _ = try await database.fewDevices.write(session: session, [mixed])
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 1 && ledger.pending == 1)
            // The rest is due at once, with the reason why it is not sent.
            #expect(try await fixture.suppressRest() == 1)
            #expect(try await fixture.balancedLedger(of: push.id).suppressed == 1)
            #expect(try await database.pushes.find(push.id)?.status == .cancelled)
        }
    }

    @Test("The age of an HTTP push counts from its look-up, and its acceptance time is kept")
    func times() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("e", ["installations": [.string(phone.objectID)]])
            let record = OutgoingRecord(topic: "push.requests", key: [1], value: [2])
            _ = try await database.pushes.accept(push, record: record)
            // It waited a day for its record.
            _ = try await fixture.server.query(
                "update pushes set created_at = '2026-01-02T03:04:05Z'"
            )
            let found = try await lookUp(push, database)
            #expect(found.deliveries.map(\.key.day) == [found.at.day])
            let whole = sent(push, found) { delivered($0) }
            _ = try await database.fewDevices.write(session: session, [whole])
            #expect(
                try await fixture.server.query(
                    """
                    select accepted_at = '2026-01-02T03:04:05Z', abs(extract(epoch from
                        created_at - to_timestamp(\(found.at.milliseconds) / 1000.0))) < 0.002
                    from pushes
                    """
                ) == ["t|t"]
            )
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 1)
        }
    }

    @Test("A dead token is disabled, and an identity with many devices is planned as rows")
    func deadAndMany() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            var phone = fixture.iPhone("aa11")
            phone["apnsEnvironment"] = "production"
            let dead = try await fixture.install(phone)
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("e1", ["installations": [.string(dead.objectID)]])
            let dying = sent(push, try await lookUp(push, database)) {
                gone($0, at: .now().adding(milliseconds: 1000))
            }
            _ = try await database.fewDevices.write(session: session, [dying])
            #expect(
                try await database.installations.find(app: "shop", objectID: dead.objectID)?.isValid
                    == false
            )
            #expect(try await fixture.balancedLedger(of: push.id).invalidTokens == 1)
            for number in 0..<(NewPush.fewDevices + 1) {
                var other = fixture.iPhone("bb\(number)")
                other["owner"] = [
                    "__type": "Pointer", "className": "_User", "objectId": "crowd",
                ]
                _ = try await fixture.install(other)
            }
            let many = try fixture.push("e2", ["identities": ["crowd"]])
            guard case .many? = try await database.fewDevices.lookUp([many]).first else {
                Issue.record("too many for the fast path")
                return
            }
        }
    }

    @Test("A device named by either id is found once, with the reason if it cannot be sent to")
    func audience() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            var object = fixture.iPhone("aa11")
            object["installationId"] = "lean-a"
            object["appIdentifier"] = "com.example.shop"
            object["name"] = "Ada"
            object["owner"] = ["__type": "Pointer", "className": "_User", "objectId": "ada"]
            let phone = try await fixture.install(object)
            var other = fixture.iPhone("bb22")
            other["owner"] = object["owner"]
            let gone = try await fixture.install(other)
            let silent = try await fixture.install(fixture.iPhone("cc33"))
            _ = try await fixture.server.query(
                """
                update installations set valid = false, invalid_reason = 'Unregistered'
                    where object_id = '\(gone.objectID)';
                update installations set token = null, token_hash = null
                    where object_id = '\(silent.objectID)'
                """
            )
            let named = try await lookUp(
                try fixture.push(
                    "named",
                    [
                        "installations": [
                            .string(phone.objectID), "lean-a", .string(gone.objectID),
                            .string(silent.objectID),
                        ], "prod": "dev", "data": ["alert": "For {{name}}"],
                    ]
                ),
                database
            ).deliveries
            #expect(named.map(\.target) == [phone.objectID, gone.objectID, silent.objectID])
            #expect(
                named.map(\.suppression) == [
                    nil, "the installation is invalid: Unregistered",
                    "the installation has no device token",
                ]
            )
            let device = named[0].device
            #expect(device.environment == .sandbox && !device.environmentIsExplicit)
            #expect(named[0].apnsTopic == "com.example.shop" && named[0].values == ["name": "Ada"])
            #expect(named[1].device.token.isEmpty)
            let behind = try await lookUp(
                try fixture.push("behind", ["identities": ["ada", "nobody"]]),
                database
            ).deliveries
            #expect(behind.map(\.target) == [phone.objectID], "who cannot be sent to is left out")
            #expect(behind[0].values == nil && behind[0].device.environment == .production)
            let tokens = try await lookUp(
                try fixture.push(
                    "tokens",
                    [
                        "tokens": [
                            ["platform": "fcm", "token": "t"], ["platform": "fcm", "token": "t"],
                        ]
                    ]
                ),
                database
            ).deliveries
            #expect(tokens.map(\.device.token) == ["t"] && tokens[0].installationID == nil)
        }
    }

    @Test("An erasure since the look-up stops only the pushes that name the erased")
    func fencedBatch() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            var pushes: [SentPush] = []
            let erased = try await fixture.install(fixture.iPhone("aa11bb22cc33dd44"))
            let kept = try await fixture.install(fixture.iPhone("bb22"))
            for (phone, isOpen) in [(erased, false), (kept, false), (kept, true)] {
                let push = try fixture.push(
                    "\(phone.objectID)-\(isOpen)",
                    ["installations": [.string(phone.objectID)]]
                )
                pushes.append(
                    sent(push, try await lookUp(push, database)) {
                        isOpen ? DeliveryRecord($0, nil) : delivered($0)
                    }
                )
            }
            _ = try await database.erasures.erase(
                Subject(app: "shop", .installation, erased.objectID),
                by: AuditEntry(app: "shop", actor: "test", action: "erase", status: 200)
            )
            let written = try await database.fewDevices.write(session: session, pushes)
            #expect(written.erased == [pushes[0].push.id])
            #expect(written.ids == Set(pushes.dropFirst().map(\.push.id)))
            let again = try await database.fewDevices.write(session: session, pushes)
            #expect(again.ids.isEmpty && again.erased == written.erased)
            #expect(
                try await fixture.server.query(
                    "select (select count(*) from event_pushes), (select count(*) from pushes)"
                ) == ["1|1"]
            )
        }
    }

    @Test("An erasure covers rows that were written before and after it")
    func erasure() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11bb22cc33dd44"))
            let session = try await database.sessions.open(name: "replica")
            let id = phone.objectID
            let before = try fixture.push("before", ["installations": [.string(id)]])
            let late = try fixture.push("late", ["installations": [.string(id)]])
            let written = sent(before, try await lookUp(before, database)) { delivered($0) }
            let isLate = sent(late, try await lookUp(late, database)) { delivered($0) }
            _ = try await database.fewDevices.write(session: session, [written])
            let export = try await database.erasures.export(Subject(app: "shop", .installation, id))
            #expect(export[.deliveries].count == 1 && export[.pushes].count == 1)
            let receipt = try await database.erasures.erase(
                Subject(app: "shop", .installation, id),
                by: AuditEntry(app: "shop", actor: "test", action: "erase", status: 200)
            )
            #expect(receipt.erased["deliveries"] == 1 && receipt.erased["pushes"] == 1)
            let result = try await database.fewDevices.write(session: session, [isLate])
            #expect(result.ids.isEmpty && result.erased == [late.id])
            let ledger = try await fixture.balancedLedger(of: before.id)
            #expect(ledger.delivered == 1)
            for table in ["event_pushes", "pushes", "deliveries", "event_keys"] {
                #expect(
                    try await fixture.server.query(
                        "select count(*) from \(table) t where strpos(t::text, '\(id)') > 0"
                    ) == ["0"]
                )
            }
        }
    }

    @Test("A client can hide a push, an app's pushes go with it, and days are dropped")
    func keeping() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            _ = try await database.maintenance.maintain(now: .now())
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            var ids: [String] = []
            for number in 0..<3 {
                let push = try fixture.push(
                    "e\(number)",
                    ["installations": [.string(phone.objectID)]]
                )
                let whole = sent(push, try await lookUp(push, database)) { delivered($0) }
                _ = try await database.fewDevices.write(session: session, [whole])
                ids.append(push.id)
            }
            #expect(try await database.pushes.hide(app: "shop", ids: [ids[0]]) == 1)
            #expect(try await database.pushes.isHidden(ids[0]))
            #expect(try await fixture.balancedLedger(of: ids[0]).delivered == 1)
            // Their week is retained as long as its last day.
            let day = Instant.now().adding(milliseconds: 14 * 86_400_000)
            _ = try await database.maintenance.maintain(now: day)
            #expect(try await database.pushes.find(ids[1]) == nil)
            #expect(try await database.pushes.find(ids[0]) != nil)
            let last = try fixture.push("last", ["installations": [.string(phone.objectID)]])
            let whole = sent(last, try await lookUp(last, database)) { delivered($0) }
            _ = try await database.fewDevices.write(session: session, [whole])
            let deletion = try await database.apps.delete("shop")
            #expect(deletion.pushes == 2)
            #expect(try await fixture.server.query("select count(*) from all_pushes") == ["0"])
        }
    }
}
