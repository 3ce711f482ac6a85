import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// A broker that accepts connections and answers nothing, as behind a network that drops
    /// packets.
    @Suite("A broker that hangs", .serialized, .timeLimit(.minutes(2)))
    struct HungBrokerTests {
        /// Runs the body with a mock broker of its own, which only the body stops.
        static func withBroker(
            _ body: (ChildProcess, _ settings: [String: String]) async throws -> Void
        ) async throws {
            let prefix = TestEnvironment.unique("e2e-") + "."
            let folder = "/tmp/" + TestEnvironment.unique("carillon-broker-")
            defer { try? FileManager.default.removeItem(atPath: folder) }
            let broker = try await ChildProcess.start(
                Stack.executable("carillon-simulator"),
                environment: [
                    "HTTP_HOST": "127.0.0.1", "HTTP_PORT": "0", "HTTP_TLS_PORT": "0",
                    "SIMULATOR_SANDBOX_PORT": "0", "LOG_FORMAT": "json",
                    "SIMULATOR_CREDENTIALS_DIR": folder, "SIMULATOR_KAFKA": "true",
                    "KAFKA_TOPIC_PREFIX": prefix, "KAFKA_PARTITIONS": "4",
                ]
            )
            let servers = try await broker.event("mock broker")["bootstrap"]?.string ?? ""
            do {
                try await body(
                    broker,
                    ["KAFKA_BOOTSTRAP_SERVERS": servers, "KAFKA_TOPIC_PREFIX": prefix]
                )
            } catch {
                broker.signal(SIGKILL)
                throw error
            }
            broker.signal(SIGKILL)
        }

        @Test("SIGTERM of every service ends with 0 within SHUTDOWN_GRACE, with work in flight")
        func stops() async throws {
            try await Self.withBroker { broker, settings in
                let settings = settings.merging(["SHUTDOWN_GRACE": "12s"]) { $1 }
                try await Stack.with(settings) { stack in
                    let app = try await stack.makeApp()
                    try await stack.simulator.setRules([
                        ["provider": "apns", "delayMs": [1500, 1500]]
                    ])
                    let services = try await [
                        stack.start("carillon-dispatcher"), stack.start("carillon-registration"),
                        stack.start("carillon-config-watcher"),
                        stack.start("carillon-secure-payload"), stack.start("carillon-ingest"),
                    ]
                    let records = (0..<50).map { number -> (key: String, value: String) in
                        let request: JSONValue = [
                            "id": .string("e\(number)"), "app": .string(app.id),
                            "tokens": [
                                [
                                    "platform": "apns", "token": .string(makeAPNsToken()),
                                    "environment": "production",
                                ]
                            ],
                            "topic": .string(app.bundleID), "data": ["alert": "One of many"],
                        ]
                        return ("e\(number)", request.text)
                    }
                    try await stack.kafka.produce(records, to: stack.topic("push.requests"))
                    _ = try await eventually("requests are at the provider") {
                        try await stack.simulator.count("apns", status: 200) > 0 ? true : nil
                    }
                    broker.signal(SIGSTOP)
                    // It is accepted, and is only in the outbox.
                    let push = try await http(
                        "POST",
                        services[1].url + "/1.1/push",
                        headers: app.masterHeaders,
                        body: ["channels": ["news"], "data": ["alert": "Later"]]
                    )
                    #expect(push.status == 200, "\(push.text)")
                    for service in services { service.process.signal(SIGTERM) }
                    for service in services {
                        let exit = await service.process.exit()
                        #expect(exit == .status(0), "\(service.process.finalBytes)")
                    }
                    let rows = try await stack.database.query(
                        "select (select count(*) from outbox where kafka_topic like '%push.requests'), count(*)"
                            + " from deliveries where state = 0 and owner is not null"
                    )
                    #expect(rows == ["1|0"], "the push waits in the outbox; no delivery is claimed")
                }
            }
        }
    }
}
