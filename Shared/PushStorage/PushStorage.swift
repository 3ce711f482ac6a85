// PushStorage is all of Carillon's SQL: the schema as numbered migrations, and stores that turn rows
// into values and back. Values travel only as bound parameters, everything moves by the batch.
//
// Authority: the tables are written here and nowhere else. What is claimed (a delivery, a push in
// planning) carries the session that claimed it, and every later write says so again, so that a
// dispatcher that stalled and came back changes nothing.
//
// Lock order, so that no two transactions wait for each other: a dispatcher's session, then shards
// by (push, number), then pushes by id, then deliveries, then installations by (app, object id).
// Who writes new shards holds their push; nobody waits for a shard while he holds a push.
//
// `Database/` is the ground: connections, transactions, errors. The stores stand on it, in folders by
// subject, and `PushDatabase` here is the door to them all. A push goes through them in this order:
//
//     Pushes/      PushStore       accepts it over HTTP, finds it, cancels it
//                  PushBooks       how it stands, and its figures: the fragments that all others use
//     Planning/    IntakeStore     makes it of an event
//                  ScheduleStore   releases it at its time
//                  PlanningStore   writes its audience down, page by page
//     Deliveries/  ShardStore      claims and reads the shards of a broadcast
//                  DueStore        claims rows that are due
//                  PushLedger      records what was sent: rows, chunks, and a push's counters
//                  DeliveryStore   reads rows for whoever asks
//                  SessionStore    in whose name all that is done
//
// `Config/` is remote config: `ConfigStore` publishes and reads templates, `ConfigAnnouncements` says
// which version is to be announced and which was, `ConfigFetches` who was given which.
//
// `Logins/` is who may prove an identity: `LoginStore` has an app's issuers, `JWKSStore` their keys.
//
// `Secure/` is what providers must not see: `SecurePayloadStore` keeps content and gives it to its one
// reader, `SecureReaderStore` and `IdentitySecretStore` keep what a reader proves himself by.
//
// `Sync/` is push sync: `SyncDatasetStore` keeps what devices share, `SyncDeviceStore` who wants to hear
// of it, `SyncWindowStore` what is to be told and was.
//
// `Ingest/` is what devices send: `IngestTypeStore` declares types and makes their tables and views,
// `IngestSinkStore` keeps objects, `ReceiptStore` counts what they report of pushes, `IngestUpkeep` drops
// what is old.
//
// Shutdown: `run` ends when its task is cancelled, after the pool has answered what is in flight.

package import Cryptography
package import Observability
package import Postgres
package import PushCore

