import Cryptography
import InstallationStorage
import JSON
import PushCore
import PushStorage
import StorageAdmin
import Support
import Testing

/// Data of Azure's surface beside installations and pushes.
@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct HubStoreTests {
    private let app = StorageFixture.app

    @Test("An app may have 100 template names, and unused ones make room later")
    func names() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.hubTemplates
            let names = (0..<100).map { "t\($0)" }
            #expect(try await store.know(Set(names), app: app))
            #expect(try await store.names(app: app) == names.sorted())
            #expect(try await store.know(["t1", "t2"], app: app))
            #expect(try await !store.know(["other"], app: app))
            #expect(try await store.know(["t1", "t2"], app: app, limit: 50))
            #expect(try await !store.know(["other"], app: app, limit: 50))
            var phone = fixture.iPhone("aa")
            phone["_azure"] = ["templateNames": ["t7"]]
            try await fixture.install(phone)
            _ = try await fixture.server.query(
                "update hub_templates set known_at = now() - interval '2 hours'"
            )
            #expect(try await store.know(["other"], app: app))
            #expect(try await store.names(app: app) == ["other", "t7"])
        }
    }

    @Test("An installation after its expirationTime is in no audience")
    func expiry() async throws {
        try await StorageFixture.run { fixture in
            let now = Instant.now()
            for (token, milliseconds) in [("aa", Int64(-1000)), ("bb", 60_000)] {
                var phone = fixture.iPhone(token)
                let time = now.adding(milliseconds: milliseconds).milliseconds
                phone["_azure"] = ["expiresAt": .integer(time)]
                try await fixture.install(phone)
            }
            var odd = fixture.iPhone("cc")
            odd["_azure"] = ["expiresAt": "yesterday"]
            try await fixture.install(odd)
            let maintenance = fixture.database.maintenance
            #expect(try await maintenance.expireHubInstallations(now: now, batches: 2) == 1)
            #expect(try await maintenance.expireHubInstallations(now: now, batches: 2) == 0)
            var filter = InstallationStore.Filter()
            filter.isValid = false
            let expired = try await fixture.database.installations.query(app: app, filter)
            #expect(expired.map(\.token) == ["aa"])
            #expect(expired.first?.invalidReason == "expirationTime")
            #expect(
                try await fixture.database.installations.deadChannels(app: app, limit: 10).isEmpty
            )
        }
    }

    @Test("An installation for template sends shares its token, gets only those, and dies with it")
    func templatesOnly() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.installations
            let phone = try await fixture.install(fixture.iPhone("ab01"))
            for id in ["1-2-1", "3-4-1"] {
                var object = fixture.iPhone("ab01")
                object["installationId"] = .string(id)
                object["_azure"] = ["templateNames": ["registration"]]
                let wanted = object
                _ = try await store.save(
                    app: app,
                    keys: try Installation.Keys(["installationId": .string(id)]),
                    rule: .azure
                ) { [app] existing in
                    #expect(existing == nil)
                    let now = Instant.now()
                    let objectID = ObjectID.make(at: now, random: .random(in: 0...UInt64.max))
                    var installation = Installation(app: app, objectID: objectID, at: now)
                    installation.isTemplateOnly = true
                    try installation.take(wanted, changed: ExactStringSet(wanted.keys), now: now)
                    return installation
                }
            }
            // A save of the token updates the phone, and takes the token from no installation.
            #expect(try await fixture.install(fixture.iPhone("ab01")).objectID == phone.objectID)
            let all = try await store.query(app: app)
            #expect(all.map(\.token) == ["ab01", "ab01", "ab01"])
            #expect(all.filter(\.isTemplateOnly).count == 2)
            func reached(_ request: JSONObject) async throws -> Int? {
                let parsed = try PushRequest.parse(request, now: .now())
                guard case .installations(let selectors) = parsed.audience else { return nil }
                return try await store.explain(app: app, selectors).reachable[.apns]
            }
            #expect(try await reached(["data": ["alert": "x"]]) == 1)
            #expect(try await reached(["data": ["alert": "x"], "platforms": ["apns"]]) == 1)
            #expect(
                try await reached(["template": ["name": "registration", "properties": [:]]]) == 2
            )
            let listed = try await store.registrations(
                app: app,
                .channel([.apns], ["ab01"]),
                from: "",
                limit: 10
            )
            #expect(listed.count == 3)
            let session = try await fixture.database.sessions.open(name: "replica")
            let push = try fixture.push("p", ["installations": [.string(phone.objectID)]])
            let planned = try await fixture.database.intake.plan(session: session, [push])
            let answers = planned.deliveries.map { gone($0, at: .now()) }
            #expect(
                try await fixture.database.ledger.record(session: session, answers).count == 1
            )
            #expect(try await store.query(app: app).map(\.isValid) == [false, false, false])
        }
    }

    @Test(
        "The pushes of one send are accepted once, all of them, however many repeats are concurrent"
    )
    func groups() async throws {
        try await StorageFixture.run { fixture in
            func push(_ source: String) throws -> (push: NewPush, record: OutgoingRecord) {
                let source = "carillon/azure/\(source)"
                let push = try fixture.push("n1", [:]).with(
                    id: PushIdentity.pushID(
                        app: app,
                        source: source,
                        eventID: "n1",
                        digest: { sha256($0) }
                    ),
                    eventSource: source
                )
                return (push, OutgoingRecord(topic: "t", key: nil, value: [1]))
            }
            let groups = try [["a", "b"], ["a", "b", "c"], ["c"], ["a", "b"]].map { sources in
                try sources.map { try push($0) }
            }
            let accepted = try await withThrowingTaskGroup(of: [String].self) { tasks in
                for group in groups {
                    tasks.addTask {
                        try await fixture.database.pushes.accept(
                            group: "n1",
                            app: app,
                            group,
                            maximumWaiting: 10
                        ).pushes
                    }
                }
                return try await tasks.reduce(into: Set<Set<String>>()) { $0.insert(Set($1)) }
            }
            #expect(accepted.count == 1)
            let kept = try await fixture.database.pushes.find(eventID: "n1", app: app)
            #expect(Set(kept.map(\.id)) == accepted.first)
            let rows = try await fixture.server.query("select count(*)::text from outbox")
            #expect(rows == ["\(kept.count)"])
        }
    }

    @Test("A repeat is recognised by its other ids, and after ten minutes is another send")
    func repeats() async throws {
        try await StorageFixture.run { fixture in
            func accept(_ eventID: String, _ neighbours: [String]) async throws -> String {
                let source = "carillon/azure/apple"
                let push = try fixture.push(eventID, [:]).with(
                    id: PushIdentity.pushID(
                        app: app,
                        source: source,
                        eventID: eventID,
                        digest: { sha256($0) }
                    ),
                    eventSource: source
                )
                return try await fixture.database.pushes.accept(
                    group: eventID,
                    neighbours: neighbours,
                    app: app,
                    [(push, OutgoingRecord(topic: "t", key: nil, value: [1]))],
                    maximumWaiting: 10
                ).eventID
            }
            #expect(try await accept("s1", ["s0", "s1", "s2"]) == "s1")
            #expect(try await accept("s1", ["s0", "s1", "s2"]) == "s1")
            #expect(try await accept("s2", ["s1", "s2", "s3"]) == "s1")
            _ = try await fixture.server.query(
                "update pushes set created_at = created_at - interval '11 minutes'"
            )
            #expect(try await accept("s2", ["s1", "s2", "s3"]) == "s2")
        }
    }
}
