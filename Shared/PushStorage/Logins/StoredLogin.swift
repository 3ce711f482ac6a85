package import JSON
import Postgres
package import PushCore

/// One issuer whose tokens prove identities of an app.
package struct StoredLogin: Sendable {
    package enum Keys: Sendable, Equatable {
        /// Where the issuer shows them: printable ASCII.
        case url(String)
        /// A JWK set that the operator gave.
        case fixed(JSONValue)
    }

    package var app: String
    /// What a token's `iss` says.
    package var issuer: String
    /// What its `aud` says, or holds.
    package var audience: String
    package var keys: Keys
    /// The claim that is the identity.
    package var identityClaim: String
    /// What stands before it; empty for at most one login of an app.
    package var identityPrefix: String
    package var createdAt: Instant

    package init(
        app: String,
        issuer: String,
        audience: String,
        keys: Keys,
        identityClaim: String = "sub",
        identityPrefix: String = "",
        createdAt: Instant = .now()
    ) {
        self.app = app
        self.issuer = issuer
        self.audience = audience
        self.keys = keys
        self.identityClaim = identityClaim
        self.identityPrefix = identityPrefix
        self.createdAt = createdAt
    }

    static let columns =
        "app, issuer, audience, jwks_url, jwks, identity_claim, identity_prefix, created_at"

    init(_ row: PostgresRow) throws {
        app = try row.text("app")
        issuer = try row.text("issuer")
        audience = try row.text("audience")
        if let url = try row.textOrNil("jwks_url") {
            keys = .url(url)
        } else {
            keys = .fixed(try row.json("jwks"))
        }
        identityClaim = try row.text("identity_claim")
        identityPrefix = try row.text("identity_prefix")
        createdAt = try row.instant("created_at")
    }

    /// Where its keys are fetched, if they are.
    package var url: String? {
        switch keys {
        case .url(let url): url
        case .fixed: nil
        }
    }

    package func isOf(issuer: String, audience: String) -> Bool {
        self.issuer.isSame(as: issuer) && self.audience.isSame(as: audience)
    }
}

extension StoredLogin: Equatable {
    /// Text by text, byte by byte.
    package static func == (left: StoredLogin, right: StoredLogin) -> Bool {
        let texts: [KeyPath<StoredLogin, String>] = [
            \.app, \.issuer, \.audience, \.identityClaim, \.identityPrefix,
        ]
        return texts.allSatisfy { left[keyPath: $0].isSame(as: right[keyPath: $0]) }
            && left.keys == right.keys && left.createdAt == right.createdAt
    }
}

/// What a login's texts may be: bounded, and such that they can be shown and found again.
package enum LoginLimits {
    package static let issuerBytes = 512
    package static let audienceBytes = 512
    package static let urlBytes = 1024
    package static let claimBytes = 128
    package static let prefixBytes = 128
    /// Of an identity, as of an installation's.
    package static let identityBytes = 512
    package static let loginsOfApp = 100

    /// Whether it is a text of these lengths without control characters.
    package static func isUsable(_ text: String, _ bytes: ClosedRange<Int>) -> Bool {
        bytes.contains(text.utf8.count) && text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
    }
}

/// Which prefixes may stand side by side: what one issuer says cannot name an identity of another's.
package enum LoginPrefixes {
    /// Whether a login may stand beside the others of its app.
    ///
    /// - Parameters:
    ///   - login: To be set.
    ///   - others: The app's, without the one that it takes the place of.
    ///   - replaced: That one.
    /// - Returns: What is wrong with it; `nil` where nothing is.
    package static func problem(
        of login: StoredLogin,
        beside others: [StoredLogin],
        replacing replaced: StoredLogin?
    ) -> String? {
        let prefix = login.identityPrefix
        if prefix.isEmpty {
            let hadNone = replaced?.identityPrefix.isEmpty == true
            guard others.isEmpty || hadNone else {
                return "the app has another login: this one needs an identity prefix"
            }
            return nil
        }
        for other in others where !other.identityPrefix.isEmpty {
            let theirs = other.identityPrefix
            guard !begins(prefix, with: theirs), !begins(theirs, with: prefix) else {
                return "the identity prefixes \"\(prefix)\" and \"\(theirs)\", of the login"
                    + " \(other.issuer) for \(other.audience), begin alike"
            }
        }
        return nil
    }

    /// The identity that a login's claim names; `nil` where that is none of its own.
    package static func identity(
        _ claim: String,
        by login: StoredLogin,
        among logins: [StoredLogin]
    ) -> String? {
        guard login.identityPrefix.isEmpty else { return login.identityPrefix + claim }
        let isTaken = logins.contains { other in
            !other.identityPrefix.isEmpty && begins(claim, with: other.identityPrefix)
        }
        return isTaken ? nil : claim
    }

    /// By bytes.
    private static func begins(_ text: String, with prefix: String) -> Bool {
        text.utf8.starts(with: prefix.utf8)
    }
}
