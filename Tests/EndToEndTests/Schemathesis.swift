import Foundation
import Support
import Testing

extension EndToEndTests {
    /// Tests a service by its `/openapi.json`, with every check that the settings do not disable.
    ///
    /// - Parameters:
    ///   - service: Its address.
    ///   - settings: Schemathesis' own file.
    ///   - user: Name and password.
    /// - Returns: The output of Schemathesis.
    /// - Throws: `TestFailure` if it cannot be started.
    static func runSchemathesis(
        of service: String,
        settings: String,
        user: String
    ) async throws -> ProgramAnswer {
        let python = try #require(TestEnvironment.pythonWithSchemathesis)
        return try await run(
            python,
            [
                scriptFile("schemathesis_alone.py"), "--config-file", settings, "run",
                "\(service)/openapi.json", "--max-examples", "20", "--seed", "7",
                "--workers", "2", "--no-color", "--request-timeout", "30",
                "--suppress-health-check", "all", "--auth", user,
            ],
            environment: [
                "PATH": "/usr/bin:/bin", "HOME": FileManager.default.temporaryDirectory.path,
            ]
        )
    }
}
