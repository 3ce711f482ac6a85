import EventLoop
import JSON
import JSONSchema
import Observability
import PushCore
import PushStorage

/// A type of objects as intake knows it.
final class KnownType: Sendable {
    let name: String
    /// `schema.version` of its records.
    let version: Int
    let schema: ObjectSchema
    let builtIn: BuiltInIngestType?

    init(name: String, version: Int, schema: ObjectSchema, builtIn: BuiltInIngestType?) {
        self.name = name
        self.version = version
        self.schema = schema
        self.builtIn = builtIn
    }
}

/// The types of apps, read from the database and kept for a few seconds; for ten minutes while the
/// database is away.
///
/// An app's types are read together, so a name that nobody declared asks the database no more often
/// than any other. A type that was declared or widened is taken up when the database tells of it, and
/// within `lifetime` where that notice is missed.
actor TypeDirectory {
    nonisolated private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private struct Entry {
        var types: TextMap<KnownType>
        var readAt: ContinuousClock.Instant
    }

    private static let lifetime = Duration.seconds(4)
    static let staleLifetime = Duration.seconds(600)
    private static let patience = Duration.seconds(10)
    /// How long the database is waited for where what was known will do.
    private static let patienceOfKnown = Duration.seconds(1)
    private static let retryPause = Duration.seconds(1)
    /// Apps whose types are kept; who calls has proved a key of one.
    private static let maximumApps = 10_000

    private let database: PushDatabase
    private let pool: FairPool
    private let log: Log
    private var entries: [String: Entry] = [:]
    private var readings: [String: (flight: Flight<TextMap<KnownType>>, notices: Int)] = [:]
    private var awayUntil: ContinuousClock.Instant?
    private var notices = 0

    init(_ database: PushDatabase, on loop: EventLoop, log: Log) {
        self.database = database
        self.loop = loop
        pool = FairPool(on: loop)
        self.log = log
    }

    /// Listens for changes until its task is cancelled.
    func run() async {
        guard (try? await database.untilReady()) != nil else { return }
        var isListening = false
        while !Task.isCancelled {
            if !isListening {
                isListening =
                    (try? await database.onNotification(.ingestTypes) { app in
                        Task(executorPreference: self.loop) { await self.forget(app) }
                    }) != nil
            }
            do { try await loop.sleep(for: .seconds(1)) } catch { return }
        }
    }

    /// An empty id: any app's may have changed. What was known stays for while the database is away.
    private func forget(_ app: String) {
        notices += 1
        for id in app.isEmpty ? Array(entries.keys) : [app] {
            guard let entry = entries[id] else { continue }
            entries[id]?.readAt = entry.readAt - Self.lifetime
        }
    }

    /// - Returns: `nil` where the app has no such type.
    /// - Throws: As `all`.
    func find(_ name: String, of app: String) async throws -> KnownType? {
        try await all(of: app)[name]
    }

    /// - Returns: The app's types, by their names.
    /// - Throws: `StorageError` where the database is away and the app's types are not known.
    func all(of app: String) async throws -> TextMap<KnownType> {
        let entry = entries[app]
        let now = ContinuousClock.now
        if let entry {
            let age = now - entry.readAt
            if age < Self.lifetime { return entry.types }
            let isAway = awayUntil.map { now < $0 } ?? false || database.notReadyReason() != nil
            if isAway, age < Self.staleLifetime { return entry.types }
        }
        do {
            return try await types(of: app, known: entry?.types)
        } catch let error as StorageError where error.isRetryable {
            guard let entry, now - entry.readAt < Self.staleLifetime else { throw error }
            awayUntil = .now + Self.retryPause
            return entry.types
        }
    }

    /// All who ask at once share one reading, but for one that began before something changed.
    private func types(
        of app: String,
        known: TextMap<KnownType>?
    ) async throws -> TextMap<KnownType> {
        if let reading = readings[app], reading.notices == notices {
            return try await reading.flight.wait()
        }
        let flight = Flight<TextMap<KnownType>>(
            on: loop,
            atMost: known == nil ? Self.patience : Self.patienceOfKnown,
            orElse: StorageError(.database, "the database does not answer", isRetryable: true)
        )
        readings[app] = (flight, notices)
        flight.start({ try await self.read(app, known: known ?? [:]) }) { _ in
            self.assumeIsolated { directory in
                if directory.readings[app]?.flight === flight { directory.readings[app] = nil }
            }
        }
        return try await flight.wait()
    }

    private func read(
        _ app: String,
        known: TextMap<KnownType>
    ) async throws -> TextMap<KnownType> {
        let (now, noticesBefore) = (ContinuousClock.now, notices)
        var types: TextMap<KnownType> = [:]
        for stored in try await database.ingestTypes.list(of: app) {
            if let same = known[stored.name], same.version == stored.version,
                (same.builtIn != nil) == (stored.app == nil)
            {
                types[stored.name] = same
            } else if let type = try await compiled(stored, of: app) {
                types[stored.name] = type
            }
        }
        if notices == noticesBefore {
            if entries.count >= Self.maximumApps { entries = [:] }
            entries[app] = Entry(types: types, readAt: now)
        }
        return types
    }

    private func compiled(_ stored: StoredIngestType, of app: String) async throws -> KnownType? {
        if stored.app == nil {
            guard let type = BuiltInIngestType(rawValue: stored.name) else { return nil }
            return BuiltInSchemas.known(type, version: stored.version)
        }
        do {
            let (document, name) = (stored.schema, stored.name)
            let schema = try await pool.run(of: app) {
                try ObjectSchema(document?.bytes ?? [], type: name, isStored: true)
            }
            return KnownType(
                name: stored.name,
                version: stored.version,
                schema: schema,
                builtIn: nil
            )
        } catch let error as SchemaError {
            // `put` had it compiled: somebody else wrote it, or a later version did.
            log.error(
                "the schema of a type cannot be used",
                [.detail: .string(stored.name), .error: .string(error.description)]
            )
            return nil
        }
    }
}