/// One loop's door to the database.
package final class PushDatabase: Sendable {
    /// Of the fast path's own: look-ups share one, the others write.
    private static let singlesConnections = 3

    let database: Database
    /// The fast path's. They are made when it first asks.
    private let singles: Database
    /// Postgres' clock, measured by `run` and by each renewal of a session.
    package let clock: DatabaseClock
    private let hostIsAhead: Gauge?
    private let zoneNames = ZoneNames()
    private let saves: InstallationSaves
    private let fieldTypes = FieldTypes()
    private let log: Log
    private let schemaWatch = SchemaWatch()

    /// - Parameters:
    ///   - configuration: How the database is reached.
    ///   - keys: The key ring, which opens the key of erased names. A program that erases needs it, and so
    ///     does one that writes later than what it writes about was done.
    ///   - clock: What is measured; one for all databases of a process that are the same.
    ///   - loop: Where it runs.
    ///   - log: What is worth telling.
    ///   - metrics: Of the pool.
    package init(
        _ configuration: DatabaseConfiguration,
        keys: KeyRing? = nil,
        clock: DatabaseClock = DatabaseClock(),
        on loop: PostgresLoop,
        log: Log = .disabled,
        metrics: Metrics? = nil
    ) {
        self.log = log
        self.clock = clock
        hostIsAhead = metrics?.gauge(.postgresClockDifference)
        database = Database(
            configuration,
            keys: keys,
            clock: clock,
            on: loop,
            log: log,
            metrics: metrics
        )
        var ofSingles = configuration
        ofSingles.connections = Self.singlesConnections
        singles = Database(
            ofSingles,
            keys: keys,
            settings: IndexPlan.ofConnections,
            clock: clock,
            on: loop,
            log: log,
            metrics: metrics
        )
        saves = InstallationSaves(database, fieldTypes, on: loop)
    }

    package var apps: AppStore { AppStore(database: database) }
    package var credentials: CredentialStore { CredentialStore(database: database) }
    package var installations: InstallationStore {
        InstallationStore(database: database, saves: saves)
    }
    package var identities: IdentityStore {
        IdentityStore(database: database, fieldTypes: fieldTypes)
    }
    package var fields: FieldStore { FieldStore(database: database, types: fieldTypes) }
    package var fieldIndexes: FieldIndexStore { FieldIndexStore(database: database) }
    package var pushes: PushStore { PushStore(database: database) }
    package var hubTemplates: HubTemplateStore { HubTemplateStore(database: database) }
    package var intake: IntakeStore { IntakeStore(database: database) }
    package var planning: PlanningStore {
        PlanningStore(database: database, zoneNames: zoneNames)
    }
    package var schedules: ScheduleStore {
        ScheduleStore(database: database, zoneNames: zoneNames)
    }
    package var fewDevices: FewDevicesStore { FewDevicesStore(database: singles, others: database) }
    package var due: DueStore { DueStore(database: database) }
    package var ledger: PushLedger { PushLedger(database: database, fewDevices: fewDevices) }
    package var deliveries: DeliveryStore { DeliveryStore(database: database) }
    package var shards: ShardStore { ShardStore(database: database) }
    package var sessions: SessionStore { SessionStore(database: database) }
    package var outbox: OutboxStore { OutboxStore(database: database) }
    package var config: ConfigStore { ConfigStore(database: database) }
    package var configAnnouncements: ConfigAnnouncements { ConfigAnnouncements(database: database) }
    package var configFetches: ConfigFetches { ConfigFetches(database: database) }
    package var configTokens: ConfigTokenStore { ConfigTokenStore(database: database) }
    package var securePayloads: SecurePayloadStore { SecurePayloadStore(database: database) }
    package var secureReaders: SecureReaderStore { SecureReaderStore(database: database) }
    package var identitySecrets: IdentitySecretStore { IdentitySecretStore(database: database) }
    package var syncPools: SyncPoolStore { SyncPoolStore(database: database) }
    package var syncDatasets: SyncDatasetStore { SyncDatasetStore(database: database) }
    package var syncDevices: SyncDeviceStore { SyncDeviceStore(database: database) }
    package var syncWindows: SyncWindowStore { SyncWindowStore(database: database) }
    package var syncKeeping: SyncKeeping { SyncKeeping(database: database) }
    package var syncState: SyncStateStore { SyncStateStore(database: database) }
    package var ingestTypes: IngestTypeStore { IngestTypeStore(database: database) }
    package var ingestSink: IngestSinkStore { IngestSinkStore(database: database) }
    package var ingestUpkeep: IngestUpkeep { IngestUpkeep(database: database) }
    package var receipts: ReceiptStore { ReceiptStore(database: database) }
    package var appLinks: AppLinkStore { AppLinkStore(database: database) }
    package var logins: LoginStore { LoginStore(database: database) }
    package var jwks: JWKSStore { JWKSStore(database: database) }
    package var audit: AuditStore { AuditStore(database: database) }
    package var sealed: SealedStore { SealedStore(database: database) }
    package var erasures: Erasures { Erasures(database: database) }
    package var maintenance: Maintenance { Maintenance(database: database) }

    var schema: SchemaStore { SchemaStore(database: database) }

    /// Keeps connections, and an eye on the schema's version. Ends when its task is cancelled.
    ///
    /// - Throws: `SchemaTooNew` as soon as the schema says that this version may not use it.
    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await self.database.pool.run() }
            group.addTask { try await self.singles.pool.run(isEager: false) }
            group.addTask { try await self.watchSchema() }
            defer { group.cancelAll() }
            // The first to end ends both: the pool on cancellation, the watch on a schema too new.
            while try await group.next() != nil {
                if Task.isCancelled { continue }
                group.cancelAll()
            }
        }
    }

    /// Why the database cannot be used now; `nil` when it can.
    package func notReadyReason() -> String? {
        database.pool.notReadyReason() ?? singles.pool.notWritableReason()
            ?? schemaWatch.notReadyReason
    }

    /// What is wrong with this host's clock, or Postgres'; `nil`: nothing.
    package func warning() -> String? { clock.warning }

    /// Waits until the schema can be used. Ends early only by cancellation.
    package func untilReady() async throws {
        while schemaWatch.notReadyReason != nil {
            try await Task.sleep(for: .milliseconds(50))
        }
    }

    /// Ends the pool without `run`: for commands and tests.
    package func close() async {
        await database.pool.close()
        await singles.pool.close()
    }

    private func watchSchema() async throws {
        while !Task.isCancelled {
            do {
                let state = try await schema.state()
                hostIsAhead?.set(Int(clock.hostIsAhead.wholeMilliseconds / 1000))
                if case .tooNew(let error) = state { throw error }
                if schemaWatch.update(state), let reason = state.notReadyReason {
                    log.info("waiting for the schema", [.reason: .string(reason)])
                }
            } catch let error as StorageError {
                log.debug("cannot read the schema's version", [.error: .string(error.description)])
            }
            let wait: Duration =
                schemaWatch.notReadyReason == nil ? .seconds(10) : .milliseconds(250)
            do { try await Task.sleep(for: wait) } catch { return }
        }
    }

    /// The schema's version that this program was built for.
    package static var schemaVersion: Int { Migration.current }

    package func schemaState() async throws -> SchemaState { try await schema.state() }

    /// Brings the schema to this version: safe to repeat, and safe from many at once.
    ///
    /// - Returns: The versions that this call applied; empty when there was nothing to do.
    /// - Throws: `SchemaTooNew` where the schema has left this version behind.
    package func migrate() async throws -> [Int] { try await schema.migrate() }

    /// Calls `handler` on each notification, and with an empty text after every reconnect, when
    /// some may have been missed. It ends with the database.
    package func onNotification(
        _ channel: StorageChannel,
        _ handler: @escaping @Sendable (String) -> Void
    ) async throws {
        try await database.onNotification(channel, handler)
    }
}

/// What was last seen of the schema; written by the watch, read by anyone.
private final class SchemaWatch: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var reason: String? = "the schema was not looked at yet"

    var notReadyReason: String? { lock.withLock { unsafe reason } }

    /// Whether it is news.
    func update(_ state: SchemaState) -> Bool {
        lock.withLock {
            let changed = unsafe reason != state.notReadyReason
            unsafe reason = state.notReadyReason
            return changed
        }
    }
}
