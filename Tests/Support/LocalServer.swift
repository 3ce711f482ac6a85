package import Cryptography
package import EventLoop
import Foundation
package import HTTPServer
import Observability

/// A TLS server of this process on a free port, whose responses come from a closure, and the CA of
/// its certificate.
package final class LocalServer: Sendable {
    package let port: Int
    package let authority: CertificateAuthority
    /// The server's own, PEM.
    package let certificatePEM: String
    /// PEM, for clients that should trust it; removed by `stop`.
    package let caFile: String
    package let server: HTTPServer
    private let loop: EventLoop
    private let requests = Lock()
    nonisolated(unsafe) private var seen: [HTTPServerRequest] = []

    package var origin: String { "https://localhost:\(port)" }

    package typealias Handler = @Sendable (HTTPServerRequest) async throws -> HTTPServerResponse

    private init(
        port: Int,
        authority: CertificateAuthority,
        certificatePEM: String,
        caFile: String,
        server: HTTPServer,
        loop: EventLoop
    ) {
        self.port = port
        self.authority = authority
        self.certificatePEM = certificatePEM
        self.caFile = caFile
        self.server = server
        self.loop = loop
    }

    /// Every request so far, in order of arrival.
    package var received: [HTTPServerRequest] {
        requests.withLock { unsafe seen }
    }

    private func note(_ request: HTTPServerRequest) {
        requests.withLock { unsafe seen.append(request) }
    }

    package static func start(
        protocols: [HTTPServerConfiguration.ApplicationProtocol] = [.http2, .http11],
        maxConcurrentStreams: Int = 100,
        requestsClientCertificate: Bool = false,
        handler: @escaping Handler
    ) async throws -> LocalServer {
        let authority = try CertificateAuthority.make(commonName: "local tests")
        let issued = try authority.issue()
        let caFile =
            FileManager.default.temporaryDirectory.path
            + "/" + TestEnvironment.unique("ca-") + ".pem"
        try authority.certificatePEM.write(toFile: caFile, atomically: true, encoding: .utf8)
        let loop = try EventLoop(name: "local-server")
        var configuration = HTTPServerConfiguration(
            host: "127.0.0.1",
            port: nil,
            tls: HTTPServerConfiguration.TLS(
                port: 0,
                certificate: .pem(
                    certificate: issued.certificatePEM,
                    privateKey: issued.privateKeyPEM
                ),
                applicationProtocols: protocols,
                requestsClientCertificate: requestsClientCertificate
            )
        )
        configuration.http2.maxConcurrentStreams = maxConcurrentStreams
        let box = ServerBox()
        let server = try HTTPServer(configuration, loops: [loop]) { _ in
            var router = Router()
            for method in [HTTPMethod.get, .post, .put, .delete] {
                router.on(method, "/*rest") { request in
                    box.server?.note(request)
                    return try await handler(request)
                }
            }
            return router
        }
        let addresses = try await server.start()
        let local = LocalServer(
            port: addresses.first?.port ?? 0,
            authority: authority,
            certificatePEM: issued.certificatePEM,
            caFile: caFile,
            server: server,
            loop: loop
        )
        box.server = local
        return local
    }

    package func stop() async {
        await server.stop(within: .zero)
        await loop.stop()
        try? FileManager.default.removeItem(atPath: caFile)
    }

    /// Needed as the handler exists before the server to which it reports.
    private final class ServerBox: @unchecked Sendable {
        private let lock = Lock()
        private weak var value: LocalServer?

        var server: LocalServer? {
            get { lock.withLock { value } }
            set { lock.withLock { value = newValue } }
        }
    }
}

/// Runs `body` with a server and a loop for the client, and stops both afterwards.
package func withLocalServer(
    protocols: [HTTPServerConfiguration.ApplicationProtocol] = [.http2, .http11],
    maxConcurrentStreams: Int = 100,
    requestsClientCertificate: Bool = false,
    handler: @escaping LocalServer.Handler,
    _ body: (LocalServer, EventLoop) async throws -> Void
) async throws {
    let server = try await LocalServer.start(
        protocols: protocols,
        maxConcurrentStreams: maxConcurrentStreams,
        requestsClientCertificate: requestsClientCertificate,
        handler: handler
    )
    let loop = try EventLoop(name: "client")
    let result: Result<Void, any Error>
    do {
        try await body(server, loop)
        result = .success(())
    } catch {
        result = .failure(error)
    }
    await loop.stop()
    await server.stop()
    try result.get()
}

extension EventLoop {
    /// Runs `body` on the loop and waits for it.
    package func onLoop<Value: Sendable>(
        _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            execute { continuation.resume(with: Result { try body() }) }
        }
    }
}
