import Cryptography
import EventLoop
import InstallationStorage
import JSON
import Postgres
import PushCore
import PushStorage
import Storage
import StorageAdmin
import Support
import Testing

/// A migrated database of the test's own, dropped afterwards even on failure.
struct StorageFixture: Sendable {
    let server: TestDatabase
    let database: PushDatabase
    let loop: EventLoop

    static let app = "shop"

    static func run(
        migrated: Bool = true,
        _ body: (StorageFixture) async throws -> Void
    ) async throws {
        let server = try await (migrated ? TestDatabase.makeMigrated() : TestDatabase.make())
        let loop = try EventLoop(name: "storage-test")
        let fixture = StorageFixture(
            server: server,
            database: PushDatabase(
                DatabaseConfiguration(uri: server.url, connections: 12),
                keys: try keyRing(),
                on: loop
            ),
            loop: loop
        )
        let result: Result<Void, any Error>
        do {
            if migrated { try await fixture.createApp(app) }
            try await body(fixture)
            result = .success(())
        } catch {
            result = .failure(error)
        }
        await fixture.database.close()
        await loop.stop()
        try await server.drop()
        try result.get()
    }

    /// Reverts migrations, the last one first, for a test that applies them again.
    func takeBack(from version: Int) async throws {
        let undone: [Int: String] = [
            48: "drop table realm_figures",
            47: "drop table test_devices, saved_filters",
            46:
                "alter table push_figures drop column received, drop column opened; drop index audit_events",
            45: "drop table service_instances",
            44: "drop table push_figures, push_figure_minutes",
            43: "drop table import_parts, import_uploads",
            42: "drop table console_logins",
            41: "alter table outbox drop column queue",
            40: "drop table import_rejections, import_reasons, imports",
            39: "alter table deliveries drop column answers",
            38: "drop table push_drafts",
            37: """
            drop table app_opens, connection_messages, connection_contents, connection_counts,
                connection_nodes
            """,
            36: "alter table shards drop column lane",
            35: """
            drop view all_deliveries;
            alter table pushes drop column deliveries
            """,
            33: """
            alter table installations drop column template_only;
            alter table installations add constraint installations_check
                check ((token_hash is null) = (token is null))
            """,
            31: """
            drop table erasure_key, erasure_jobs;
            drop function carillon_refuse_erasure cascade
            """,
        ]
        for number in undone.keys.sorted().reversed() where number >= version {
            if let sql = undone[number] { _ = try await server.query(sql) }
        }
        _ = try await server.query("delete from carillon_schema where version >= \(version)")
    }

    /// Runs `body` as another replica: with its own connections to the same database.
    func another(_ body: (PushDatabase) async throws -> Void) async throws {
        let other = PushDatabase(
            DatabaseConfiguration(uri: server.url),
            keys: try Self.keyRing(),
            on: loop
        )
        do {
            try await body(other)
            await other.close()
        } catch {
            await other.close()
            throw error
        }
    }

    func createApp(_ id: String) async throws {
        try await database.apps.create(
            StoredApp(
                id: id,
                appKeySealed: [1],
                appKeyDigest: sha256(Array(id.utf8)),
                masterKeySealed: [2],
                masterKeyDigest: sha256(Array("master \(id)".utf8))
            )
        )
    }

    /// Saves an installation as Registration does.
    @discardableResult
    func install(_ object: JSONObject, app: String = app) async throws -> Installation {
        try await database.installations.save(app: app, keys: Installation.Keys(object)) { known in
            let now = Instant.now()
            var installation =
                known
                ?? Installation(
                    app: app,
                    objectID: ObjectID.make(at: now, random: .random(in: 0...UInt64.max)),
                    at: now
                )
            var merged = known?.object ?? [:]
            for (key, value) in object { merged[key] = value }
            try installation.take(merged, changed: ExactStringSet(object.keys), now: now)
            return installation
        }.installation
    }

