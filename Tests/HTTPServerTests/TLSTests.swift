import Cryptography
import EventLoop
import Foundation
import HTTPTransport
import Observability
import Support
import Testing

@testable import HTTPServer

/// These tests use libcurl, so that another implementation of TLS and HTTP/2 checks ours.
@Suite(.timeLimit(.minutes(1)))
struct TLSTests {
    private struct Client {
        let folder: TemporaryFolder
        let authority: CertificateAuthority

        init() throws {
            folder = try TemporaryFolder()
            authority = try CertificateAuthority.make(commonName: "Test CA")
            try folder.write(authority.certificatePEM, "ca.pem")
        }

        func call(
            _ port: Int,
            _ path: String,
            _ version: HTTPTransportConfiguration.VersionPolicy,
            method: String = "GET",
            body: [UInt8] = [],
            certificate: HTTPTransportConfiguration.ClientCertificate? = nil
        ) async throws -> HTTPResponse {
            let origin = "https://localhost:\(port)"
            let loop = try EventLoop(name: "client")
            let client = try HTTPClient(
                HTTPTransportConfiguration(
                    allowedHosts: try HostPolicy(origin: origin),
                    version: version,
                    clientCertificate: certificate,
                    caFile: folder.path("ca.pem"),
                    maximumResponseBytes: 4 << 20
                ),
                on: loop
            )
            let result: Result<HTTPResponse, HTTPTransportError>
            do throws(HTTPTransportError) {
                result = .success(
                    try await client.call(
                        HTTPRequest(method: method, url: origin + path, body: body)
                    )
                )
            } catch {
                result = .failure(error)
            }
            await withCheckedContinuation { continuation in
                loop.execute {
                    client.close()
                    continuation.resume()
                }
            }
            await loop.stop()
            return try result.get()
        }

        func configure(_ configuration: inout HTTPServerConfiguration) throws {
            let leaf = try authority.issue(hosts: ["localhost", "127.0.0.1"])
            configuration.tls = HTTPServerConfiguration.TLS(
                port: 0,
                certificate: .pem(
                    certificate: leaf.certificatePEM,
                    privateKey: leaf.privateKeyPEM
                ),
                requestsClientCertificate: true
            )
        }
    }

    @Test(arguments: [
        (HTTPTransportConfiguration.VersionPolicy.http2Required, "https HTTP/2 nobody"),
        (.http1Only, "https HTTP/1.1 nobody"),
    ])
    func onePortSpeaksWhatALPNChose(
        _ version: HTTPTransportConfiguration.VersionPolicy,
        _ expected: String
    ) async throws {
        let client = try Client()
        try await withServer(configure: { try? client.configure(&$0) }) { server in
            let answer = try await client.call(server.tlsPort, "/who", version)
            #expect(answer.status == 200)
            #expect(String(decoding: answer.body, as: UTF8.self) == expected)
        }
    }

    @Test(arguments: [HTTPTransportConfiguration.VersionPolicy.http2Required, .http1Only])
    func largeBodiesGoBothWays(
        _ version: HTTPTransportConfiguration.VersionPolicy
    ) async throws {
        let client = try Client()
        try await withServer(configure: {
            try? client.configure(&$0)
            $0.maximumBodyBytes = 4 << 20
        }) { server in
            let body = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            let answer = try await client.call(
                server.tlsPort,
                "/echo",
                version,
                method: "POST",
                body: body
            )
            #expect(answer.body == body)
        }
    }

    @Test func aBodyBeyondTheLimitGetsItsAnswerWhileItIsSent() async throws {
        let client = try Client()
        try await withServer(configure: { try? client.configure(&$0) }) { server in
            let answer = try await client.call(
                server.tlsPort,
                "/echo",
                .http2Required,
                method: "POST",
                body: Array(repeating: 0, count: 1_500_000)
            )
            #expect(answer.status == 413)
        }
    }

    @Test func aClientCertificateIsToldWhoeverSignedIt() async throws {
        let client = try Client()
        let stranger = try CertificateAuthority.make(commonName: "Somebody else")
            .issue(hosts: ["device.example"], client: true, userID: "com.example.app")
        try await withServer(configure: { try? client.configure(&$0) }) { server in
            let answer = try await client.call(
                server.tlsPort,
                "/who",
                .http2Required,
                certificate: HTTPTransportConfiguration.ClientCertificate(
                    certificatePEM: stranger.certificatePEM,
                    privateKeyPEM: stranger.privateKeyPEM
                )
            )
            let text = String(decoding: answer.body, as: UTF8.self)
            #expect(text.hasPrefix("https HTTP/2 "))
            #expect(text.contains("CN=device.example"))
            #expect(text.contains("UID=com.example.app"))
        }
    }

