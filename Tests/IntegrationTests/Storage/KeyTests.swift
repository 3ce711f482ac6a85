import Cryptography
import JSON
import PushCore
import Storage
import StorageAdmin
import Support
import Testing

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct KeyTests {
    private func replacement(_ kind: AppKeyKind, _ key: String) -> ReplacementKey {
        ReplacementKey(kind: kind, sealed: Array(key.utf8), digest: sha256(Array(key.utf8)))
    }

    private func later(_ seconds: Int64) -> Instant {
        Instant.now().adding(milliseconds: seconds * 1000)
    }

    @Test("A replaced key is valid until its grace period ends, and still identifies its app")
    func oldKeysAreAcceptedForAWhile() async throws {
        try await StorageFixture.run { fixture in
            let apps = fixture.database.apps
            let app = StorageFixture.app
            for name in ["second", "third"] {
                #expect(
                    try await apps.rotate(
                        app,
                        to: replacement(.app, name),
                        oldValidUntil: later(3600)
                    )
                )
            }
            #expect(try await apps.find(app)?.appKeySealed == Array("third".utf8))
            let retired = try await apps.retiredKeys(app)
            #expect(Set(retired.map(\.sealed)) == [[1], Array("second".utf8)])
            for key in [app, "second", "third"] {
                #expect(try await apps.find(appKeyDigest: sha256(Array(key.utf8)))?.id == app)
            }
            // No other app may take one of them meanwhile, not even as its first.
            await #expect(throws: StorageError.self) {
                try await apps.create(
                    StoredApp(
                        id: "other",
                        appKeySealed: [1],
                        appKeyDigest: sha256(Array("second".utf8)),
                        masterKeySealed: [1],
                        masterKeyDigest: [1]
                    )
                )
            }
            #expect(try await apps.finishRotation(app, .app) == 2)
            #expect(try await apps.retiredKeys(app).isEmpty)
            #expect(try await apps.find(appKeyDigest: sha256(Array("second".utf8))) == nil)
            #expect(try await apps.find(appKeyDigest: sha256(Array("third".utf8)))?.id == app)
        }
    }

    @Test("An invalid rotation is refused and changes nothing")
    func rotationsAreChecked() async throws {
        try await StorageFixture.run { fixture in
            let apps = fixture.database.apps
            let app = StorageFixture.app
            try await fixture.createApp("other")
            #expect(
                try await !apps.rotate("none", to: replacement(.app, "x"), oldValidUntil: nil)
            )
            for key in [app, "other", "master \(app)"] {
                let error = await #expect(throws: StorageError.self) {
                    try await apps.rotate(app, to: replacement(.app, key), oldValidUntil: nil)
                }
                #expect(error?.kind == .conflict)
            }
            for number in 0..<AppStore.maximumRetiredKeys {
                _ = try await apps.rotate(
                    app,
                    to: replacement(.master, "m\(number)"),
                    oldValidUntil: later(60)
                )
            }
            let error = await #expect(throws: StorageError.self) {
                try await apps.rotate(
                    app,
                    to: replacement(.master, "more"),
                    oldValidUntil: later(60)
                )
            }
            #expect(error?.description.contains("--finish") == true)
            // Without a grace period it is immediate, for leaked keys.
            #expect(
                try await apps.rotate(app, to: replacement(.master, "now"), oldValidUntil: nil)
            )
            // A key that was in use before is no longer retired.
            #expect(
                try await apps.rotate(app, to: replacement(.master, "m0"), oldValidUntil: nil)
            )
            #expect(
                try await apps.retiredKeys(app).allSatisfy { $0.sealed != Array("m0".utf8) }
            )
        }
    }

    @Test("Sealed values are found in every table, and replaced only if unchanged since the read")
    func everythingSealedIsFound() async throws {
        try await StorageFixture.run { fixture in
            let (database, app) = (fixture.database, StorageFixture.app)
            _ = try await database.apps.rotate(
                app,
                to: replacement(.app, "second"),
                oldValidUntil: later(60)
            )
            try await database.credentials.set(
                StoredCredential(
                    app: app,
                    platform: .apns,
                    name: "com.example",
                    sealed: [7],
                    summary: [:]
                )
            )
            let values = try await database.sealed.all()
            #expect(values.count == 4)
            for (number, value) in values.enumerated() {
                let sealed = [UInt8(number), 99]
                #expect(try await database.sealed.replace(value, by: sealed), "\(value.name)")
                #expect(try await !database.sealed.replace(value, by: [0]), "\(value.name)")
            }
            let after = try await database.sealed.all()
            #expect(after.map(\.sealed) == (0..<4).map { [UInt8($0), 99] })
            #expect(after.map(\.context) == values.map(\.context))
        }
    }

    @Test("The audit trail records actions, bounded, for its retention")
    func auditIsKept() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let old = Instant.now().adding(milliseconds: -91 * 86_400_000)
            let long = String(repeating: "é", count: 300)
            let entries = [
                AuditEntry(app: "shop", actor: "cli:anna", action: "old", status: 0, at: old),
                AuditEntry(
                    app: "shop",
                    actor: "master-key",
                    action: "PUT /1.1/installations/:id",
                    targets: [long, "nul\0", "\"{},"] + (0..<200).map { "\($0)" },
                    address: "192.0.2.1",
                    status: 200
                ),
                AuditEntry(app: "other", actor: "cli:anna", action: "app create", status: 0),
            ]
            try await database.audit.append(entries)
            let all = try await database.audit.list(app: "shop", since: nil, limit: 10)
            #expect(all.map(\.action) == ["PUT /1.1/installations/:id", "old"])
            #expect(all.first?.targets.count == AuditEntry.maximumTargets)
            #expect(all.first?.targets[0] == String(repeating: "é", count: 256))
            #expect(all.first?.targets[1] == "nul")
            #expect(all.first?.targets[2] == "\"{},")
            #expect(all.first?.address == "192.0.2.1")
            let since = Instant.now().adding(milliseconds: -60_000)
            #expect(try await database.audit.list(app: "shop", since: since, limit: 10).count == 1)
            let report = try await database.maintenance.maintain(now: .now())
            #expect(report.auditDeleted == 1)
            #expect(try await database.audit.list(app: "shop", since: nil, limit: 10).count == 1)
        }
    }
}
