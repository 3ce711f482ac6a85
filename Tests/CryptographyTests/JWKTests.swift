import JSON
import Testing

@testable import Cryptography

@Suite("JWK sets", .timeLimit(.minutes(1)))
struct JWKTests {
    /// RFC 7515, appendices A.3 and A.2: each key with a token that it has signed.
    private static let elliptic: JSONObject = [
        "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    ]
    private static let rsa: JSONObject = [
        "kty": "RSA", "e": "AQAB",
        "n": .string(
            "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1"
                + "Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-"
                + "bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZl"
                + "xvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2"
                + "PAcDTW9gb54h4FRWyuXpoQ"
        ),
    ]
    private static let claims =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0"
        + "cnVlfQ"
    private static let es256Token =
        "eyJhbGciOiJFUzI1NiJ9." + claims + ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDx"
        + "w5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    private static let rs256Token =
        "eyJhbGciOiJSUzI1NiJ9." + claims + ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJb"
        + "u3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFd"
        + "iuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--"
        + "xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5"
        + "AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"

    private func set(_ members: JSONObject...) throws -> JWKSet {
        try JWKSet(["keys": .array(members.map { .object($0) })])
    }

    private func with(_ key: JSONObject, _ changes: JSONObject) -> JSONObject {
        var key = key
        for (name, value) in changes { key[name] = value }
        return key
    }

    @Test("Each key of RFC 7515 verifies its own token and not the other")
    func knownAnswers() throws {
        let set = try set(Self.elliptic, Self.rsa)
        #expect(set.passedOver == [])
        for (token, algorithm) in [
            (Self.es256Token, JWTAlgorithm.es256), (Self.rs256Token, .rs256),
        ] {
            let token = try UnverifiedToken(token)
            #expect(token.algorithm == algorithm)
            let candidates = set.candidates(kid: nil, algorithm: algorithm)
            #expect(candidates.count == 1 && candidates.allSatisfy(token.isSigned))
            #expect(set.keys.filter { token.isSigned(by: $0.key) }.count == 1)
        }
    }

    @Test("A stored set is the same when it is read again, without unneeded members")
    func kept() throws {
        let set = try set(
            with(Self.elliptic, ["kid": "one", "use": "sig", "alg": "ES256", "x5c": ["…"]]),
            with(Self.rsa, ["kid": "two", "key_ops": ["verify"]])
        )
        let again = try JWKSet(set.json)
        #expect(again.json == set.json && again.keys.map(\.kid) == ["one", "two"])
        #expect(set.json["keys"]?[0]?.object?.keys.sorted() == ["crv", "kid", "kty", "x", "y"])
        #expect(set.json["keys"]?[1]?.object?.keys.sorted() == ["e", "kid", "kty", "n"])
        let token = try UnverifiedToken(Self.es256Token)
        #expect(again.candidates(kid: "one", algorithm: .es256).allSatisfy(token.isSigned))
    }

    @Test("Keys of other kinds, uses and algorithms are skipped, and the others are read")
    func passedOver() throws {
        let (ec, rsa) = (Self.elliptic, Self.rsa)
        let strangers: [JSONObject] = [
            ["kty": "oct", "k": "c2VjcmV0"], ["kty": "OKP", "crv": "Ed25519", "x": "AAAA"], [:],
            with(ec, ["use": "enc"]), with(ec, ["key_ops": ["sign"]]), with(ec, ["use": 1]),
            with(ec, ["d": "AAAA"]), with(rsa, ["d": "AAAA"]),
            with(ec, ["alg": "RS256"]), with(rsa, ["alg": "RS512"]), with(rsa, ["alg": "PS256"]),
            with(ec, ["crv": "P-384"]), with(ec, ["x": "AAAA"]), with(ec, ["y": ec["x"] ?? ""]),
            with(ec, ["x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU="]),
            with(ec, ["x": .null]), with(ec, ["kid": 7]),
            with(ec, ["kid": .string(String(repeating: "k", count: 513))]),
            with(rsa, ["n": "AQAB"]), with(rsa, ["n": ""]), with(rsa, ["e": ""]),
            with(rsa, ["e": "AQ"]), with(rsa, ["e": "AQAA"]),
            with(rsa, ["e": .string(Base64.encodeURL([1] + [UInt8](repeating: 1, count: 8)))]),
            with(rsa, ["n": .string(Base64.encodeURL([UInt8](repeating: 0xFF, count: 1025)))]),
            with(rsa, ["n": .string(Base64.encodeURL([UInt8](repeating: 0xFE, count: 256)))]),
        ]
        for stranger in strangers {
            let set = try set(stranger, with(ec, ["kid": "mine"]))
            #expect(set.keys.map(\.kid) == ["mine"], "\(JSONValue.object(stranger).text)")
            #expect(set.passedOver.count == 1)
        }
    }

    @Test("An invalid set is refused, and so is one of too many keys")
    func noSet() throws {
        for json: JSONValue in [.null, [], [:], ["keys": [:]], ["keys": "one"]] {
            #expect(throws: CryptographyError.self) { try JWKSet(json) }
        }
        let keys = { (count: Int) -> JSONValue in
            ["keys": .array(Array(repeating: .object(Self.elliptic), count: count))]
        }
        #expect(try JWKSet(keys(100)).keys.count == 100)
        #expect(throws: CryptographyError.self) { try JWKSet(keys(101)) }
        #expect(try JWKSet(["keys": []]).keys.isEmpty)
    }

    @Test("A token's kid selects its key by bytes, and without a kid at most eight keys are tried")
    func candidates() throws {
        var keys = (0..<20).map { with(Self.elliptic, ["kid": .string("key \($0)")]) }
        keys.append(with(Self.rsa, ["kid": "r"]))
        keys.append(with(Self.elliptic, ["kid": "caf\u{E9}"]))
        let set = try JWKSet(["keys": .array(keys.map { .object($0) })])
        #expect(set.candidates(kid: "key 3", algorithm: .es256).count == 1)
        #expect(set.candidates(kid: "key 3", algorithm: .rs256).isEmpty)
        #expect(set.candidates(kid: "none", algorithm: .es256).isEmpty)
        #expect(set.candidates(kid: "caf\u{E9}", algorithm: .es256).count == 1)
        #expect(set.candidates(kid: "cafe\u{301}", algorithm: .es256).isEmpty)
        #expect(set.candidates(kid: nil, algorithm: .es256).count == 8)
        #expect(set.candidates(kid: nil, algorithm: .rs256).count == 1)
    }

    @Test("A token with a duplicate member, critical extensions or another algorithm is refused")
    func refusedTokens() throws {
        let key = try SigningKey.generateP256()
        func token(_ header: String, _ claims: String) throws -> String {
            let signed =
                Base64.encodeURL(Array(header.utf8)) + "." + Base64.encodeURL(Array(claims.utf8))
            return signed + "." + Base64.encodeURL(try key.sign(Array(signed.utf8)))
        }
        let good = try token(#"{"alg":"ES256"}"#, #"{"sub":"ann"}"#)
        #expect(try JWT.verify(good) { _ in key.verifyingKey }.claims == ["sub": "ann"])
        for (header, claims) in [
            (#"{"alg":"ES256"}"#, #"{"sub":"ann","sub":"bob"}"#),
            (#"{"alg":"ES256"}"#, #"{"sub":"ann","\u0073ub":"bob"}"#),
            (#"{"alg":"HS256","alg":"ES256"}"#, "{}"),
            (#"{"alg":"none"}"#, "{}"), (#"{"alg":"HS256"}"#, "{}"), (#"{"alg":"es256"}"#, "{}"),
            (#"{"alg":["ES256"]}"#, "{}"), ("{}", "{}"),
            (#"{"alg":"ES256","crit":["exp"]}"#, "{}"), (#"{"alg":"ES256"}"#, "[]"),
            (#"{"alg":"RS256"}"#, "{}"),
        ] {
            let token = try token(header, claims)
            #expect(throws: CryptographyError.self, "\(header) \(claims)") {
                try JWT.verify(token) { _ in key.verifyingKey }
            }
        }
        let long = try token(
            #"{"alg":"ES256"}"#,
            #"{"sub":"\#(String(repeating: "a", count: 16 << 10))"}"#
        )
        #expect(throws: CryptographyError.self) { try UnverifiedToken(long) }
    }

    /// The classic attack: an HMAC under the text of the public key.
    @Test("A token that is signed by HS256 with the public key is not valid")
    func publicKeyAsSecret() throws {
        let key = try SigningKey.generateRSA()
        let pem = try key.publicKeyPEM()
        let signed =
            Base64.encodeURL(Array(#"{"alg":"HS256"}"#.utf8)) + "."
            + Base64.encodeURL(Array(#"{"sub":"ann"}"#.utf8))
        let token =
            signed + "." + Base64.encodeURL(hmacSHA256(key: Array(pem.utf8), Array(signed.utf8)))
        #expect(try UnverifiedToken(token).algorithm == nil)
        #expect(try !UnverifiedToken(token).isSigned(by: key.verifyingKey))
        #expect(throws: CryptographyError.self) { try JWT.verify(token) { _ in key.verifyingKey } }
    }
}
