import Apps
import Cryptography
import HTTPServer
import JSON
import PushCore
import Storage
import Support
import Testing

@testable import Gateway

@Suite(.timeLimit(.minutes(1)))
struct LeanCloudCredentialTests {
    @Test(
        "The app key authenticates a client and the master key a master, also under the old names"
    )
    func keysProveTheirRights() throws {
        let client = try LeanCloudCredential(headers: ["X-LC-Id": "shop", "X-LC-Key": "appkey"])
        #expect(client.rights == .client)
        #expect(client.isProved(by: "appkey"))
        #expect(!client.isProved(by: "appkex"))
        #expect(!client.isProved(by: "appkey1"))
        let master = try LeanCloudCredential(
            headers: [
                "X-AVOSCloud-Application-Id": "shop",
                "X-AVOSCloud-Application-Key": "masterkey,master",
            ])
        #expect(master.rights == .master)
        #expect(master.isProved(by: "masterkey"))
        #expect(!master.isProved(by: "masterkey,master"))
    }

    @Test("A signature proves either key without sending it")
    func signaturesProveTheirKey() throws {
        let client = try LeanCloudCredential(
            headers: [
                "X-LC-Id": "shop",
                "X-LC-Sign": "54c13acf6ac04dd9585fe202a973c7cc,1700000000000",
            ])
        #expect(client.rights == .client)
        #expect(client.isProved(by: "appkey"))
        #expect(!client.isProved(by: "masterkey"))
        let master = try LeanCloudCredential(
            headers: [
                "X-LC-Id": "shop",
                "X-LC-Sign": "640409e79b290dc96eb56fd5f17814f9,1700000000000,master",
            ])
        #expect(master.rights == .master)
        #expect(master.isProved(by: "masterkey"))
    }

    @Test(
        "A missing or malformed credential is 401",
        arguments: [
            [:], ["X-LC-Id": "shop"], ["X-LC-Key": "appkey"], ["X-LC-Id": "", "X-LC-Key": "k"],
            ["X-LC-Id": "no app\0", "X-LC-Key": "k"],
            ["X-LC-Id": "shop", "X-LC-Sign": "54c13acf6ac04dd9585fe202a973c7cc"],
            ["X-LC-Id": "shop", "X-LC-Sign": "54c1,1700000000000"],
            ["X-LC-Id": "shop", "X-LC-Sign": "54c13acf6ac04dd9585fe202a973c7cc,17x"],
            ["X-LC-Id": "shop", "X-LC-Sign": "54c13acf6ac04dd9585fe202a973c7cc,17,root"],
        ]
    )
    func malformedCredentials(fields: [String: String]) {
        var headers: HTTPHeaders = [:]
        for (name, value) in fields { headers[name] = value }
        #expect(throws: Refusal.unauthorized) { try LeanCloudCredential(headers: headers) }
    }

    @Test("A signature in upper-case hex is not accepted")
    func upperCaseHexProvesNothing() throws {
        let credential = try LeanCloudCredential(
            headers: [
                "X-LC-Id": "shop",
                "X-LC-Sign": "54C13ACF6AC04DD9585FE202A973C7CC,1700000000000",
            ])
        #expect(!credential.isProved(by: "appkey"))
    }
}

@Suite("Credentials of Carillon's own routes", .timeLimit(.minutes(1)))
struct ProofTests {
    private func proof(_ headers: HTTPHeaders) throws -> Proof { try Proof(headers: headers) }

    /// Returns whether the proof is accepted by an app whose two keys are this one.
    private func shows(_ proof: Proof, _ key: String) -> Bool {
        let app = CachedApp(id: "shop", appKey: key, masterKey: key, settings: AppSettings())
        return proof.credential(for: app, minimumKeyBytes: 0) == .key
    }

    private static let linkedKey = "AIzaSyA-0123456789abcdefghijklmnopqrstu"

    private func app(_ id: String = "shop") -> CachedApp {
        CachedApp(
            id: id,
            appKey: "app key",
            masterKey: "master key",
            settings: AppSettings(),
            configTokens: [("ci", false), ("viewer", true)].map { name, isReadOnly in
                StoredConfigToken(
                    app: id,
                    name: name,
                    digest: sha256(Array("\(id) \(name)".utf8)),
                    isReadOnly: isReadOnly
                )
            },
            links: [
                AppLink(.fcmProject, "shop-1", app: id),
                AppLink(.firebaseAPIKey, Hex.encode(sha256(Array(Self.linkedKey.utf8))), app: id),
            ]
        )
    }

