import Cryptography
import EventLoop
import HTTPServer
import HTTPTransport
import JSON
import PushCore
import Storage
import Support
import Testing

@testable import Logins

@Suite("Issuers of operators", .timeLimit(.minutes(1)))
struct IssuerClientTests {
    private static let issuer = "https://id.example"

    private static func document(_ changes: JSONObject = [:]) -> JSONObject {
        var document: JSONObject = [
            "issuer": .string(issuer), "authorization_endpoint": "https://id.example/authorize",
            "token_endpoint": "https://id.example/token", "jwks_uri": "https://id.example/jwks",
        ]
        for (name, value) in changes { document[name] = value }
        return document
    }

    private static func endpoints(
        _ changes: JSONObject,
        status: Int = 200
    ) -> Result<IssuerEndpoints, DiscoveryFault> {
        IssuerClient.endpoints(
            in: HTTPResponse(status: status, body: document(changes).bytes),
            of: issuer
        )
    }

    @Test("A discovery document gives the addresses, and the way of the secret")
    func discovered() throws {
        let plain = try Self.endpoints([:]).get()
        #expect(plain.authorizationURL == "https://id.example/authorize")
        #expect(plain.tokenURL == "https://id.example/token")
        #expect(plain.jwksURL == "https://id.example/jwks" && plain.isSecretInHeader)
        for (ways, isInHeader) in [
            (["client_secret_post"], false), (["client_secret_post", "client_secret_basic"], true),
            (["none"], true),
        ] as [(JSONValue, Bool)] {
            let name = "token_endpoint_auth_methods_supported"
            #expect(try Self.endpoints([name: ways]).get().isSecretInHeader == isInHeader)
        }
        let rich: JSONObject = [
            "code_challenge_methods_supported": ["plain", "S256"],
            "id_token_signing_alg_values_supported": ["HS256", "RS256"],
        ]
        #expect(try Self.endpoints(rich).get() == plain)
    }

    @Test("A document of another issuer, without an address or a usable algorithm is refused")
    func unusable() {
        func reason(_ changes: JSONObject, status: Int = 200) -> String {
            switch Self.endpoints(changes, status: status) {
            case .success: "none"
            case .failure(let fault): fault.text
            }
        }
        #expect(reason(["issuer": "https://else.example"]).contains("another issuer"))
        #expect(reason(["issuer": .string(Self.issuer + "/")]).contains("another issuer"))
        for name in ["authorization_endpoint", "token_endpoint", "jwks_uri"] {
            for value in ["http://id.example/x", "https://a b", "https://a#b", .null, 7]
                as [JSONValue]
            {
                #expect(reason([name: value]).contains(name), "\(value.text)")
            }
        }
        #expect(reason(["code_challenge_methods_supported": ["plain"]]).contains("PKCE"))
        #expect(reason(["id_token_signing_alg_values_supported": ["HS256"]]).contains("ES256"))
        #expect(reason([:], status: 404).contains("404"))
        #expect(reason([:], status: 302).contains("redirects"))
    }

