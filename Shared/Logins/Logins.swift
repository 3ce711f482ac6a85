// Logins say whose a token is: an app names the issuers of its tokens (`carillon login set`), each with
// the audience that they are for, and where the issuer shows his public keys.
//
// Authority: what the database says of logins, and the keys that an issuer shows at the address that
// the operator gave. A token is believed for what one of these keys has signed, and for nothing else
// that it says of itself. What one issuer says cannot name another's identities.
//
//     LoginDirectory   whose token it is: an app's logins, and the tokens that were verified lately
//     IssuerKeys       the keys of issuers: kept in Postgres, renewed before they are stale
//     JWKSSource       how an issuer is asked
//
// An issuer that is away disturbs nobody whose key is known: keys hold for a day after they were to be
// renewed, a restart needs no issuer, and nobody waits for a renewal while the keys that are there do.
//
// Shutdown: `LoginDirectory.run` ends when its task is cancelled; a call that is on its way then ends by
// its own deadline.

/// Whose a token is.
package struct TokenReader: Sendable, Equatable {
    package let app: String
    package let identity: String

    package init(app: String, identity: String) {
        self.app = app
        self.identity = identity
    }
}

/// Why nobody is believed on account of a token.
package enum LoginRefusal: Error, Sendable, Equatable {
    /// It proves nothing: 401.
    case refused(LoginFault)
    /// Whether it does cannot be said: the issuer's keys are not known, or too old. 503, and it is no
    /// failure of the caller's.
    case unavailable
}

/// What is wrong with a token. Whoever sent it is not told.
package enum LoginFault: String, Error, Sendable, Equatable, CaseIterable {
    case malformed
    case algorithm
    case issuer
    case audience
    case ambiguous
    case noExpiry = "no_expiry"
    case expired
    case notYetValid = "not_yet_valid"
    case unknownKey = "unknown_key"
    case signature
    case noIdentity = "no_identity"
    case foreignIdentity = "foreign_identity"

    package var metricLabel: String { rawValue }

    /// For the operator.
    package var text: String {
        switch self {
        case .malformed: "it is no JSON Web Token that can be read"
        case .algorithm: "it is signed by neither ES256 nor RS256"
        case .issuer: "its issuer is none of the logins'"
        case .audience: "it is for another audience than the logins'"
        case .ambiguous: "it is for the audiences of several logins, which do not agree whose it is"
        case .noExpiry: "it does not say when it expires"
        case .expired: "it has expired"
        case .notYetValid: "it is not valid yet"
        case .unknownKey: "it is signed by a key that its issuer does not show"
        case .signature: "its signature is wrong"
        case .noIdentity: "it has no claim that names an identity, as a text of at most 512 bytes"
        case .foreignIdentity: "it names an identity that begins with another login's prefix"
        }
    }
}