    @Test("A config token is found by its digest and has its owner's permissions")
    func configTokens() {
        func credential(_ token: String) -> AuthenticationMethod? {
            Proof(project: "shop-1", configToken: sha256(Array(token.utf8)))
                .credential(for: app(), minimumKeyBytes: 20)
        }
        #expect(credential("shop ci") == .configToken(name: "ci", isReadOnly: false))
        #expect(credential("shop viewer") == .configToken(name: "viewer", isReadOnly: true))
        for token in ["other ci", "", "app key", "master key", Self.linkedKey] {
            #expect(credential(token) == nil)
        }
    }

    @Test("A client key is the app key or a linked one, and a short one can be excluded")
    func clientKeys() {
        func credential(_ key: String, _ minimumKeyBytes: Int = 0) -> AuthenticationMethod? {
            Proof(project: "shop-1", clientKey: key)
                .credential(for: app(), minimumKeyBytes: minimumKeyBytes)
        }
        #expect(credential("app key") == .key && credential("app key", 20) == nil)
        #expect(credential(Self.linkedKey) == .linkedKey)
        #expect(credential(Self.linkedKey, 20) == .linkedKey)
        for key in ["", "master key", "shop ci", "shop-1"] { #expect(credential(key) == nil) }
    }

    @Test(
        "A caller that names an app in its headers gets access to that app alone, whatever the path"
    )
    func twoNames() throws {
        let headers: HTTPHeaders = ["X-LC-Id": "shop", "X-LC-Key": "master key,master"]
        let proof = try Proof(project: "shop-1", headers: headers)
        #expect(proof.rights == .master && proof.app.text == "shop-1")
        #expect(proof.credential(for: app(), minimumKeyBytes: 0) == .key)
        #expect(proof.credential(for: app("other"), minimumKeyBytes: 0) == nil)
    }

    @Test(
        "Basic has the app's id and master key, and X-LC-* is read if there is no Authorization"
    )
    func forms() throws {
        let basic = try proof(["Authorization": "basic c2hvcDphOmI=", "X-LC-Id": "other"])
        #expect(basic.app.text == "shop" && basic.rights == .master)
        #expect(shows(basic, "a:b") && !shows(basic, "a") && !shows(basic, "b"))
        let named = try proof(["X-LC-Id": "shop", "X-LC-Key": "k"])
        #expect(named.app.text == "shop" && named.rights == .client && shows(named, "k"))
    }

    @Test(
        "An unreadable credential proves nothing, whatever other credential is beside it",
        arguments: ["Bearer x", "Basic", "Basic !", "Basic c2hvcA==", ""]
    )
    func unreadable(header: String) {
        #expect(throws: Refusal.unauthorized) {
            try Proof(
                headers: ["Authorization": header, "X-LC-Id": "shop", "X-LC-Key": "k"]
            )
        }
    }
}

@Suite("The caller in the body of an unauthenticated request", .timeLimit(.minutes(1)))
struct BodyCredentialsTests {
    @Test("The caller is read from a body without parsing the rest, wherever it is")
    func credentials() throws {
        let names: [StaticString] = ["_ApplicationId", "_MasterKey"]
        func read(_ text: String) -> BodyCredentials? {
            BodyCredentials(Array(text.utf8), named: names)
        }
        let flood = JSONObject(HostileText.keys(1000).map { ($0, .null) }).text.dropLast()
        let found = try #require(
            read(flood + ",\"_MasterKey\":1,\"_Appl\\u0069cationId\":\"shop\"}")
        )
        #expect(found.text("_ApplicationId") == "shop")
        #expect(found.has("_MasterKey") && found.text("_MasterKey") == nil)
        #expect(read("{\"a\":{\"_ApplicationId\":\"shop\"}}")?.has("_ApplicationId") == false)
        #expect(
            read("{\"_ApplicationId\":\"a\",\"_ApplicationId\":\"b\"}")?.text("_ApplicationId")
                == "b"
        )
        for text in ["", "[]", "{", "{\"_ApplicationId\":\"shop\"} x"] {
            #expect(read(text) == nil)
        }
        let deep = "{\"a\":" + String(repeating: "[", count: 40)
        #expect(read(deep) == nil)
        let many = "{\"a\":[" + String(repeating: "[],", count: BodyLimits.values) + "[]]}"
        #expect(read(many) == nil)
    }
}
