import Cryptography
import EventLoop
import PushCore
import PushStorage

/// An app as its callers meet it: its keys, readable, and what its owner has set.
struct AppAccess: Sendable {
    let id: String
    let appKey: String
    let masterKey: String
    let settings: AppSettings
}

/// The apps of one loop, read from the database and kept for a few seconds.
///
/// Signatures need the keys themselves, so they are opened here; they live in memory only. A
/// changed key or setting is taken up within `lifetime`.
actor AppDirectory {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private struct Entry {
        let app: AppAccess
        let readAt: ContinuousClock.Instant
    }

    private static let lifetime = Duration.seconds(5)
    /// An id that a stranger makes up is not kept, so this bounds what real apps hold.
    private static let maximumEntries = 10_000

    private let database: PushDatabase
    private let keys: KeyRing
    private var entries: [String: Entry] = [:]

    init(_ database: PushDatabase, keys: KeyRing, on loop: EventLoop) {
        self.database = database
        self.keys = keys
        self.loop = loop
    }

    /// The app whose key the credential proves.
    ///
    /// - Throws: `LeanCloudError.unauthorized` for an unknown app and for a wrong key alike;
    ///   `StorageError` when the database cannot answer.
    func access(_ credential: LeanCloudCredential) async throws -> AppAccess {
        guard let app = try await find(credential.app) else { throw LeanCloudError.unauthorized }
        let key =
            switch credential.rights {
            case .client: app.appKey
            case .master: app.masterKey
            }
        guard credential.isProved(by: key) else { throw LeanCloudError.unauthorized }
        return app
    }

    /// The app that an Azure hub of this name is, whatever its case. Proves nothing about the caller.
    func hub(_ name: String) async throws -> AppAccess? {
        guard AppID.isWellFormed(name) else { return nil }
        if let app = try await find(name) { return app }
        guard let id = try await database.apps.id(folding: name), id != name else { return nil }
        return try await find(id)
    }

    private func find(_ id: String) async throws -> AppAccess? {
        let now = ContinuousClock.now
        if let entry = entries[id], now - entry.readAt < Self.lifetime { return entry.app }
        guard let stored = try await database.apps.find(id) else {
            entries[id] = nil
            return nil
        }
        let app = AppAccess(
            id: stored.id,
            appKey: try opened(stored.appKeySealed, StoredApp.appKeyContext(stored.id)),
            masterKey: try opened(stored.masterKeySealed, StoredApp.masterKeyContext(stored.id)),
            settings: AppSettings(stored.settings)
        )
        if entries.count >= Self.maximumEntries { entries.removeAll() }
        entries[id] = Entry(app: app, readAt: now)
        return app
    }

    private func opened(_ sealed: [UInt8], _ context: String) throws -> String {
        String(decoding: try keys.open(sealed, context: context), as: UTF8.self)
    }
}
