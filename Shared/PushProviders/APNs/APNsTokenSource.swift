internal import Cryptography
internal import JSON
internal import PushCore

/// The rules for renewing a provider token. Pure: times are passed in.
///
/// Apple accepts a token for 60 minutes, and allows a new one every 20 minutes. So a token is
/// renewed after 50 minutes. It is renewed earlier only if APNs calls it expired, and this only
/// once in 20 minutes: if the clock is wrong, APNs calls every new token expired.
struct APNsTokenPolicy: Equatable {
    static let lifetimeSeconds: Int64 = 50 * 60
    static let minimumSeconds: Int64 = 20 * 60

    private(set) var token: String?
    private var issuedAt: Int64 = 0
    private var forcedAt: Int64?
    private var heldUntil: Int64 = 0
    private var isExpired = false

    enum Decision: Equatable {
        case use(String)
        case sign
    }

    func decision(at now: Int64) -> Decision {
        guard let token else { return .sign }
        if isExpired { return .sign }
        // If the clock was set back, the token was issued in the future, and a new one is due.
        let age = now - issuedAt
        let isDue = age >= Self.lifetimeSeconds || age < -60
        return isDue && now >= heldUntil ? .sign : .use(token)
    }

    mutating func signed(_ token: String, at now: Int64) {
        self.token = token
        issuedAt = now
        isExpired = false
    }

    /// Records that APNs called this token expired.
    mutating func expired(_ token: String, at now: Int64) {
        guard token == self.token, !isExpired, now >= heldUntil else { return }
        if let forcedAt, now - forcedAt < Self.minimumSeconds { return }
        forcedAt = now
        isExpired = true
    }

    /// Records that APNs has seen too many tokens: the current one is kept for 20 minutes.
    mutating func tooManyUpdates(at now: Int64) {
        isExpired = false
        heldUntil = now + Self.minimumSeconds
    }
}

/// The provider token of one (team, key), shared by all connections that use it. Confined to one
/// loop.
final class APNsTokenSource {
    private let key: SigningKey
    private let keyID: String
    private let teamID: String
    private let clock: () -> Instant
    private var rule = APNsTokenPolicy()
    /// The number of signatures, for tests.
    private(set) var signatures = 0

    init(key: SigningKey, keyID: String, teamID: String, clock: @escaping () -> Instant) {
        self.key = key
        self.keyID = keyID
        self.teamID = teamID
        self.clock = clock
    }

    func token() throws -> String {
        let now = clock().seconds
        switch rule.decision(at: now) {
        case .use(let token): return token
        case .sign:
            let token = try JWT.sign(
                header: ["kid": .string(keyID), "typ": "JWT"],
                claims: ["iss": .string(teamID), "iat": .integer(now)],
                with: key
            )
            signatures += 1
            rule.signed(token, at: now)
            return token
        }
    }

    func expired(_ token: String) { rule.expired(token, at: clock().seconds) }

    func tooManyUpdates() { rule.tooManyUpdates(at: clock().seconds) }
}
