import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "LeanCloud's own Python package, unchanged",
        .runningStack,
        .serialized,
        .enabled(
            if: TestEnvironment.pythonWithLeanCloud != nil,
            "CARILLON_PYTHON_LEANCLOUD is not set"
        ),
        .timeLimit(.minutes(5))
    )
    struct LeanCloudClientTests {
        @Test(
            "Every call has the same result as at LeanCloud",
            arguments: [
                "installations", "batches", "queries", "scans", "cloud-queries", "identities",
                "other-calls",
            ]
        )
        func calls(scenario: String) async throws {
            _ = try await play(scenario, for: try await Bench())
        }

        @Test("Every parameter of a push has its effect on the phones")
        func pushes() async throws {
            let bench = try await Bench()
            let result = try await play("pushes", for: bench)
            let heard = try #require(result["heard"]?.array)
            #expect(!heard.isEmpty)
            for (token, expected) in Dictionary(grouping: heard, by: { $0["token"]?.string ?? "" })
            {
                let received = try await bench.simulator.received(for: token)
                #expect(received.allSatisfy { $0.status == 200 })
                // Each push comes once, and from the intended environment.
                for item in expected {
                    let text = item["text"]?.string ?? "?"
                    let ringing = received.filter { $0.body.text.contains(text) }
                    #expect(ringing.count == 1, "\(text): \(ringing.count) times")
                    if let ring = ringing.first, ring.provider == "apns" {
                        #expect(ring.environment == item["environment"]?.string, "\(text)")
                    }
                }
                #expect(received.count == expected.count)
            }
            for token in result["silent"]?.array ?? [] {
                #expect(try await bench.simulator.received(for: token.string ?? "").isEmpty)
            }
        }

        /// Runs one scenario with the keys of the bench's app, and returns its last output.
        private func play(_ scenario: String, for bench: Bench) async throws -> JSONValue {
            let answer = try await run(
                try #require(TestEnvironment.pythonWithLeanCloud),
                [scriptFile("leancloud_client.py"), scenario],
                environment: [
                    "LC_API_SERVER": bench.registration, "APP_ID": bench.app.id,
                    "APP_KEY": bench.app.appKey, "MASTER_KEY": bench.app.masterKey,
                    "APNS_TOPIC": bench.app.bundleID, "PYTHONDONTWRITEBYTECODE": "1",
                ]
            )
            if answer.exit != .status(0) {
                Issue.record("\(scenario) ended with \(answer.exit):\n\(answer.errors)")
            }
            return try JSONValue.parse(
                answer.output.split(separator: "\n").last.map(String.init) ?? "{}"
            )
        }
    }
}

/// Returns a file beside this one.
func scriptFile(_ name: String, _ here: String = #filePath) -> String {
    URL(fileURLWithPath: here).deletingLastPathComponent().appendingPathComponent(name).path
}
