package import Cryptography
package import EventLoop
package import PushCore
package import PushStorage

/// An app as its callers meet it: its keys, readable, and what its owner has set.
package final class AppAccess: Sendable {
    package let id: String
    package let appKey: String
    package let masterKey: String
    /// Keys that others have taken the place of, each with the end of its time.
    package let retiredKeys: [(kind: AppKeyKind, key: String, until: Instant)]
    package let settings: AppSettings
    /// What may publish its remote config.
    package let configTokens: [StoredConfigToken]
    /// What else it is called, and what else lets its clients in.
    package let links: [AppLink]
    /// Which state of its fields' types counts.
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

    /// Whether this is its id, or a Firebase project that is linked to it.
    package func isCalled(_ name: String) -> Bool {
        name == id || links.contains { $0.kind == .fcmProject && $0.name == name }
    }

    /// Whether the identity pool is linked to it.
    package func hasPool(_ name: String) -> Bool {
        links.contains { $0.kind == .cognitoPool && $0.name == name }
    }

    /// Whether one of the keys is proved. All of them are tried, so that the time tells nothing.
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

/// What a request calls an app. It proves nothing about the caller, nor that there is such an app.
package enum AppName: Sendable {
    case id(String)
    /// The id, whatever its case.
    case folded(String)
    /// The id, or the name of a Firebase project that is linked to the app.
    case project(String)
    /// An identity pool that is linked to the app.
    case pool(String)
    /// The SHA-256 of an app key, in hexadecimal digits: such a key is one app's alone.
    case keyDigest(String)

    package var text: String {
        switch self {
        case .id(let text), .folded(let text), .project(let text), .pool(let text),
            .keyDigest(let text):
            text
        }
    }

    /// Whether an app may be called so.
    package var isWellFormed: Bool {
        switch self {
        case .id(let id), .folded(let id): AppID.isWellFormed(id)
        case .project(let name): AppLink.isProjectName(name)
        case .pool(let name): AppLink.isPoolName(name)
        case .keyDigest(let digest): digest.utf8.count == 64
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
    /// For how long an app that was read is known while the database is away.
    private let staleLifetime: Duration
    /// Until then the database is taken to be away.
    private var awayUntil: ContinuousClock.Instant?
    private var entries: [String: Entry] = [:]
    /// The ids that were written otherwise, by how they were.
    private var foldings: [String: String] = [:]
    /// The ids of apps by the projects and pools that are linked to them.
    private var projects: [String: String] = [:]
    /// What is being read, and how many notices there had been when that began.
    private var readings: [String: (flight: Flight<AppAccess?>, notices: Int)] = [:]
    /// As long as a statement waits for a connection.
    private static let patience = Duration.seconds(10)
    /// Names that nobody has, and when that was found: who makes them up asks the database seldom.
    private var misses: [String: ContinuousClock.Instant] = [:]
    private static let missLifetime = Duration.seconds(1)
    /// Which app readers mean who name none, and when that was read.
    private var unnamedApp: (id: String?, readAt: ContinuousClock.Instant)?
    /// Counts notices: what was read before one is not kept after it.
    private var notices = 0

    /// `staleLifetime` is for how long an app that was read is known while the database is away.
    package init(
        _ database: PushDatabase,
        keys: KeyRing,
        staleLifetime: Duration = .zero,
        on loop: EventLoop
    ) {
        self.database = database
        self.staleLifetime = staleLifetime
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
        // Read again at the next call; where stale ones count they are kept for that.
        if staleLifetime > .zero {
            for id in app.isEmpty ? Array(entries.keys) : [app] {
                guard let entry = entries[id] else { continue }
                entries[id] = Entry(app: entry.app, readAt: entry.readAt - Self.lifetime)
            }
        } else if app.isEmpty {
            entries = [:]
        } else {
            entries[app] = nil
        }
        // What was nobody's may be linked now, and what was one app's to another.
        projects = projects.filter { $0.key.hasPrefix(Self.keyMark) }
        unnamedApp = nil
        misses = misses.filter { miss in
            !miss.key.hasPrefix(Self.projectMark) && !miss.key.hasPrefix(Self.poolMark)
                && !miss.key.hasPrefix(Self.keyMark)
        }
    }

    package func find(_ name: AppName) async throws -> AppAccess? {
        switch name {
        case .id(let id): try await find(id)
        case .folded(let name): try await find(folding: name)
        case .project(let name): try await find(project: name)
        case .pool(let name): try await find(pool: name)
        case .keyDigest(let digest): try await find(keyDigest: digest)
        }
    }

    /// What `find` would find without asking the database: nobody waits for it. On the loop only.
    package nonisolated func remembered(_ name: AppName) -> AppAccess? {
        assumeIsolated { $0.kept(name) }
    }

    private func kept(_ name: AppName) -> AppAccess? {
        let id =
            switch name {
            case .id(let id): id
            case .folded(let name): foldings[name] ?? name
            case .project(let name): projects[name] ?? name
            // No app's id has a blank.
            case .pool(let name): projects[Self.pool(name)] ?? Self.pool(name)
            case .keyDigest(let digest): projects[Self.key(digest)] ?? Self.key(digest)
            }
        guard let entry = entries[id], isUsable(entry) else { return nil }
        // A link may have become another app's.
        if case .project(let name) = name, !entry.app.isCalled(name) { return nil }
        if case .pool(let name) = name, !entry.app.hasPool(name) { return nil }
        return entry.app
    }

    /// Whether `find` asks the database about nothing that a stranger may have made up: at most it
    /// reads an app anew that was there when it was read last.
    package func remembers(_ name: AppName) -> Bool {
        switch name {
        case .id(let id): entries[id] != nil || isMissing(id)
        case .folded(let name):
            entries[foldings[name] ?? name] != nil || isMissing(Self.folded(name))
        case .project(let name):
            entries[projects[name] ?? name] != nil || isMissing(Self.project(name))
        case .pool(let name):
            projects[Self.pool(name)].map { entries[$0] != nil } ?? isMissing(Self.pool(name))
        case .keyDigest(let digest):
            projects[Self.key(digest)].map { entries[$0] != nil } ?? isMissing(Self.key(digest))
        }
    }

    /// An app's id has no blank.
    private static func folded(_ name: String) -> String { "folded " + name }
    private static let projectMark = "project "
    private static func project(_ name: String) -> String { projectMark + name }
    private static let poolMark = "pool "
    private static func pool(_ name: String) -> String { poolMark + name }
    private static let keyMark = "key "
    private static func key(_ digest: String) -> String { keyMark + digest }

    /// The app of this id, or that this project is linked to.
    private func find(project name: String) async throws -> AppAccess? {
        guard AppLink.isProjectName(name) else { return nil }
        if let id = projects[name] {
            if let app = try await find(id), app.isCalled(name) { return app }
            projects[name] = nil
        }
        if AppID.isWellFormed(name), let app = try await find(name) { return app }
        if isMissing(Self.project(name)) { return nil }
        return try await shared(Self.project(name)) { try await self.read(project: name) }
    }

    private func read(project name: String) async throws -> AppAccess? {
        let linked = try await database.appLinks.apps(.fcmProject, names: [name]).first
        guard let linked else {
            miss(Self.project(name))
            return nil
        }
        if projects.count >= Self.maximumEntries { projects = [:] }
        projects[name] = linked.app
        return try await find(linked.app)
    }

    /// The app that this identity pool is linked to.
    private func find(pool name: String) async throws -> AppAccess? {
        guard AppLink.isPoolName(name) else { return nil }
        let key = Self.pool(name)
        if let id = projects[key] {
            if let app = try await find(id), app.hasPool(name) { return app }
            projects[key] = nil
        }
        if isMissing(key) { return nil }
        return try await shared(key) { try await self.read(pool: name) }
    }

    private func read(pool name: String) async throws -> AppAccess? {
        let key = Self.pool(name)
        guard let linked = try await database.appLinks.apps(.cognitoPool, names: [name]).first
        else {
            miss(key)
            return nil
        }
        if projects.count >= Self.maximumEntries { projects = [:] }
        projects[key] = linked.app
        return try await find(linked.app)
    }

    /// The app whose app key this is the digest of. Whether the key is accepted is the proof's to say.
    private func find(keyDigest digest: String) async throws -> AppAccess? {
        let key = Self.key(digest)
        if let id = projects[key] {
            if let app = try await find(id) { return app }
            projects[key] = nil
        }
        if isMissing(key) { return nil }
        return try await shared(key) { try await self.read(keyDigest: digest) }
    }

    private func read(keyDigest digest: String) async throws -> AppAccess? {
        let key = Self.key(digest)
        guard let bytes = try? Hex.decode(digest),
            let stored = try await database.apps.find(appKeyDigest: bytes)
        else {
            miss(key)
            return nil
        }
        if projects.count >= Self.maximumEntries { projects = [:] }
        projects[key] = stored.id
        return try await find(stored.id)
    }

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
        let entry = entries[id]
        if let entry, isUsable(entry) { return entry.app }
        if isMissing(id) { return nil }
        do {
            return try await shared("app " + id, isKnown: entry != nil) { try await self.read(id) }
        } catch let error as StorageError where error.isRetryable {
            // It was known a moment ago, and nobody can say that it is no more.
            guard let entry, ContinuousClock.now - entry.readAt < staleLifetime else { throw error }
            awayUntil = .now + Self.retryPause
            return entry.app
        }
    }

    private func isUsable(_ entry: Entry) -> Bool {
        let now = ContinuousClock.now
        let age = now - entry.readAt
        if age < Self.lifetime { return true }
        guard age < staleLifetime else { return false }
        return awayUntil.map { now < $0 } ?? false || database.notReadyReason() != nil
    }

    /// How often a database that is away is asked.
    private static let retryPause = Duration.seconds(1)
    /// How long it is waited for where what was known will do.
    private static let patienceOfKnown = Duration.seconds(1)

    /// All who ask at once share one reading, but for one that began before something changed.
    private func shared(
        _ name: String,
        isKnown: Bool = false,
        _ read: @escaping @Sendable () async throws -> AppAccess?
    ) async throws -> AppAccess? {
        if let reading = readings[name], reading.notices == notices {
            return try await reading.flight.wait()
        }
        let flight = Flight<AppAccess?>(
            on: loop,
            atMost: isKnown && staleLifetime > .zero ? Self.patienceOfKnown : Self.patience,
            orElse: StorageError(.database, "the database does not answer", isRetryable: true)
        )
        readings[name] = (flight, notices)
        flight.start(read) { _ in
            self.assumeIsolated { directory in
                if directory.readings[name]?.flight === flight { directory.readings[name] = nil }
            }
        }
        return try await flight.wait()
    }

    private func read(_ id: String) async throws -> AppAccess? {
        let now = ContinuousClock.now
        let noticesBefore = notices
        guard let stored = try await database.apps.find(id), !stored.isClosed else {
            entries[id] = nil
            miss(id)
            return nil
        }
        let retired = try await database.apps.retiredKeys(id)
        let tokens = try await database.configTokens.list(id)
        let links = try await database.appLinks.list(id)
        let app = AppAccess(
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
        guard notices == noticesBefore else { return app }
        if entries.count >= Self.maximumEntries { entries.removeAll() }
        entries[id] = Entry(app: app, readAt: now)
        return app
    }

    // MARK: The app of readers who name none

    /// The one app that callers of secure payloads mean who name none; `nil`: there is none.
    package func unnamed() async throws -> AppAccess? {
        if let unnamedApp, ContinuousClock.now - unnamedApp.readAt < Self.lifetime {
            guard let id = unnamedApp.id else { return nil }
            return try await find(id)
        }
        // No app's id, and no mark of another reading, is empty.
        return try await shared("") { try await self.readUnnamed() }
    }

    private func readUnnamed() async throws -> AppAccess? {
        let (now, noticesBefore) = (ContinuousClock.now, notices)
        let id = try await database.apps.secureUnnamed()?.id
        if notices == noticesBefore { unnamedApp = (id, now) }
        guard let id else { return nil }
        return try await find(id)
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
