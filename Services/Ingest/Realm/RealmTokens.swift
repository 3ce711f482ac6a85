import Cryptography
import EventLoop
import JSON
import PushCore
import Storage

/// How a user of a Realm client signed in. The raw values are those of the clients.
enum RealmProvider: String, Sendable {
    case anonymous = "anon-user"
    case customToken = "custom-token"
    case apiKey = "api-key"
}

/// A user of a Realm client: a name on its device, without any right but to send objects.
struct RealmUser: Equatable, Sendable {
    let app: String
    /// The client names its files by it, so it must be the same at each sign-in.
    let id: String
    let provider: RealmProvider

    /// Makes a new anonymous user.
    static func anonymous(of app: String) -> RealmUser {
        RealmUser(app: app, id: Hex.encode(randomBytes(12)), provider: .anonymous)
    }

    /// Returns the user of a name that the app has proved.
    static func named(_ name: String, of app: String, by provider: RealmProvider) -> RealmUser {
        let parts = ["realm-user", provider.rawValue, app, name].joined(separator: "\u{0}")
        let id = Hex.encode(Array(sha256(Array(parts.utf8)).prefix(12)))
        return RealmUser(app: app, id: id, provider: provider)
    }
}

/// The tokens of Realm clients: JWTs that this database's services sign and verify (HS256). The key
/// belongs to the database and stays when the key ring is rotated: a device keeps its refresh token
/// for years, and loses its data if that is refused.
///
/// An authentic token has no end. A device whose clock is wrong could not renew one without a
/// response that harms other devices, and a token allows no more than any anonymous sign-in.
struct RealmTokens: Sendable {
    enum Kind: String, Sendable {
        case access, refresh
    }

    /// A user, or one of Atlas' who is not verified.
    enum Bearer: Equatable, Sendable {
        case user(RealmUser)
        /// The `sub` of a token that this service did not sign. It counts only for an app that
        /// rescues such devices.
        case rescued(String)
    }

    let database: PushDatabase

    /// The time after which a client renews a token by itself, in seconds.
    private static let lifetimes: [Kind: Int64] = [.access: 1800, .refresh: 10 * 365 * 86_400]

    func make(_ bearer: Bearer, _ kind: Kind, at now: Instant = .now()) async throws -> String {
        let seconds = now.milliseconds / 1000
        var claims: JSONObject = [
            "iat": .integer(seconds), "exp": .integer(seconds + (Self.lifetimes[kind] ?? 0)),
            "typ": .string(kind.rawValue),
        ]
        switch bearer {
        case .user(let user):
            claims["app"] = .string(user.app)
            claims["sub"] = .string(user.id)
            claims["prv"] = .string(user.provider.rawValue)
        case .rescued(let name): claims["rescued"] = .string(name)
        }
        let header: JSONObject = ["alg": "HS256", "typ": "JWT"]
        let signed = Base64.encodeURL(header.bytes) + "." + Base64.encodeURL(claims.bytes)
        return signed + "." + Base64.encodeURL(hmacSHA256(key: try await key(), Array(signed.utf8)))
    }

    /// - Returns: `nil` if the token is not authentic, or of another kind.
    /// - Throws: `StorageError` if the database cannot answer.
    func bearer(of token: String, _ kind: Kind) async throws -> Bearer? {
        guard token.utf8.count <= JWT.maximumByteCount,
            let dot = token.utf8.lastIndex(of: UInt8(ascii: ".")),
            let signature = try? Base64.decodeURL(String(token[token.utf8.index(after: dot)...]))
        else { return nil }
        let expected = hmacSHA256(key: try await key(), Array(token[..<dot].utf8))
        guard constantTimeEqual(signature, expected),
            let claims = (try? UnverifiedToken(token))?.claims,
            claims["typ"]?.string == kind.rawValue
        else { return nil }
        if let name = claims["rescued"]?.string { return .rescued(name) }
        guard let app = claims["app"]?.string, let id = claims["sub"]?.string,
            let provider = claims["prv"]?.string.flatMap(RealmProvider.init(rawValue:))
        else { return nil }
        return .user(RealmUser(app: app, id: id, provider: provider))
    }

    /// Returns the user that an old token of Atlas names; anyone might have written it.
    static func unverifiedUser(of token: String) -> String? {
        guard let claims = (try? UnverifiedToken(token))?.claims,
            let name = claims["sub"]?.string, (1...128).contains(name.utf8.count),
            name.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
        else { return nil }
        return name
    }

    private func key() async throws -> [UInt8] {
        try await database.derivedKey(for: "realm tokens")
    }
}
