internal import Cryptography
package import EventLoop
package import JSON
package import Observability
internal import PushCore
package import Storage

/// Verifies tokens on one loop: caches the logins of apps for a few seconds, the keys of their
/// issuers, and recently verified tokens.
package actor LoginCache {
    nonisolated private let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// An app's logins as of one read.
    final class AppLogins: Sendable {
        let stored: [StoredLogin]
        /// The keys of logins with fixed keys.
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

    private static let lifetime = Duration.seconds(5)

    private let rows: LoginRows
    private let database: PushDatabase?
    private let keys: IssuerKeyCache
    private let log: Log
    private let now: @Sendable () -> ContinuousClock.Instant
    private let wallClock: @Sendable () -> Instant
    private let logins: Cache<AppLogins>
    /// The apps that have a login for an issuer and audiences, by the digest of both.
    private let owners: Cache<[String]>
    private var memory = VerifiedTokenCache<AppLogins>()

    /// Makes a cache; `use` is the logins whose keys `run` renews.
    package init(
        _ database: PushDatabase,
        _ keys: JWKSSource,
        renewingKeysOf use: JWKSUse = .readers,
        on loop: EventLoop,
        log: Log = .disabled,
        metrics: Metrics = Metrics()
    ) {
        self.init(
            .postgres(database, use),
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
        let tooLate = StorageError(.database, "the database does not answer", isRetryable: true)
        logins = Cache(
            .init(fresh: Self.lifetime),
            of: .init(isAway: { false }, isTransient: { _ in false }, tooLate: tooLate),
            on: loop,
            now: steadyClock
        )
        owners = Cache(
            .init(fresh: Self.lifetime),
            of: .init(isAway: { false }, isTransient: { _ in false }, tooLate: tooLate),
            on: loop,
            now: steadyClock
        )
        self.wallClock = wallClock
        keys = IssuerKeyCache(
            rows,
            source,
            on: loop,
            log: log,
            metrics: metrics,
            now: steadyClock
        )
    }

    // MARK: Verification

    /// Verifies a token and returns its identity.
    ///
    /// - Parameters:
    ///   - token: As received; nothing of it is trusted before its signature is verified.
    ///   - app: The app that the caller names; `nil`: the one whose login the token matches.
    /// - Returns: The app, and the identity that the token proves.
    /// - Throws: `LoginRefusal`, or `StorageError` if the database cannot answer.
    package func reader(of token: String, app: String?) async throws -> TokenIdentity {
        guard token.utf8.count <= JWT.maximumByteCount else { throw refusal(.malformed) }
        let digest = sha256(Array(token.utf8))
        if let reader = try await remembered(digest, app) { return reader }
        let (proof, claims) = try parsed(token)
        let owner = if let app { app } else { try await self.app(of: claims) }
        let logins = try await logins(of: owner)
        let reader = TokenIdentity(
            app: owner,
            identity: try await identity(proof, claims, logins)
        )
        memory.insert(
            digest,
            VerifiedTokenCache.Entry(
                reader: reader,
                logins: logins,
                end: claims.end,
                until: now() + VerifiedTokenCache<AppLogins>.lifetime
            )
        )
        return reader
    }

    /// Verifies the ID token of an operator, whose login is not among the logins of readers.
    ///
    /// - Parameters:
    ///   - token: As the issuer's token endpoint returned it.
    ///   - login: The login by which the operator signs in.
    ///   - nonce: The value that the token must carry: it is of this sign-in.
    /// - Returns: Its claims.
    /// - Throws: `LoginRefusal`, or `StorageError` if the database cannot answer.
    package func claims(
        ofIDToken token: String,
        for login: StoredConsoleLogin,
        nonce: String
    ) async throws -> JSONObject {
        let (proof, claims) = try parsed(token)
        if let fault = claims.fault(for: login, nonce: nonce) { throw refusal(fault) }
        if let fault = try await fault(proof, keysAt: login.jwksURL) { throw refusal(fault) }
        return proof.claims
    }

    /// Parses a token. Its claims are validated before any keys are fetched for it.
    private func parsed(_ token: String) throws -> (UnverifiedToken, TokenClaims) {
        do {
            let proof = try UnverifiedToken(token)
            guard proof.algorithm != nil else { throw TokenFault.algorithm }
            let claims = try TokenClaims(proof.claims)
            try claims.validate(at: wallClock())
            return (proof, claims)
        } catch let fault as TokenFault {
            throw refusal(fault)
        } catch {
            throw refusal(.malformed)
        }
    }

    private func refusal(_ fault: TokenFault) -> LoginRefusal { .refused(fault) }

    /// Returns the result of a recent verification of this token, if its logins are unchanged.
    private func remembered(_ digest: [UInt8], _ app: String?) async throws -> TokenIdentity? {
        guard let entry = memory.find(digest, at: wallClock(), now()) else { return nil }
        if let app, !app.isSame(as: entry.reader.app) { return nil }
        if try await logins(of: entry.reader.app) === entry.logins { return entry.reader }
        memory.remove(digest)
        return nil
    }

    /// Returns the identity by the app's matching logins; if there are several, all must agree.
    private func identity(
        _ proof: UnverifiedToken,
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
            // Postgres does not accept a zero byte, so no identity has one.
            guard identity.utf8.count <= LoginLimits.identityBytes,
                !identity.utf8.contains(0)
            else { throw refusal(.noIdentity) }
            if let found, !found.isSame(as: identity) { throw refusal(.ambiguous) }
            found = identity
        }
        guard let found else { throw refusal(.audience) }
        return found
    }

    // MARK: Signatures

    /// Returns the fault of a token's signature.
    private func fault(
        _ proof: UnverifiedToken,
        _ login: StoredLogin,
        _ fixed: JWKSet?
    ) async throws -> TokenFault? {
        guard let url = login.url else { return fault(proof, fixed) }
        return try await fault(proof, keysAt: url)
    }

    private func fault(_ proof: UnverifiedToken, keysAt url: String) async throws -> TokenFault? {
        guard let known = try await keys.keys(of: url) else { throw LoginRefusal.unavailable }
        let fault = fault(proof, known)
        // If a token names no key, any new key of the issuer may match.
        let mayBeNew = fault == .unknownKey || fault == .signature && proof.header["kid"] == nil
        guard mayBeNew, let renewed = try await keys.renewed(url) else { return fault }
        return self.fault(proof, renewed)
    }

    private func fault(_ proof: UnverifiedToken, _ set: JWKSet?) -> TokenFault? {
        let name = proof.header["kid"]
        guard name == nil || name?.string != nil else { return .malformed }
        guard let algorithm = proof.algorithm else { return .algorithm }
        let candidates = set?.candidates(kid: name?.string, algorithm: algorithm) ?? []
        guard !candidates.isEmpty else { return .unknownKey }
        return candidates.contains(where: proof.isSigned) ? nil : .signature
    }

    // MARK: Logins

    /// Returns the only app with a matching login.
    private func app(of claims: TokenClaims) async throws -> String {
        let digest = sha256(
            Array(
                ([claims.issuer] + claims.audiences).map { "\($0.utf8.count) \($0)" }
                    .joined(separator: " ").utf8
            )
        )
        let rows = rows
        let apps = try await owners.value(Hex.encode(digest)) { _ in
            let apps = try await rows.apps(claims.issuer, claims.audiences)
            return apps.isEmpty ? nil : apps
        }
        guard let apps, let app = apps.first else { throw refusal(.issuer) }
        guard apps.count == 1 else { throw refusal(.ambiguous) }
        return app
    }

    private func logins(of app: String) async throws -> AppLogins {
        let rows = rows
        let known = try await logins.value(app) { known in
            let stored = try await rows.logins(app)
            // Unchanged: tokens verified by them stay valid.
            return known.flatMap { $0.stored == stored ? $0 : nil } ?? AppLogins(stored)
        }
        return known ?? AppLogins([])
    }

    // MARK: Changes

    /// Listens for changes and renews keys, until its task is cancelled.
    package func run() async throws {
        if let database {
            guard (try? await database.untilReady()) != nil else { return }
        }
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.listen() }
            group.addTask {
                await self.often(IssuerKeyCache.refreshInterval) { try await $0.refresh() }
            }
            group.addTask {
                await self.often(IssuerKeyCache.renewInterval) { try await $0.renew() }
            }
            await group.waitForAll()
        }
    }

    /// Listens for changes; without notifications, logins are read again after a few seconds.
    private func listen() async {
        await database?.listen(to: .credentials) { app in
            Task(executorPreference: self.loop) { await self.forget(app) }
        }
    }

    private func often(
        _ interval: Duration,
        _ look: @Sendable (IssuerKeyCache) async throws -> Void
    ) async {
        while !Task.isCancelled {
            do {
                try await look(keys)
            } catch {
                log.debug("looking after issuers' keys failed", [.error: .string("\(error)")])
            }
            // The interval has jitter, so that processes do not run at the same time.
            let wait = interval * Double.random(in: 0.8...1)
            do { try await loop.sleep(for: wait) } catch { return }
        }
    }

    /// Marks an app's logins as changed; an empty id means any app.
    func forget(_ app: String) {
        owners.changed(nil)
        logins.changed(app.isEmpty ? nil : [app])
    }
}
