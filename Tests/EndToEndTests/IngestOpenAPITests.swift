import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Ingest and its OpenAPI description",
        .runningIngest,
        .serialized,
        needsBroker,
        .timeLimit(.minutes(10))
    )
    struct IngestOpenAPITests {
        /// TRACE is not one of our methods: 501, not 405. Values generated from a schema are hardly
        /// ever an object of the type.
        private static func settings(_ bench: IngestBench) -> String {
            """
            [parameters]
            "path.type" = "WeatherSensor"
            "path.appId" = "\(bench.app.id)"

            [phases.coverage]
            unexpected-methods = ["GET", "PUT", "POST", "DELETE", "PATCH"]

            [checks.positive_data_acceptance]
            expected-statuses = ["2xx", "400", "401", "404", "405", "413", "415"]

            """
        }

        @Test(
            "Schemathesis finds no violation of /openapi.json",
            .enabled(
                if: TestEnvironment.pythonWithSchemathesis != nil,
                "CARILLON_PYTHON_SCHEMATHESIS is not set"
            )
        )
        func schemathesis() async throws {
            let bench = try await IngestBench()
            let answer = try await runSchemathesis(
                of: bench.service.url,
                settings: try bench.stack.write(Self.settings(bench), to: "schemathesis.toml"),
                user: "\(bench.app.appKey):"
            )
            #expect(answer.exit == .status(0), "\(answer.output.suffix(8000))")
        }
    }
}
