package import Cryptography
package import EventLoop
package import PushCore
package import PushStorage

/// An app as its callers meet it: its keys, readable, and what its owner has set.
package struct AppAccess: Sendable {
    package let id: String
    package let appKey: String
    package let masterKey: String
    /// Keys that others have taken the place of, each with the end of its time.
    package let retiredKeys: [(kind: AppKeyKind, key: String, until: Instant)]
    package let settings: AppSettings
    /// Which state of its fields' types counts.
    package let fieldsVersion: FieldsVersion

    package init(
        id: String,
        appKey: String,
        masterKey: String,
        retiredKeys: [(kind: AppKeyKind, key: String, until: Instant)] = [],
        settings: AppSettings,
        fieldsVersion: FieldsVersion = FieldsVersion(createdAt: .earliest, number: 0)
    ) {
        self.id = id
        self.appKey = appKey
        self.masterKey = masterKey
        self.retiredKeys = retiredKeys
        self.settings = settings
        self.fieldsVersion = fieldsVersion
    }

    /// The keys that are accepted now: the one in use, and those that it took the place of lately.
    package func keys(_ kind: AppKeyKind) -> [String] {
        let key =
            switch kind {
            case .app: appKey
            case .master: masterKey
            }
        guard !retiredKeys.isEmpty else { return [key] }
        let now = Instant.now()
        return [key] + retiredKeys.filter { $0.kind == kind && $0.until > now }.map(\.key)
    }

    /// Whether one of the keys is proved. All of them are tried, so that the time tells nothing.
    package func accepts(_ kind: AppKeyKind, _ isProved: (String) -> Bool) -> Bool {
        keys(kind).reduce(false) { known, key in isProved(key) || known }
    }
}

/// What a request calls an app. It proves nothing about the caller, nor that there is such an app.
package enum AppName: Sendable {
    case id(String)
    /// The id, whatever its case.
    case folded(String)

    package var text: String {
        switch self {
        case .id(let text), .folded(let text): text
        }
    }
}

/// The apps of one loop, read from the database and kept for a few seconds.
///
/// Signatures need the keys themselves, so they are opened here; they live in memory only. A
/// changed key or setting is taken up when the database tells of it, and within `lifetime` where
/// that notice is missed.
package actor AppDirectory {
    nonisolated private let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
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
    /// The ids that were written otherwise, by how they were.
    private var foldings: [String: String] = [:]
    /// Names that nobody has, and when that was found: who makes them up asks the database seldom.
    private var misses: [String: ContinuousClock.Instant] = [:]
    private static let missLifetime = Duration.seconds(1)
    /// Counts notices: what was read before one is not kept after it.
    private var notices = 0

    package init(_ database: PushDatabase, keys: KeyRing, on loop: EventLoop) {
        self.database = database
        self.keys = keys
        self.loop = loop
    }

    /// Listens for changes until its task is cancelled.
    package func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        var isListening = false
        while !Task.isCancelled {
            if !isListening {
                isListening =
                    (try? await database.onNotification(.credentials) { app in
                        Task(executorPreference: self.loop) { await self.forget(app) }
                    }) != nil
            }
            do { try await loop.sleep(for: .seconds(1)) } catch { return }
        }
    }

    /// An empty id: any app may have changed.
    private func forget(_ app: String) {
        notices += 1
        if app.isEmpty { entries = [:] } else { entries[app] = nil }
    }

    package func find(_ name: AppName) async throws -> AppAccess? {
        switch name {
        case .id(let id): try await find(id)
        case .folded(let name): try await find(folding: name)
        }
    }

    /// Whether `find` asks the database about nothing that a stranger may have made up: at most it
    /// reads an app anew that was there when it was read last.
    package func remembers(_ name: AppName) -> Bool {
        switch name {
        case .id(let id): entries[id] != nil || isMissing(id)
        case .folded(let name):
            entries[foldings[name] ?? name] != nil || isMissing(Self.folded(name))
        }
    }

    /// An app's id has no blank.
    private static func folded(_ name: String) -> String { "folded " + name }

    /// The app of this id, whatever its case.
    private func find(folding name: String) async throws -> AppAccess? {
        guard AppID.isWellFormed(name) else { return nil }
        if let app = try await find(foldings[name] ?? name) { return app }
        foldings[name] = nil
        let missed = Self.folded(name)
        if isMissing(missed) { return nil }
        guard let id = try await database.apps.id(folding: name), id != name else {
            miss(missed)
            return nil
        }
        if foldings.count >= Self.maximumEntries { foldings = [:] }
        foldings[name] = id
        return try await find(id)
    }

    private func find(_ id: String) async throws -> AppAccess? {
        let now = ContinuousClock.now
        if let entry = entries[id], now - entry.readAt < Self.lifetime { return entry.app }
        if isMissing(id) { return nil }
        let noticesBefore = notices
        guard let stored = try await database.apps.find(id), !stored.isClosed else {
            entries[id] = nil
            miss(id)
            return nil
        }
        let retired = try await database.apps.retiredKeys(id)
        let app = AppAccess(
            id: stored.id,
            appKey: try opened(stored.appKeySealed, StoredApp.appKeyContext(stored.id)),
            masterKey: try opened(stored.masterKeySealed, StoredApp.masterKeyContext(stored.id)),
            retiredKeys: try retired.map { key in
                let context = StoredApp.keyContext(stored.id, key.kind)
                return (key.kind, try opened(key.sealed, context), key.validUntil)
            },
            settings: AppSettings(stored.settings),
            fieldsVersion: stored.fieldsVersion
        )
        guard notices == noticesBefore else { return app }
        if entries.count >= Self.maximumEntries { entries.removeAll() }
        entries[id] = Entry(app: app, readAt: now)
        return app
    }

    private func isMissing(_ name: String) -> Bool {
        guard let at = misses[name] else { return false }
        return ContinuousClock.now - at < Self.missLifetime
    }

    private func miss(_ name: String) {
        if misses.count >= Self.maximumEntries { misses = [:] }
        misses[name] = .now
    }

    private func opened(_ sealed: [UInt8], _ context: String) throws -> String {
        String(decoding: try keys.open(sealed, context: context), as: UTF8.self)
    }
}
