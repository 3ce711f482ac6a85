import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Credentials in the console", .serialized, .timeLimit(.minutes(3)))
    struct ConsoleCredentialTests {
        private static let topic = "com.example.second"

        private static func fields(_ pem: String, _ token: String) -> [String: String] {
            [
                "token": token, "topic": topic, "keyID": "ABCDE12345", "teamID": "FGHIJ67890",
                // As a browser sends the lines of a text area.
                "key": pem.replacing("\n", with: "\r\n"),
            ]
        }

        /// A line of a PEM file that no page and no log may contain.
        private static func line(of pem: String) throws -> String {
            String(try #require(pem.split(separator: "\n").dropFirst().first))
        }

        @Test("A credential is stored, replaced and removed, and no page shows its secret again")
        func life() async throws {
            try await ConsoleFixture.run { fixture in
                let home = "\(fixture.home)/credentials"
                var admin = try await fixture.operatorBrowser("admin")
                let token = try await fixture.formToken(&admin, of: fixture.app)
                let pems = try (0..<2).map { _ in try SigningKey.generateP256().privateKeyPEM() }
                let secrets = try pems.map(Self.line)
                var pages = ""
                func post(_ path: String, _ fields: [String: String]) async throws -> Int {
                    let answer = try await admin.post(home + path, fields)
                    pages += answer.text
                    return answer.status
                }

                var wrong = Self.fields(pems[0], token)
                wrong["keyID"] = "short"
                let refused = try await admin.post(home + "/apns", wrong)
                #expect(refused.status == 422)
                #expect(refused.text.contains("value=\"\(Self.topic)\""))
                #expect(refused.text.contains("This must be 10 letters and digits."))
                pages += refused.text

                #expect(try await post("/apns", Self.fields(pems[0], token)) == 303)
                let first = try await Self.sealed(fixture)
                // Without what it replaces, nothing is replaced.
                #expect(try await post("/apns", Self.fields(pems[1], token)) == 409)
                #expect(try await Self.sealed(fixture) == first)
                let form = try await admin.get("\(home)/apns?name=\(Self.topic)").text
                pages += form
                #expect(form.contains("ABCDE12345"))
                let mark = form.firstMatch(of: #/name="replaces" value="([0-9]+)"/#)?.output.1
                var again = Self.fields(pems[1], token)
                again["replaces"] = String(try #require(mark))
                #expect(try await post("/apns", again) == 303)
                let second = try await Self.sealed(fixture)
                #expect(first != second && second.count == 1)
                #expect(secrets.allSatisfy { !"\(first)\(second)".contains($0) })

                let standard = ["token": token, "name": Self.topic]
                #expect(try await post("/apns/default", standard) == 303)
                let listed = try await fixture.carillon([
                    "credentials", "list", fixture.app.id, "--json",
                ]).successful("list")
                let own = try JSONValue.parse(listed).array?.first {
                    $0["name"]?.string == Self.topic
                }
                #expect(own?["default"] == true)
                #expect(own?["summary"]?["keyID"] == "ABCDE12345")

                pages += try await admin.get("\(home)/apns/remove?name=\(Self.topic)").text
                #expect(try await post("/apns/remove", standard) == 422)
                let confirmed = standard.merging(["confirm": Self.topic]) { $1 }
                #expect(try await post("/apns/remove", confirmed) == 303)
                #expect(try await post("/apns/remove", confirmed) == 404)
                #expect(try await Self.sealed(fixture) == [])
                pages += try await admin.get(home).text
                let audit = try await fixture.audit(
                    having: "POST /console/:app/credentials/:kind/remove",
                    "POST /console/:app/credentials/:kind/default",
                    "apns \(Self.topic)",
                    "ann@example.com"
                )
                #expect(await fixture.service.process.stop() == .status(0))
                let log = fixture.service.process.lines().joined()
                for secret in secrets {
                    #expect(!pages.contains(secret))
                    #expect(!audit.contains(secret))
                    #expect(!log.contains(secret))
                }
            }
        }

        /// The stored forms of the second topic's credential.
        private static func sealed(_ fixture: ConsoleFixture) async throws -> [String] {
            try await fixture.stack.database.query(
                """
                SELECT replace(encode(sealed, 'escape'), E'\\n', ' ') FROM credentials
                WHERE app = '\(fixture.app.id)' AND name = '\(topic)'
                """
            )
        }

        @Test("A form of each provider is checked as the command checks it, and returns no secret")
        func refused() async throws {
            try await ConsoleFixture.run { fixture in
                var admin = try await fixture.operatorBrowser("admin")
                let token = try await fixture.formToken(&admin, of: fixture.app)
                let pem = try SigningKey.generateP256().privateKeyPEM()
                let account: JSONValue = [
                    "type": "service_account", "project_id": "p", "client_email": "a@example.com",
                    "private_key": .string(pem), "token_uri": "https://evil.example/token",
                ]
                for (kind, field, fields) in [
                    ("apns", "topic", ["keyID": "ABCDE12345", "teamID": "FGHIJ67890", "key": pem]),
                    ("apns", "key", ["topic": "a.b", "key": "s3cret-text"]),
                    (
                        "apns-certificate", "certificate",
                        ["topic": "a.b", "certificate": "s3cret-text", "privateKey": pem]
                    ),
                    ("fcm", "account", ["account": "s3cret-text"]),
                    ("fcm", "account", ["account": account.text]),
                    ("wns", "clientSecret", ["clientID": "a", "clientSecret": "s3cret-text\nb"]),
                    (
                        "wns", "tenant",
                        ["clientID": "a", "clientSecret": "s3cret-text", "tenant": "/"]
                    ),
                    ("mpns", "certificate", ["certificate": "s3cret-text", "privateKey": pem]),
                ] as [(String, String, [String: String])] {
                    let answer = try await admin.post(
                        "\(fixture.home)/credentials/\(kind)",
                        fields.merging(["token": token]) { $1 }
                    )
                    #expect(answer.status == 422, "\(kind) \(fields.keys)")
                    #expect(answer.text.contains("id=\"\(field)-error\""), "\(kind) \(field)")
                    #expect(!answer.text.contains("s3cret-text"), "\(kind)")
                    #expect(!answer.text.contains(try Self.line(of: pem)), "\(kind)")
                }
                #expect(try await admin.get("\(fixture.home)/credentials/none").status == 404)
            }
        }

        @Test("Dispatchers use a credential that the console stored")
        func used() async throws {
            try await ConsoleFixture.run { fixture in
                let stack = fixture.stack
                let dispatcher = try await stack.start("carillon-dispatcher")
                let folder = try #require(stack.environment["PROVIDER_CA_FILE"])
                    .dropLast("/ca.pem".count)
                let data = try #require(FileManager.default.contents(atPath: "\(folder)/apns.json"))
                let simulator = try JSONValue.parse([UInt8](data))
                var admin = try await fixture.operatorBrowser("admin")
                let stored = try await admin.post(
                    "\(fixture.home)/credentials/apns",
                    [
                        "token": try await fixture.formToken(&admin, of: fixture.app),
                        "topic": Self.topic, "keyID": simulator["keyId"]?.string ?? "",
                        "teamID": simulator["teamId"]?.string ?? "",
                        "key": try String(contentsOfFile: "\(folder)/apns.p8", encoding: .utf8),
                    ]
                )
                #expect(stored.status == 303)
                let device = try await http(
                    "POST",
                    fixture.service.url + "/1.1/installations",
                    headers: fixture.app.clientHeaders,
                    body: [
                        "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                        "apnsTopic": .string(Self.topic),
                    ]
                )
                try await stack.send([
                    "app": .string(fixture.app.id), "id": "by-console",
                    "installations": [try #require(device.json?["objectId"])],
                    "data": ["alert": "hello"],
                ])
                #expect(try await stack.finishedPush(event: "by-console")["delivered"] == 1)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }
    }
}
