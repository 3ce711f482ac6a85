package import Cryptography
package import EventLoop
package import PushCore
package import Storage

/// A cached app: its decrypted keys and its owner's settings.
package final class CachedApp: Sendable {
    package let id: String
    package let appKey: String
    package let masterKey: String
    /// Replaced keys, each with its expiry.
    package let retiredKeys: [(kind: AppKeyKind, key: String, until: Instant)]
    package let settings: AppSettings
    /// The tokens that publish or read its remote config.
    package let configTokens: [StoredConfigToken]
    /// Its other names, and the client keys linked to it.
    package let links: [AppLink]
    /// The valid version of its fields' types.
    package let fieldsVersion: FieldsVersion

    package init(
        id: String,
        appKey: String,
        masterKey: String,
        retiredKeys: [(kind: AppKeyKind, key: String, until: Instant)] = [],
        settings: AppSettings,
        configTokens: [StoredConfigToken] = [],
        links: [AppLink] = [],
        fieldsVersion: FieldsVersion = FieldsVersion(createdAt: .earliest, number: 0)
    ) {
        self.id = id
        self.appKey = appKey
        self.masterKey = masterKey
        self.retiredKeys = retiredKeys
        self.settings = settings
        self.configTokens = configTokens
        self.links = links
        self.fieldsVersion = fieldsVersion
    }

    /// Returns the accepted keys: the present one, and recently replaced ones.
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

    /// Whether this name still belongs to the app. A key's digest always does: whether the key is
    /// still accepted is checked later, with the caller's proof.
    func isCalled(_ name: AppName) -> Bool {
        switch name {
        case .id(let name): name == id
        case .folded, .keyDigest: true
        case .project(let name): name == id || isLinked(.fcmProject, name)
        case .atlas(let name): name == id || isLinked(.atlasApp, name)
        case .pool(let name): isLinked(.cognitoPool, name)
        }
    }

    private func isLinked(_ kind: AppLinkKind, _ name: String) -> Bool {
        links.contains { $0.kind == kind && $0.name == name }
    }

    /// Whether one of the keys is proved. All of them are tried, so that the time reveals nothing.
    package func accepts(
        _ kind: AppKeyKind,
        ofBytes minimumBytes: Int = 0,
        _ isProved: (String) -> Bool
    ) -> Bool {
        keys(kind).reduce(false) { known, key in
            let isRight = isProved(key)
            return isRight && key.utf8.count >= minimumBytes || known
        }
    }
}

/// A request's name of an app. It proves nothing about the caller, nor that the app exists.
package enum AppName: Sendable {
    case id(String)
    /// The id, whatever its case.
    case folded(String)
    /// The id, or the name of a Firebase project that is linked to the app.
    case project(String)
    /// The id, or the id of an app of Atlas that is linked to the app.
    case atlas(String)
    /// An identity pool that is linked to the app.
    case pool(String)
    /// The SHA-256 of an app key, in hexadecimal digits: such a key belongs to one app.
    case keyDigest(String)

    package var text: String {
        switch self {
        case .id(let text), .folded(let text), .project(let text), .atlas(let text),
            .pool(let text), .keyDigest(let text):
            text
        }
    }

    /// Whether it is a valid name of an app.
    package var isWellFormed: Bool {
        switch self {
        case .id(let id), .folded(let id): AppID.isWellFormed(id)
        case .project(let name): AppLink.isProjectName(name)
        case .atlas(let name): AppLink.isAtlasAppID(name) || AppID.isWellFormed(name)
        case .pool(let name): AppLink.isPoolName(name)
        case .keyDigest(let digest): digest.utf8.count == 64
        }
    }
}

