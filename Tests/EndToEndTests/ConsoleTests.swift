import Foundation
import Support
import Testing

extension EndToEndTests {
    /// The scenarios are in `JavaScript/console.mjs`, and check the pages in Chromium.
    @Suite(
        "The console in a browser",
        .runningStack,
        .serialized,
        .enabled(
            if: TestEnvironment.nodeClients != nil && TestEnvironment.chromium != nil,
            "NODE_CLIENTS is not set, or there is no Chromium"
        ),
        .timeLimit(.minutes(10))
    )
    struct ConsoleTests {
        @Test("Every page is accessible, in both themes, three languages and two widths")
        func everyPage() async throws { try await play("every page") }

        @Test("A push is sent by keyboard alone, and reaches the phone")
        func keyboard() async throws { try await play("keyboard") }

        @Test("Everything works without the script; a second press sends nothing; acts are audited")
        func withoutScript() async throws { try await play("without the script") }

        @Test("A template is published, compared and rolled back; a payload is deleted and gone")
        func services() async throws {
            let stack = try RunningStack.current.stack
            let config = try await ConfigBench.startWatcher(on: stack)
            let secure = try await stack.start("carillon-secure-payload")
            let bench = try await Bench()
            let file = FileManager.default.temporaryDirectory.appending(path: "\(UUID()).json")
            defer { try? FileManager.default.removeItem(at: file) }
            try Data(#"{"parameters": {}}"#.utf8).write(to: file)
            try await stack.carillon("config", "put", bench.app.id, file.path(), "--force")
            let urls = ["CONFIG_URL": config.url, "SECURE_URL": secure.url]
            try await play("services", in: bench, urls)
            for service in [config, secure] {
                #expect(await service.process.stop() == .status(0), "\(service.process.finalBytes)")
            }
        }

        private func play(_ scenario: String) async throws {
            try await play(scenario, in: try await Bench())
        }

        private func play(
            _ scenario: String,
            in bench: Bench,
            _ others: [String: String] = [:]
        ) async throws {
            let answer = try await run(
                "node",
                [scriptFile("JavaScript/console.mjs"), scenario],
                environment: [
                    "NODE_CLIENTS": try #require(TestEnvironment.nodeClients),
                    "CHROMIUM": try #require(TestEnvironment.chromium),
                    "REGISTRATION_URL": bench.registration,
                    "SIMULATOR_URL": bench.simulator.url,
                    "APP_ID": bench.app.id, "APP_KEY": bench.app.appKey,
                    "MASTER_KEY": bench.app.masterKey, "APNS_TOPIC": bench.app.bundleID,
                ].merging(others) { own, _ in own }
            )
            try answer.expectChecks("console.mjs \(scenario)")
        }
    }
}
