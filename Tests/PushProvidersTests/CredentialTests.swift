import Cryptography
import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

@Suite("Validation of credentials before they are stored", .timeLimit(.minutes(1)))
struct Credentials {
    private static func field(_ body: () throws -> Void) -> String? {
        do {
            try body()
            return nil
        } catch {
            return (error as? CredentialError)?.field ?? "\(error)"
        }
    }

    @Test("An APNs key error names the field, and the sealed form is read back")
    func apnsKey() throws {
        let pem = try SigningKey.generateP256().privateKeyPEM()
        let rsa = try SigningKey.generateRSA(bits: 2048).privateKeyPEM()
        let cases: [(String, String, String, String, String?)] = [
            (pem, "ABC123DEFG", "TEAM123456", "com.example", nil),
            ("nonsense", "ABC123DEFG", "TEAM123456", "com.example", "key"),
            (rsa, "ABC123DEFG", "TEAM123456", "com.example", "key"),
            (pem, "ABC123DEF", "TEAM123456", "com.example", "keyID"),
            (pem, "ABC123DEF!", "TEAM123456", "com.example", "keyID"),
            (pem, "ABC123DEFG", "TEAM1234567", "com.example", "teamID"),
            (pem, "ABC123DEFG", "TEAM123456", "", "topic"),
            (pem, "ABC123DEFG", "TEAM123456", "com example", "topic"),
        ]
        for (key, keyID, teamID, topic, wrong) in cases {
            let field = Self.field {
                _ = try APNsCredential(
                    validatingKey: key,
                    keyID: keyID,
                    teamID: teamID,
                    topic: topic
                )
            }
            #expect(field == wrong)
        }
        let credential = try APNsCredential(
            validatingKey: pem,
            keyID: "ABC123DEFG",
            teamID: "TEAM123456",
            topic: "com.example"
        )
        let again = try APNsCredential(secret: credential.secret)
        #expect(again.secret == credential.secret)
        #expect(
            credential.summary == [
                "method": "token", "keyID": "ABC123DEFG", "teamID": "TEAM123456",
                "topic": "com.example",
            ]
        )
    }

    @Test("An APNs certificate must match its key and its topic")
    func apnsCertificate() throws {
        let authority = try CertificateAuthority.make(commonName: "test")
        let pair = try authority.issue(hosts: ["push"], client: true, userID: "com.example")
        let other = try authority.issue(hosts: ["other"], client: true)
        func make(_ key: String, _ topic: String) throws -> APNsCredential {
            try APNsCredential(
                validatingCertificate: pair.certificatePEM,
                privateKey: key,
                topic: topic
            )
        }
        #expect(
            Self.field { _ = try make(other.privateKeyPEM, "com.example") } == "certificate"
        )
        #expect(Self.field { _ = try make(pair.privateKeyPEM, "com.other") } == "topic")
        let credential = try make(pair.privateKeyPEM, "com.example")
        #expect(credential.summary["method"] == "certificate")
        #expect(credential.summary["privateKey"] == nil)
        let again = try APNsCredential(secret: credential.secret)
        #expect(again.clientCertificate?.privateKeyPEM == pair.privateKeyPEM)
    }

    @Test("A service account must have every required field")
    func fcm() throws {
        let rsa = try SigningKey.generateRSA(bits: 2048).privateKeyPEM()
        let p256 = try SigningKey.generateP256().privateKeyPEM()
        let account: JSONObject = [
            "type": "service_account", "project_id": "demo-1", "private_key_id": "k1",
            "private_key": .string(rsa), "client_email": "push@demo-1.iam.gserviceaccount.com",
            "client_id": "1", "token_uri": "https://oauth2.googleapis.com/token",
        ]
        let hosts = ["oauth2.googleapis.com"]
        func wrong(_ field: String, _ value: JSONValue?) -> String? {
            var changed = account
            changed[field] = value
            return Self.field {
                _ = try FCMCredential(validating: changed, tokenHosts: hosts)
            }
        }
        for field in ["type", "project_id", "private_key", "client_email", "token_uri"] {
            #expect(wrong(field, nil) == field)
            #expect(wrong(field, 7) == field)
        }
        #expect(wrong("type", "authorized_user") == "type")
        #expect(wrong("project_id", "a/b") == "project_id")
        #expect(wrong("private_key", .string(p256)) == "private_key")
        #expect(wrong("client_email", "nobody") == "client_email")
        for uri in [
            "http://oauth2.googleapis.com/token", "https://evil.example/token",
            "https://oauth2.googleapis.com.evil.example/token", "https://oauth2.googleapis.com:1/",
        ] {
            #expect(wrong("token_uri", .string(uri)) == "token_uri")
        }
        let credential = try FCMCredential(validating: account, tokenHosts: hosts)
        #expect(credential.secret["client_id"] == nil)
        #expect(credential.summary["private_key"] == nil)
        let again = try FCMCredential(secret: credential.secret, tokenHosts: hosts)
        #expect(again.secret == credential.secret)
        // A simulator's address is allowed if named exactly.
        var local = account
        local["token_uri"] = "https://localhost:8443/token"
        _ = try FCMCredential(validating: local, tokenHosts: hosts + ["localhost:8443"])
    }

    @Test("The grant has the form that Google requires")
    func grant() throws {
        let key = try SigningKey.generateRSA(bits: 2048)
        let credential = try FCMCredential(
            validating: [
                "type": "service_account", "project_id": "p", "private_key_id": "k1",
                "private_key": .string(try key.privateKeyPEM()), "client_email": "a@b",
                "token_uri": "https://oauth2.googleapis.com/token",
            ],
            tokenHosts: ["oauth2.googleapis.com"]
        )
        let request = try credential.tokenRequest(
            at: Instant(seconds: 1000),
            timeout: .seconds(1)
        )
        #expect(request.url == "https://oauth2.googleapis.com/token")
        let body = String(decoding: request.body, as: UTF8.self)
        let start = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion="
        #expect(body.hasPrefix(start))
        let (header, claims) = try JWT.verify(String(body.dropFirst(start.count))) { _ in
            key.verifyingKey
        }
        #expect(header["kid"] == "k1" && header["alg"] == "RS256")
        #expect(
            claims == [
                "iss": "a@b", "scope": "https://www.googleapis.com/auth/firebase.messaging",
                "aud": "https://oauth2.googleapis.com/token", "iat": 1000, "exp": 4600,
            ]
        )
    }

    @Test("Both of WNS' token flows are valid")
    func wns() throws {
        let sid = "ms-app://s-1-15-2-1"
        let store = try WNSCredential(validatingClientID: sid, clientSecret: "s&=")
        let request = store.tokenRequest(ProviderConfiguration())
        #expect(request.url == "https://login.live.com/accesstoken.srf")
        #expect(
            String(decoding: request.body, as: UTF8.self)
                == "grant_type=client_credentials&client_id=ms-app%3A%2F%2Fs-1-15-2-1"
                + "&client_secret=s%26%3D&scope=notify.windows.com"
        )
        let entra = try WNSCredential(
            validatingClientID: "app",
            clientSecret: "s",
            tenant: "contoso.example"
        )
        let other = entra.tokenRequest(ProviderConfiguration())
        #expect(
            other.url == "https://login.microsoftonline.com/contoso.example/oauth2/v2.0/token"
        )
        #expect(
            String(decoding: other.body, as: UTF8.self).hasSuffix(
                "&scope=https%3A%2F%2Fwns.windows.com%2F.default"
            )
        )
        #expect(try WNSCredential(secret: entra.secret).secret == entra.secret)
        #expect(entra.summary == ["clientID": "app", "tenant": "contoso.example"])
        for (id, secret, tenant, field) in [
            ("", "s", nil, "clientID"), ("a b", "s", nil, "clientID"),
            ("a", "", nil, "clientSecret"),
            ("a", "s\n", nil, "clientSecret"), ("a", "s", "../x", "tenant"),
            ("a", "s", "", "tenant"),
        ] as [(String, String, String?, String)] {
            let found = Self.field {
                _ = try WNSCredential(validatingClientID: id, clientSecret: secret, tenant: tenant)
            }
            #expect(found == field)
        }
    }

    @Test("An error names the field and never its value")
    func errors() {
        do {
            _ = try WNSCredential(validatingClientID: "a", clientSecret: "hunter2\n")
            Issue.record("taken")
        } catch {
            #expect(error.description == "clientSecret: must be a line of printable characters")
        }
    }

    @Test("An invalid setting is named")
    func settings() throws {
        try ProviderConfiguration().validate()
        var configuration = ProviderConfiguration()
        configuration.apnsSandboxURL = "http://localhost:1"
        #expect(throws: ProviderConfiguration.InvalidSetting.self) { try configuration.validate() }
        configuration.apnsSandboxURL = "https://localhost:8444/"
        try configuration.validate()
        for (change, variable) in [
            ({ $0.fcmURL = "https://fcm.googleapis.com/v1" }, "FCM_URL"),
            ({ $0.wnsLiveTokenURL = "https://" }, "WNS_LIVE_TOKEN_URL"),
            ({ $0.fcmTokenHosts = ["https://x"] }, "FCM_TOKEN_HOSTS"),
            ({ $0.wnsChannelHosts = ["a:b"] }, "WNS_CHANNEL_HOSTS"),
        ] as [((inout ProviderConfiguration) -> Void, String)] {
            var changed = configuration
            change(&changed)
            do {
                try changed.validate()
                Issue.record("taken: \(variable)")
            } catch {
                #expect(error.variable == variable)
            }
        }
    }
}
