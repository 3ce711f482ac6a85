import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Windows Phone's old channels",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(2))
    )
    struct WindowsPhoneTests {
        /// Registers a phone whose channel ends with `rest`; returns its id and the URI.
        private func register(
            _ bench: Bench,
            at base: String,
            _ rest: String
        ) async throws -> (id: String, path: String) {
            let path = "/mpns/\(TestEnvironment.unique("channel-"))\(rest)"
            let id = try await bench.register([
                "deviceType": "wp", "subscriptionUri": .string(base + path), "name": "A&B",
                "channels": ["Mets"],
            ])
            return (id, path)
        }

        @Test(
            "A toast reaches a phone without a credential, and an expired channel is not sent to again"
        )
        func unauthenticated() async throws {
            let bench = try await Bench()
            let plain = bench.stack.simulator.url
            let phone = try await register(bench, at: plain, "")
            let gone = try await register(bench, at: plain, "?state=expired")
            let busy = try await register(bench, at: plain, "?state=suppressed")
            let (id, event) = bench.event(["Mets"])
            var request = event.object ?? [:]
            request["data"] = ["title": "Mets", "alert": "Hi {{name}}", "wp-param": "/game?id=1"]
            try await bench.stack.send(.object(request))
            let push = try await bench.stack.finishedPush(event: id)
            #expect(push["delivered"]?.integer == 1)
            #expect(push["failed"]?.integer == 2)
            #expect(push.booksBalance)

            let received = try await bench.simulator.received(for: phone.path)
            #expect(received.map(\.status) == [200])
            let body = try #require(received.first?.body.string)
            #expect(
                body.hasSuffix(
                    "<wp:Toast><wp:Text1>Mets</wp:Text1><wp:Text2>Hi A&amp;B</wp:Text2>"
                        + "<wp:Param>/game?id=1</wp:Param></wp:Toast></wp:Notification>"
                )
            )
            #expect(try await bench.installation(gone.id)["valid"]?.bool == false)
            #expect(try await bench.installation(busy.id)["valid"]?.bool != false)
            let reasons = try await bench.stack.outcomes(3, event: id).compactMap {
                $0["reason"]?.string
            }
            #expect(reasons.contains { $0.hasPrefix("Suppressed") })
        }

        @Test("An app's certificate authenticates its channels")
        func authenticated() async throws {
            let bench = try await Bench()
            let name = "push.example.com"
            let (id, path) = try await register(bench, at: bench.stack.origin, "?owner=\(name)")
            let authority = try CertificateAuthority.make(commonName: "phones")
            let issued = try authority.issue(hosts: [name], client: true)
            let folder = FileManager.default.temporaryDirectory.path
            let files = ["certificate", "key"].map {
                "\(folder)/\(TestEnvironment.unique("mpns-"))-\($0).pem"
            }
            try issued.certificatePEM.write(toFile: files[0], atomically: true, encoding: .utf8)
            try issued.privateKeyPEM.write(toFile: files[1], atomically: true, encoding: .utf8)
            defer { for file in files { try? FileManager.default.removeItem(atPath: file) } }

            let (first, firstEvent) = bench.event(["Mets"])
            try await bench.stack.send(firstEvent)
            #expect(try await bench.stack.finishedPush(event: first)["failed"]?.integer == 1)
            #expect(try await bench.installation(id)["valid"]?.bool != false)

            try await bench.stack.carillon(
                "credentials",
                "set",
                "mpns",
                bench.app.id,
                "--certificate-file",
                files[0],
                "--private-key-file",
                files[1]
            )
            // The dispatcher learns of it by a notification, for which a test cannot wait.
            _ = try await eventually("the certificate is used") {
                let (id, event) = bench.event(["Mets"])
                try await bench.stack.send(event)
                let push = try await bench.stack.finishedPush(event: id)
                return push["delivered"]?.integer == 1 ? true : nil
            }
            let received = try await bench.simulator.received(for: path)
            #expect(received.first?.status == 401)
            #expect(received.last?.status == 200)
        }

        @Test(
            "MPNS can be switched off for an app, whose phones are then suppressed with the reason"
        )
        func switchedOff() async throws {
            let bench = try await Bench()
            let (_, path) = try await register(bench, at: bench.stack.simulator.url, "")
            try await bench.stack.carillon("app", "set", bench.app.id, "mpns=off")
            let (id, event) = bench.event(["Mets"])
            try await bench.stack.send(event)
            let push = try await bench.stack.finishedPush(event: id)
            #expect(push["suppressed"]?.integer == 1)
            #expect(try await bench.simulator.received(for: path).isEmpty)
            let outcome = try await bench.stack.outcomes(1, event: id)[0]
            #expect(outcome["reason"]?.string == "MPNS is switched off for this app")
        }
    }
}
