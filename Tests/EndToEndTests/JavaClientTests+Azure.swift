import Support
import Testing

extension EndToEndTests.JavaClientTests {
    /// One scenario with an app of its own; a failed check is a line of the program's errors.
    @Test(
        "Azure Notification Hubs: every call works over TLS",
        arguments: ["installations", "sends", "registrations"]
    )
    func azure(scenario: String) async throws {
        let running = try RunningStack.current
        let bench = try await Bench()
        let answer = try await runJava(
            "Azure",
            of: .azure,
            [scenario],
            environment: [
                "CERTIFICATE_AUTHORITY": try #require(running.certificateAuthority),
                "REGISTRATION_TLS_URL": try #require(running.secureAddress),
                "SIMULATOR_URL": bench.simulator.url, "CHANNEL_ORIGIN": bench.stack.origin,
                "APP_ID": bench.app.id, "MASTER_KEY": bench.app.masterKey,
            ]
        )
        try answer.expectChecks(scenario)
    }
}
