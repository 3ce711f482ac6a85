internal import Cryptography
package import EventLoop
internal import JSON
package import Observability
internal import PushCore
package import PushStorage

/// Whose a token is, as one loop knows it: the logins of apps, kept for a few seconds, the keys of their
/// issuers, and the tokens that were verified lately.
package actor LoginDirectory {
    nonisolated private let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// An app's logins as they were read at one time.
    final class AppLogins: Sendable {
        let stored: [StoredLogin]
        /// The keys of those that have theirs with them.
        let fixed: [JWKSet?]

        init(_ stored: [StoredLogin]) {
            self.stored = stored
            fixed = stored.map { login in
                switch login.keys {
                case .url: nil
                case .fixed(let json): try? JWKSet(json)
                }
            }
        }
    }

    private struct Entry {
        let logins: AppLogins
        let readAt: ContinuousClock.Instant
    }

    private struct Finding {
        let apps: [String]
        let at: ContinuousClock.Instant
    }

    private static let lifetime = Duration.seconds(5)
    private static let missLifetime = Duration.seconds(1)
    private static let maximumEntries = 10_000
    /// As long as a statement waits for a connection.
    private static let patience = Duration.seconds(10)

    private let rows: LoginRows
    private let database: PushDatabase?
    private let keys: IssuerKeys
    private let log: Log
    private let now: @Sendable () -> ContinuousClock.Instant
    private let wallClock: @Sendable () -> Instant
    private var entries: TextMap<Entry> = [:]
    private var readings: TextMap<(flight: Flight<AppLogins>, notices: Int)> = [:]
    /// The apps of an issuer and audiences, by the digest of both.
    private var findings: [[UInt8]: Finding] = [:]
    private var memory = TokenMemory<AppLogins>()
    /// Counts notices: what was read before one is not kept after it.
    private var notices = 0

    package init(
        _ database: PushDatabase,
        _ keys: JWKSSource,
        on loop: EventLoop,
        log: Log = .disabled,
        metrics: Metrics = Metrics()
    ) {
        self.init(
            .postgres(database),
            keys,
            on: loop,
            listeningTo: database,
            log: log,
            metrics: metrics
        )
    }

    init(
        _ rows: LoginRows,
        _ source: JWKSSource,
        on loop: EventLoop,
        listeningTo database: PushDatabase? = nil,
        log: Log = .disabled,
        metrics: Metrics = Metrics(),
        steadyClock: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        wallClock: @escaping @Sendable () -> Instant = { .now() }
    ) {
        self.rows = rows
        self.database = database
        self.loop = loop
        self.log = log
        now = steadyClock
        self.wallClock = wallClock
        keys = IssuerKeys(
            rows,
            source,
            on: loop,
            log: log,
            metrics: metrics,
            now: steadyClock
        )
    }

    // MARK: Whose it is

    /// Whose a token is.
    ///
    /// - Parameters:
    ///   - token: As it came; nothing of it is believed before its signature is checked.
    ///   - app: Which app the caller means; `nil`: the one of whose logins the token is.
    /// - Returns: The app, and the identity that the token proves.
    /// - Throws: `LoginRefusal`, or `StorageError` where the database cannot be asked.
    package func reader(of token: String, app: String?) async throws -> TokenReader {
        guard token.utf8.count <= JWT.maximumByteCount else { throw refusal(.malformed) }
        let digest = sha256(Array(token.utf8))
        if let reader = try await remembered(digest, app) { return reader }
        let proof: UnprovedToken
        let claims: TokenClaims
        do {
            proof = try UnprovedToken(token)
            guard proof.algorithm != nil else { throw LoginFault.algorithm }
            claims = try TokenClaims(proof.claims)
            // Before anybody is asked for keys on account of it.
            try claims.judge(at: wallClock())
        } catch let fault as LoginFault {
            throw refusal(fault)
        } catch {
            throw refusal(.malformed)
        }
        let owner = if let app { app } else { try await self.app(of: claims) }
        let logins = try await logins(of: owner)
        let reader = TokenReader(
            app: owner,
            identity: try await identity(proof, claims, logins)
        )
        memory.insert(
            digest,
            TokenMemory.Entry(
                reader: reader,
                logins: logins,
                end: claims.end,
                until: now() + TokenMemory<AppLogins>.lifetime
            )
        )
        return reader
    }

    private func refusal(_ fault: LoginFault) -> LoginRefusal { .refused(fault) }

    /// What was found out of this token lately, by logins that are the same still.
    private func remembered(_ digest: [UInt8], _ app: String?) async throws -> TokenReader? {
        guard let entry = memory.find(digest, at: wallClock(), now()) else { return nil }
        if let app, !app.isSame(as: entry.reader.app) { return nil }
        if try await logins(of: entry.reader.app) === entry.logins { return entry.reader }
        memory.remove(digest)
        return nil
    }

    /// The identity that one of the app's logins makes of it; of several all must say the same.
    private func identity(
        _ proof: UnprovedToken,
        _ claims: TokenClaims,
        _ logins: AppLogins
    ) async throws -> String {
        let issued = logins.stored.indices.filter {
            logins.stored[$0].issuer.isSame(as: claims.issuer)
        }
        guard !issued.isEmpty else { throw refusal(.issuer) }
        let fitting = issued.filter { index in
            claims.audiences.contains { $0.isSame(as: logins.stored[index].audience) }
        }
        var found: String?
        for index in fitting {
            let login = logins.stored[index]
            if let fault = try await fault(proof, login, logins.fixed[index]) {
                throw refusal(fault)
            }
            guard let claim = claims.text(login.identityClaim), !claim.isEmpty else {
                throw refusal(.noIdentity)
            }
            guard let identity = LoginPrefixes.identity(claim, by: login, among: logins.stored)
            else { throw refusal(.foreignIdentity) }
            // Postgres takes no zero byte, so nobody is called so.
            guard identity.utf8.count <= LoginLimits.identityBytes,
                !identity.utf8.contains(0)
            else { throw refusal(.noIdentity) }
            if let found, !found.isSame(as: identity) { throw refusal(.ambiguous) }
            found = identity
        }
        guard let found else { throw refusal(.audience) }
        return found
    }

    /// What is wrong with its signature.
    private func fault(
        _ proof: UnprovedToken,
        _ login: StoredLogin,
        _ fixed: JWKSet?
    ) async throws -> LoginFault? {
        guard let url = login.url else { return fault(proof, fixed) }
        guard let known = try await keys.keys(of: url) else { throw LoginRefusal.unavailable }
        let fault = fault(proof, known)
        // Of a token that names no key, any of the issuer's new ones may be the one.
        let mayBeNew = fault == .unknownKey || fault == .signature && proof.header["kid"] == nil
        guard mayBeNew, let renewed = try await keys.renewed(url) else { return fault }
        return self.fault(proof, renewed)
    }

    private func fault(_ proof: UnprovedToken, _ set: JWKSet?) -> LoginFault? {
        let name = proof.header["kid"]
        guard name == nil || name?.string != nil else { return .malformed }
        guard let algorithm = proof.algorithm else { return .algorithm }
        let candidates = set?.candidates(kid: name?.string, algorithm: algorithm) ?? []
        guard !candidates.isEmpty else { return .unknownKey }
        return candidates.contains(where: proof.isSigned) ? nil : .signature
    }

    // MARK: Whose logins

    /// The one app whose login it is of.
    private func app(of claims: TokenClaims) async throws -> String {
        let digest = sha256(
            Array(
                ([claims.issuer] + claims.audiences).map { "\($0.utf8.count) \($0)" }
                    .joined(separator: " ").utf8
            )
        )
        let apps: [String]
        if let finding = findings[digest],
            now() - finding.at
                < (finding.apps.isEmpty ? Self.missLifetime : Self.lifetime)
        {
            apps = finding.apps
        } else {
            let noticesBefore = notices
            apps = try await rows.apps(claims.issuer, claims.audiences)
            if findings.count >= Self.maximumEntries { findings = [:] }
            if notices == noticesBefore { findings[digest] = Finding(apps: apps, at: now()) }
        }
        guard let app = apps.first else { throw refusal(.issuer) }
        guard apps.count == 1 else { throw refusal(.ambiguous) }
        return app
    }

    private func logins(of app: String) async throws -> AppLogins {
        if let entry = entries[app], now() - entry.readAt < Self.lifetime {
            return entry.logins
        }
        if let reading = readings[app], reading.notices == notices {
            return try await reading.flight.wait()
        }
        let flight = Flight<AppLogins>(
            on: loop,
            atMost: Self.patience,
            orElse: StorageError(.database, "the database does not answer", isRetryable: true)
        )
        readings[app] = (flight, notices)
        flight.start {
            try await self.read(app)
        } whenOver: { _ in
            self.assumeIsolated { directory in
                if directory.readings[app]?.flight === flight { directory.readings[app] = nil }
            }
        }
        return try await flight.wait()
    }

    private func read(_ app: String) async throws -> AppLogins {
        let (began, noticesBefore) = (now(), notices)
        let stored = try await rows.logins(app)
        // The same as before: what was verified by them is still.
        let known = entries[app].map(\.logins)
        let logins = known.flatMap { $0.stored == stored ? $0 : nil } ?? AppLogins(stored)
        guard notices == noticesBefore else { return logins }
        if entries.count >= Self.maximumEntries { entries = [:] }
        entries[app] = Entry(logins: logins, readAt: began)
        return logins
    }

    // MARK: What changes

    /// Listens for changes and renews keys, until its task is cancelled.
    package func run() async throws {
        if let database {
            guard (try? await database.untilReady()) != nil else { return }
        }
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.listen() }
            group.addTask {
                await self.often(IssuerKeys.refreshInterval) { try await $0.refresh() }
            }
            group.addTask { await self.often(IssuerKeys.renewInterval) { try await $0.renew() } }
            await group.waitForAll()
        }
    }

    private func listen() async {
        guard let database else { return }
        while !Task.isCancelled {
            do {
                try await database.onNotification(.credentials) { app in
                    Task(executorPreference: self.loop) { await self.forget(app) }
                }
                return
            } catch {
                // The database is away; logins are read anew after a few seconds in any case.
            }
            do { try await loop.sleep(for: .seconds(1)) } catch { return }
        }
    }

    private func often(
        _ interval: Duration,
        _ look: @Sendable (IssuerKeys) async throws -> Void
    ) async {
        while !Task.isCancelled {
            do {
                try await look(keys)
            } catch {
                log.debug("looking after issuers' keys failed", [.error: .string("\(error)")])
            }
            // Not all processes at once.
            let wait = interval * Double.random(in: 0.8...1)
            do { try await loop.sleep(for: wait) } catch { return }
        }
    }

    /// An empty id: any app may have changed.
    func forget(_ app: String) {
        notices += 1
        findings = [:]
        if app.isEmpty {
            entries = entries.mapValues {
                Entry(logins: $0.logins, readAt: $0.readAt - Self.lifetime)
            }
        } else if let entry = entries[app] {
            // Kept to be compared: most changes of an app are not of its logins.
            entries[app] = Entry(logins: entry.logins, readAt: entry.readAt - Self.lifetime)
        }
    }
}
