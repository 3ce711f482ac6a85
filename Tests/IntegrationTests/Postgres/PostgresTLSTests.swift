import Cryptography
import EventLoop
import Foundation
import Postgres
import Support
import Testing

/// The pool follows the TLS settings of the URI, against a server with a certificate of its own.
@Suite(
    .enabled(if: PrivatePostgres.programs != nil, "no Postgres under /usr/lib/postgresql"),
    .timeLimit(.minutes(2))
)
struct PostgresTLSTests {
    private let authority: CertificateAuthority
    private let stranger: CertificateAuthority

    init() throws {
        authority = try CertificateAuthority.make(commonName: "the database's CA")
        stranger = try CertificateAuthority.make(commonName: "somebody else's CA")
    }

    @Test("require and verify-full use TLS 1.3, and verify-full checks the CA of sslrootcert")
    func accepted() async throws {
        let certificate = try authority.issue()
        try await withServer(certificate) { server, folder in
            let root = try folder.write(authority.certificatePEM, as: "root.crt")
            // In libpq `require` with a root certificate checks the chain; this is without one.
            for parameters in [
                "sslmode=require&sslrootcert=\(folder.path)/absent.crt",
                "sslmode=verify-ca&sslrootcert=\(root)",
                "sslmode=verify-full&sslrootcert=\(root)",
            ] {
                try await withPool(server.url(parameters)) { pool in
                    let rows = try await pool.execute(
                        "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
                    )
                    #expect(try rows[0].boolean(0), "\(parameters)")
                    #expect(try rows[0].text(1) == "TLSv1.3", "\(parameters)")
                    #expect(pool.notReadyReason() == nil)
                }
            }
            try await withPool(server.url("sslmode=disable")) { pool in
                let rows = try await pool.execute(
                    "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
                )
                #expect(try !rows[0].boolean(0))
            }
        }
    }

    /// The errors are retryable: a corrected certificate or file ends them without a restart.
    @Test("A wrong CA or a missing CA file is refused, and the error says so without the password")
    func wrongAuthority() async throws {
        let certificate = try authority.issue()
        try await withServer(certificate) { server, folder in
            let root = try folder.write(stranger.certificatePEM, as: "root.crt")
            try await expectRefusal(
                of: server,
                "sslmode=verify-full&sslrootcert=\(root)",
                "the server's certificate is not trusted"
            )
            try await expectRefusal(
                of: server,
                "sslmode=verify-full&sslrootcert=\(folder.path)/absent.crt",
                "the file of sslrootcert cannot be read"
            )
        }
    }

    @Test("A certificate for another host passes verify-ca and is refused by verify-full")
    func wrongHost() async throws {
        let certificate = try authority.issue(hosts: ["database.example"])
        try await withServer(certificate) { server, folder in
            let root = try folder.write(authority.certificatePEM, as: "root.crt")
            try await withPool(server.url("sslmode=verify-ca&sslrootcert=\(root)")) { pool in
                _ = try await pool.execute("SELECT 1")
            }
            try await expectRefusal(
                of: server,
                "sslmode=verify-full&sslrootcert=\(root)",
                "the server's certificate is for another host"
            )
        }
    }

    @Test("A server without TLS is refused by require")
    func noTLS() async throws {
        try await withServer(nil) { server, folder in
            try await expectRefusal(
                of: server,
                "sslmode=require&sslrootcert=\(folder.path)/absent.crt",
                "the server has no TLS"
            )
        }
    }

    /// Expects the reason in the caller's error and in the readiness, and the password in neither.
    private func expectRefusal(
        of server: PrivatePostgres,
        _ parameters: String,
        _ meaning: String,
        _ location: SourceLocation = #_sourceLocation
    ) async throws {
        try await withPool(server.url(parameters), acquireTimeout: .milliseconds(500)) { pool in
            // The first attempt may still be in flight when the first request has timed out.
            let reason = try await eventually("the reason says: \(meaning)") {
                _ = try? await pool.execute("SELECT 1")
                return pool.notReadyReason().flatMap { $0.contains(meaning) ? $0 : nil }
            }
            #expect(!reason.contains(server.password), sourceLocation: location)
            let error = await #expect(throws: PostgresError.self, sourceLocation: location) {
                _ = try await pool.execute("SELECT 1")
            }
            #expect(error?.kind == .unavailable, sourceLocation: location)
            #expect(error?.isRetryable == true, sourceLocation: location)
            #expect(error?.description.contains(meaning) == true, sourceLocation: location)
            #expect(
                error?.debugDescription.contains(server.password) == false,
                sourceLocation: location
            )
        }
    }
}

/// The folder of the certificates that a test's clients trust.
private struct CertificateFolder {
    let path: String

    func write(_ text: String, as name: String) throws -> String {
        try text.write(toFile: "\(path)/\(name)", atomically: false, encoding: .utf8)
        return "\(path)/\(name)"
    }
}

private func withServer(
    _ certificate: PrivatePostgres.Certificate?,
    _ body: (PrivatePostgres, CertificateFolder) async throws -> Void
) async throws {
    let folder = CertificateFolder(path: "/tmp/" + TestEnvironment.unique("carillon-tls-"))
    try FileManager.default.createDirectory(
        atPath: folder.path,
        withIntermediateDirectories: false
    )
    defer { try? FileManager.default.removeItem(atPath: folder.path) }
    let server = try await PrivatePostgres.start(certificate: certificate)
    let result: Result<Void, any Error>
    do {
        result = .success(try await body(server, folder))
    } catch {
        result = .failure(error)
    }
    await server.remove()
    try result.get()
}

private func withPool(
    _ url: String,
    acquireTimeout: Duration = .seconds(20),
    _ body: (PostgresPool) async throws -> Void
) async throws {
    let loop = try EventLoop(name: "tls")
    let pool = PostgresPool(
        PostgresConfiguration(uri: url, acquireTimeout: acquireTimeout),
        on: loop
    )
    let result: Result<Void, any Error>
    do {
        result = .success(try await body(pool))
    } catch {
        result = .failure(error)
    }
    await pool.close()
    await loop.stop()
    try result.get()
}
