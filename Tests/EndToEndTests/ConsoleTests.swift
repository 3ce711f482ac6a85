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
        func everyPage() async throws {
            let bench = try await Bench()
            let push = try await Self.charted(in: bench)
            try await bench.stack.kafka.produce(
                headers: [
                    ("error.reason", "invalid_request"), ("error.detail", "an example"),
                    ("source.topic", bench.stack.topic("push.requests")),
                    ("source.partition", "0"), ("source.offset", "0"),
                ],
                value: Array(#"{"app":"\#(bench.app.id)","data":"no object"}"#.utf8),
                to: bench.stack.topic("push.dead-letters")
            )
            try await play("every page", in: bench, ["CHARTED_PUSH": push])
        }

        /// Stores a week of figures and reports of the app, with gaps, and of one push to a channel,
        /// and acts that the charts mark.
        ///
        /// - Returns: The push.
        private static func charted(in bench: Bench) async throws -> String {
            let (event, request) = bench.event(["nobody"])
            try await bench.stack.send(request)
            let push = try await eventually("the push is stored") {
                try await bench.stack.database.query(
                    "select id from pushes where event_id = '\(event)' and status = 'done'"
                ).first
            }
            _ = try await bench.stack.database.query(
                """
                insert into push_figures
                select '\(bench.app.id)', id, span, date_trunc('hour', now()) - n * span * '1 min'::interval,
                    provider, 1, 40000 + n, n % 7, 1, 2, n % 2, array[1, 2, 0, 5, abs(n)]
                from generate_series(-60, 168) n,
                    (values ('\(allPushes)'::uuid, 1), ('\(allPushes)', 60), ('\(push)', 1)) s(id, span),
                    unnest(array['apns', 'fcm']) provider
                where n % 10 > 2 and (n > 0 or span = 1);
                insert into push_figures
                select '\(bench.app.id)', id, span, date_trunc('hour', now()) - n * span * '1 min'::interval,
                    '', 1, 0, 0, 0, 0, 0, '{}', 900 + n, abs(n) % 90
                from generate_series(-60, 168) n,
                    (values ('\(allPushes)'::uuid, 1), ('\(allPushes)', 60), ('\(push)', 1)) s(id, span)
                where n % 10 > 2 and (n > 0 or span = 1);
                insert into audit (app, actor, action, targets, status, at)
                select '\(bench.app.id)', 'cli:mira', action, array['firebase ' || n], 0,
                    now() - n * interval '2 min'
                from generate_series(1, 25) n, unnest(array['config put', 'credentials set']) action
                """
            )
            return push
        }

        private static let allPushes = "00000000-0000-0000-0000-000000000000"

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
