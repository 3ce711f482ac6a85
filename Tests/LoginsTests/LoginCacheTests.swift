import Cryptography
import JSON
import PushCore
import Support
import Synchronization
import Testing

@testable import Logins

@Suite("Verification of tokens", .timeLimit(.minutes(1)))
struct LoginCacheTests {
    private static let ann = TokenIdentity(app: "shop", identity: "ann")

    @Test("A token of one of the app's logins proves its identity, with or without the app's name")
    func countAuthenticated() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let directory = bench.directory()
            let rsa = try SigningKey.generateRSA()
            issuer.state.withLock { $0.keys.insert(("r1", rsa), at: 0) }
            let tokens = [
                try issuer.token(bench.claims(issuer)),
                try issuer.token(bench.claims(issuer), header: ["kid": "r1"], with: rsa),
                try issuer.token(bench.claims(issuer), header: [:], with: rsa),
                try issuer.token(bench.claims(issuer, ["aud": ["others", "phones"]])),
                try issuer.token(bench.claims(issuer, ["nbf": JSONValue(Int(bench.now.seconds))])),
            ]
            for token in tokens {
                #expect(try await directory.reader(of: token, app: "shop") == Self.ann)
                #expect(try await directory.reader(of: token, app: nil) == Self.ann)
            }
            #expect(issuer.asked == 1)
        }
    }

    @Test("A token is refused, with a distinct reason for the operator")
    func faults() async throws {
        let (issuer, other) = (try Issuer(), try Issuer("https://other.example"))
        try await LoginBench.run([issuer, other], []) { bench in
            bench.logins = [
                bench.login(of: issuer), bench.login(of: other, app: "games"),
                bench.login(of: issuer, app: "games", audience: "consoles", prefix: "x:"),
            ]
            let directory = bench.directory()
            func fault(_ token: String, app: String? = "shop") async throws -> TokenFault? {
                switch try await refusal({ try await directory.reader(of: token, app: app) }) {
                case .refused(let fault): fault
                case .unavailable, nil: nil
                }
            }
            func fault(of changes: JSONObject, app: String? = "shop") async throws -> TokenFault? {
                try await fault(try issuer.token(bench.claims(issuer, changes)), app: app)
            }
            let now = Int(bench.now.seconds)
            let stranger = try SigningKey.generateP256()
            for token in ["", "a.b", "a.b.c", "....", String(repeating: "a", count: 20_000)] {
                #expect(try await fault(token) == .malformed)
            }
            let none = Base64.encodeURL(Array(#"{"alg":"none"}"#.utf8))
            let body = Base64.encodeURL(bench.claims(issuer).bytes)
            #expect(try await fault("\(none).\(body).") == .algorithm)
            #expect(try await fault(of: ["iss": "https://else.example"]) == .issuer)
            #expect(try await fault(of: ["iss": "https://else.example"], app: nil) == .issuer)
            #expect(try await fault(of: ["iss": .null]) == .issuer)
            #expect(try await fault(of: ["aud": "tablets"]) == .audience)
            #expect(try await fault(of: ["aud": "consoles"]) == .audience, "of another app")
            #expect(try await fault(of: ["aud": ["phones", 1]]) == .audience)
            #expect(try await fault(of: ["aud": .null]) == .audience)
            #expect(try await fault(of: ["aud": ["phones", "consoles"]], app: nil) == .ambiguous)
            #expect(try await fault(of: ["exp": JSONValue(now - 60)]) == .expired)
            #expect(try await fault(of: ["nbf": JSONValue(now + 61)]) == .notYetValid)
            #expect(try await fault(of: ["sub": .null]) == .noIdentity)
            #expect(try await fault(of: ["sub": 7]) == .noIdentity)
            #expect(try await fault(of: ["sub": ""]) == .noIdentity)
            #expect(try await fault(of: ["sub": "a\u{0}b"]) == .noIdentity)
            let long = String(repeating: "a", count: 513)
            #expect(try await fault(of: ["sub": .string(long)]) == .noIdentity)
            #expect(
                try await fault(try issuer.token(bench.claims(issuer), with: stranger))
                    == .signature
            )
            #expect(
                try await fault(try issuer.token(bench.claims(issuer), header: ["kid": "k9"]))
                    == .unknownKey
            )
            #expect(
                try await fault(try issuer.token(bench.claims(issuer), header: ["kid": 1]))
                    == .malformed
            )
            var claims = bench.claims(issuer)
            claims["exp"] = nil
            #expect(try await fault(try issuer.token(claims)) == .noExpiry)
            // A signature of another issuer's key is not valid for this one.
            #expect(
                try await fault(try issuer.token(bench.claims(issuer), with: other.key))
                    == .signature
            )
        }
    }

    @Test("Clocks may differ by 60 s, and a number of any size can be compared")
    func times() throws {
        let now = Instant(milliseconds: 1_800_000_000_500)
        func fault(_ exp: String, _ nbf: String? = nil) throws -> TokenFault? {
            let text =
                #"{"iss":"i","aud":"a","exp":\#(exp)"# + (nbf.map { #","nbf":\#($0)"# } ?? "") + "}"
            let object = try #require(Self.object(text))
            do throws(TokenFault) {
                let claims = try TokenClaims(object)
                _ = claims.end
                try claims.validate(at: now)
                return nil
            } catch { return error }
        }
        for valid in [
            "1800000000", "1799999941", "1799999940.6", "1800000600.25", "1e300",
            "9223372036854775807", "99999999999999999999999",
        ] {
            #expect(try fault(valid) == nil, "\(valid)")
        }
        for expired in ["1799999940.5", "1799999940", "0", "-1", "-1e300", "-9223372036854775808"] {
            #expect(try fault(expired) == .expired, "\(expired)")
        }
        for none in ["\"1900000000\"", "true", "null", "[]", "1e400", "-1e400"] {
            #expect(try fault(none) == .malformed, "\(none)")
            #expect(try fault("1900000000", none) == .malformed, "\(none)")
        }
        #expect(try fault("1900000000", "1800000060.5") == nil)
        #expect(try fault("1900000000", "1800000060.75") == .notYetValid)
        #expect(try fault("1900000000", "1e300") == .notYetValid)
        #expect(try fault("1900000000", "-1e300") == nil)
    }

    private static func object(_ text: String) -> JSONObject? {
        (try? JSONValue.parse(text))?.object
    }

    @Test("An issuer cannot name an identity of another issuer")
    func prefixes() async throws {
        let (first, second) = (try Issuer(), try Issuer("https://two.example"))
        try await LoginBench.run([first, second], []) { bench in
            bench.logins = [bench.login(of: first), bench.login(of: second, prefix: "two:")]
            let directory = bench.directory()
            func identity(_ issuer: Issuer, _ sub: String) async throws -> String {
                let token = try issuer.token(bench.claims(issuer, ["sub": .string(sub)]))
                return try await directory.reader(of: token, app: "shop").identity
            }
            let plain = try await identity(first, "ann")
            #expect(plain == "ann")
            #expect(try await identity(second, "ann") == "two:ann")
            #expect(try await identity(second, "two:ann") == "two:two:ann")
            for foreign in ["two:", "two:ann"] {
                await #expect(throws: LoginRefusal.refused(.foreignIdentity)) {
                    try await identity(first, foreign)
                }
            }
            #expect(try await identity(first, "Two:ann") == "Two:ann")
        }
    }

    @Test("If several logins match a token, all must give the same identity")
    func several() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer], []) { bench in
            bench.logins = [
                bench.login(of: issuer), bench.login(of: issuer, audience: "tv", prefix: "tv:"),
            ]
            let directory = bench.directory()
            let both = try issuer.token(bench.claims(issuer, ["aud": ["phones", "tv"]]))
            await #expect(throws: LoginRefusal.refused(.ambiguous)) {
                try await directory.reader(of: both, app: "shop")
            }
            let one = try issuer.token(bench.claims(issuer, ["aud": "tv"]))
            #expect(try await directory.reader(of: one, app: nil).identity == "tv:ann")
        }
    }

    @Test("Prefixes that an app can have at the same time")
    func prefixRules() throws {
        func login(_ audience: String, _ prefix: String) -> StoredLogin {
            StoredLogin(
                app: "shop",
                issuer: "i",
                audience: audience,
                keys: .url("https://i"),
                identityPrefix: prefix
            )
        }
        func problem(
            _ login: StoredLogin,
            _ others: [StoredLogin],
            _ replaced: StoredLogin? = nil
        ) -> String? {
            LoginPrefixes.problem(of: login, beside: others, replacing: replaced)
        }
        let bare = login("a", "")
        #expect(problem(bare, []) == nil)
        #expect(problem(login("b", ""), [bare]) != nil)
        #expect(problem(login("b", "b:"), [bare]) == nil)
        #expect(problem(bare, [login("b", "b:")]) != nil)
        #expect(problem(bare, [login("b", "b:")], bare) == nil, "what it is it may stay")
        #expect(problem(bare, [login("b", "b:")], login("a", "a:")) != nil)
        for taken in ["b:", "b", "b:x"] {
            #expect(problem(login("c", taken), [login("b", "b:")]) != nil, "\(taken)")
        }
        #expect(problem(login("c", "B:"), [bare, login("b", "b:")]) == nil)
        // They are canonically equal, but have other bytes.
        #expect(problem(login("c", "e\u{301}:"), [login("b", "\u{E9}:")]) == nil)
    }

    @Test("A login that contains its keys works without its issuer")
    func fixed() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer], []) { bench in
            var login = bench.login(of: issuer)
            let key = try publicJWK(try #require(issuer.key), "k1")
            login.keys = .fixed(["keys": [key]])
            bench.logins = [login]
            let token = try issuer.token(bench.claims(issuer))
            #expect(try await bench.directory().reader(of: token, app: "shop") == Self.ann)
            login.keys = .fixed(["keys": []])
            bench.logins = [login]
            await #expect(throws: LoginRefusal.refused(.unknownKey)) {
                try await bench.directory().reader(of: token, app: "shop")
            }
            #expect(issuer.asked == 0)
        }
    }

    @Test("A verified token is cached until it expires, its login changes, or five minutes pass")
    func remembered() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let directory = bench.directory()
            let short = try issuer.token(
                bench.claims(issuer, ["exp": JSONValue(Int(bench.now.seconds) + 30)])
            )
            let long = try issuer.token(bench.claims(issuer, ["exp": 4_000_000_000]))
            for token in [short, long] {
                #expect(try await directory.reader(of: token, app: nil) == Self.ann)
            }
            // The key is not published any more; its earlier signatures are cached.
            try issuer.rotate(to: "k2")
            bench.pass(.seconds(61))
            let new = try issuer.token(bench.claims(issuer))
            #expect(try await directory.reader(of: new, app: "shop") == Self.ann)
            #expect(try await directory.reader(of: long, app: "shop") == Self.ann)
            #expect(try await directory.reader(of: short, app: "shop") == Self.ann)
            await #expect(throws: LoginRefusal.refused(.issuer), "it is not another app's") {
                try await directory.reader(of: long, app: "games")
            }
            bench.pass(.seconds(29))
            await #expect(throws: LoginRefusal.refused(.expired)) {
                try await directory.reader(of: short, app: "shop")
            }
            bench.pass(.seconds(211))
            await #expect(throws: LoginRefusal.refused(.unknownKey)) {
                try await directory.reader(of: long, app: "shop")
            }
        }
    }

    @Test("A changed or removed login takes effect at once by notification, or else in 5 s")
    func changed() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let directory = bench.directory()
            let token = try issuer.token(bench.claims(issuer))
            #expect(try await directory.reader(of: token, app: nil) == Self.ann)
            let before = bench.logins
            bench.logins[0].identityPrefix = "id:"
            #expect(try await directory.reader(of: token, app: "shop").identity == "ann")
            await directory.forget("shop")
            #expect(try await directory.reader(of: token, app: "shop").identity == "id:ann")
            bench.logins = []
            await directory.forget("")
            for app in ["shop", nil] {
                await #expect(throws: LoginRefusal.refused(.issuer)) {
                    try await directory.reader(of: token, app: app)
                }
            }
            bench.logins = before
            bench.pass(.seconds(5))
            #expect(try await directory.reader(of: token, app: nil) == Self.ann)
            bench.logins = []
            bench.pass(.seconds(5))
            await #expect(throws: LoginRefusal.refused(.issuer)) {
                try await directory.reader(of: token, app: nil)
            }
        }
    }

    @Test("Thousands of requests with one token cause one database query in 5 s")
    func cheap() async throws {
        let issuer = try Issuer()
        try await LoginBench.run([issuer]) { bench in
            let directory = bench.directory()
            let token = try issuer.token(bench.claims(issuer))
            await withTaskGroup(of: Bool.self) { group in
                for number in 0..<1000 {
                    group.addTask {
                        let app = number % 2 == 0 ? "shop" : nil
                        return (try? await directory.reader(of: token, app: app)) == Self.ann
                    }
                }
                for await isAnn in group { #expect(isAnn) }
            }
            #expect(issuer.asked == 1)
            let before = bench.statements
            for _ in 0..<100 { _ = try await directory.reader(of: token, app: nil) }
            #expect(bench.statements == before)
            bench.pass(.seconds(5))
            for _ in 0..<100 { _ = try await directory.reader(of: token, app: nil) }
            #expect(bench.statements == before + 1)
        }
    }
}

