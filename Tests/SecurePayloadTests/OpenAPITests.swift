import Cryptography
import EventLoop
import Gateway
import HTTPServer
import JSON
import Logins
import Observability
import PushEvents
import SecureStorage
import ServiceShell
import Storage
import Testing

@testable import SecurePayload

@Suite("The OpenAPI description matches the routes", .timeLimit(.minutes(1)))
struct OpenAPITests {
    /// Runs `body` with a surface whose database is not used, and the service's description.
    private func withSurface(
        _ body: (SecureSurface, JSONValue) throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "openapi")
        let database = PushDatabase(
            DatabaseConfiguration(uri: "postgresql://127.0.0.1:1/none"),
            on: loop
        )
        let metrics = Metrics()
        let checks = SecretVerifier(threads: 1, metrics: metrics)
        let limits = ReaderLimits(failuresPerIdentity: 10)
        let surface = SecureSurface(
            loop: loop,
            database: database,
            authenticator: ReaderAuthenticator(
                database: database,
                logins: LoginCache(
                    database,
                    JWKSSource(JWKSConfiguration(), on: loop),
                    on: loop
                ),
                checks: checks,
                remembered: VerifiedSecretCache(),
                limits: limits,
                log: .disabled
            ),
            keys: try KeyRing("k1:" + Base64.encode([UInt8](repeating: 7, count: 32))),
            topics: KafkaTopics(),
            checks: checks,
            limits: limits,
            metrics: SecureMetrics(metrics),
            log: .disabled,
            readGrace: .seconds(60)
        )
        let result = Result {
            let document = SecureSurface.openAPI.document(
                of: surface.routes,
                withOperations: false
            )
            try body(surface, try JSONValue.parse(document))
        }
        await database.close()
        await loop.stop()
        try result.get()
    }

    @Test("Every route is described, and nothing else")
    func routes() async throws {
        try await withSurface { surface, document in
            let routes =
                ["GET \(OpenAPI.path)"]
                + surface.routes.map { route in
                    let path = route.pattern.split(separator: "/").map { segment in
                        segment.hasPrefix(":") ? "{\(segment.dropFirst())}" : String(segment)
                    }.joined(separator: "/")
                    return "\(route.method.rawValue) /\(path)"
                }
            let paths = try #require(document["paths"]?.object)
            let described = paths.flatMap { path, methods in
                (methods.object ?? [:]).keys.map { "\($0.uppercased()) \(path)" }
            }
            #expect(Set(routes) == Set(described))
            #expect(routes.count == described.count)
        }
    }

    @Test("Every reference exists, and every part of a path is a parameter")
    func references() async throws {
        try await withSurface { _, document in
            let schemas = try #require(document["components"]?["schemas"]?.object)
            let text = document.text
            for part in text.components(separatedBy: "#/components/schemas/").dropFirst() {
                let name = String(part.prefix { $0 != "\"" })
                #expect(schemas[name] != nil, "\(name)")
            }
            for (path, methods) in try #require(document["paths"]?.object) {
                let names = path.split(separator: "/").filter { $0.hasPrefix("{") }
                for (method, operation) in methods.object ?? [:] {
                    let inPath = (operation["parameters"]?.array ?? []).filter {
                        $0["in"] == "path"
                    }
                    #expect(inPath.count == names.count, "\(method) \(path)")
                }
            }
        }
    }
}

extension String {
    fileprivate func components(separatedBy mark: String) -> [Substring] {
        var parts: [Substring] = []
        var rest = self[...]
        while let found = rest.firstRange(of: mark) {
            parts.append(rest[..<found.lowerBound])
            rest = rest[found.upperBound...]
        }
        return parts + [rest]
    }
}
