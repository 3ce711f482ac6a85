// The storage modules hold all of Carillon's SQL: stores that turn rows into values and back. Values are
// passed only as bound parameters, and all operations work on batches. `Storage` is the base of all stores;
// each subject has a module of its own, which adds its stores to `PushDatabase`, and `StorageAdmin` has the
// operations that concern all subjects.
//
// Authority: the tables are written here and nowhere else. A claimed row (a delivery, a push in
// planning) carries the session that claimed it, and every later write checks the session, so that
// a dispatcher that stalled and came back changes nothing.
//
// Lock order, so that transactions cannot deadlock: a dispatcher's session, then shards by (push,
// number), then pushes by id, then deliveries, then installations by (app, object id). A
// transaction that writes new shards holds the lock of their push; no transaction waits for a shard
// while it holds a push.
//
// Shutdown: `run` ends when its task is cancelled, after the pool has answered all requests in flight.

package import Cryptography
package import Observability
package import Postgres
package import PushCore

/// One loop's access to the database.
package final class PushDatabase: Sendable {
    /// The connections of the fast path: look-ups share one, the others write.
    private static let singlesConnections = 3

    package let database: Database
    /// The database of the fast path and of connection nodes, for statements that `IndexPlan` suits. Its
    /// connections are opened at its first statement.
    package let singles: Database
    /// Postgres' clock, measured by `run` and by each renewal of a session.
    package let clock: DatabaseClock
    private let hostIsAhead: Gauge?
    private let parts = Parts()
    package let loop: PostgresLoop
    private let log: Log
    private let schemaWatch = SchemaWatch()

    /// - Parameters:
    ///   - configuration: The settings of the connections.
    ///   - keys: The key ring, which opens the key of erased names. Needed by programs that erase, and by
    ///     programs that write records some time after their events.
    ///   - clock: The clock to measure; objects of a process that use the same database share one
    ///     clock.
    ///   - loop: The loop to run on.
    ///   - log: The log.
    ///   - metrics: The registry of the pool's metrics.
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
        self.loop = loop
    }

    package var apps: AppStore { AppStore(database: database) }
    package var credentials: CredentialStore { CredentialStore(database: database) }
    package var outbox: OutboxStore { OutboxStore(database: database) }
    package var appLinks: AppLinkStore { AppLinkStore(database: database) }
    package var configTokens: ConfigTokenStore { ConfigTokenStore(database: database) }
    package var consoleLogins: ConsoleLoginStore { ConsoleLoginStore(database: database) }
    package var savedFilters: SavedFilterStore { SavedFilterStore(database: database) }
    package var audit: AuditStore { AuditStore(database: database) }
    package var instances: ServiceInstanceStore { ServiceInstanceStore(database: database) }

    /// Returns a key that belongs to the database, and stays when the key ring is rotated.
    ///
    /// - Throws: `StorageError` if the database cannot answer and the key is not cached.
    package func derivedKey(for purpose: String) async throws -> [UInt8] {
        try await database.erasureKey.derived(for: purpose, in: database)
    }

    var schema: SchemaStore { SchemaStore(database: database) }

    /// Runs the connection pools, and watches the schema's version. Ends when its task is cancelled.
    ///
    /// - Throws: `SchemaTooNew` as soon as the schema excludes this version.
    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await self.database.pool.run() }
            group.addTask { try await self.singles.pool.run(isEager: false) }
            group.addTask { try await self.watchSchema() }
            defer { group.cancelAll() }
            // The end of one task ends all tasks. A pool ends on cancellation, the watch if the
            // schema is too new.
            while try await group.next() != nil {
                if Task.isCancelled { continue }
                group.cancelAll()
            }
        }
    }

    /// Returns why the database cannot be used now; `nil` if it can.
    package func notReadyReason() -> String? {
        database.pool.notReadyReason() ?? singles.pool.notWritableReason()
            ?? schemaWatch.notReadyReason
    }

    /// Returns the warning about this host's clock, or Postgres'; `nil` if there is none.
    package func warning() -> String? { clock.warning }

    /// Waits until the schema can be used. Only cancellation ends it early.
    package func untilReady() async throws {
        while schemaWatch.notReadyReason != nil {
            try await Task.sleep(for: .milliseconds(50))
        }
    }

    /// Closes the pools if `run` was not called: for commands and tests.
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

    /// Migrates the schema to this version: safe to repeat, and safe to run concurrently.
    ///
    /// - Returns: The versions that this call applied; empty if there was nothing to do.
    /// - Throws: `SchemaTooNew` if the schema excludes this version.
    package func migrate() async throws -> [Int] { try await schema.migrate() }

    /// Calls `handler` on each notification, and with an empty string after every reconnect, when
    /// notifications may have been missed. The subscription ends with the database.
    package func onNotification(
        _ channel: NotifyChannel,
        _ handler: @escaping @Sendable (String) -> Void
    ) async throws {
        try await database.onNotification(channel, handler)
    }

    /// Calls `handler` on each notification as soon as the database is ready. A LISTEN that fails is
    /// logged and retried with backoff, from 1 s up to 5 s.
    ///
    /// - Parameters:
    ///   - channel: The channel.
    ///   - handler: Called with each notification.
    package func listen(
        to channel: NotifyChannel,
        _ handler: @escaping @Sendable (String) -> Void
    ) async {
        var wait = Duration.seconds(1)
        do {
            try await untilReady()
            while true {
                do {
                    return try await onNotification(channel, handler)
                } catch {
                    log.warning(
                        "notifications are not heard; their changes are noticed later",
                        [.reason: .string(channel.rawValue), .error: .string("\(error)")]
                    )
                }
                try await Task.sleep(for: wait)
                wait = min(wait * 2, .seconds(5))
            }
        } catch {
            // Only a cancellation ends the waits.
        }
    }
}

extension PushDatabase {
    /// Returns an object that a store holds in memory as long as the database is open, such as a cache: one
    /// of each type, made by the first caller.
    package func part<Part: AnyObject & Sendable>(_ make: () -> Part) -> Part { parts.part(make) }
}

private final class Parts: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var parts: [ObjectIdentifier: any Sendable] = [:]

    func part<Part: AnyObject & Sendable>(_ make: () -> Part) -> Part {
        lock.withLock {
            if let part = unsafe parts[ObjectIdentifier(Part.self)] as? Part { return part }
            let part = make()
            unsafe parts[ObjectIdentifier(Part.self)] = part
            return part
        }
    }
}

/// The last observed state of the schema; written by the watch, read by any thread.
private final class SchemaWatch: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var reason: String? = "the schema was not looked at yet"

    var notReadyReason: String? { lock.withLock { unsafe reason } }

    /// Stores the state, and returns whether the reason has changed.
    func update(_ state: SchemaState) -> Bool {
        lock.withLock {
            let changed = unsafe reason != state.notReadyReason
            unsafe reason = state.notReadyReason
            return changed
        }
    }
}
