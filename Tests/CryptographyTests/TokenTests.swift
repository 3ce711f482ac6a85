import Cryptography
import JSON
import Testing

@Suite("Cryptography: keys and tokens", .timeLimit(.minutes(1)))
struct TokenTests {
    /// RFC 7515 appendix A.3.
    private static let es256Key = pem(
        "PUBLIC KEY",
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEXH8UTNG72b"
            + "focs3+257rn0s2ldbqkLJK2KRiMohYjlrQ=="
    )
    private static let claims =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0"
        + "cnVlfQ"
    private static let es256Token =
        "eyJhbGciOiJFUzI1NiJ9." + claims + ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDx"
        + "w5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"

    /// RFC 7515 appendix A.2.
    private static let rs256Key = pem(
        "PUBLIC KEY",
        "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd/wWJcyQoTbj"
            + "i9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEw"
            + "OWvG6b32690r2jZ47soMZo9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo"
            + "7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxXFvUK+DWNmoudF8"
            + "NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQIDAQAB"
    )
    private static let rs256Token =
        "eyJhbGciOiJSUzI1NiJ9." + claims + ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJb"
        + "u3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFd"
        + "iuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--"
        + "xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5"
        + "AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"

    private static func pem(_ label: String, _ base64: String) -> String {
        "-----BEGIN \(label)-----\n\(base64)\n-----END \(label)-----\n"
    }

    @Test(
        "The examples of RFC 7515 are valid",
        arguments: [(es256Key, es256Token), (rs256Key, rs256Token)]
    )
    func knownAnswers(key: String, token: String) throws {
        let key = try VerifyingKey(pem: key)
        let (header, claims) = try JWT.verify(token) { _ in key }
        #expect(header["alg"]?.string == key.algorithm.rawValue)
        #expect(claims["iss"] == "joe")
        #expect(claims["exp"] == 1_300_819_380)
    }

    @Test("A token that we sign is valid under its public key only")
    func roundTrip() throws {
        for key in [try SigningKey.generateP256(), try SigningKey.generateRSA(bits: 2048)] {
            let token = try JWT.sign(
                header: ["kid": "K1", "alg": "none"],
                claims: ["iss": "team"],
                with: key
            )
            let publicKey = try VerifyingKey(pem: key.publicKeyPEM())
            let (header, claims) = try JWT.verify(token) { $0["kid"] == "K1" ? publicKey : nil }
            #expect(header == ["kid": "K1", "alg": .string(key.algorithm.rawValue)])
            #expect(claims == ["iss": "team"])
            let other = try SigningKey.generateP256().verifyingKey
            #expect(throws: CryptographyError.self) { try JWT.verify(token) { _ in other } }
        }
    }

    @Test("An ES256 signature is r followed by s, 64 bytes in all")
    func rawSignature() throws {
        let key = try SigningKey.generateP256()
        for _ in 0..<32 {
            let signature = try key.sign([1, 2, 3])
            #expect(signature.count == 64)
            #expect(key.verifyingKey.isValid(signature, for: [1, 2, 3]))
            #expect(!key.verifyingKey.isValid(signature, for: [1, 2]))
        }
    }

    @Test("A token with a changed character, a cut or another form is not valid")
    func tampering() throws {
        let key = try VerifyingKey(pem: Self.es256Key)
        let characters = Array(Self.es256Token)
        for index in characters.indices {
            var changed = characters
            changed[index] = changed[index] == "A" ? "B" : "A"
            #expect(throws: CryptographyError.self, "character \(index)") {
                try JWT.verify(String(changed)) { _ in key }
            }
        }
        for token in [
            "", ".", "..", "a.b", Self.es256Token + ".", Self.es256Token + "=",
            String(repeating: "a", count: JWT.maximumByteCount + 1),
            // "alg": "none", and no signature.
            "eyJhbGciOiJub25lIn0." + Self.claims + ".",
        ] {
            let error = #expect(throws: CryptographyError.self) {
                try JWT.verify(token) { _ in key }
            }
            #expect(error?.description.contains(Self.claims) == false)
        }
    }

    @Test("A key survives PEM encoding and knows its type")
    func keyPEM() throws {
        let key = try SigningKey.generateP256()
        let text = try key.privateKeyPEM()
        #expect(text.hasPrefix("-----BEGIN PRIVATE KEY-----"))
        let again = try SigningKey(pem: text)
        #expect(again.isP256)
        #expect(try again.publicKeyPEM() == key.publicKeyPEM())
    }

    @Test("An invalid private key is refused, and the error does not contain it")
    func badKeys() {
        for text in [
            "", "-----BEGIN PRIVATE KEY-----\nSECRETSECRET\n-----END PRIVATE KEY-----\n",
            Self.es256Key, String(repeating: "x", count: 1 << 20),
        ] {
            let error = #expect(throws: CryptographyError.self) { try SigningKey(pem: text) }
            #expect(error?.description.contains("SECRET") == false)
        }
    }

    @Test("A curve other than P-256 is refused")
    func otherCurve() {
        // openssl ecparam -name secp384r1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt
        let text = Self.pem(
            "PRIVATE KEY",
            "MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDAI7tM7TQFOV9lB9NFnHTQWQBcCkTKL6t1v"
                + "7NZNAKxh7eYX5eok+1Vm0ubMQfS20cqhZANiAASDDS5vAWn25gJqlmEexs7jzqDz6mLuv4rbDUX8b5pz"
                + "PVo0SWXCbgm0GpQl1ILZMOKDo91hkS9LmlEcFVOaUuZhvrbXb92OTK8atqS340dTKnrtSwT800fy4onL"
                + "bv1+gic="
        )
        #expect(throws: CryptographyError.unsupportedKey("its curve is not P-256")) {
            try SigningKey(pem: text)
        }
    }
}

@Suite("Cryptography: certificates", .timeLimit(.minutes(1)))
struct CertificateTests {
    @Test("A pair is accepted with its summary, and a key of another certificate is not")
    func pairs() throws {
        let authority = try CertificateAuthority.make(commonName: "Test CA")
        let pair = try authority.issue(
            hosts: ["push.example.com"],
            client: true,
            userID: "com.example.shop"
        )
        let summary = try checkCertificatePair(
            certificatePEM: pair.certificatePEM,
            privateKeyPEM: pair.privateKeyPEM
        )
        #expect(summary.subject.contains("CN=push.example.com"))
        #expect(summary.topics == ["com.example.shop"])
        #expect(summary.notAfter - summary.notBefore == 397 * 86_400 + 3600)
        #expect(summary.notBefore > 1_700_000_000)
        let other = try authority.issue()
        #expect(throws: CryptographyError.badCertificate("the private key is another's")) {
            try checkCertificatePair(
                certificatePEM: pair.certificatePEM,
                privateKeyPEM: other.privateKeyPEM
            )
        }
        #expect(throws: CryptographyError.badPEM("expected a certificate")) {
            try checkCertificatePair(
                certificatePEM: pair.privateKeyPEM,
                privateKeyPEM: pair.privateKeyPEM
            )
        }
    }

    @Test("A host name that would add another extension is refused")
    func hosts() throws {
        let authority = try CertificateAuthority.make(commonName: "Test CA")
        for hosts in [[], [""], ["a,DNS:evil"], ["a\nb"]] {
            #expect(throws: CryptographyError.self) { try authority.issue(hosts: hosts) }
        }
    }
}
