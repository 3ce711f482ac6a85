import ConfigStorage
import Cryptography
import JSON
import PushCore
import PushEvents
import Storage
import StorageAdmin
import Support
import Testing

@Suite(
    "Storage of remote config",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ConfigStoreTests {
    private let app = StorageFixture.app
    private let client = ConfigPublishedRecord.clientNamespace

    private func new(_ text: String, namespace: String = "firebase") -> NewConfigVersion {
        NewConfigVersion(
            app: app,
            namespace: namespace,
            template: ["parameters": ["k": ["defaultValue": ["value": .string(text)]]]],
            description: text,
            user: ConfigUser(name: "ci", email: "ci@shop")
        )
    }

    private func record(_ version: Int, _ type: ConfigUpdateType) -> OutgoingRecord {
        ConfigPublishedRecord(
            project: app,
            namespace: client,
            version: version,
            updateType: type.rawValue
        )
        .record(KafkaTopics())
    }

    @Test("A record of a version that was published here names this database, and no other")
    func origin() async throws {
        try await StorageFixture.run { fixture in
            let origin = try #require(try await fixture.database.config.origin())
            _ = try await fixture.database.config.publish(
                new("a"),
                expecting: .any,
                record: record
            )
            let headers = try await fixture.database.outbox.claim().records.first?.record.headers
            #expect(headers?.contains(RecordHeader(RecordHeader.origin, origin)) == true)
            try await StorageFixture.run { other in
                let another = try await other.database.config.origin()
                #expect(another != origin)
            }
        }
    }

    private func publish(
        _ text: String,
        _ expected: ExpectedConfigVersion,
        _ fixture: StorageFixture
    ) async throws -> Int {
        try await fixture.database.config.publish(new(text), expecting: expected, record: record)
            .version
    }

    @Test("One of two publishers of the same version succeeds, with one record")
    func oneWins() async throws {
        try await StorageFixture.run { fixture in
            #expect(try await publish("one", .version(0), fixture) == 1)
            let outcomes = await withTaskGroup(of: Int?.self) { group in
                for number in 0..<8 {
                    group.addTask { try? await publish("writer \(number)", .version(1), fixture) }
                }
                return await group.reduce(into: [Int?]()) { $0.append($1) }
            }
            #expect(outcomes.compactMap { $0 } == [2])
            await #expect(throws: ConfigVersionMismatch(expected: 1, found: 2)) {
                _ = try await publish("late", .version(1), fixture)
            }
            #expect(try await publish("forced", .any, fixture) == 3)
            #expect(try await fixture.database.outbox.count() == 3)
            let current = try await fixture.database.config.version(app, client)
            #expect(current?.updateType == "FORCED_UPDATE")
            #expect(current?.template?["parameters"]?["k"]?["defaultValue"]?["value"] == "forced")
            // The server template has its own numbers.
            let server = try await fixture.database.config.head(app, "firebase-server")
            #expect(server.currentVersion == 0)
        }
    }

    @Test("A rollback is a new version with the old content, and reaches only older clients")
    func rollsBack() async throws {
        try await StorageFixture.run { fixture in
            let config = fixture.database.config
            for text in ["one", "two"] { _ = try await publish(text, .any, fixture) }
            let user = ConfigUser(name: "ci", email: "ci@shop")
            let back = try await config.rollBack(app, client, to: 1, by: user, record: record)
            #expect(back.version == 3 && back.rollbackSource == 1)
            #expect(back.updateType == "ROLLBACK")
            #expect(back.template?["parameters"]?["k"]?["defaultValue"]?["value"] == "one")
            for version in [3, 4] {
                await #expect(throws: ConfigRollbackError.notOlder(current: 3)) {
                    _ = try await config.rollBack(
                        app,
                        client,
                        to: version,
                        by: user,
                        record: record
                    )
                }
            }
            await #expect(throws: ConfigRollbackError.notFound) {
                _ = try await config.rollBack(app, client, to: 0, by: user, record: record)
            }
            // A caller that has compared with an older version is refused, and changes nothing.
            await #expect(throws: ConfigVersionMismatch(expected: 2, found: 3)) {
                _ = try await config.rollBack(
                    app,
                    client,
                    to: 1,
                    by: user,
                    expecting: .version(2),
                    record: record
                )
            }
            #expect(try await config.current(of: app).map(\.version) == [3])
            let again = try await config.rollBack(
                app,
                client,
                to: 2,
                by: user,
                expecting: .version(3),
                record: record
            )
            #expect(again.version == 4)
            let current = try await config.current(of: app)
            #expect(current.map(\.version) == [4] && current.first?.template == nil)
            #expect(try await config.current(of: "other").isEmpty)
        }
    }

    @Test(
        "A template that another system wrote is used once validated, and an invalid one never"
    )
    func rowsOfOthers() async throws {
        try await StorageFixture.run { fixture in
            let config = fixture.database.config
            #expect(try await publish("one", .any, fixture) == 1)
            #expect(
                try await fixture.server.query(
                    "SELECT carillon_publish_config('shop', 'firebase', '{\"a\":1}', 'by psql')"
                ) == ["2"]
            )
            _ = try await fixture.server.query(
                """
                INSERT INTO config_versions (app, namespace, version, template)
                VALUES ('shop', 'firebase', 3, '{"broken":true}')
                """
            )
            #expect(try await config.version(app, client)?.version == 1)
            #expect(try await config.version(app, client, 2) == nil)
            var states: [ConfigVersionState] = []
            while let checked = try await config.checkNext(
                maximumBytes: 1000,
                verdict: { row in
                    row.template?.contains("broken") == true
                        ? .refused("it is broken") : .holds(as: ["conditions": []])
                },
                record: { record($0.version, .incremental) }
            ) {
                states.append(checked.state)
            }
            #expect(states == [.good, .refused])
            let current = try await config.version(app, client)
            #expect(current?.version == 2 && current?.description == "by psql")
            #expect(current?.template == ["conditions": []])
            let refused = try await config.refused(app)
            #expect(refused.map(\.version) == [3] && refused.map(\.reason) == ["it is broken"])
            // Its number is used up.
            #expect(try await publish("four", .version(2), fixture) == 4)
            #expect(try await config.refused(app) == [])
        }
    }

    @Test("A transaction that is left open does not block the rows of other apps")
    func openTransaction() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            for app in [app, "other"] {
                _ = try await fixture.server.query(
                    "SELECT carillon_publish_config('\(app)', 'firebase', '{}')"
                )
            }
            let server = fixture.server
            let holding = Task {
                try await server.query(
                    """
                    BEGIN; SELECT 1 FROM config_heads WHERE app = 'shop' FOR UPDATE;
                    SELECT pg_sleep(4); COMMIT
                    """
                )
            }
            _ = try await eventually("the head is held") {
                try await server.query(
                    """
                    SELECT 1 FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event = 'PgSleep'
                    """
                ).first
            }
            func check() async throws -> String? {
                try await fixture.database.config.checkNext(
                    maximumBytes: 1000,
                    verdict: { _ in .holds(as: [:]) },
                    record: { record($0.version, .incremental) }
                )?
                .app
            }
            #expect(try await check() == "other")
            #expect(try await check() == nil)
            _ = try await holding.value
            #expect(try await check() == app)
        }
    }

    @Test(
        "A client that stops while it has locked a template delays its publishers for seconds at most"
    )
    func stopped() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                "SELECT carillon_publish_config('shop', 'firebase', '{}')"
            )
            let (silence, end) = AsyncStream.makeStream(of: Void.self)
            let (reached, reach) = AsyncStream.makeStream(of: Void.self)
            let stopped = Task {
                try await fixture.database.config.checkNext(
                    maximumBytes: 1000,
                    verdict: { _ in
                        reach.finish()
                        for await _ in silence {}
                        return .holds(as: [:])
                    },
                    record: { record($0.version, .incremental) }
                )
            }
            for await _ in reached {}
            let version = try await eventually("another publishes") {
                try? await publish("another", .any, fixture)
            }
            #expect(version == 2)
            end.finish()
            // Postgres has ended its transaction.
            await #expect(throws: StorageError.self) { _ = try await stopped.value }
        }
    }

    @Test("A template that moves here continues above the versions announced elsewhere")
    func numbersGoOn() async throws {
        try await StorageFixture.run { fixture in
            let announcements = fixture.database.configAnnouncements
            let elsewhere = PublishedConfig(
                app: app,
                namespace: client,
                version: 41,
                updateType: "INCREMENTAL_UPDATE"
            )
            #expect(try await announcements.note([elsewhere]) == [true])
            _ = try await eventually("it is announced") {
                let done = try await announcements.announce(after: .zero) {
                    record($0.version, .incremental)
                }
                return done.announced.isEmpty ? nil : ()
            }
            #expect(try await publish("first", .version(0), fixture) == 42)
            let called = try await fixture.server.query(
                "SELECT carillon_publish_config('shop', 'firebase', '{}')"
            )
            #expect(called == ["43"])
            _ = try await fixture.server.query(
                """
                INSERT INTO config_versions (app, namespace, version, template)
                VALUES ('shop', 'firebase', 9007199254740992, '{}')
                """
            )
            await #expect(throws: ConfigVersionsExhausted.self) {
                _ = try await publish("none left", .any, fixture)
            }
        }
    }

    @Test("It continues above a version of another system that is not announced yet")
    func numbersGoOnAbovePending() async throws {
        try await StorageFixture.run { fixture in
            let announcements = fixture.database.configAnnouncements
            func hear(_ version: Int, _ namespace: String) async throws {
                let elsewhere = PublishedConfig(
                    app: app,
                    namespace: namespace,
                    version: version,
                    updateType: "INCREMENTAL_UPDATE"
                )
                #expect(try await announcements.note([elsewhere]) == [true])
            }
            try await hear(50, client)
            #expect(try await publish("first", .version(0), fixture) == 51)
            // This is also so by a call of the function, in a namespace without publishes.
            try await hear(60, "firebase-server")
            let called = try await fixture.server.query(
                "SELECT carillon_publish_config('shop', 'firebase-server', '{}')"
            )
            #expect(called == ["61"])
        }
    }

    @Test("A template that is too large is refused without being read")
    func tooLarge() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                SELECT carillon_publish_config('shop', 'firebase',
                    json_build_object('a', repeat('x', 2000)))
                """
            )
            let checked = try await fixture.database.config.checkNext(
                maximumBytes: 1000,
                verdict: { $0.template == nil ? .refused("too large") : .holds(as: [:]) },
                record: { record($0.version, .incremental) }
            )
            #expect(checked?.reason == "too large")
            #expect(try await fixture.database.outbox.count() == 0)
        }
    }

    @Test("A version has a valid time, and is found by the time that is shown")
    func times() async throws {
        try await StorageFixture.run { fixture in
            // One of these stopped the check of all apps' rows, another all announcements.
            for time in ["-infinity", "infinity", "10000-01-01", "4713-01-01 BC"] {
                await #expect(throws: (any Error).self) {
                    _ = try await fixture.server.query(
                        """
                        INSERT INTO config_versions (app, namespace, version, template, published_at)
                        VALUES ('shop', 'firebase', 1, '{}', '\(time)')
                        """
                    )
                }
            }
            let version = try await publish("one", .any, fixture)
            _ = try await fixture.server.query(
                "UPDATE config_versions SET published_at = '2026-11-23T13:35:55.751999Z'"
            )
            let time = Instant(iso8601: "2026-11-23T13:35:55.751Z")
            var filter = ConfigVersionFilter(limit: 10)
            filter.startTime = time
            filter.endTime = time
            let found = try await fixture.database.config.versions(app, client, filter)
            #expect(found.map(\.version) == [version])
        }
    }

    @Test("300 versions are stored, the current one at any age, and numbers continue")
    func kept() async throws {
        try await StorageFixture.run { fixture in
            let config = fixture.database.config
            for number in 1...303 { _ = try await publish("\(number)", .any, fixture) }
            let listed = try await config.versions(app, client, ConfigVersionFilter())
            #expect(listed.map(\.version) == Array((4...303).reversed()))
            let page = try await config.versions(
                app,
                client,
                ConfigVersionFilter(endVersion: 200, before: 190, limit: 2)
            )
            #expect(page.map(\.version) == [189, 188])
            _ = try await fixture.server.query(
                "UPDATE config_versions SET published_at = now() - interval '100 days'"
            )
            #expect(try await config.prune(olderThan: .seconds(90 * 86_400)) == 299)
            #expect(try await publish("next", .version(303), fixture) == 304)
        }
    }

    @Test("A reader that has seen a revision has seen all before it")
    func revisions() async throws {
        try await StorageFixture.run { fixture in
            let config = fixture.database.config
            for number in 0..<6 { try await fixture.createApp("app-\(number)") }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<6 {
                    group.addTask {
                        for text in ["a", "b", "c"] {
                            var version = new(text)
                            version.app = "app-\(number)"
                            _ = try await config.publish(version, expecting: .any, record: record)
                        }
                    }
                }
                group.addTask {
                    var seen = 0
                    var versions: [String: Int] = [:]
                    while versions.values.reduce(0, +) < 18 {
                        let revision = try await config.revision()
                        let heads = try await config.heads(of: client, after: seen)
                        for head in heads { versions[head.app] = head.currentVersion }
                        // Each publish takes one revision, so the versions add up to it.
                        #expect(versions.values.reduce(0, +) >= revision)
                        seen = max(seen, heads.map(\.revision).max() ?? 0)
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test("Only the highest version of a burst is announced, once, and no unknown one")
    func announces() async throws {
        try await StorageFixture.run { fixture in
            let announcements = fixture.database.configAnnouncements
            for text in ["one", "two", "three"] { _ = try await publish(text, .any, fixture) }
            func heard(_ version: Int) -> PublishedConfig {
                PublishedConfig(
                    app: app,
                    namespace: client,
                    version: version,
                    updateType: "ROLLBACK"
                )
            }
            var seconds: [Double] = []
            func announce() async throws -> [Int] {
                let done = try await announcements.announce(after: .milliseconds(700)) {
                    record($0.version, .rollback)
                }
                seconds += done.seconds
                return done.announced.map(\.version)
            }
            let usable = try await announcements.note([heard(1), heard(3), heard(2), heard(4)])
            #expect(usable == [true, true, true, false])
            #expect(try await announce() == [])
            let wait = try await announcements.untilNext(after: .milliseconds(700))
            #expect(wait.map { $0 <= .milliseconds(700) } == true)
            let first = try await eventually("it is due") {
                let versions = try await announce()
                return versions.isEmpty ? nil : versions
            }
            #expect(first == [3])
            #expect(try await announcements.note([heard(2), heard(3)]) == [true, true])
            #expect(try await announce() == [])
            #expect(try await announcements.untilNext(after: .zero) == nil)
            #expect(try await announcements.all(of: app).map(\.announcedVersion) == [3])
            // One was announced, so one delay is measured from its publish, to the microsecond.
            let delay = try await fixture.server.query(
                """
                SELECT extract(epoch FROM announced_at - published_at)::double precision
                FROM config_announcements a JOIN config_versions v USING (app, namespace)
                WHERE v.version = a.announced_version
                """
            )
            #expect(seconds == delay.compactMap(Double.init))
            #expect(seconds.count == 1 && seconds.allSatisfy { (0.7..<60).contains($0) })
        }
    }

    @Test("The versions last announced are only those of existing apps")
    func latest() async throws {
        try await StorageFixture.run { fixture in
            let announcements = fixture.database.configAnnouncements
            func latest() async throws -> [LatestConfigAnnouncement] {
                try await announcements.latest(of: [app, "other", "nobody"], in: client)
                    .sorted { $0.app < $1.app }
            }
            func createdAt(_ app: String) async throws -> Instant {
                try #require(try await fixture.database.apps.find(app)).createdAt
            }
            try await fixture.createApp("other")
            let (shop, other) = (try await createdAt(app), try await createdAt("other"))
            _ = try await fixture.server.query(
                """
                INSERT INTO config_announcements (app, namespace, announced_version, announced_at)
                VALUES ('shop', 'firebase', 7, now()), ('shop', 'firebase-server', 9, now())
                """
            )
            let told = LatestConfigAnnouncement(app: app, createdAt: shop, version: 7)
            let untold = LatestConfigAnnouncement(app: "other", createdAt: other, version: 0)
            #expect(try await latest() == [untold, told])
            // The app is about to be deleted: its keys are not accepted any more.
            _ = try await fixture.server.query(
                "UPDATE apps SET app_key_sealed = '' WHERE id = 'other'"
            )
            #expect(try await latest() == [told])
            _ = try await fixture.database.apps.delete(app)
            try await fixture.createApp(app)
            let again = LatestConfigAnnouncement(
                app: app,
                createdAt: try await createdAt(app),
                version: 0
            )
            #expect(try await latest() == [again])
            #expect(again.createdAt != shop)
        }
    }

    @Test("A version that was seen before its process was killed is announced by the next one")
    func seenAndLeft() async throws {
        try await StorageFixture.run { fixture in
            _ = try await publish("one", .any, fixture)
            // It is due, and its app has no row to lock yet.
            _ = try await fixture.server.query(
                "UPDATE config_pending SET seen_at = clock_timestamp() - interval '1 minute'"
            )
            let held = try await fixture.server.query("SELECT count(*) FROM config_announcements")
            #expect(held == ["0"])
            let done = try await fixture.database.configAnnouncements.announce(after: .zero) {
                record($0.version, .incremental)
            }
            #expect(done.announced.map(\.version) == [1])
        }
    }

    @Test("A version committed late in a burst is not announced before every replica has checked")
    func settles() async throws {
        try await StorageFixture.run { fixture in
            let announcements = fixture.database.configAnnouncements
            for text in ["one", "two"] { _ = try await publish(text, .any, fixture) }
            func announce() async throws -> [Int] {
                try await announcements.announce(after: .seconds(60)) {
                    record($0.version, .incremental)
                }
                .announced.map(\.version)
            }
            // It is seen, and nothing is due.
            #expect(try await announce() == [])
            #expect(try await announcements.all(of: app).map(\.pendingVersion) == [2])
            // The burst is old; its last version came a moment ago.
            func age(_ version: Int, _ time: String) async throws {
                _ = try await fixture.server.query(
                    """
                    UPDATE config_pending SET seen_at = clock_timestamp() - interval '\(time)'
                    WHERE version = \(version)
                    """
                )
            }
            try await age(1, "61 s")
            try await age(2, "-1 h")
            #expect(try await announce() == [1])
            #expect(try await announcements.all(of: app).map(\.pendingVersion) == [2])
            // The next one does not follow at once either.
            try await age(2, "61 s")
            #expect(try await announce() == [])
            _ = try await fixture.server.query(
                "UPDATE config_announcements SET announced_at = announced_at - interval '61 s'"
            )
            #expect(try await announce() == [2])
            #expect(try await announcements.all(of: app).map(\.pendingVersion) == [nil])
        }
    }

    @Test("Rows of one order key are relayed one after the other, by any relay")
    func orderKeys() async throws {
        try await StorageFixture.run { fixture in
            let outbox = fixture.database.outbox
            for text in ["one", "two"] { _ = try await publish(text, .any, fixture) }
            let first = try await outbox.claim().records
            #expect(first.count == 1)
            // Another relay finds nothing to send, nor does this one until Kafka has it.
            try await fixture.another { other in
                let found = try await other.outbox.claim().records
                #expect(found == [])
            }
            try await outbox.finish(first.map { ($0, .unavailable) })
            let again = try await outbox.claim().records
            #expect(again.map(\.id) == first.map(\.id))
            try await outbox.finish(again.map { ($0, .acknowledged) })
            let second = try await outbox.claim().records
            #expect(second.count == 1 && second.map(\.id) != first.map(\.id))
        }
    }

    @Test("A token and a linked name belong to one app, and are deleted with it")
    func namesAndTokens() async throws {
        try await StorageFixture.run { fixture in
            let (tokens, links) = (fixture.database.configTokens, fixture.database.appLinks)
            try await fixture.createApp("other")
            let digest = sha256(Array("a token of twenty bytes".utf8))
            let token = StoredConfigToken(app: app, name: "ci", digest: digest, isReadOnly: true)
            try await tokens.create(token)
            #expect(try await tokens.list(app).map(\.isReadOnly) == [true])
            await #expect(throws: StorageError.self) {
                var stolen = token
                stolen.app = "other"
                try await tokens.create(stolen)
            }
            try await links.link(AppLink(.fcmProject, "my-project", app: app))
            try await links.link(AppLink(.fcmProject, "my-project", app: app))
            for name in ["my-project", app] {
                await #expect(throws: StorageError.self, "\(name)") {
                    try await links.link(AppLink(.fcmProject, name, app: "other"))
                }
            }
            #expect(
                try await links.apps(.fcmProject, names: ["my-project", "nobody's"]).map(\.app)
                    == [app]
            )
            #expect(try await links.unlink(AppLink(.fcmProject, "my-project", app: app)))
            #expect(try await tokens.remove(app, name: "ci"))
            #expect(try await tokens.remove(app, name: "ci") == false)
        }
    }

    @Test("Several names are linked all or not at all, and a linked name cannot be an app's id")
    func linkedAtOnce() async throws {
        try await StorageFixture.run { fixture in
            let links = fixture.database.appLinks
            try await fixture.createApp("other")
            await #expect(throws: StorageError.self) {
                try await links.link([
                    AppLink(.fcmProject, "mine", app: app),
                    AppLink(.fcmProject, "other", app: app),
                ])
            }
            #expect(try await links.list(app) == [])
            for number in 1...AppLinkStore.maximumLinks {
                try await links.link(AppLink(.fcmProject, "mine-\(number)", app: app))
            }
            // It is repeated, also with the other kind, even for an app at its limit.
            try await links.link(AppLink(.fcmProject, "mine-1", app: app))
            try await links.link(AppLink(.firebaseAPIKey, "other", app: app))
            await #expect(throws: StorageError.self) {
                try await links.link(AppLink(.fcmProject, "mine", app: app))
            }
            let refusal = await #expect(throws: StorageError.self) {
                try await fixture.createApp("mine-7")
            }
            #expect(refusal?.description.contains("linked to the app \(app)") == true)
        }
    }

    @Test("All remote config of an app is deleted with it and counted")
    func deletedWithTheApp() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            for app in [app, "other"] {
                try await fixture.install(
                    [
                        "deviceType": "ios", "installationId": "one",
                        "deviceToken": .string(String(repeating: "ab", count: 32)),
                    ],
                    app: app
                )
                for text in ["one", "two"] {
                    var new = new(text)
                    new.app = app
                    _ = try await fixture.database.config.publish(
                        new,
                        expecting: .any,
                        record: record
                    )
                }
                // The pending announcement is seen, and not due yet.
                _ = try await fixture.database.configAnnouncements.announce(after: .seconds(60)) {
                    record($0.version, .forced)
                }
                try await fixture.database.configFetches.note([
                    ConfigFetchRecord(app: app, appInstanceID: "one", version: 2)
                ])
                try await fixture.database.configTokens.create(
                    StoredConfigToken(
                        app: app,
                        name: "ci",
                        digest: sha256(Array(app.utf8)),
                        isReadOnly: false
                    )
                )
                try await fixture.database.appLinks.link(
                    AppLink(.fcmProject, "\(app)-project", app: app)
                )
            }
            let deletion = try await fixture.database.apps.delete(app)
            #expect(deletion.configVersions == 2 && deletion.configFetches == 1)
            #expect(deletion.configTokens == 1 && deletion.links == 1)
            for table in [
                "config_versions", "config_heads", "config_announcements", "config_pending",
                "config_fetched",
                "config_tokens", "app_links",
            ] {
                #expect(
                    try await fixture.server.query("SELECT DISTINCT app FROM \(table)")
                        == ["other"],
                    "\(table)"
                )
            }
        }
    }

    @Test("The version of a fetch is recorded only for installations, and never goes back")
    func fetched() async throws {
        try await StorageFixture.run { fixture in
            let id = try await fixture.install([
                "deviceType": "ios", "deviceToken": .string(String(repeating: "ab", count: 32)),
                "installationId": "one",
            ]).objectID
            func note(_ version: Int, _ instance: String = "one") async throws {
                try await fixture.database.configFetches.note([
                    ConfigFetchRecord(app: app, appInstanceID: instance, version: version)
                ])
            }
            try await note(5)
            try await note(4)
            try await note(9, "nobody's")
            let query = "SELECT installation, version FROM config_fetched"
            #expect(try await fixture.server.query(query) == ["\(id)|5"])
            let (fresh, stale) = try await fixture.database.configFetches.counts(of: app, 5)
            #expect(fresh == 1 && stale == 0)
            let later = try await fixture.database.configFetches.counts(of: app, 6)
            #expect(later.current == 0 && later.stale == 1)
            _ = try await fixture.server.query("DELETE FROM installations")
            #expect(try await fixture.server.query(query) == [])
        }
    }
}
