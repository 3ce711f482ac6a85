internal import Cryptography
internal import JSON
internal import PushCore
import Storage

/// A token's claims, parsed within limits: its signature is not verified yet.
struct TokenClaims: Sendable {
    /// The tolerated difference between the issuer's clock and ours.
    static let leeway = 60.0
    private static let maximumAudiences = 20

    let issuer: String
    let audiences: [String]
    private let expiry: Double
    private let notBefore: Double?
    private let claims: JSONObject

    init(_ claims: JSONObject) throws(TokenFault) {
        guard let issuer = claims["iss"]?.string else { throw .issuer }
        self.issuer = issuer
        audiences = try Self.audiences(claims["aud"])
        guard let expiry = claims["exp"] else { throw .noExpiry }
        // A number that no `Double` holds, `1e400`, is not a time either.
        guard let expiry = Self.time(expiry) else { throw .malformed }
        self.expiry = expiry
        if let notBefore = claims["nbf"] {
            guard let notBefore = Self.time(notBefore) else { throw .malformed }
            self.notBefore = notBefore
        } else {
            notBefore = nil
        }
        self.claims = claims
    }

    private static func audiences(_ value: JSONValue?) throws(TokenFault) -> [String] {
        switch value {
        case .string(let audience): return [audience]
        case .array(let values):
            let audiences = values.compactMap(\.string)
            guard audiences.count == values.count, !audiences.isEmpty,
                audiences.count <= maximumAudiences
            else { throw .audience }
            return audiences
        case .null, .bool, .integer, .double, .number, .object, nil: throw .audience
        }
    }

    /// Parses seconds since 1970, which may have a fraction. They are only compared, so any size is
    /// valid.
    private static func time(_ value: JSONValue) -> Double? {
        guard let time = value.double, time.isFinite else { return nil }
        return time
    }

    func validate(at now: Instant) throws(TokenFault) {
        let now = Double(now.milliseconds) / 1000
        guard now < expiry + Self.leeway else { throw .expired }
        if let notBefore, now < notBefore - Self.leeway { throw .notYetValid }
    }

    /// When it expires.
    var end: Instant {
        let end = expiry + Self.leeway
        guard end > 0 else { return .earliest }
        return end < Double(Instant.latest.seconds)
            ? Instant(milliseconds: Int64(end * 1000)) : .latest
    }

    func text(_ claim: String) -> String? { claims[claim]?.string }

    /// Returns the fault of an ID token's claims about its purpose.
    ///
    /// - SeeAlso: OpenID Connect Core 1.0, section 3.1.3.7.
    func fault(for login: StoredConsoleLogin, nonce: String) -> TokenFault? {
        guard issuer.isSame(as: login.issuer) else { return .issuer }
        guard audiences.contains(where: { $0.isSame(as: login.clientID) }) else { return .audience }
        // A token for several clients says which of them it was issued to.
        let party = claims["azp"]
        guard
            party == nil && audiences.count == 1
                || party?.string?.isSame(as: login.clientID) == true
        else { return .audience }
        guard constantTimeEqual(claims["nonce"]?.string ?? "", nonce) else { return .nonce }
        return nil
    }
}
