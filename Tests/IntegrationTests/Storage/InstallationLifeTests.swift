import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage
import StorageAdmin
import Support
import Testing

/// The life of an installation: valid, silent, deleted, and revived when its app is opened.
@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct InstallationLifeTests {
    /// Sets the time of an installation's last activity.
    private func age(_ token: String, days: Int, in fixture: StorageFixture) async throws {
        _ = try await fixture.server.query(
            """
            update installations set updated_at = now() - interval '\(days) days 1 minute'
            where token = '\(token)'
            """
        )
    }

    private func phone(
        _ token: String,
        in fixture: StorageFixture
    ) async throws -> Installation? {
        var filter = InstallationStore.Filter()
        filter.token = token
        return try await fixture.database.installations.query(
            app: StorageFixture.app,
            filter
        ).first
    }

    @Test("An installation is invalid as silent after 60 days, and deleted after 120")
    func silenceEnds() async throws {
        try await StorageFixture.run { fixture in
            let maintenance = fixture.database.maintenance
            for token in ["aa", "bb", "cc"] { try await fixture.install(fixture.iPhone(token)) }
            try await age("aa", days: 59, in: fixture)
            try await age("bb", days: 60, in: fixture)
            try await age("cc", days: 120, in: fixture)
            let report = try await maintenance.ageInstallations()
            #expect(report.deleted == 1)
            #expect(try await phone("aa", in: fixture)?.isValid == true)
            let silent = try #require(try await phone("bb", in: fixture))
            #expect(!silent.isValid && silent.invalidReason == "silent")
            #expect(try await phone("cc", in: fixture) == nil)
            // Becoming invalid is not activity: the second time counts from the first.
            try await age("bb", days: 119, in: fixture)
            #expect(try await maintenance.ageInstallations() == SilenceReport())
            try await age("bb", days: 120, in: fixture)
            #expect(try await maintenance.ageInstallations().deleted == 1)
        }
    }

    @Test("Any save revives a silent installation, and a muted one stays muted")
    func openingRevives() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.installations
            for token in ["aa", "bb"] { try await fixture.install(fixture.iPhone(token)) }
            let muted = try #require(try await phone("bb", in: fixture))
            _ = try await store.update(app: StorageFixture.app, objectID: muted.objectID) {
                $0.isValid = false
            }
            for token in ["aa", "bb"] { try await age(token, days: 70, in: fixture) }
            #expect(try await fixture.database.maintenance.ageInstallations().silenced == 1)
            #expect(try await phone("bb", in: fixture)?.invalidReason == nil)

            for token in ["aa", "bb"] {
                let found = try #require(try await phone(token, in: fixture))
                let id = found.objectID
                _ = try await store.update(app: StorageFixture.app, objectID: id) {
                    try $0.take($0.object, changed: ["badge"], now: .now())
                }
            }
            #expect(try await phone("aa", in: fixture)?.isValid == true)
            #expect(try await phone("bb", in: fixture)?.isValid == false)
            let columns = try await fixture.server.query(
                """
                select object_id from installations
                where invalidated_at is not null and invalid_reason is null
                """
            )
            #expect(columns == [muted.objectID], "only the time of the mute is kept")
            #expect(try await fixture.database.maintenance.ageInstallations() == SilenceReport())
        }
    }

    @Test("Each app sets how long an installation may be silent")
    func appsDecide() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            _ = try await fixture.database.apps.change(
                "other",
                settings: AppSettings.change("valid-days=5")
            )
            _ = try await fixture.database.apps.change(
                "other",
                settings: AppSettings.change("delete-days=9")
            )
            try await fixture.install(fixture.iPhone("aa"))
            for token in ["bb", "cc"] {
                try await fixture.install(fixture.iPhone(token), app: "other")
            }
            for token in ["aa", "bb"] { try await age(token, days: 6, in: fixture) }
            try await age("cc", days: 10, in: fixture)
            _ = try await fixture.database.maintenance.ageInstallations()
            let left = try await fixture.server.query(
                "select token, valid from installations order by token"
            )
            #expect(left == ["aa|t", "bb|f"])
        }
    }

    @Test("Two concurrent replicas process each installation once, in bounded batches")
    func replicasShare() async throws {
        try await StorageFixture.run { fixture in
            for app in ["shop", "other"] where app != StorageFixture.app {
                try await fixture.createApp(app)
            }
            _ = try await fixture.server.query(
                """
                insert into installations (app, object_id, device_type, updated_at)
                select (array['shop', 'other'])[i % 2 + 1], 'o' || i, 'ios',
                    now() - make_interval(days => case when i <= 1500 then 70 else 130 end)
                from generate_series(1, 3000) as i
                """
            )
            try await fixture.another { other in
                var report = SilenceReport()
                repeat {
                    async let first = fixture.database.maintenance.ageInstallations(batches: 2)
                    async let second = other.maintenance.ageInstallations(batches: 2)
                    let both = try await [first, second]
                    report.silenced += both.map(\.silenced).reduce(0, +)
                    report.deleted += both.map(\.deleted).reduce(0, +)
                    report.isUnfinished = both.contains { $0 != SilenceReport() }
                } while report.isUnfinished
                // Some of those to be deleted were invalidated first; none was counted twice.
                #expect((1500...3000).contains(report.silenced))
                #expect(report.deleted == 1500)
            }
            let left = try await fixture.server.query(
                "select count(*), count(*) filter (where valid) from installations"
            )
            #expect(left == ["1500|0"])
        }
    }

    @Test("Promise 6: the books balance after an installation ends with a delivery open")
    func openDeliveriesGoOn() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa"))
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("p", ["installations": [.string(phone.objectID)]])
            let planned = try await database.intake.plan(session: session, [push])
            try await age("aa", days: 130, in: fixture)
            #expect(try await database.maintenance.ageInstallations().deleted == 1)
            _ = try await database.ledger.record(
                session: session,
                planned.deliveries.map(delivered)
            )
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 1)
        }
    }

    @Test("A round reads due rows by index, not the entire table")
    func roundsAreShort() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                insert into installations (app, object_id, device_type, valid, updated_at)
                select 'shop', 'o' || i, 'ios', i % 3 > 0,
                    now() - make_interval(days => case when i % 3 > 0 then 10 else 70 end)
                from generate_series(1, 20000) as i
                """
            )
            _ = try await fixture.server.query("vacuum analyze installations")
            _ = try await fixture.server.query("select pg_stat_reset()")
            #expect(try await fixture.database.maintenance.ageInstallations() == SilenceReport())
            let scans = try await eventually("the statistics") {
                try await fixture.server.query(
                    """
                    select idx_tup_read < 100 from pg_stat_user_indexes
                    where indexrelname = 'installations_seen' and idx_scan > 0
                    """
                ).first
            }
            #expect(scans == "t")
        }
    }
}
