import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Fairness of ingest between apps",
        .serialized,
        needsBroker,
        .timeLimit(.minutes(5))
    )
    struct IngestHostileTests {
        /// The duration of each phase; longer if `CARILLON_HOSTILE_SECONDS` says so.
        private static let seconds =
            TestEnvironment.value("CARILLON_HOSTILE_SECONDS").flatMap(Int.init) ?? 3
        /// The memory of a process apart from requests: twice that of one that has served some.
        private static let base = 128 << 20

        @Test(
            "Refused objects and compressed nesting delay no other app, with bounded memory",
            .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
        )
        func neighbour() async throws {
            try await Stack.with { stack in
                let service = try await IngestBench.start(on: stack)
                let hostile = IngestBench(stack, service, try await stack.makeApp())
                let honest = IngestBench(stack, service, try await stack.makeApp())
                for bench in [hostile, honest] {
                    try await bench.declare("WeatherSensor", IngestBench.weatherSensor)
                }
                let port = try #require(URLComponents(string: service.url)?.port)
                let answer = try await run(
                    try #require(TestEnvironment.python),
                    [
                        scriptFile("ingest_hostile.py"), String(port),
                        String(service.process.processID), hostile.app.appKey, honest.app.appKey,
                        "WeatherSensor", String(Self.seconds), "refused", "nested",
                    ]
                )
                let report = try JSONValue.parse(answer.output)
                print("ingest beside a hostile app: \(report.text)")
                #expect(answer.exit == .status(0), "\(answer.errors.prefix(2000))")
                #expect(report["failed"] == 0, "the neighbour was refused")
                for kind in ["refused", "nested"] {
                    let seen = try #require(report[kind])
                    let memory = try #require(seen["memory"]?.integer)
                    let held = try #require(seen["held"]?.integer)
                    #expect(memory <= Self.base + 2 * held, "\(kind): \(seen.text)")
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("Concurrent requests pass no more than the quota, accepted or refused")
        func quota() async throws {
            try await Stack.with { stack in
                let service = try await IngestBench.start(on: stack)
                let bench = IngestBench(stack, service, try await stack.makeApp())
                try await bench.declare("WeatherSensor", IngestBench.weatherSensor)
                try await stack.carillon(
                    "app",
                    "set",
                    bench.app.id,
                    "ingest-objects-per-minute=60"
                )
                func post(_ fields: JSONObject) async throws -> [Int] {
                    try await withThrowingTaskGroup(of: Int.self) { group in
                        for _ in 0..<64 {
                            group.addTask {
                                let objects = (0..<110).map { _ in
                                    IngestBench.reading(IngestBench.makeID(), fields)
                                }
                                return try await bench.post(
                                    "/v1/ingest/WeatherSensor",
                                    .array(objects)
                                ).status
                            }
                        }
                        return try await group.reduce(into: []) { $0.append($1) }
                    }
                }
                // None of them is valid, and one of the batches uses up the quota.
                let refused = try await post(["windSpeedInMph": "calm"])
                #expect(refused.count { $0 == 200 } == 1)
                let accepted = try await post([:])
                #expect(accepted.allSatisfy { $0 == 429 })
                #expect(try await bench.count("ingest_objects_accepted_total") == 0)
                #expect(await service.process.stop() == .status(0))
            }
        }
    }
}