    @Test func aServerOfHTTP2AloneRefusesOthers() async throws {
        let client = try Client()
        try await withServer(configure: {
            try? client.configure(&$0)
            $0.tls?.applicationProtocols = [.http2]
        }) { server in
            let answer = try await client.call(server.tlsPort, "/who", .http2Required)
            #expect(answer.status == 200)
            await #expect(throws: HTTPTransportError.self) {
                try await client.call(server.tlsPort, "/who", .http1Only)
            }
        }
    }

    /// This can happen when there are no descriptors for a moment: the files do not change again.
    @Test func filesThatCouldNotBeReadAreTriedAgain() throws {
        let folder = try TemporaryFolder()
        let pair = try CertificateAuthority.make(commonName: "Test CA").issue()
        let key = folder.path("server.key")
        let lines = Lines()
        // Writes in place, with the same time, so that the files look unchanged.
        func write(_ text: String, at seconds: Int) throws {
            let file = try #require(FileHandle(forWritingAtPath: key))
            try file.write(contentsOf: Data(text.utf8))
            try file.close()
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSince1970: Double(seconds))],
                ofItemAtPath: key
            )
        }
        try folder.write(pair.certificatePEM, "server.pem")
        try folder.write(pair.privateKeyPEM, "server.key")
        let source = try TLSContextSource(
            HTTPServerConfiguration.TLS(
                port: 0,
                certificate: .files(certificate: folder.path("server.pem"), privateKey: key)
            ),
            log: lines.log(.info)
        )
        try write(String(repeating: "x", count: pair.privateKeyPEM.utf8.count), at: 1_000_000_000)
        for _ in 0..<3 { source.reloadIfChanged() }
        #expect(lines.all.count == 1)
        #expect(lines.all.first?.contains("certificate not reloaded") == true)
        try write(pair.privateKeyPEM, at: 1_000_000_000)
        for _ in 0..<3 { source.reloadIfChanged() }
        #expect(lines.all.count == 2)
        #expect(lines.all.last?.contains("certificate reloaded") == true)
    }

    @Test func aCertificateIsTakenFromItsFilesWhenTheyChange() async throws {
        let client = try Client()
        let old = try CertificateAuthority.make(commonName: "Old CA").issue()
        let new = try client.authority.issue()
        let folder = client.folder
        try folder.write(old.certificatePEM, "server.pem")
        try folder.write(old.privateKeyPEM, "server.key")
        let lines = Lines()
        try await withServer(
            log: lines.log(.info),
            configure: {
                $0.tls = HTTPServerConfiguration.TLS(
                    port: 0,
                    certificate: .files(
                        certificate: folder.path("server.pem"),
                        privateKey: folder.path("server.key")
                    )
                )
            }
        ) { server in
            await #expect(throws: HTTPTransportError.self) {
                try await client.call(server.tlsPort, "/who", .preferHTTP2)
            }
            // A certificate without its key, as between two writes, changes nothing.
            try folder.write(new.certificatePEM, "server.pem")
            _ = try await eventually("the pair that does not fit") {
                lines.all.contains { $0.contains("certificate not reloaded") } ? true : nil
            }
            try folder.write(new.privateKeyPEM, "server.key")
            _ = try await eventually("the new pair") {
                lines.all.contains { $0.contains("certificate reloaded") } ? true : nil
            }
            let answer = try await client.call(server.tlsPort, "/who", .preferHTTP2)
            #expect(answer.status == 200)
            #expect(!lines.all.joined().contains("PRIVATE KEY"))
        }
    }

    @Test func aKeyOfAnotherCertificateStopsTheStart() throws {
        let authority = try CertificateAuthority.make(commonName: "Test CA")
        let one = try authority.issue()
        let other = try authority.issue()
        let loop: [EventLoop] = []
        #expect(throws: HTTPServerError.self) {
            try HTTPServer(
                HTTPServerConfiguration(
                    port: nil,
                    tls: HTTPServerConfiguration.TLS(
                        port: 0,
                        certificate: .pem(
                            certificate: one.certificatePEM,
                            privateKey: other.privateKeyPEM
                        )
                    )
                ),
                loops: loop
            ) { _ in Router() }
        }
    }

    @Test func garbageInsteadOfAHandshakeEndsTheConnection() async throws {
        let client = try Client()
        try await withServer(configure: { try? client.configure(&$0) }) { server in
            for garbage in ["GET / HTTP/1.1\r\n\r\n", "\u{16}\u{3}\u{1}\u{0}\u{4}abcd"] {
                let wire = try Wire(port: server.tlsPort)
                defer { wire.close() }
                try await wire.send(garbage)
                let answer = try await wire.receiveAll()
                // The peer gets an alert at most, never a response in plain text.
                #expect(answer.count <= 7 && !answer.starts(with: Array("HTTP".utf8)))
            }
            let answer = try await client.call(server.tlsPort, "/who", .preferHTTP2)
            #expect(answer.status == 200)
        }
    }
}

/// A folder that is removed after the test.
final class TemporaryFolder: Sendable {
    private let url: URL

    init() throws {
        url = FileManager.default.temporaryDirectory
            .appendingPathComponent("carillon-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(at: url) }

    func path(_ name: String) -> String { url.appendingPathComponent(name).path }

    func write(_ text: String, _ name: String) throws {
        try Data(text.utf8).write(to: url.appendingPathComponent(name))
    }
}
