import PushCore
import Support
import Testing

@testable import Storage

@Suite(
    "Acts that charts mark",
    .timeLimit(.minutes(1)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct AuditEventTests {
    private static let app = StorageFixture.app

    private static func entry(
        _ action: String,
        _ targets: [String] = [],
        status: Int = 0,
        app: String = app,
        secondsAgo: Int64 = 60
    ) -> AuditEntry {
        AuditEntry(
            app: app,
            actor: "mira",
            action: action,
            targets: targets,
            status: status,
            at: Instant.now().adding(.seconds(-secondsAgo))
        )
    }

    private static func events(
        in fixture: StorageFixture,
        limit: Int = 10
    ) async throws -> [AuditEvent.Kind] {
        try await fixture.database.audit.events(
            app: app,
            from: Instant.now().adding(.seconds(-3600)),
            to: Instant.now().adding(.seconds(60)),
            limit: limit
        ).map(\.kind)
    }

    @Test("A publish by the command, HTTP or the console is one; a validation or a refusal is not")
    func publishes() async throws {
        try await StorageFixture.run { fixture in
            let path = "/v1/projects/:project/namespaces/firebase-server/remoteConfig"
            let console = "POST /console/:app/config/:ns"
            try await fixture.database.audit.append([
                Self.entry("config put", ["firebase 41"], secondsAgo: 90),
                Self.entry("PUT \(path)", ["firebase-server/7"], status: 200, secondsAgo: 80),
                Self.entry("PUT \(path)", ["project"], status: 200, secondsAgo: 75),
                Self.entry("PUT \(path)", ["project"], status: 412, secondsAgo: 74),
                Self.entry("\(console)/publish", ["firebase", "42"], status: 303, secondsAgo: 70),
                Self.entry("\(console)/publish", ["firebase"], status: 200, secondsAgo: 65),
                Self.entry(
                    "\(console)/versions/:version/rollback",
                    ["firebase", "43"],
                    status: 303,
                    secondsAgo: 60
                ),
                Self.entry("config rollback", ["firebase 44"], secondsAgo: 50),
                Self.entry("POST \(path):rollback", ["firebase-server/8"], status: 200),
            ])
            #expect(
                try await Self.events(in: fixture) == [
                    .configRolledBack(namespace: "firebase", version: 44),
                    .configRolledBack(namespace: "firebase-server", version: 8),
                    .configRolledBack(namespace: "firebase", version: 43),
                    .configPublished(namespace: "firebase", version: 42),
                    .configPublished(namespace: "firebase-server", version: 7),
                    .configPublished(namespace: "firebase", version: 41),
                ]
            )
        }
    }

    @Test("Credentials, settings, keys and restored devices are marked, of this app and time only")
    func others() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.database.audit.append([
                Self.entry("credentials set", ["apns com.example"], secondsAgo: 90),
                Self.entry("credentials remove", ["fcm "], secondsAgo: 80),
                Self.entry("app set", ["receipts=on"], secondsAgo: 70),
                Self.entry("POST /console/:app/settings", ["receipts"], status: 409),
                Self.entry("app rotate-key", ["key:master"], secondsAgo: 60),
                Self.entry("POST /console/:app/devices/restore", status: 303, secondsAgo: 50),
                Self.entry("push send", ["push"]),
                Self.entry("POST /1.1/push", status: 200),
                Self.entry("app set", ["receipts=on"], app: "other"),
                Self.entry("app set", ["receipts=on"], secondsAgo: 7200),
            ])
            let events: [AuditEvent.Kind] = [
                .devicesRestored, .keyRotated, .settingsChanged, .credentialRemoved("fcm "),
                .credentialSet("apns com.example"),
            ]
            #expect(try await Self.events(in: fixture) == events)
            #expect(try await Self.events(in: fixture, limit: 2) == Array(events.prefix(2)))
        }
    }

    @Test("Among 100,000 calls the acts are found by their own index")
    func index() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                insert into audit (app, actor, action, status, at)
                select '\(Self.app)', 'master-key', 'POST /1.1/push', 200,
                    now() - n * interval '30 ms' from generate_series(1, 100000) n returning 1
                """
            )
            try await fixture.database.audit.append([Self.entry("app set")])
            _ = try await fixture.server.query("analyze audit")
            #expect(try await Self.events(in: fixture) == [.settingsChanged])
            let plan = try await fixture.server.query(
                """
                explain select * from audit where app = '\(Self.app)' and at >= now() - interval '1 h'
                    and action in (\(AuditEvent.actions)) order by at desc, id desc limit 60
                """
            )
            #expect(plan.contains { $0.contains("audit_events") }, "\(plan)")
        }
    }
}
