import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// The programs are in `Go/`, one for each client. Those of ingest and of Remote Config are run
    /// by `IngestClientsTests` and `ConfigClientTests`, which have the services for them.
    @Suite(
        "The vendors' own Go clients, unchanged",
        .runningStack,
        .serialized,
        .enabled(if: TestEnvironment.goPrograms != nil, "GO_CLIENTS is not set"),
        .timeLimit(.minutes(5))
    )
    struct GoClientTests {
        @Test("Amazon Cognito Sync, by AWS' SDK: all operations, and one push for a change")
        func cognito() async throws {
            let bench = try await CognitoBench()
            let answer = try await runGo("cognito", "operations", bench.environment)
            try answer.expectChecks("cognito")
            try await bench.expectTold(answer)
        }

        @Test("CloudEvents: push requests of its Kafka binding, in both modes, are sent")
        func cloudEvents() async throws {
            let push = try await KafkaPush()
            let answer = try await runGo("cloudevents", "Kafka", push.environment)
            try answer.expectChecks("cloudevents")
            try await push.expectSent()
        }
    }
}
