import Cryptography
import Gateway
import HTTPServer
import JSON
import Logins
import Observability
import PushCore
import SecureStorage
import Storage

/// Authenticates a caller by an app key, a token, the secret of a device or the secret of an
/// identity. Nothing else of the request is read before that. Any wrong or missing credential gets
/// the same response, after the same work.
///
/// Each loop has one instance. They share the process's counters and cache.
struct ReaderAuthenticator: Sendable {
    let database: PushDatabase
    let logins: LoginCache
    let checks: SecretVerifier
    let remembered: VerifiedSecretCache
    let limits: ReaderLimits
    let log: Log

    /// Authenticates the caller.
    ///
    /// - Returns: The caller.
    /// - Throws: `Refusal.unauthorized`, `Refusal.tooManyRequests`, `SecureRefusal`.
    func caller(_ request: HTTPServerRequest, _ context: RequestContext) async throws
        -> SecureCaller
    {
        try context.countArrival()
        let credentials = SecureCredentials(request)
        guard !credentials.namesTwoApps else { throw context.refusal() }
        switch credentials.shown {
        case .nothing, .malformed:
            if let app = credentials.app { _ = try await context.app(called: app) }
            throw context.refusal()
        case .key(let credential): return try await caller(credential, credentials, context)
        case .bearer(let token):
            return .reader(try await reader(by: token, credentials.app, context))
        case .device(_, let digest):
            return .reader(try await device(digest, credentials, context))
        case .basic(let user, let password):
            if let caller = try await backend(user, password, credentials, context) {
                return .backend(caller)
            }
            return .reader(try await identity(user, password, credentials.app, context))
        }
    }

    /// Authenticates by an app key in LeanCloud's headers.
    private func caller(
        _ credential: LeanCloudCredential,
        _ credentials: SecureCredentials,
        _ context: RequestContext
    ) async throws -> SecureCaller {
        guard let caller = try await context.caller(by: Proof(credential)) else {
            _ = try await context.app(called: credential.app)
            throw context.refusal()
        }
        return caller.isMaster ? .backend(caller) : .appKey
    }

    /// Authenticates by Basic `<app>:<master key>`; `nil` if that fails.
    private func backend(
        _ user: String,
        _ password: [UInt8],
        _ credentials: SecureCredentials,
        _ context: RequestContext
    ) async throws -> Caller? {
        guard AppID.isWellFormed(user), credentials.app.map({ $0.isSame(as: user) }) ?? true
        else { return nil }
        let proof = Proof(app: user, rights: .master) {
            constantTimeEqual(password, Array($0.utf8))
        }
        return try await context.caller(by: proof)
    }

    // MARK: By a token

    private func reader(
        by token: String,
        _ named: String?,
        _ context: RequestContext
    ) async throws -> AuthenticatedReader {
        if let named, try await context.app(called: named) == nil { throw context.refusal() }
        let reader: TokenIdentity
        do {
            reader = try await logins.reader(of: token, app: named)
        } catch let refusal as LoginRefusal {
            switch refusal {
            case .refused: throw context.refusal()
            case .unavailable: throw SecureRefusal.issuerAway
            }
        }
        return try await countAuthenticated(reader.app, reader.identity, device: nil, context)
    }

    /// - Throws: `Refusal.unauthorized` if the app was deleted meanwhile.
    private func countAuthenticated(
        _ app: String,
        _ identity: String,
        device: String?,
        _ context: RequestContext
    ) async throws -> AuthenticatedReader {
        context.note(identity)
        guard let app = try await context.app(called: app) else { throw context.refusal() }
        try context.countAuthenticated(of: app)
        return AuthenticatedReader(app: app, identity: identity, device: device, context: context)
    }

    // MARK: By the secret of a device

