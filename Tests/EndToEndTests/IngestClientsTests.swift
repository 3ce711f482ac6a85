import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The vendors' packages are unchanged except for their address. Each scenario has an app of
    /// its own and reports the objects that it has sent; exactly these are in Postgres afterwards,
    /// once.
    @Suite(
        "Clients of Segment, RudderStack and CloudEvents deliver every object",
        .runningIngest,
        .serialized,
        needsBroker,
        .timeLimit(.minutes(10))
    )
    struct IngestClientsTests {
        private static let hasPython = TestEnvironment.value("CARILLON_PYTHON_INGEST") != nil

        @Test(
            "Packages of PyPI deliver every object",
            .enabled(if: hasPython, "CARILLON_PYTHON_INGEST is not set"),
            arguments: [
                "segment", "segment, by its module", "rudder", "cloudevents",
                "cloudevents, as it was",
            ]
        )
        func python(scenario: String) async throws {
            let bench = try await IngestBench()
            try await playPython(scenario, bench)
        }

        @Test(
            "Packages of npm deliver every object",
            .enabled(if: TestEnvironment.nodeClients != nil, "NODE_CLIENTS is not set"),
            arguments: [
                "@segment/analytics-node", "@segment/analytics-next",
                "@rudderstack/rudder-sdk-node", "cloudevents",
            ]
        )
        func javascript(scenario: String) async throws {
            let bench = try await IngestBench()
            let answer = try await run(
                "node",
                [scriptFile("JavaScript/ingest.mjs"), scenario],
                environment: environment(bench).merging([
                    "NODE_CLIENTS": try #require(TestEnvironment.nodeClients)
                ]) { $1 }
            )
            try await check(answer, scenario, bench)
        }

        @Test(
            "Packages of Maven deliver every object",
            .enabled(if: TestEnvironment.javaClients != nil, "JAVA_CLIENTS is not set"),
            arguments: ["Segment", "Rudder", "CloudEventsClient"]
        )
        func java(program: String) async throws {
            let bench = try await IngestBench()
            let clients: [String: JavaClient] = ["Segment": .segment, "Rudder": .rudder]
            let client = clients[program] ?? .cloudevents
            let answer = try await runJava(
                program,
                of: client,
                client == .cloudevents ? ["HTTP"] : ["calls"],
                environment: environment(bench)
            )
            try await check(answer, program, bench)
        }

        @Test(
            "Go modules deliver every object",
            .enabled(if: TestEnvironment.goPrograms != nil, "GO_CLIENTS is not set"),
            arguments: ["segment", "rudder", "cloudevents"]
        )
        func go(program: String) async throws {
            let bench = try await IngestBench()
            let scenario = program == "cloudevents" ? "HTTP" : "calls"
            let answer = try await runGo(program, scenario, environment(bench))
            try await check(answer, program, bench)
        }

        /// It lasts as long as `CARILLON_LIMITED_SECONDS` says: the quota is used up at once, and
        /// the excess takes that long.
        @Test(
            "Segment's client gets 429 beyond its quota and delivers everything later",
            .enabled(if: hasPython, "CARILLON_PYTHON_INGEST is not set")
        )
        func limited() async throws {
            let bench = try await IngestBench()
            let seconds = TestEnvironment.value("CARILLON_LIMITED_SECONDS").flatMap(Int.init) ?? 5
            let quota = 3000
            try await bench.stack.carillon(
                "app",
                "set",
                bench.app.id,
                "ingest-objects-per-minute=\(quota)"
            )
            let before = try await bench.count("ingest_requests_limited_total")
            try await playPython(
                "segment, limited",
                bench,
                [
                    "LIMITED_SECONDS": String(seconds),
                    "LIMITED_COUNT": String(quota + quota / 60 * seconds),
                ]
            )
            let limited = try await bench.count("ingest_requests_limited_total") - before
            #expect(limited > 0)
            print("segment-analytics-python: \(limited) times 429 within \(seconds) s")
        }

        private func environment(_ bench: IngestBench) -> [String: String] {
            [
                "INGEST_URL": bench.service.url, "APP_ID": bench.app.id,
                "APP_KEY": bench.app.appKey, "PYTHONDONTWRITEBYTECODE": "1",
            ]
        }

        private func playPython(
            _ scenario: String,
            _ bench: IngestBench,
            _ extra: [String: String] = [:]
        ) async throws {
            let answer = try await run(
                try #require(TestEnvironment.value("CARILLON_PYTHON_INGEST")),
                [scriptFile("ingest_client.py"), scenario],
                environment: environment(bench).merging(extra) { $1 }
            )
            try await check(answer, scenario, bench)
        }

        /// Compares the reported objects with the stored ones; `*` is an unknown id, of an object
        /// with any.
        private func check(
            _ answer: ProgramAnswer,
            _ scenario: String,
            _ bench: IngestBench
        ) async throws {
            try answer.expectChecks(scenario)
            let lines = answer.output.split(separator: "\n")
            var sent: [String: [String]] = [:]
            for line in lines where line.hasPrefix("sent ") {
                let words = line.split(separator: " ").map(String.init)
                sent[words[1], default: []].append(words[2])
            }
            #expect(!sent.isEmpty)
            for (type, ids) in sent {
                let rows = try await bench.rows(type, count: ids.count)
                let known = Set(ids)
                #expect(rows.count == ids.count, "\(scenario): \(type)")
                #expect(
                    rows.filter(known.contains) == ids.filter { $0 != "*" }.sorted(),
                    "\(scenario): \(type)"
                )
            }
            // An expected refusal is not a dead letter, and nothing else is one.
            let letters = try await bench.stack.kafka
                .records(on: bench.stack.topic("push.dead-letters"))
                .filter { $0.header("app") == bench.app.id }
            #expect(letters.isEmpty, "\(letters.prefix(3).map(\.value))")
        }
    }
}
