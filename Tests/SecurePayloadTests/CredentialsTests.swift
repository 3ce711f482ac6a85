import Cryptography
import HTTPServer
import Testing

@testable import SecurePayload

@Suite("Credentials of a request")
struct CredentialsTests {
    private func read(
        _ headers: HTTPHeaders,
        path app: String? = nil
    ) throws -> SecureCredentials {
        var request = try HTTPServerRequest(.get, "/api/notifications/1", headers: headers)
        if let app { request.pathParameters["app"] = app }
        return SecureCredentials(request)
    }

    private func basic(_ text: String) -> HTTPHeaders {
        ["Authorization": "Basic " + Base64.encode(Array(text.utf8))]
    }

    @Test("The app is in the path or else in the header, and two different ones are refused")
    func apps() throws {
        #expect(try read([:]).app == nil)
        #expect(try read(["X-LC-Id": "shop"]).app == "shop")
        #expect(try read([:], path: "shop").app == "shop")
        let both = try read(["X-LC-Id": "other"], path: "shop")
        #expect(both.app == "shop" && both.namesTwoApps)
        #expect(try !read(["X-LC-Id": "shop"], path: "shop").namesTwoApps)
    }

    @Test(
        "An unreadable credential is refused",
        arguments: [
            ["Authorization": "Basic"], ["Authorization": "Basic !!!!"],
            ["Authorization": "Basic YW5u"], ["Authorization": "Digest x"],
            ["Authorization": "Basic /////w=="], ["X-LC-Id": "shop", "X-LC-Sign": "x"],
            ["X-LC-Key": "key"],
        ] as [HTTPHeaders]
    )
    func malformed(headers: HTTPHeaders) throws {
        guard case .malformed = try read(headers).shown else {
            Issue.record("\(headers.fields)")
            return
        }
    }

    @Test("Two credentials are refused")
    func twice() throws {
        var headers = basic("ann:password")
        headers.add("authorization", "Bearer x")
        guard case .malformed = try read(headers).shown else {
            Issue.record("two are read")
            return
        }
    }

    @Test("A name ends at the first colon, and a secret may contain colons")
    func identities() throws {
        guard case .basic(let user, let password) = try read(basic("ann:pass:word")).shown else {
            Issue.record("no Basic")
            return
        }
        #expect(user == "ann" && password == Array("pass:word".utf8))
        guard case .nothing = try read(["X-LC-Id": "shop"]).shown else {
            Issue.record("an app's id proves nothing")
            return
        }
        guard case .bearer("a.b.c") = try read(["Authorization": "bearer a.b.c"]).shown else {
            Issue.record("no bearer")
            return
        }
    }

    @Test("A secret with the prefix of a device's secret is one, whatever follows")
    func devices() throws {
        let (secret, digest) = DeviceSecret.make()
        #expect(secret.utf8.count == 47 && secret.hasPrefix("cds_"))
        #expect(DeviceSecret.make().secret != secret)
        guard
            case .device(let installation, let found) = try read(basic("phone:\(secret)")).shown
        else {
            Issue.record("no device")
            return
        }
        #expect(installation == "phone" && found == digest && found == sha256(Array(secret.utf8)))
        guard case .device = try read(basic("phone:cds_")).shown else {
            Issue.record("no device")
            return
        }
    }

    @Test("Secrets have a length, and do not look like a device's")
    func secrets() {
        func problem(_ text: String) -> String? { IdentitySecret.problem(Array(text.utf8)) }
        #expect(problem("1234567") != nil && problem("12345678") == nil)
        #expect(problem(String(repeating: "x", count: 1024)) == nil)
        #expect(problem(String(repeating: "x", count: 1025)) != nil)
        #expect(problem("cds_12345678") != nil)
        #expect(problem(IdentitySecret.make()) == nil)
        #expect(IdentitySecret.make() != IdentitySecret.make())
        #expect(SecureIdentity.problem("") != nil && SecureIdentity.problem("a\0b") != nil)
        #expect(SecureIdentity.problem(String(repeating: "é", count: 256)) == nil)
        #expect(SecureIdentity.problem(String(repeating: "é", count: 257)) != nil)
    }
}
