import Cryptography
import JSON
import PushCore
import SecureStorage
import Storage
import Support
import Testing

@Suite(
    "Readers of secure payloads",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct SecureReaderTests {
    private let app = StorageFixture.app

    private func set(
        _ installation: String,
        _ identity: String?,
        _ secret: String,
        key: [UInt8]? = nil,
        _ fixture: StorageFixture
    ) async throws -> ReaderOutcome {
        try await fixture.database.secureReaders.set(
            app: app,
            installation: installation,
            identity: identity,
            digest: sha256(Array(secret.utf8)),
            sealingKey: key
        )
    }

    private func found(_ secret: String, _ fixture: StorageFixture) async throws -> StoredReader? {
        try await fixture.database.secureReaders.find(sha256(Array(secret.utf8)))
    }

    @Test("A device becomes a reader for its identity, and a new secret revokes the old one")
    func set() async throws {
        try await StorageFixture.run { fixture in
            let readers = fixture.database.secureReaders
            let device = try await fixture.device("aa11", of: "ann")
            let nobodys = try await fixture.install(fixture.iPhone("bb22")).objectID
            #expect(try await set(device, "ann", "first", fixture) == .set(identity: "ann"))
            let reader = StoredReader(app: app, installation: device, identity: "ann")
            #expect(try await found("first", fixture) == reader)
            // The master key cannot vouch for a device of no identity.
            #expect(
                try await set(device, nil, "second", key: [7], fixture) == .set(identity: "ann")
            )
            #expect(try await found("first", fixture) == nil)
            #expect(try await found("second", fixture) == reader)
            let sealing = [SealingKey(installation: device, publicKey: [7])]
            #expect(try await readers.sealing(app: app, identity: "ann") == sealing)
            for (installation, identity) in [
                (device, "bob"), (nobodys, "ann"), (nobodys, nil), ("none", "ann"), ("x\0", nil),
            ] as [(String, String?)] {
                #expect(try await set(installation, identity, "third", fixture) == .notOwner)
                #expect(
                    try await !readers.remove(
                        app: app,
                        installation: installation,
                        identity: identity
                    )
                )
            }
            #expect(try await found("third", fixture) == nil)
            #expect(try await readers.remove(app: app, installation: device, identity: "ann"))
            #expect(try await found("second", fixture) == nil)
            // There is nothing to remove, and it is her device all the same.
            #expect(try await readers.remove(app: app, installation: device, identity: nil))
            #expect(try await readers.sealing(app: app, identity: "ann").isEmpty)
        }
    }

    @Test("A device's secret is void for good once it had another identity or was deleted")
    func voided() async throws {
        try await StorageFixture.run { fixture in
            let device = try await fixture.device("aa11", of: "ann")
            #expect(try await set(device, "ann", "one", fixture) == .set(identity: "ann"))
            // A change that keeps the identity revokes nothing.
            _ = try await fixture.install([
                "deviceType": "ios", "deviceToken": "aa11", "channels": ["news"],
            ])
            #expect(try await found("one", fixture) != nil)
            _ = try await fixture.device("aa11", of: "bob")
            #expect(try await found("one", fixture) == nil)
            _ = try await fixture.device("aa11", of: "ann")
            #expect(try await found("one", fixture) == nil)

            #expect(try await set(device, "ann", "two", fixture) == .set(identity: "ann"))
            _ = try await fixture.server.query("UPDATE installations SET identity = NULL")
            #expect(try await found("two", fixture) == nil)
            _ = try await fixture.device("aa11", of: "ann")
            #expect(try await set(device, "ann", "three", fixture) == .set(identity: "ann"))
            _ = try await fixture.server.query("DELETE FROM installations")
            #expect(try await found("three", fixture) == nil)
        }
    }

    @Test("A device that changes its identity while it registers is not a reader for the old one")
    func handsAreChangedMeanwhile() async throws {
        try await StorageFixture.run { fixture in
            let device = try await fixture.device("aa11", of: "ann")
            for round in 0..<20 {
                _ = try await fixture.server.query(
                    "UPDATE installations SET identity = 'ann'"
                )
                await withTaskGroup(of: Void.self) { group in
                    group.addTask { _ = try? await set(device, "ann", "s\(round)", fixture) }
                    group.addTask { _ = try? await fixture.device("aa11", of: "bob") }
                }
                #expect(try await found("s\(round)", fixture) == nil)
            }
        }
    }

    @Test("At most 100 devices of an identity have a sealing key")
    func sealingKeysAreBounded() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                """
                INSERT INTO installations (app, object_id, device_type, identity)
                SELECT 'shop', 'd' || n, 'ios', 'ann' FROM generate_series(1, 103) n
                """
            )
            for number in 1...98 {
                #expect(
                    try await set("d\(number)", "ann", "s\(number)", key: [1], fixture)
                        == .set(identity: "ann")
                )
            }
            let outcomes = try await withThrowingTaskGroup(of: ReaderOutcome.self) { group in
                for number in 99...103 {
                    group.addTask {
                        try await set("d\(number)", "ann", "s\(number)", key: [1], fixture)
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(outcomes.count { $0 == .tooMany } == 3)
            // A device may change its key, and one without a key does not count.
            #expect(
                try await set("d1", "ann", "new", key: [2], fixture) == .set(identity: "ann")
            )
            #expect(
                try await fixture.database.secureReaders.sealing(app: app, identity: "ann").count
                    == SecureReaderStore.maximumSealingKeys
            )
            #expect(try await set("d2", "ann", "bare", fixture) == .set(identity: "ann"))
            let free = outcomes.firstIndex(of: .tooMany)
            #expect(free != nil)
            #expect(
                try await fixture.database.secureReaders.sealing(app: app, identity: "ann").count
                    == 99
            )
        }
    }

    @Test("An identity's secret can be set, changed and revoked")
    func secrets() async throws {
        try await StorageFixture.run { fixture in
            let secrets = fixture.database.identitySecrets
            #expect(try await secrets.find(app: app, identity: "ann") == nil)
            try await secrets.set(app: app, identity: "ann", stored: "one")
            try await secrets.set(app: app, identity: "ann", stored: "two")
            #expect(try await secrets.find(app: app, identity: "ann") == "two")
            #expect(try await secrets.find(app: "other", identity: "ann") == nil)
            #expect(try await secrets.find(app: app, identity: "ann\0") == nil)
            #expect(try await secrets.remove(app: app, identity: "ann"))
            #expect(try await !secrets.remove(app: app, identity: "ann"))
            await #expect(throws: StorageError.self) {
                try await secrets.set(app: "none", identity: "ann", stored: "x")
            }
        }
    }
}
