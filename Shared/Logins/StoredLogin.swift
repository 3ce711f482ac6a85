package import JSON
import Postgres
package import PushCore
import Storage

/// One issuer whose tokens prove identities of an app.
package struct StoredLogin: Sendable {
    package enum Keys: Sendable, Equatable {
        /// The address where the issuer publishes them: printable ASCII.
        case url(String)
        /// A JWK set from the operator.
        case fixed(JSONValue)
    }

    package var app: String
    /// The `iss` of its tokens.
    package var issuer: String
    /// The value of their `aud`, or one of its values.
    package var audience: String
    package var keys: Keys
    /// The claim that has the identity.
    package var identityClaim: String
    /// The prefix of its identities; empty for at most one login of an app.
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

    /// The address of its keys, if they are fetched.
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
    /// Compares all strings byte by byte.
    package static func == (left: StoredLogin, right: StoredLogin) -> Bool {
        let texts: [KeyPath<StoredLogin, String>] = [
            \.app, \.issuer, \.audience, \.identityClaim, \.identityPrefix,
        ]
        return texts.allSatisfy { left[keyPath: $0].isSame(as: right[keyPath: $0]) }
            && left.keys == right.keys && left.createdAt == right.createdAt
    }
}

/// Limits of a login's strings: they can be displayed and searched.
package enum LoginLimits {
    package static let issuerBytes = 512
    package static let audienceBytes = 512
    package static let urlBytes = 1024
    package static let claimBytes = 128
    package static let prefixBytes = 128
    /// The limit of an identity, the same as for the identity of an installation.
    package static let identityBytes = 512
    package static let loginsOfApp = 100

    /// Whether it is a string of these lengths without control characters.
    package static func isUsable(_ text: String, _ bytes: ClosedRange<Int>) -> Bool {
        bytes.contains(text.utf8.count) && text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
    }
}

/// Rules for the prefixes of one app: one issuer's claims must not name another's identity.
package enum LoginPrefixes {
    /// Returns the conflict of a login with the others of its app.
    ///
    /// - Parameters:
    ///   - login: The login to set.
    ///   - others: The other logins of the app, without the replaced one.
    ///   - replaced: The login that it replaces.
    /// - Returns: The error; `nil` if there is none.
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

    /// Returns the identity that a login's claim names; `nil` if it does not belong to this login.
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

    /// Compares by bytes.
    private static func begins(_ text: String, with prefix: String) -> Bool {
        text.utf8.starts(with: prefix.utf8)
    }
}
