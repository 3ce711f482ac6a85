import Cryptography
import EventLoop
import Foundation
import HTTPServer
import HTTPTransport
import JSON
import Settings
import Support
import Testing

@testable import Logins

@Suite("Fetching an issuer's keys", .timeLimit(.minutes(1)))
struct JWKSSourceTests {
    private static func keySet() throws -> JSONValue {
        ["keys": [try publicJWK(try SigningKey.generateP256(), "k1")]]
    }

    /// Runs a server of this machine with these responses by path.
    private func run(
        _ body: (LocalServer, EventLoop) async throws -> Void
    ) async throws {
        let gate = Gate()
        let set = try Self.keySet()
        try await withLocalServer { request in
            switch request.path {
            case "/jwks":
                return HTTPServerResponse(
                    status: 200,
                    headers: ["Cache-Control": "public, max-age=7200"],
                    body: set.bytes
                )
            case "/moved":
                return HTTPServerResponse(status: 302, headers: ["Location": "/jwks"])
            case "/large":
                return HTTPServerResponse(
                    status: 200,
                    body: Array(repeating: UInt8(ascii: " "), count: (256 << 10) + 1)
                )
            case "/slow":
                await gate.wait()
                return HTTPServerResponse(status: 200)
            case "/none": return HTTPServerResponse.json(["keys": [["kty": "oct"]]])
            case "/text": return HTTPServerResponse(status: 200, body: Array("hello".utf8))
            case "/deep":
                return HTTPServerResponse(
                    status: 200,
                    body: Array(String(repeating: "[", count: 100_000).utf8)
                )
            default: return HTTPServerResponse(status: 404)
            }
        } _: { server, loop in
            let result: Result<Void, any Error>
            do { result = .success(try await body(server, loop)) } catch {
                result = .failure(error)
            }
            await gate.open()
            try result.get()
        }
    }

    private func fetch(
        _ url: String,
        _ hosts: HostPolicy,
        caFile: String?,
        _ loop: EventLoop
    ) async -> Result<FetchedKeys, JWKSFault> {
        let configuration = JWKSConfiguration(hosts: hosts, caFile: caFile)
        return await JWKSSource(configuration, timeout: .seconds(1), on: loop).fetch(url)
    }

    @Test("Keys are fetched over https from an allowed host, with the configured CA")
    func fetched() async throws {
        try await run { server, loop in
            let hosts = try HostPolicy(["localhost:\(server.port)"])
            let url = server.origin + "/jwks"
            let fetched = try await fetch(url, hosts, caFile: server.caFile, loop).get()
            #expect(fetched.set.keys.map(\.kid) == ["k1"] && fetched.freshFor == .seconds(7200))
            guard case .failure(.unreachable) = await fetch(url, hosts, caFile: nil, loop) else {
                Issue.record("a certificate of nobody's was trusted")
                return
            }
            #expect(server.received.count == 1)
        }
    }

    @Test("A redirect is not followed, and an invalid key set has its own error")
    func faults() async throws {
        try await run { server, loop in
            let hosts = try HostPolicy(["localhost:\(server.port)"])
            func label(_ path: String) async -> String? {
                switch await fetch(server.origin + path, hosts, caFile: server.caFile, loop) {
                case .success: nil
                case .failure(let fault): fault.metricLabel
                }
            }
            for (path, expected) in [
                ("/moved", "redirect"), ("/large", "too_large"), ("/slow", "timeout"),
                ("/none", "no_keys"), ("/text", "no_set"), ("/deep", "no_set"), ("/", "status"),
            ] {
                #expect(await label(path) == expected)
            }
            #expect(server.received.count { $0.path == "/jwks" } == 0)
        }
    }

    @Test("A private address, or one without https, is not fetched unless its host is allowed")
    func notAllowed() async throws {
        try await run { server, loop in
            let elsewhere = server.port == 1 ? 2 : 1
            let policies = [
                HostPolicy.anyPublicAddress, try HostPolicy(["localhost"]),
                try HostPolicy([".example.com"]), try HostPolicy(["localhost:\(elsewhere)"]),
            ]
            for policy in policies {
                for host in ["localhost", "127.0.0.1", "[::1]", "0.0.0.0", "127.1"] {
                    let url = "https://\(host):\(server.port)/jwks"
                    let result = await fetch(url, policy, caFile: server.caFile, loop)
                    guard case .failure(.notAllowed) = result else {
                        Issue.record("\(url) was asked: \(result)")
                        continue
                    }
                }
            }
            let here = try HostPolicy(["localhost:\(server.port)"])
            for url in [
                "http://localhost:\(server.port)/jwks", "file:///etc/passwd", "jwks", "",
                "https://ann@localhost:\(server.port)/jwks", "ftp://localhost:\(server.port)/",
            ] {
                let result = await fetch(url, here, caFile: server.caFile, loop)
                guard case .failure(.notAllowed) = result else {
                    Issue.record("\(url) was asked: \(result)")
                    continue
                }
            }
            #expect(server.received.isEmpty)
        }
    }

    @Test("JWKS_HOSTS is parsed, and an invalid entry is refused by its name")
    func variable() throws {
        let none = try JWKSConfiguration(ConfigurationReader([:]))
        #expect(none.hosts == .anyPublicAddress)
        #expect(JWKSSource.permits("https://id.example:8443/jwks", none))
        #expect(!JWKSSource.permits("http://id.example/jwks", none))
        let some = try JWKSConfiguration(
            ConfigurationReader(["JWKS_HOSTS": ".example.com, 10.0.0.7:8443"])
        )
        #expect(JWKSSource.permits("https://id.example.com/jwks", some))
        #expect(JWKSSource.permits("https://10.0.0.7:8443/jwks", some))
        #expect(!JWKSSource.permits("http://10.0.0.7:8443/jwks", some))
        #expect(!JWKSSource.permits("https://id.example/jwks", some))
        #expect(throws: ConfigurationError.self) {
            try JWKSConfiguration(ConfigurationReader(["JWKS_HOSTS": "https://id.example"]))
        }
    }

    @Test(
        "Keys are cached as Cache-Control says, within bounds",
        arguments: [
            (nil, 3600), ("", 3600), ("public", 3600), ("max-age=600", 600), ("max-age=1", 300),
            ("max-age=0", 300), ("max-age=31536000", 86_400), ("Public, MAX-AGE = 900 ", 900),
            ("max-age=\"1200\"", 1200), ("no-store", 300), ("max-age=7200, no-cache", 300),
            ("max-age=-5", 3600), ("max-age=ten", 3600), ("max-age", 3600), ("s-maxage=900", 3600),
            ("max-age=99999999999999999999999", 86_400), ("max-age=900, max-age=1800", 900),
            (",,=,max-age=,", 3600),
        ] as [(String?, Int)]
    )
    func freshness(header: String?, seconds: Int) {
        #expect(JWKSSource.freshness(header) == .seconds(seconds))
    }
}