    @Test("A secret is sent by Basic with escaped parts, or in the form; a public client has none")
    func secrets() throws {
        func request(_ secret: String?, inHeader: Bool) -> (form: String, authorization: String?) {
            CodeExchange(
                tokenURL: "",
                clientID: "a:b",
                clientSecret: secret,
                isSecretInHeader: inHeader,
                code: "c+d/e&f=",
                redirectURI: "https://x.example/r",
                verifier: "v"
            ).request
        }
        let form =
            "grant_type=authorization_code&code=c%2Bd%2Fe%26f%3D"
            + "&redirect_uri=https%3A%2F%2Fx.example%2Fr&code_verifier=v"
        let basic = request("s%é", inHeader: true)
        #expect(basic.form == form)
        #expect(
            basic.authorization == "Basic " + Base64.encode(Array("a%3Ab:s%25%C3%A9".utf8))
        )
        let posted = request("s", inHeader: false)
        #expect(posted.form == form + "&client_id=a%3Ab&client_secret=s")
        #expect(posted.authorization == nil)
        let open = request(nil, inHeader: true)
        #expect(open.form == form + "&client_id=a%3Ab" && open.authorization == nil)
    }

    @Test("An issuer's answer is a token, a refusal with a word, or a failure of the issuer")
    func answers() {
        func fault(_ status: Int, _ body: JSONValue) -> ExchangeFault? {
            switch IssuerClient.token(in: HTTPResponse(status: status, body: body.bytes)) {
            case .success: nil
            case .failure(let fault): fault
            }
        }
        #expect(fault(200, ["id_token": "a.b.c"]) == nil)
        #expect(fault(200, ["access_token": "a"]) == .noToken)
        #expect(fault(200, []) == .noToken)
        #expect(fault(400, ["error": "invalid_grant"]) == .refused("invalid_grant"))
        #expect(fault(401, ["error": "<script>"]) == .refused(nil))
        #expect(fault(403, "no") == .refused(nil))
        #expect(fault(500, [:]) == .unavailable(.status(500)))
        #expect(fault(302, [:]) == .unavailable(.redirect))
    }

    @Test("A code is exchanged over https at an allowed host only, once, with bounded answers")
    func exchanged() async throws {
        try await withLocalServer { request in
            switch request.path {
            case "/token": HTTPServerResponse.json(["id_token": "a.b.c"])
            case "/moved": HTTPServerResponse(status: 307, headers: ["Location": "/token"])
            default:
                HTTPServerResponse(
                    status: 200,
                    body: Array(repeating: 0x20, count: (256 << 10) + 1)
                )
            }
        } _: { server, loop in
            func exchange(
                _ url: String,
                hosts: [String]
            ) async throws -> Result<String, ExchangeFault> {
                let configuration = JWKSConfiguration(
                    hosts: try HostPolicy(hosts),
                    caFile: server.caFile
                )
                return await IssuerClient(configuration, on: loop).exchange(
                    CodeExchange(
                        tokenURL: url,
                        clientID: "console",
                        clientSecret: nil,
                        isSecretInHeader: true,
                        code: "code",
                        redirectURI: "https://x.example/r",
                        verifier: "verifier"
                    )
                )
            }
            let here = ["localhost:\(server.port)"]
            #expect(try await exchange(server.origin + "/token", hosts: here) == .success("a.b.c"))
            let sent = try #require(server.received.first)
            #expect(sent.method == .post && sent.path == "/token")
            #expect(sent.header("content-type") == "application/x-www-form-urlencoded")
            #expect(String(decoding: sent.body, as: UTF8.self).contains("code_verifier=verifier"))
            func fault(_ url: String, _ hosts: [String]) async throws -> ExchangeFault? {
                switch try await exchange(url, hosts: hosts) {
                case .success: nil
                case .failure(let fault): fault
                }
            }
            #expect(
                try await fault(server.origin + "/token", ["id.example"])
                    == .unavailable(.notAllowed)
            )
            let plain = "http://" + server.origin.dropFirst("https://".utf8.count) + "/token"
            #expect(try await fault(plain, here) == .unavailable(.notAllowed))
            #expect(try await fault(server.origin + "/moved", here) == .unavailable(.redirect))
            #expect(try await fault(server.origin + "/large", here) == .unavailable(.tooLarge))
            #expect(server.received.filter { $0.path == "/token" }.count == 1)
        }
    }

    // MARK: ID tokens

    @Test("An ID token needs issuer, audience, party, expiry, nonce and signature of its login")
    func tokens() async throws {
        let (issuer, other) = (try Issuer(), try Issuer("https://other.example"))
        try await LoginBench.run([issuer, other]) { bench in
            let directory = bench.directory()
            let login = StoredConsoleLogin(
                name: "staff",
                app: "shop",
                title: "Staff",
                issuer: issuer.name,
                clientID: "console",
                authorizationURL: "",
                tokenURL: "",
                jwksURL: issuer.url,
                roles: [:]
            )
            func claims(_ changes: JSONObject = [:]) -> JSONObject {
                var claims = bench.claims(issuer, ["aud": "console", "nonce": "n"])
                for (name, value) in changes { claims[name] = value }
                return claims
            }
            func refusal(_ token: String) async throws -> LoginRefusal? {
                do {
                    _ = try await directory.claims(ofIDToken: token, for: login, nonce: "n")
                    return nil
                } catch let refusal as LoginRefusal {
                    return refusal
                }
            }
            func fault(_ changes: JSONObject) async throws -> LoginRefusal? {
                try await refusal(try issuer.token(claims(changes)))
            }
            let found = try await directory.claims(
                ofIDToken: try issuer.token(claims(["email": "ann@example.com"])),
                for: login,
                nonce: "n"
            )
            #expect(found["email"] == "ann@example.com")
            #expect(try await fault(["aud": ["console", "others"], "azp": "console"]) == nil)
            #expect(try await fault(["azp": "console"]) == nil)

            let now = Int(bench.now.seconds)
            for (changes, expected) in [
                (["iss": "https://other.example"], .issuer), (["aud": "phones"], .audience),
                (["aud": ["console", "others"]], .audience), (["azp": "others"], .audience),
                (["azp": .null], .audience), (["nonce": "m"], .nonce), (["nonce": ""], .nonce),
                (["nonce": .null], .nonce), (["exp": JSONValue(now - 60)], .expired),
                (["nbf": JSONValue(now + 61)], .notYetValid),
            ] as [(JSONObject, TokenFault)] {
                #expect(try await fault(changes) == .refused(expected), "\(changes)")
            }
            #expect(
                try await refusal(try issuer.token(claims(), with: other.key))
                    == .refused(.signature)
            )
            #expect(try await refusal("a.b.c") == .refused(.malformed))
            let none = Base64.encodeURL(Array(#"{"alg":"none"}"#.utf8))
            let unsigned = "\(none).\(Base64.encodeURL(claims().bytes))."
            #expect(try await refusal(unsigned) == .refused(.algorithm))
        }
    }
}