    private func device(
        _ digest: [UInt8],
        _ credentials: SecureCredentials,
        _ context: RequestContext
    ) async throws -> AuthenticatedReader {
        guard case .device(let installation, _) = credentials.shown,
            let stored = try await database.secureReaders.find(digest),
            stored.installation.isSame(as: installation),
            credentials.app.map({ $0.isSame(as: stored.app) }) ?? true
        else {
            if let app = credentials.app { _ = try await context.app(called: app) }
            throw context.refusal()
        }
        return try await countAuthenticated(
            stored.app,
            stored.identity,
            device: stored.installation,
            context
        )
    }

    // MARK: By the secret of an identity

    private func identity(
        _ identity: String,
        _ secret: [UInt8],
        _ named: String?,
        _ context: RequestContext
    ) async throws -> AuthenticatedReader {
        let app =
            if let named {
                try await context.app(called: named)
            } else {
                try await context.defaultApp()
            }
        context.note(identity)
        guard SecureIdentity.problem(identity) == nil, IdentitySecret.problem(secret) == nil else {
            throw context.refusal()
        }
        let mark = remembered.mark(app?.id ?? "", identity, secret)
        if let app, remembered.holds(mark) {
            let stored = try await database.identitySecrets.find(app: app.id, identity: identity)
            if let stored, remembered.isRight(mark, for: stored) {
                try context.countAuthenticated(of: app)
                return AuthenticatedReader(
                    app: app,
                    identity: identity,
                    device: nil,
                    context: context
                )
            }
        }
        // From here on the secret may be a guess.
        if context.isAfterFailures { throw context.refusal() }
        guard try await isRight(secret, of: identity, app, mark, context), let app else {
            throw context.refusal()
        }
        try context.countAuthenticated(of: app)
        return AuthenticatedReader(app: app, identity: identity, device: nil, context: context)
    }

    /// Verifies a secret that is not cached, within the limit of attempts.
    private func isRight(
        _ secret: [UInt8],
        of identity: String,
        _ app: UnverifiedApp?,
        _ mark: [UInt8],
        _ context: RequestContext
    ) async throws -> Bool {
        let address = context.subscriber
        let (attempt, wait) = limits.begin(app?.id ?? "", identity, from: address, secret: secret)
        guard let attempt else {
            // A secret that is not verified counts as a failure of its address.
            _ = context.refusal()
            throw context.tooMany(retryAfterSeconds: wait)
        }
        var isRight: Bool?
        defer { limits.end(attempt, hasFailed: isRight == false) }
        let stored: String?
        if let app {
            stored = try await database.identitySecrets.find(app: app.id, identity: identity)
        } else {
            stored = nil
        }
        // All unknown apps take turns as one app.
        let caller = SecretVerifier.Caller(
            app: Array((app?.id ?? "").utf8),
            network: Array(address.utf8)
        )
        let known = try await check(secret, stored, mark, of: caller, context)
        if known, let stored { remembered.remember(mark, for: stored) }
        if !known { checks.noteFailure(from: caller.network) }
        isRight = known
        return known
    }

    /// Compares a secret with its stored hash. A wrong secret takes the same time, whether or not a
    /// hash is stored.
    private func check(
        _ secret: [UInt8],
        _ stored: String?,
        _ mark: [UInt8],
        of caller: SecretVerifier.Caller,
        _ context: RequestContext
    ) async throws -> Bool {
        var hash = PasswordHash.decoy
        if let stored {
            do throws(CryptographyError) {
                let kept = try PasswordHash(stored: stored)
                if kept.isSlow {
                    hash = kept
                } else if kept.matches(secret) {
                    return true
                }
            } catch {
                log.error("cannot read a stored secret", [.error: .string("\(error)")])
            }
        }
        let compared = hash
        // Comparisons of the same secret with the same hash share a job.
        let key = mark + sha256(Array(compared.stored.utf8))
        let right = try await checks.result(
            key,
            of: caller,
            for: context.presence
        ) { compared.matches(secret) ? compared : nil }
        return right != nil && compared != PasswordHash.decoy
    }
}
