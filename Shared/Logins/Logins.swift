// Logins verify tokens: an app names the issuers of its tokens (`carillon login set`), each with
// the audience of the tokens, and the address of the issuer's public keys.
//
// Authority: the logins in the database, and the keys that an issuer publishes at the address that
// the operator gave. A token is trusted because one of these keys signed it, and not for any other
// claim about itself. One issuer's claims cannot name another's identities.
//
//     LoginCache       verifies tokens: caches an app's logins, and recently verified tokens
//     IssuerKeyCache   the keys of issuers: stored in Postgres, renewed before they are stale
//     JWKSSource       fetches keys from an issuer
//     IssuerClient     discovers an issuer's addresses, and exchanges an operator's code for a token
//
// An unavailable issuer does not affect tokens with a known key: keys stay valid for a day after
// they were due for renewal, a restart needs no issuer, and no request waits for a renewal while
// there are valid keys.
//
// Shutdown: `LoginCache.run` ends when its task is cancelled; a call in flight then ends by its own
// deadline.

import Storage

/// The identity that a token proves.
package struct TokenIdentity: Sendable, Equatable {
    package let app: String
    package let identity: String

    package init(app: String, identity: String) {
        self.app = app
        self.identity = identity
    }
}

/// Why a token is not accepted.
package enum LoginRefusal: Error, Sendable, Equatable {
    /// The token is invalid: 401.
    case refused(TokenFault)
    /// The token cannot be verified: the issuer's keys are missing, or too old. 503, and it does
    /// not count as a failure of the caller.
    case unavailable
}

/// Why a token is invalid. Never shown to its sender.
package enum TokenFault: String, Error, Sendable, Equatable, CaseIterable {
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
    case nonce

    package var metricLabel: String { rawValue }

    /// The description for the operator.
    package var text: String {
        switch self {
        case .malformed: "it is no JSON Web Token that can be read"
        case .algorithm: "it is signed by neither ES256 nor RS256"
        case .issuer: "no login has this issuer"
        case .audience: "it is for another audience than the logins'"
        case .ambiguous: "several logins accept its audiences and disagree about its identity"
        case .noExpiry: "it does not say when it expires"
        case .expired: "it has expired"
        case .notYetValid: "it is not valid yet"
        case .unknownKey: "it is signed by a key that its issuer does not show"
        case .signature: "its signature is wrong"
        case .noIdentity: "it has no claim that names an identity, as a text of at most 512 bytes"
        case .foreignIdentity: "it names an identity that begins with another login's prefix"
        case .nonce: "it is of another sign-in"
        }
    }
}
