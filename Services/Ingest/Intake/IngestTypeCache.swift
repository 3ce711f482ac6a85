import Apps
import EventLoop
import IngestStorage
import JSON
import JSONSchema
import Observability
import PushCore
import RealmSync
import Storage

/// A type of objects, as intake caches it.
final class KnownType: Sendable {
    let name: String
    /// `schema.version` of its records.
    let version: Int
    let schema: ObjectSchema
    let builtIn: BuiltInIngestType?
    /// The members that it gives to objects of Realm's clients without them.
    let declaration: RealmDeclaration

    init(name: String, version: Int, schema: ObjectSchema, builtIn: BuiltInIngestType?) {
        self.name = name
        self.version = version
        self.schema = schema
        self.builtIn = builtIn
        declaration = RealmDeclaration(schema: schema.document)
    }
}

/// A cache of the types of apps. Entries may be stale for a few seconds, or for ten minutes while
/// the database is not reachable.
///
/// An app's types are read together, so undeclared names do not cause more queries than declared
/// ones. A declared or widened type is refreshed on the database's notification, or within
/// `lifetime` if the notification is missed.
actor IngestTypeCache {
    nonisolated private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private static let lifetime = Duration.seconds(4)
    static let staleLifetime = Duration.seconds(600)

    private let database: PushDatabase
    private let pool: FairPool
    private let log: Log
    /// The types by app. Only the apps of authenticated callers are looked up.
    private let types: Cache<ExactStringMap<KnownType>>

    init(_ database: PushDatabase, on loop: EventLoop, log: Log) {
        self.database = database
        self.loop = loop
        pool = FairPool(on: loop)
        self.log = log
        types = Cache(
            .init(fresh: Self.lifetime, stale: Self.staleLifetime),
            of: .database(database),
            on: loop
        )
    }

    /// Listens for changes until its task is cancelled. An empty id means that any app's types may have
    /// changed.
    func run() async {
        let (types, loop) = (types, loop)
        await database.listen(to: .ingestTypes) { app in
            loop.execute { types.changed(app.isEmpty ? nil : [app]) }
        }
        await loop.untilCancelled()
    }

    /// - Returns: `nil` if the app has no such type.
    /// - Throws: As `all`.
    func find(_ name: String, of app: String) async throws -> KnownType? {
        try await all(of: app)[name]
    }

    /// - Returns: The app's types, by their names.
    /// - Throws: `StorageError` if the database is not reachable and the app's types are not cached.
    func all(of app: String) async throws -> ExactStringMap<KnownType> {
        try await types.value(app) { try await self.read(app, known: $0 ?? [:]) } ?? [:]
    }

    private func read(
        _ app: String,
        known: ExactStringMap<KnownType>
    ) async throws -> ExactStringMap<KnownType> {
        var types: ExactStringMap<KnownType> = [:]
        for stored in try await database.ingestTypes.list(of: app) {
            if let same = known[stored.name], same.version == stored.version,
                (same.builtIn != nil) == (stored.app == nil)
            {
                types[stored.name] = same
            } else if let type = try await compiled(stored, of: app) {
                types[stored.name] = type
            }
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
            // `ingest type put` compiles each schema, so a later version, or something else, wrote
            // this one.
            log.error(
                "the schema of a type cannot be used",
                [.detail: .string(stored.name), .error: .string(error.description)]
            )
            return nil
        }
    }
}
