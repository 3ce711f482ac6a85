import Cryptography
import HTTPServer
import JSON
import PushCore
import Support
import Testing

@testable import PushProviders

@Suite("MPNS client", .timeLimit(.minutes(1))) struct MPNSClients {
    private let key = ProviderClients.Key(app: "shop", provider: .mpns)

    @Test("A toast goes to the entire channel URI over HTTP/1.1")
    func send() async throws {
        try await Bench.run { request in
            HTTPServerResponse(
                status: 200,
                headers: [
                    "X-NotificationStatus": "Received",
                    "X-MessageID": request.header("x-messageid") ?? "",
                ]
            )
        } _: { bench in
            let batch = try deliveries(
                .mpns,
                (0..<5).map { "\(bench.server.origin)/mpns/\($0)?token=a%2Bb" }
            )
            let answers = try await bench.send(key, [:], batch)
            #expect(answers.allSatisfy { $0.outcome == .accepted })
            #expect(Set(answers.map(\.providerMessageID)) == Set(batch.map(\.notificationID)))
            let sent = try #require(bench.server.received.first)
            #expect(sent.protocolVersion == .http11)
            #expect(sent.rawTarget.hasSuffix("?token=a%2Bb"))
            #expect(sent.header("x-windowsphone-target") == "toast")
            #expect(sent.header("x-notificationclass") == "2")
            #expect(sent.header("content-length") == "\(sent.body.count)")
        }
    }

    @Test("A channel that asks for a pause is tried once an hour, whatever is pushed")
    func leftAlone() async throws {
        try await Bench.run { _ in
            HTTPServerResponse(status: 412, headers: ["X-NotificationStatus": "Dropped"])
        } _: { bench in
            let batch = try deliveries(.mpns, ["\(bench.server.origin)/mpns/1"])
            for _ in 0..<3 {
                let answer = try await bench.send(key, [:], batch)[0]
                guard case .throttled(let wait?) = answer.outcome else {
                    Issue.record("\(answer.outcome)")
                    return
                }
                #expect(wait > .seconds(3000))
            }
            #expect(bench.server.received.count == 1)
        }
    }

    @Test("A channel on another host is never called")
    func channelHosts() async throws {
        try await Bench.run { _ in
            .empty(200)
        } _: { bench in
            let batch = try deliveries(
                .mpns,
                [
                    "http://evil.example/mpns/1", "\(bench.server.origin)/other",
                    "http://169.254.169.254/mpns/", "nonsense",
                ]
            )
            let answers = try await bench.send(key, [:], batch)
            #expect(answers.allSatisfy { $0.outcome == .rejected })
            #expect(bench.server.received.isEmpty)
        }
    }

    @Test("An app's certificate authenticates only that app")
    func certificate() async throws {
        let authority = try CertificateAuthority.make(commonName: "phones")
        let issued = try authority.issue(hosts: ["push.example.com"], client: true)
        let credential = try MPNSCredential(
            validatingCertificate: issued.certificatePEM,
            privateKey: issued.privateKeyPEM
        )
        #expect(try MPNSCredential(secret: credential.secret).summary == credential.summary)
        #expect(credential.summary["privateKey"] == nil)
        #expect(throws: CredentialError.self) {
            try MPNSCredential(validatingCertificate: "x", privateKey: issued.privateKeyPEM)
        }
        try await Bench.run(requestsClientCertificate: true) { request in
            .empty(request.clientCertificateSubject == nil ? 401 : 200)
        } _: { bench in
            let batch = try deliveries(.mpns, ["\(bench.server.origin)/mpns/1"])
            let proven = try await bench.send(key, credential.secret, batch)
            #expect(proven.map(\.outcome) == [.accepted])
            let other = ProviderClients.Key(app: "other", provider: .mpns)
            let unproven = try await bench.send(other, [:], batch)
            #expect(unproven.map(\.outcome) == [.misconfigured])
        }
    }
}
