import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The programs are in `JavaScript/`, a file for each package; the expectations are the
    /// behaviour of their vendors' services. Each scenario has an app of its own and compares the
    /// pushes, device by device, with the simulator's requests.
    @Suite(
        "The vendors' own JavaScript packages, unchanged",
        .runningStackWithTLS,
        .serialized,
        .enabled(if: TestEnvironment.nodeClients != nil, "NODE_CLIENTS is not set"),
        .timeLimit(.minutes(10))
    )
    struct JavaScriptClientTests {
        @Test(
            "leancloud-storage works unchanged",
            arguments: [
                "installations", "batches", "queries", "identities", "pushes", "other calls",
                "large numbers", "absent fields", "one type", "leancloud-installation",
            ]
        )
        func leancloud(scenario: String) async throws {
            try await play("leancloud.mjs", scenario)
        }

        @Test("avoscloud-sdk, LeanCloud's old package, works unchanged")
        func avoscloud() async throws {
            try await play("avoscloud.mjs", "avoscloud-sdk")
        }

        @Test(
            "parse works unchanged",
            arguments: [
                "many new installations", "topics",
                "installations", "queries", "identities", "pushes", "other calls",
                "large numbers", "absent fields", "one type",
            ]
        )
        func parse(scenario: String) async throws {
            try await play("parse.mjs", scenario)
        }

        @Test(
            "@azure/notification-hubs works unchanged",
            arguments: [
                "fcm formats", "a tag at the end",
                "installations", "patches", "formats", "sends", "templates", "schedules",
                "registrations", "other calls",
            ]
        )
        func azure(scenario: String) async throws {
            try await play("azure.mjs", scenario)
        }

        @Test(
            "Amazon Cognito Sync's packages work unchanged",
            arguments: ["@aws-sdk/client-cognito-sync", "aws-sdk", "amazon-cognito-js"]
        )
        func cognito(scenario: String) async throws {
            try await play("cognito.mjs", scenario)
        }

        /// Runs one scenario with an app of its own; a failed check is a line of its errors.
        private func play(_ file: String, _ scenario: String) async throws {
            let running = try RunningStack.current
            let bench = try await Bench()
            let secondTopic = "com.example.chimes"
            let pool = "us-east-1:\(UUID().uuidString.lowercased())"
            if file == "cognito.mjs" {
                try await bench.stack.carillon(
                    "app",
                    "link",
                    bench.app.id,
                    "--cognito-identity-pool",
                    pool
                )
            }
            if scenario == "topics" {
                try await bench.stack.setAPNsKey(of: bench.app.id, topic: secondTopic)
            }
            let answer = try await run(
                "node",
                [scriptFile("JavaScript/\(file)"), scenario],
                environment: [
                    "NODE_CLIENTS": try #require(TestEnvironment.nodeClients),
                    "NODE_EXTRA_CA_CERTS": try #require(running.certificateAuthority),
                    "REGISTRATION_URL": bench.registration,
                    "REGISTRATION_TLS_URL": try #require(running.secureAddress),
                    "SIMULATOR_URL": bench.simulator.url, "CHANNEL_ORIGIN": bench.stack.origin,
                    "APP_ID": bench.app.id, "APP_KEY": bench.app.appKey,
                    "MASTER_KEY": bench.app.masterKey, "APNS_TOPIC": bench.app.bundleID,
                    "APNS_SECOND_TOPIC": secondTopic, "POOL": pool,
                ]
            )
            try answer.expectChecks("\(file) \(scenario)")
        }
    }
}