@Suite("Cache of verified tokens", .timeLimit(.minutes(1)))
struct VerifiedTokenCacheTests {
    private final class Owner {}

    @Test("No more than two generations are stored, and used tokens stay")
    func bounded() {
        let (now, steady) = (Instant(seconds: 1000), ContinuousClock.now)
        var memory = VerifiedTokenCache<Owner>(limit: 10)
        let owner = Owner()
        func entry(_ number: Int) -> VerifiedTokenCache<Owner>.Entry {
            VerifiedTokenCache.Entry(
                reader: TokenIdentity(app: "shop", identity: "\(number)"),
                logins: owner,
                end: now.adding(milliseconds: 1000),
                until: steady + .seconds(300)
            )
        }
        memory.insert([255], entry(255))
        for number in 0..<200 {
            memory.insert([UInt8(number)], entry(number))
            #expect(memory.count <= 20)
            #expect(memory.find([255], at: now, steady)?.reader.identity == "255", "\(number)")
        }
        #expect(memory.find([0], at: now, steady) == nil)
        #expect(memory.find([199], at: now, steady)?.reader.identity == "199")
        #expect(memory.find([199], at: now.adding(milliseconds: 1000), steady) == nil)
        #expect(memory.find([198], at: now, steady + .seconds(300)) == nil)
        memory.remove([255])
        #expect(memory.find([255], at: now, steady) == nil)
    }
}
