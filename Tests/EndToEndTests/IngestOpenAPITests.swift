import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Ingest and its OpenAPI description",
        .runningIngest(["LOG_LEVEL": "debug"]),
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

            # Realm's clients delete data after 401, so a wrong token is 503; and they know no 405.
            [[operations]]
            include-path-regex = "^/api/client/"
            checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "503"]
            checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "404", "426", "503"]
            checks.negative_data_rejection.expected-statuses = ["4xx", "503"]
            checks.missing_required_header.enabled = false
            checks.unsupported_method.enabled = false

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
            let bench = try await IngestBench.realm()
            let answer = try await runSchemathesis(
                of: bench.service.url,
                settings: try bench.stack.write(Self.settings(bench), to: "schemathesis.toml"),
                user: "\(bench.app.appKey):"
            )
            #expect(answer.exit == .status(0), "\(answer.output.suffix(8000))")
        }

        @Test("Every route of Realm's clients is described")
        func realmRoutes() async throws {
            let bench = try await IngestBench(declares: nil)
            let routes = RightsTable.routes(of: bench.service).filter { $0.contains("/api/client") }
            let document = try await http("GET", "\(bench.service.url)/openapi.json").json
            var described: [String] = []
            for (path, methods) in document?["paths"]?.object ?? [:]
            where path.hasPrefix("/api/client") {
                described += (methods.object ?? [:]).map { "\($0.key.uppercased()) \(path)" }
            }
            let templates = routes.map { route in
                route.replacing(/:(\w+)/) { "{\($0.output.1)}" }
            }
            #expect(Set(templates) == Set(described) && described.count == 7)
        }
    }
}