/// The app cache of one loop, read from the database and valid for a few seconds.
///
/// Signatures need the keys themselves, so they are decrypted here; they are in memory only. A
/// changed key or setting applies when the database notifies, and within five seconds if that
/// notification is missed.
package actor AppCache {
    nonisolated private let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private static let lifetime = Duration.seconds(5)
    private static let day = Duration.seconds(86_400)

    private let database: PushDatabase
    private let keys: KeyRing
    /// Apps by id. A made-up id is not stored.
    private let apps: Cache<CachedApp>
    /// The ids of apps by their other names. A name may have moved to another app: check
    /// `isCalled`.
    private let ids: Cache<String>
    /// The id of the app for callers that name no app.
    private let unnamedID: Cache<String>

    /// Makes a cache; `staleLifetime` is how long a cached app may be used while the database is
    /// unavailable.
    package init(
        _ database: PushDatabase,
        keys: KeyRing,
        staleLifetime: Duration = .zero,
        on loop: EventLoop
    ) {
        self.database = database
        self.keys = keys
        self.loop = loop
        apps = Cache(
            .init(fresh: Self.lifetime, stale: staleLifetime),
            of: .database(database),
            on: loop
        )
        ids = Cache(.init(fresh: Self.day, stale: Self.day * 2), of: .database(database), on: loop)
        unnamedID = Cache(.init(fresh: Self.lifetime), of: .database(database), on: loop)
    }

    /// Listens for changes until its task is cancelled.
    package func run() async throws {
        await database.listen(to: .credentials) { app in
            Task(executorPreference: self.loop) { await self.forget(app) }
        }
        await loop.untilCancelled()
    }

    /// Marks an app as changed; an empty id means any app.
    private func forget(_ app: String) {
        apps.changed(app.isEmpty ? nil : [app])
        // Unknown names may be linked now, and known ones to another app.
        ids.changed(nil)
        unnamedID.changed(nil)
    }

    // MARK: Lookup by name

    private static func key(of name: AppName) -> String {
        // No app id has a blank.
        switch name {
        case .id(let id): id
        case .folded(let name): "folded " + name
        case .project(let name): "project " + name
        case .atlas(let name): "atlas " + name
        case .pool(let name): "pool " + name
        case .keyDigest(let digest): "key " + digest
        }
    }

    package func find(_ name: AppName) async throws -> CachedApp? {
        guard name.isWellFormed else { return nil }
        switch name {
        case .id(let id): return try await find(id)
        case .project(let id), .atlas(let id), .folded(let id):
            if ids.remembered(Self.key(of: name)) == nil, AppID.isWellFormed(id),
                let app = try await find(id)
            {
                return app
            }
        case .pool, .keyDigest: break
        }
        let key = Self.key(of: name)
        // Once more if the cached id is stale.
        for _ in 0..<2 {
            guard let id = try await ids.value(key, { _ in try await self.readID(of: name) })
            else { return nil }
            if let app = try await find(id), app.isCalled(name) { return app }
            ids.remove(key)
        }
        return nil
    }

    /// Returns the result of `find` if that needs no database query. On the loop only.
    package nonisolated func remembered(_ name: AppName) -> CachedApp? {
        assumeIsolated { directory in
            if case .id(let id) = name { return directory.apps.remembered(id) }
            let id = directory.ids.remembered(Self.key(of: name)) ?? name.text
            guard let app = directory.apps.remembered(id), app.isCalled(name) else { return nil }
            return app
        }
    }

    /// Whether the cache knows the name: it was recently found missing, or its app existed when it
    /// was last read. Then `find` at most reads that app again, so made-up names cause no queries.
    package func remembers(_ name: AppName) -> Bool {
        let key = Self.key(of: name)
        if apps.isMissing(key) || ids.isMissing(key) { return true }
        return apps.last(ids.last(key) ?? name.text) != nil
    }

    private func readID(of name: AppName) async throws -> String? {
        switch name {
        case .id(let id): id
        case .folded(let name): try await database.apps.id(folding: name)
        case .project(let name):
            try await database.appLinks.apps(.fcmProject, names: [name]).first?.app
        case .atlas(let name):
            try await database.appLinks.apps(.atlasApp, names: [name]).first?.app
        case .pool(let name):
            try await database.appLinks.apps(.cognitoPool, names: [name]).first?.app
        case .keyDigest(let digest):
            try await database.apps.find(appKeyDigest: (try? Hex.decode(digest)) ?? [])?.id
        }
    }

    /// Returns the only app for callers of secure payloads that name none; `nil`: there is none.
    package func unnamed() async throws -> CachedApp? {
        let database = database
        guard
            let id = try await unnamedID.value(
                "",
                { _ in try await database.apps.secureUnnamed()?.id }
            )
        else { return nil }
        return try await find(id)
    }

    // MARK: Lookup by id

    private func find(_ id: String) async throws -> CachedApp? {
        try await apps.value(id) { _ in try await self.read(id) }
    }

    private func read(_ id: String) async throws -> CachedApp? {
        guard let stored = try await database.apps.find(id), !stored.isClosed else { return nil }
        let retired = try await database.apps.retiredKeys(id)
        let tokens = try await database.configTokens.list(id)
        let links = try await database.appLinks.list(id)
        return CachedApp(
            id: stored.id,
            appKey: try opened(stored.appKeySealed, StoredApp.appKeyContext(stored.id)),
            masterKey: try opened(stored.masterKeySealed, StoredApp.masterKeyContext(stored.id)),
            retiredKeys: try retired.map { key in
                let context = StoredApp.keyContext(stored.id, key.kind)
                return (key.kind, try opened(key.sealed, context), key.validUntil)
            },
            settings: AppSettings(stored.settings),
            configTokens: tokens,
            links: links,
            fieldsVersion: stored.fieldsVersion
        )
    }

    private func opened(_ sealed: [UInt8], _ context: String) throws -> String {
        String(decoding: try keys.open(sealed, context: context), as: UTF8.self)
    }
}
