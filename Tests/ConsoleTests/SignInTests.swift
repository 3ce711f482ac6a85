import Cryptography
import JSON
import PushCore
import Storage
import Testing

@testable import Console

@Suite("Sign-in of operators", .timeLimit(.minutes(1)))
struct SignInTests {
    private static let now = Instant(seconds: 1_800_000_000)

    private static func ring(_ byte: UInt8 = 1) throws -> KeyRing {
        try KeyRing("test:" + Base64.encode(Array(repeating: byte, count: 32)))
    }

    private static func login(
        stamp: String = "one",
        authorizationURL: String = "https://id.example/authorize",
        roleClaim: String = "carillon_role",
        roles: [String: OperatorRole] = ["viewer": .viewer, "sender": .sender, "admin": .admin],
        nameClaim: String? = nil
    ) -> StoredConsoleLogin {
        StoredConsoleLogin(
            name: "staff",
            app: "bells",
            title: "Staff",
            issuer: "https://id.example",
            clientID: "console id",
            authorizationURL: authorizationURL,
            tokenURL: "https://id.example/token",
            jwksURL: "https://id.example/jwks",
            roleClaim: roleClaim,
            roles: roles,
            nameClaim: nameClaim,
            stamp: stamp
        )
    }

    // MARK: The flow

    @Test("PKCE's challenge is that of RFC 7636, appendix B")
    func challenge() {
        #expect(
            SignInFlow.challenge(of: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
                == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        )
    }

