import Foundation
import Support
import Testing

extension EndToEndTests {
    /// What CPython 3.11's parser says now and then of code that is right, beside other threads:
    /// Schemathesis has it read the source of lambdas for its texts, and ends with an error of its own.
    private static let interpretersFault = "AST constructor recursion depth mismatch"

    /// Asks a service everything that its `/openapi.json` tells of, and more. Again where it is the
    /// interpreter that failed, and not the service.
    ///
    /// - Parameters:
    ///   - service: Its address.
    ///   - settings: Schemathesis' own file.
    ///   - user: Name and password.
    /// - Returns: What Schemathesis said.
    /// - Throws: `TestFailure` where it cannot be started.
    static func runSchemathesis(
        of service: String,
        settings: String,
        user: String
    ) async throws -> ProgramAnswer {
        let python = try #require(TestEnvironment.pythonWithSchemathesis)
        var attempts = 3
        while true {
            let answer = try await run(
                (python as NSString).deletingLastPathComponent + "/schemathesis",
                [
                    "--config-file", settings, "run", "\(service)/openapi.json", "--checks", "all",
                    "--max-examples", "20", "--seed", "7", "--workers", "2", "--no-color",
                    "--request-timeout", "30", "--suppress-health-check", "all", "--auth", user,
                ],
                environment: [
                    "PATH": "/usr/bin:/bin", "HOME": FileManager.default.temporaryDirectory.path,
                ]
            )
            attempts -= 1
            guard answer.exit != .status(0), attempts > 0,
                answer.output.contains(interpretersFault)
            else { return answer }
        }
    }
}
