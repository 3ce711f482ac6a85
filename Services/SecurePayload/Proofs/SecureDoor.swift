import Cryptography
import Door
import HTTPServer
import JSON
import Logins
import Observability
import PushCore
import PushStorage

/// Finds out who calls, by whichever proof: a key of the app, a token, the secret of a device, or that
/// of an identity. Nothing else of the request is looked at before; and whatever is wrong or missing
/// gets one answer, after the same work.
///
/// One value a loop. What it counts and remembers is the process's.
struct SecureDoor: Sendable {
    let database: PushDatabase
    let logins: LoginDirectory
    let checks: SecretChecks
    let remembered: RememberedSecrets
    let limits: ReaderLimits
    let log: Log

    /// Finds out who calls.
    ///
    /// - Returns: Who calls.
    /// - Throws: `Refusal.unauthorized`, `Refusal.tooManyRequests`, `SecureRefusal`.
    func caller(_ request: HTTPServerRequest, _ visit: Visit) async throws -> SecureCaller {
        try visit.arrive()
        let credentials = SecureCredentials(request)
        guard !credentials.namesTwoApps else { throw visit.refusal() }
        switch credentials.shown {
        case .nothing, .malformed:
            if let app = credentials.app { _ = try await visit.app(called: app) }
            throw visit.refusal()
        case .key(let credential): return try await caller(credential, credentials, visit)
        case .bearer(let token):
            return .reader(try await reader(by: token, credentials.app, visit))
        case .device(_, let digest):
            return .reader(try await device(digest, credentials, visit))
        case .basic(let user, let password):
            if let caller = try await backend(user, password, credentials, visit) {
                return .backend(caller)
            }
            return .reader(try await identity(user, password, credentials.app, visit))
        }
    }

    /// By a key of the app in LeanCloud's headers.
    private func caller(
        _ credential: LeanCloudCredential,
        _ credentials: SecureCredentials,
        _ visit: Visit
    ) async throws -> SecureCaller {
        guard let caller = try await visit.caller(by: Proof(credential)) else {
            _ = try await visit.app(called: credential.app)
            throw visit.refusal()
        }
        return caller.isMaster ? .backend(caller) : .appKey
    }

    /// By Basic `<app>:<master key>`.
    private func backend(
        _ user: String,
        _ password: [UInt8],
        _ credentials: SecureCredentials,
        _ visit: Visit
    ) async throws -> Caller? {
        guard AppID.isWellFormed(user), credentials.app.map({ $0.isSame(as: user) }) ?? true
        else { return nil }
        let proof = Proof(app: user, rights: .master) {
            constantTimeEqual(password, Array($0.utf8))
        }
        return try await visit.caller(by: proof)
    }

    // MARK: By a token

    private func reader(
        by token: String,
        _ named: String?,
        _ visit: Visit
    ) async throws -> ProvedReader {
        if let named, try await visit.app(called: named) == nil { throw visit.refusal() }
        let reader: TokenReader
        do {
            reader = try await logins.reader(of: token, app: named)
        } catch let refusal as LoginRefusal {
            switch refusal {
            case .refused: throw visit.refusal()
            case .unavailable: throw SecureRefusal.issuerAway
            }
        }
        return try await letIn(reader.app, reader.identity, device: nil, visit)
    }

    /// - Throws: `Refusal.unauthorized` where the app has gone meanwhile.
    private func letIn(
        _ app: String,
        _ identity: String,
        device: String?,
        _ visit: Visit
    ) async throws -> ProvedReader {
        visit.note(identity)
        guard let app = try await visit.app(called: app) else { throw visit.refusal() }
        try visit.letIn(of: app)
        return ProvedReader(app: app, identity: identity, device: device, visit: visit)
    }

    // MARK: By the secret of a device

    private func device(
        _ digest: [UInt8],
        _ credentials: SecureCredentials,
        _ visit: Visit
    ) async throws -> ProvedReader {
        guard case .device(let installation, _) = credentials.shown,
            let stored = try await database.secureReaders.find(digest),
            stored.installation.isSame(as: installation),
            credentials.app.map({ $0.isSame(as: stored.app) }) ?? true
        else {
            if let app = credentials.app { _ = try await visit.app(called: app) }
            throw visit.refusal()
        }
        return try await letIn(
            stored.app,
            stored.identity,
            device: stored.installation,
            visit
        )
    }

    // MARK: By the secret of an identity

    private func identity(
        _ identity: String,
        _ secret: [UInt8],
        _ named: String?,
        _ visit: Visit
    ) async throws -> ProvedReader {
        let app =
            if let named {
                try await visit.app(called: named)
            } else {
                try await visit.unnamedApp()
            }
        visit.note(identity)
        guard SecureIdentity.problem(identity) == nil, IdentitySecret.problem(secret) == nil else {
            throw visit.refusal()
        }
        let mark = remembered.mark(app?.id ?? "", identity, secret)
        if let app, remembered.holds(mark) {
            let stored = try await database.identitySecrets.find(app: app.id, identity: identity)
            if let stored, remembered.isRight(mark, for: stored) {
                try visit.letIn(of: app)
                return ProvedReader(app: app, identity: identity, device: nil, visit: visit)
            }
        }
        // From here on it may be a guess.
        if visit.isAfterFailures { throw visit.refusal() }
        guard try await isRight(secret, of: identity, app, mark, visit), let app else {
            throw visit.refusal()
        }
        try visit.letIn(of: app)
        return ProvedReader(app: app, identity: identity, device: nil, visit: visit)
    }

    /// Looks at a secret that nobody remembers, among as many as may be tried.
    private func isRight(
        _ secret: [UInt8],
        of identity: String,
        _ app: VisitedApp?,
        _ mark: [UInt8],
        _ visit: Visit
    ) async throws -> Bool {
        let address = visit.subscriber
        let (trial, wait) = limits.begin(app?.id ?? "", identity, from: address, secret: secret)
        guard let trial else {
            // What is not looked at counts as wrong where it came from.
            _ = visit.refusal()
            throw visit.tooMany(retryAfterSeconds: wait)
        }
        var isRight: Bool?
        defer { limits.end(trial, wasWrong: isRight == false) }
        let stored: String?
        if let app {
            stored = try await database.identitySecrets.find(app: app.id, identity: identity)
        } else {
            stored = nil
        }
        // Apps that nobody has are one.
        let caller = SecretChecks.Caller(
            app: Array((app?.id ?? "").utf8),
            network: Array(address.utf8)
        )
        let known = try await check(secret, stored, mark, of: caller, visit)
        if known, let stored { remembered.remember(mark, for: stored) }
        if !known { checks.noteFailure(from: caller.network) }
        isRight = known
        return known
    }

    /// Compares a secret with the hash that is kept of it. A wrong one takes as long as any other,
    /// whatever is kept, or nothing.
    private func check(
        _ secret: [UInt8],
        _ stored: String?,
        _ mark: [UInt8],
        of caller: SecretChecks.Caller,
        _ visit: Visit
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
                log.error("a kept secret cannot be read", [.error: .string("\(error)")])
            }
        }
        let compared = hash
        // The same secret against the same hash is one job.
        let key = mark + sha256(Array(compared.stored.utf8))
        let right = try await checks.result(
            key,
            of: caller,
            for: visit.presence
        ) { compared.matches(secret) ? compared : nil }
        return right != nil && compared != PasswordHash.decoy
    }
}