    @Test("The address of the issuer has all parameters, escaped, and no secret of the flow")
    func authorization() throws {
        let flow = SignInFlow(at: Self.login(), next: nil, now: Self.now)
        let uri = "https://push.example.com/console/sign-in/staff/return"
        let url = flow.authorizationURL(of: Self.login(), redirectURI: uri)
        #expect(url.hasPrefix("https://id.example/authorize?response_type=code&"))
        for part in [
            "client_id=console%20id", "scope=openid%20email%20profile", "state=\(flow.state)",
            "nonce=\(flow.nonce)", "code_challenge=\(SignInFlow.challenge(of: flow.verifier))",
            "code_challenge_method=S256",
            "redirect_uri=https%3A%2F%2Fpush.example.com%2Fconsole%2Fsign-in%2Fstaff%2Freturn",
        ] {
            #expect(url.contains(part), "\(part)")
        }
        #expect(!url.contains(flow.verifier))
        #expect(flow.verifier.utf8.count == 43)
        let queried = Self.login(authorizationURL: "https://id.example/a?tenant=1")
        #expect(
            flow.authorizationURL(of: queried, redirectURI: uri)
                .hasPrefix("https://id.example/a?tenant=1&response_type=code&")
        )
        let other = SignInFlow(at: Self.login(), next: nil, now: Self.now)
        #expect(Set([flow.state, flow.nonce, flow.verifier, other.state, other.nonce]).count == 5)
    }

    @Test("A flow is read for ten minutes from its own cookie, under the ring that sealed it")
    func cookie() throws {
        let ring = try Self.ring()
        let next = try #require(Address(within: "/console/bells/pushes?q=a"))
        let flow = SignInFlow(at: Self.login(), next: next, now: Self.now)
        let cookie = try flow.sealed(by: ring)
        func read(
            _ cookie: String,
            _ keys: KeyRing,
            after milliseconds: Int64 = 0
        ) -> SignInFlow? {
            SignInFlow(cookie, keys: keys, now: Self.now.adding(milliseconds: milliseconds))
        }
        #expect(read(cookie, ring) == flow)
        #expect(read(cookie, ring)?.next == next)
        #expect(read(cookie, ring, after: 599_999) == flow)
        #expect(read(cookie, ring, after: 600_000) == nil)
        #expect(read(cookie, try Self.ring(2)) == nil)
        var bytes = try Base64.decodeURL(cookie)
        bytes[bytes.count - 1] ^= 1
        #expect(read(Base64.encodeURL(bytes), ring) == nil)
        for text in ["", "a", String(repeating: "A", count: 5000)] {
            #expect(read(text, ring) == nil, "\(text.prefix(3))")
        }
        // A session is sealed under the same ring for another context.
        let session = Session(of: Self.login(), actor: "oidc:ann", role: .admin, now: Self.now)
        #expect(read(try Sessions(ring).sealed(session), ring) == nil)
        #expect(Sessions(ring).open(cookie, now: Self.now) == nil)
        let long = try #require(Address(within: "/console/" + String(repeating: "a", count: 1100)))
        let longFlow = SignInFlow(at: Self.login(), next: long, now: Self.now)
        #expect(try read(longFlow.sealed(by: ring), ring)?.next == nil)
    }

    @Test("Only the flow's own state is accepted, while its login is unchanged")
    func state() {
        let flow = SignInFlow(at: Self.login(), next: nil, now: Self.now)
        #expect(flow.accepts(state: flow.state, of: Self.login()))
        #expect(!flow.accepts(state: flow.state, of: Self.login(stamp: "two")))
        #expect(!flow.accepts(state: flow.nonce, of: Self.login()))
        #expect(!flow.accepts(state: "", of: Self.login()))
        #expect(!flow.accepts(state: nil, of: Self.login()))
    }

    // MARK: Roles and names

    @Test("The highest role of the claim's known values counts; others give none")
    func roles() throws {
        func role(_ claims: JSONObject, _ login: StoredConsoleLogin = Self.login()) -> Role? {
            var claims = claims
            claims["sub"] = "s"
            return Operator(claims, by: login)?.role
        }
        #expect(role(["carillon_role": "viewer"]) == .viewer)
        #expect(role(["carillon_role": "sender"]) == .sender)
        #expect(role(["carillon_role": ["viewer", "admin", "sender"]]) == .admin)
        #expect(role(["carillon_role": ["else", "sender", 7]]) == .sender)
        for value in ["else", "", "Admin", ["admin": true], true, 1, .null, []] as [JSONValue] {
            #expect(role(["carillon_role": value]) == nil, "\(value.text)")
        }
        #expect(role([:]) == nil)
        let mapped = Self.login(
            roleClaim: "realm_access.roles",
            roles: ["push-admins": .admin, "staff": .viewer]
        )
        #expect(role(["realm_access": ["roles": ["staff", "push-admins"]]], mapped) == .admin)
        #expect(role(["realm_access": ["roles": "staff"]], mapped) == .viewer)
        #expect(role(["realm_access": ["roles": ["admin"]]], mapped) == nil)
        #expect(role(["realm_access.roles": "staff"], mapped) == .viewer)
        #expect(role(["realm_access": "staff"], mapped) == nil)
        let named = Self.login(roleClaim: "https://example.com/role", roles: ["x": .sender])
        #expect(role(["https://example.com/role": "x"], named) == .sender)
        // Equivalent in Unicode, but not the same bytes.
        let accented = Self.login(roles: ["caf\u{e9}": .admin])
        #expect(role(["carillon_role": "cafe\u{301}"], accented) == nil)
    }

    @Test("The audit has the verified email, else sub, or the login's own claim")
    func names() {
        func actor(_ claims: JSONObject, claim: String? = nil) -> String? {
            Operator(claims, by: Self.login(nameClaim: claim))?.actor
        }
        let ann: JSONObject = ["sub": "7", "email": "ann@example.com"]
        // Issuers that do not say so may let their users choose an address.
        #expect(actor(ann) == "oidc:7")
        for (verified, name) in [
            (true, "ann@example.com"), (false, "7"), ("false", "7"), ("true", "ann@example.com"),
        ] as [(JSONValue, String)] {
            var claims = ann
            claims["email_verified"] = verified
            #expect(actor(claims) == "oidc:\(name)", "\(verified.text)")
            #expect(actor(claims, claim: "email") == "oidc:\(name)", "\(verified.text)")
        }
        #expect(actor(["sub": "7"]) == "oidc:7")
        #expect(
            actor(["sub": "7", "preferred_username": "ann"], claim: "preferred_username")
                == "oidc:ann"
        )
        #expect(actor(["sub": "7"], claim: "preferred_username") == "oidc:7")
        for email in ["", "a\nb", "a\u{0}", String(repeating: "a", count: 129)] {
            #expect(actor(["sub": "7", "email": .string(email)]) == "oidc:7")
        }
        #expect(actor(["sub": 7]) == nil)
        #expect(actor(["email": "\n"]) == nil)
        #expect(actor([:]) == nil)
    }

    // MARK: Sessions and addresses

    @Test("An operator's session carries the stamp of its login, its role and new secrets")
    func session() throws {
        let sessions = Sessions(try Self.ring())
        let session = Session(of: Self.login(), actor: "oidc:ann", role: .sender, now: Self.now)
        let sealed = try sessions.sealed(session)
        let opened = try #require(sessions.open(sealed, now: Self.now))
        #expect(opened == session)
        #expect(opened.basis == .login("one") && opened.role == .sender && opened.app == "bells")
        let end = Self.now.adding(milliseconds: Session.lifetimeMilliseconds)
        #expect(sessions.open(sealed, now: end) == nil)
        let again = Session(of: Self.login(), actor: "oidc:ann", role: .sender, now: Self.now)
        #expect(again.formToken != session.formToken)
        #expect(!again.accepts(session.formToken) && !again.accepts(nil))
    }

    @Test(
        "A page after the sign-in is of the console, whatever the address says",
        arguments: [
            "https://evil.example/", "//evil.example", "/console//evil.example",
            "/console/../v1", "/console/..", "/console/..?a", "/console/%2e%2e/v1",
            "/console/.%2E/v1", "/console\\evil", "/consoles", "/console/\u{0}", "/console/a b",
            "javascript:alert(1)", "/console/\"", "", "/console/\r\nSet-Cookie: a=b",
        ]
    )
    func elsewhere(_ text: String) {
        #expect(Address(within: text) == nil)
    }

    @Test("An address of an app is told from those of others")
    func ofApp() throws {
        for text in ["/console/bells", "/console/bells/pushes", "/console/bells?a=b"] {
            #expect(try #require(Address(within: text)).isOf(app: "bells"), "\(text)")
        }
        for text in ["/console", "/console/bells2", "/console/other/bells", "/console/sign-in"] {
            #expect(try !#require(Address(within: text)).isOf(app: "bells"), "\(text)")
        }
    }
}
