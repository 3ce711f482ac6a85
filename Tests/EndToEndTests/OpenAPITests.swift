import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Our own routes and their OpenAPI description",
        .runningStack,
        .serialized,
        .enabled(
            if: TestEnvironment.pythonWithSchemathesis != nil,
            "CARILLON_PYTHON_SCHEMATHESIS is not set"
        ),
        .timeLimit(.minutes(5))
    )
    struct OpenAPITests {
        /// TRACE is not one of our methods: 501, not 405.
        private static let settings = """
            [phases.coverage]
            unexpected-methods = ["GET", "PUT", "POST", "DELETE", "PATCH"]

            """

        @Test("Schemathesis finds no violation of /openapi.json")
        func schemathesis() async throws {
            let bench = try await Bench()
            _ = try await bench.register([
                "deviceType": "android", "registrationId": "reg:1", "installationId": "device-1",
                "owner": ["__type": "Pointer", "className": "_User", "objectId": "user-1"],
            ])
            let settings = "/tmp/" + TestEnvironment.unique("schemathesis-") + ".toml"
            try Self.settings.write(toFile: settings, atomically: true, encoding: .utf8)
            defer { try? FileManager.default.removeItem(atPath: settings) }
            let answer = try await runSchemathesis(
                of: bench.registration,
                settings: settings,
                user: "\(bench.app.id):\(bench.app.masterKey)"
            )
            #expect(answer.exit == .status(0), "\(answer.output.suffix(8000))")
        }
    }
}
