import Cryptography
import JSON
import Logins
import PushCore
import Storage

/// A sign-in at an issuer from its begin to the return of the browser. It is a sealed cookie, which
/// binds the issuer's answer to this browser.
///
/// - SeeAlso: RFC 6749, section 10.12; RFC 7636; OpenID Connect Core 1.0, section 3.1.2.1.
struct SignInFlow: Sendable, Equatable {
    /// The stamp of the login: if it is set again meanwhile, the sign-in begins again.
    let stamp: String
    let state: String
    let nonce: String
    /// PKCE's verifier.
    let verifier: String
    /// The page to show after the sign-in.
    let next: Address?
    let expiresAt: Instant

    static let lifetimeSeconds = 600

    /// Begins a sign-in, with new secrets.
    init(at login: StoredConsoleLogin, next: Address?, now: Instant) {
        stamp = login.stamp
        state = Self.secret()
        nonce = Self.secret()
        verifier = Self.secret()
        self.next = next
        expiresAt = now.adding(milliseconds: Int64(Self.lifetimeSeconds) * 1000)
    }

    private static func secret() -> String { Base64.encodeURL(randomBytes(32)) }

    /// PKCE's challenge of a verifier, by S256.
    static func challenge(of verifier: String) -> String {
        Base64.encodeURL(sha256(Array(verifier.utf8)))
    }

    /// Returns the address at the issuer to which the browser goes.
    func authorizationURL(of login: StoredConsoleLogin, redirectURI: String) -> String {
        let query = FormText.of([
            ("response_type", "code"), ("client_id", login.clientID), ("redirect_uri", redirectURI),
            ("scope", login.scope), ("state", state), ("nonce", nonce),
            ("code_challenge", Self.challenge(of: verifier)), ("code_challenge_method", "S256"),
        ])
        let base = login.authorizationURL
        return base + (base.contains("?") ? "&" : "?") + query
    }

    /// Whether an answer of the issuer is to this sign-in.
    func accepts(state: String?, of login: StoredConsoleLogin) -> Bool {
        let isState = constantTimeEqual(state ?? "", self.state)
        return isState && stamp == login.stamp
    }

    // MARK: Cookie

    private static let context = "console/sign-in"
    private static let maximumBytes = 4096
    /// A longer page is not returned to, as browsers drop longer cookies.
    private static let maximumNextBytes = 1024

    func sealed(by keys: KeyRing) throws -> String {
        var object: JSONObject = [
            "login": .string(stamp), "state": .string(state), "nonce": .string(nonce),
            "verifier": .string(verifier), "until": .integer(expiresAt.milliseconds),
        ]
        if let next, next.text.utf8.count <= Self.maximumNextBytes {
            object["next"] = .string(next.text)
        }
        return Base64.encodeURL(
            try keys.seal(JSONValue.object(object).bytes, context: Self.context)
        )
    }

    /// - Returns: `nil` for a cookie that is not ours, is altered, or has expired.
    init?(_ cookie: String, keys: KeyRing, now: Instant) {
        guard cookie.utf8.count <= Self.maximumBytes,
            let bytes = try? Base64.decodeURL(cookie),
            let plain = try? keys.open(bytes, context: Self.context),
            let object = (try? JSONValue.parse(plain))?.object,
            let stamp = object["login"]?.string, let state = object["state"]?.string,
            let nonce = object["nonce"]?.string, let verifier = object["verifier"]?.string,
            let until = object["until"]?.integer
        else { return nil }
        self.stamp = stamp
        self.state = state
        self.nonce = nonce
        self.verifier = verifier
        next = object["next"]?.string.flatMap(Address.init(within:))
        expiresAt = Instant(milliseconds: Int64(until))
        guard expiresAt > now else { return nil }
    }
}