    func push(_ id: String, _ object: JSONObject, app: String = app) throws -> NewPush {
        var object = object
        if object["data"] == nil { object["data"] = ["alert": "Ring"] }
        let (request, now) = (try PushRequest.parse(object, now: .now()), Instant.now())
        return NewPush(
            id: PushIdentity.pushID(app: app, source: "test", eventID: id, digest: sha256),
            app: app,
            eventSource: "test",
            eventID: id,
            object: object,
            request: request,
            expiresAt: request.expiresAt(acceptedAt: now),
            releaseAt: request.releaseTime(acceptedAt: now)
        )
    }

    func iPhone(_ token: String) -> JSONObject {
        ["deviceType": "ios", "deviceToken": .string(token)]
    }

    /// Returns the ledger, after comparing it with the rows.
    func balancedLedger(of pushID: String) async throws -> Ledger {
        let found = try await database.pushes.audit(pushID)
        let (push, rows) = try #require(found)
        var counted = rows
        #expect(push.ledger.balances)
        counted.invalidTokens = push.ledger.invalidTokens
        #expect(counted == push.ledger)
        return push.ledger
    }
}

func ended(
    _ delivery: Delivery,
    _ outcome: Outcome,
    attempts: Int = 1,
    unanswered: Int = 0,
    status: Int? = nil,
    reason: String? = nil,
    messageID: String? = nil
) -> DeliveryRecord {
    DeliveryRecord(
        delivery,
        DeliveryEnd(
            .settle(outcome),
            status: status,
            reason: reason,
            messageID: messageID,
            attempts: attempts,
            unanswered: unanswered,
            at: .now()
        )
    )
}

func delivered(_ delivery: Delivery) -> DeliveryRecord { ended(delivery, .delivered, status: 200) }

func suppressed(_ delivery: Delivery) -> DeliveryRecord {
    ended(delivery, .suppressed, attempts: delivery.attempts, reason: delivery.suppression)
}

func gone(
    _ delivery: Delivery,
    at time: Instant,
    reason: String = "Unregistered"
) -> DeliveryRecord {
    DeliveryRecord(
        delivery,
        DeliveryEnd(
            .settleAndDisable(since: time),
            status: 410,
            reason: reason,
            attempts: 1,
            unanswered: 0,
            at: .now()
        )
    )
}

/// Makes a released delivery that is due at this time.
func retried(
    _ delivery: Delivery,
    until due: Instant = .now(),
    attempts: Int = 1,
    status: Int? = nil,
    reason: String? = nil
) -> DeliveryRecord {
    DeliveryRecord(
        delivery,
        DeliveryEnd(
            .retry(at: due),
            status: status,
            reason: reason,
            attempts: attempts,
            unanswered: 0,
            at: .now()
        )
    )
}

/// Makes a delivery in flight.
func inFlight(_ delivery: Delivery) -> DeliveryRecord { DeliveryRecord(delivery, nil) }

extension PushLedger {
    /// Writes rows.
    ///
    /// - Returns: Those that this session owned.
    @discardableResult
    func record(session: Int, _ records: [DeliveryRecord]) async throws -> Set<DeliveryKey> {
        let results = try await write(records.map { .row($0) }, session: session)
        return Set(zip(records, results).filter { $1 == .written }.map(\.0.delivery.key))
    }

    /// Writes one checkpoint of a shard.
    func checkpoint(
        session: Int,
        _ shard: ClaimedShard,
        _ checkpoint: ShardCheckpoint
    ) async throws -> LedgerResult {
        try #require(try await write([.members(shard, checkpoint)], session: session).first)
    }
}

extension NewPush {
    /// Returns the same push under another id, or from another source.
    func with(id: String? = nil, eventSource: String? = nil) -> NewPush {
        NewPush(
            id: id ?? self.id,
            app: app,
            eventSource: eventSource ?? self.eventSource,
            eventID: eventID,
            object: object,
            request: request,
            expiresAt: expiresAt,
            releaseAt: releaseAt
        )
    }
}
