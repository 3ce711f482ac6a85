import Foundation
import JSON
import Kafka
import Support
import Testing

extension EndToEndTests {
    /// The commands on pages for people run as they are, page after page in reading order, on a
    /// stack as `deploy/run` starts it. The word behind a fenced block's language says how it is
    /// tested; `deploy/check` refuses a block without one.
    @Suite("Pages for people", .timeLimit(.minutes(3)))
    struct GuideTests {
        /// Pages that create something come before those that use it.
        private static let pages = [
            "README.md", "deploy/guides/operating.md", "deploy/guides/push-request.md",
            "deploy/guides/leancloud.md", "deploy/guides/parse.md", "deploy/guides/azure.md",
            "deploy/guides/installations.md", "deploy/guides/remote-config.md",
            "deploy/guides/secure-payloads.md", "deploy/guides/push-sync.md",
            "deploy/guides/ingest.md", "deploy/guides/realm.md", "deploy/guides/connections.md",
            "deploy/guides/console.md",
            "deploy/guides/promises.md", "deploy/guides/moving-in.md",
            "deploy/guides/security.md", "deploy/guides/privacy.md", "deploy/guides/variables.md",
            "Services/README.md", "Shared/README.md",
        ]

        @Test("Every page is tested")
        func pagesAreAll() throws {
            let guides = try FileManager.default
                .contentsOfDirectory(atPath: GuidePage.root.appending(path: "deploy/guides").path)
            for guide in guides where guide.hasSuffix(".md") {
                #expect(Self.pages.contains("deploy/guides/\(guide)"))
            }
        }

        @Test(
            "Every command of the README and the guides succeeds with the output that its page shows"
        )
        func commandsRun() async throws {
            try await Self.withStack { stack, app, urls in
                var environment = stack.environment
                environment["REGISTRATION"] = urls.registration
                environment["CONFIG"] = urls.config
                environment["SECURE"] = urls.secure
                environment["INGEST"] = urls.ingest
                environment["CONNECTION"] = urls.connection
                environment["APP_KEY"] = app.appKey
                environment["MASTER_KEY"] = app.masterKey
                environment["HOME"] = stack.folder
                let bin = URL(filePath: Stack.executable("carillon")).deletingLastPathComponent()
                    .path
                environment["PATH"] = "\(bin):/usr/local/bin:/usr/bin:/bin"
                let python = TestEnvironment.value("CARILLON_PYTHON_SECURE")
                var blocks = 0
                for name in Self.pages {
                    let page = try GuidePage(name)
                    guard let script = page.script(python: python) else { continue }
                    let answer = try await run(
                        "/usr/bin/timeout",
                        ["60", "/bin/bash", "-c", "cd '\(stack.folder)'\n\(script)"],
                        environment: environment
                    )
                    #expect(
                        answer.exit == .status(0),
                        "\(name): \(answer.errors.suffix(2000))\n\(answer.output.suffix(2000))"
                    )
                    for text in page.missing(in: answer.output) {
                        Issue.record(
                            "\(name) says that it shows \"\(text)\", not:\n\(answer.output)"
                        )
                    }
                    blocks += page.runs
                }
                #expect(blocks > 8)
            }
        }

        @Test(
            "Every push request of the guides is accepted, and an outcome has the fields that they show"
        )
        func requestsAreAccepted() async throws {
            try await Self.withStack { stack, app, urls in
                let blocks = try Self.pages.flatMap { try GuidePage($0).blocks }
                let requests = blocks.filter { $0.info == "json push-request" }
                #expect(requests.count > 2)
                for block in requests {
                    let shown = try #require(try JSONValue.parse(block.text).object)
                    // Over HTTP the credentials name the app, and the service makes the id.
                    let fields =
                        shown.filter { !["app", "id", "source"].contains($0.key) }
                        .map { ($0.key, $0.value) } + [("dry_run", true)]
                    let answer = try await http(
                        "POST",
                        "\(urls.registration)/1.1/push",
                        headers: app.masterHeaders,
                        body: .object(JSONObject(fields))
                    )
                    #expect(answer.status == 200, "\(answer.text)\n\(block.text)")
                }
                let outcome = try #require(blocks.first { $0.info == "json outcome" })
                try await stack.send([
                    "id": "hello-1", "app": .string(app.id), "data": ["alert": "Hello"],
                    "tokens": [
                        [
                            "platform": "apns", "environment": "production",
                            "token": .string(String(repeating: "ab", count: 32)),
                        ]
                    ],
                ])
                let told = try #require(try await stack.outcomes(1, event: "hello-1").first?.object)
                let shown = try #require(try JSONValue.parse(outcome.text).object)
                #expect(
                    Set(told.map(\.key)).subtracting(["installationId"])
                        == Set(shown.map(\.key)).subtracting(["installationId"])
                )
            }
        }

        private struct URLs {
            let registration: String
            let config: String
            let secure: String
            let ingest: String
            let connection: String
        }

        /// The key set of an issuer: the key of RFC 7515, appendix A.3.
        private static let issuerKeys = """
            {"keys": [{"kty": "EC", "crv": "P-256", "kid": "k1", "use": "sig",
             "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
             "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}
            """

        /// Runs the body with a stack whose topics have no prefix, with the app and the files of
        /// the pages.
        private static func withStack(
            _ body: (Stack, Stack.App, URLs) async throws -> Void
        ) async throws {
            let cluster = try MockKafkaCluster()
            defer { cluster.close() }
            for topic in Stack.topics + ["ingest.WeatherSensor"] {
                try cluster.createTopic(topic, partitions: 2)
            }
            try await Stack.with([
                "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrapServers, "KAFKA_TOPIC_PREFIX": "",
            ]) { stack in
                let app = try await stack.makeApp(named: "bells")
                let files = """
                    cd '\(stack.folder)'
                    cp credentials/apns.p8 AuthKey.p8
                    cp credentials/service-account.json .
                    echo secret >secret.txt
                    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=shop -keyout key.pem -out cert.pem
                    cat >jwks.json <<JWKS
                    \(issuerKeys)
                    JWKS
                    """
                _ = try await run("/bin/bash", ["-euc", files]).successful("the pages' files")
                let connection = try await stack.start("carillon-connection")
                let registration = try await stack.start("carillon-registration")
                let dispatcher = try await stack.start("carillon-dispatcher")
                let watcher = try await ConfigBench.startWatcher(on: stack)
                let secure = try await stack.start("carillon-secure-payload")
                let ingest = try await stack.start(
                    "carillon-ingest",
                    ["KAFKA_GROUP_ID": stack.topic("ingest")]
                )
                try await body(
                    stack,
                    app,
                    URLs(
                        registration: registration.url,
                        config: watcher.url,
                        secure: secure.url,
                        ingest: ingest.url,
                        connection: connection.url
                    )
                )
                await ingest.process.stop()
                await secure.process.stop()
                await watcher.process.stop()
                await dispatcher.process.stop()
                await registration.process.stop()
                await connection.process.stop()
            }
        }
    }
}
