import JSON
import Storage

/// The database queries of this module.
struct LoginRows: Sendable {
    /// An app's logins.
    var logins: @Sendable (_ app: String) async throws -> [StoredLogin]
    /// The apps of logins for an issuer and one of these audiences; at most two.
    var apps: @Sendable (_ issuer: String, _ audiences: [String]) async throws -> [String]
    var keys: @Sendable (_ url: String) async throws -> StoredJWKS?
    /// The keys that differ from the cached ones.
    var changed: @Sendable (_ known: [(url: String, stamp: Int)]) async throws -> [StoredJWKS]
    /// Whether the caller may ask the issuer now.
    var claim: @Sendable (_ url: String) async throws -> Bool
    var keep:
        @Sendable (_ url: String, _ keys: JSONValue, _ freshFor: Duration) async throws -> Void
    var recordFailure: @Sendable (_ url: String) async throws -> Void
    /// The addresses whose keys must be renewed before they are stale.
    var due: @Sendable () async throws -> [String]
    var oldestAge: @Sendable () async throws -> Duration
    var prune: @Sendable () async throws -> Void

    static func postgres(_ database: PushDatabase, _ use: JWKSUse) -> LoginRows {
        LoginRows(
            logins: { try await database.logins.list($0) },
            apps: { try await database.logins.apps(issuer: $0, audiences: $1) },
            keys: { try await database.jwks.find($0) },
            changed: { try await database.jwks.changed($0) },
            claim: { try await database.jwks.claim($0) },
            keep: { try await database.jwks.keep($0, $1, freshFor: $2) },
            recordFailure: { try await database.jwks.recordFailure($0) },
            due: { try await database.jwks.due(use) },
            oldestAge: { try await database.jwks.oldestAge(use) },
            prune: { try await database.jwks.prune() }
        )
    }
}
