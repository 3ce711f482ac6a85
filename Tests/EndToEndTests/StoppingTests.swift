import Foundation
import JSON
import Kafka
import Support
import Testing

extension EndToEndTests {
    @Suite("A service that ends loses no event", .serialized)
    struct StoppingTests {
        /// Events of one device each, written to Kafka before any dispatcher runs.
        struct Load {
            let stack: Stack
            let app: Stack.App
            /// Event ids by token.
            let events: [String: String]

            init(_ count: Int, on stack: Stack) async throws {
                self.stack = stack
                app = try await stack.makeApp()
                var events: [String: String] = [:]
                var records: [(key: String, value: String)] = []
                for number in 0..<count {
                    let token = makeAPNsToken()
                    let id = "single-\(number)"
                    events[token] = id
                    let request: JSONValue = [
                        "id": .string(id), "app": .string(app.id),
                        "tokens": [
                            [
                                "platform": "apns", "token": .string(token),
                                "environment": "production",
                            ]
                        ],
                        "topic": .string(app.bundleID), "data": ["alert": "One of many"],
                    ]
                    records.append((id, request.text))
                }
                try await stack.kafka.produce(records, to: stack.topic("push.requests"))
                self.events = events
            }

            /// Waits until the ledger has every event and none is pending.
            func finished() async throws {
                _ = try await eventually(
                    "all \(events.count) pushes are done",
                    within: .seconds(120)
                ) {
                    let sums = try await stack.database.query(
                        "select count(*), coalesce(sum(pending), 0) from all_pushes where status = 'done'"
                    )
                    return sums == ["\(events.count)|0"] ? true : nil
                }
            }

            /// Expects every event to have its outcome on Kafka, and the ledger to agree.
            func checkOutcomes() async throws {
                let outcomes = try await stack.kafka.records(on: stack.topic("push.outcomes"))
                    .compactMap(\.json)
                let delivered = Set(
                    outcomes.filter { $0["outcome"]?.string == "delivered" }
                        .compactMap { $0["eventId"]?.string }
                )
                let missing = Set(events.values).subtracting(delivered)
                #expect(missing.isEmpty, "\(missing.count) events have no outcome")
                let sums = try await stack.database.query(
                    """
                    select sum(targeted), sum(delivered),
                        sum(failed + expired + suppressed + in_doubt + pending) from all_pushes
                    """
                )
                let others = try await stack.database.query(
                    """
                    select state, attempts, unanswered, last_reason, count(*) from deliveries
                    where state <> 1 group by 1, 2, 3, 4
                    """
                )
                #expect(sums == ["\(events.count)|\(events.count)|0"], "\(others)")
            }
        }

        @Test(
            "SIGTERM in mid-flight: exit 0 within the grace period, with no loss and no repeat",
            .timeLimit(.minutes(3))
        )
        func graceful() async throws {
            try await Stack.with(["DISPATCH_IN_FLIGHT": "200"]) { stack in
                let load = try await Load(2000, on: stack)
                try await stack.simulator.setRules([["provider": "apns", "delayMs": [50, 150]]])
                let collected = Collected(stack.simulator)
                let first = try await stack.start("carillon-dispatcher")
                _ = try await eventually("200 requests at the provider") {
                    try await stack.simulator.count("apns", status: 200) >= 200 ? true : nil
                }
                let start = ContinuousClock.now
                #expect(await first.process.stop() == .status(0), "\(first.process.finalBytes)")
                #expect(ContinuousClock.now - start < .seconds(25))
                let sent = try await stack.simulator.count("apns", status: 200)
                #expect(sent < load.events.count, "all was sent before the stop")

                let second = try await stack.start("carillon-dispatcher")
                try await load.finished()
                try await collected.update()
                #expect(await second.process.stop() == .status(0))
                try await load.checkOutcomes()
                let names = await collected.names
                #expect(Set(names.keys) == Set(load.events.keys))
                #expect(names.values.allSatisfy { $0.count == 1 })
            }
        }

        @Test(
            "Three crashes of Postgres under a busy dispatcher lose no event",
            .timeLimit(.minutes(5))
        )
        func postgresCrashes() async throws {
            let postgres = try await PrivatePostgres.start()
            do {
                try await Stack.with(["DISPATCH_IN_FLIGHT": "200"], postgres: postgres) { stack in
                    let load = try await Load(3000, on: stack)
                    try await stack.simulator.setRules([
                        ["provider": "apns", "delayMs": [50, 150]]
                    ])
                    let dispatcher = try await stack.start("carillon-dispatcher")
                    for round in 1...3 {
                        _ = try await eventually(
                            "requests before crash \(round)",
                            within: .seconds(60)
                        ) {
                            let sent = try await stack.simulator.count("apns", status: 200)
                            return sent >= round * 500 ? true : nil
                        }
                        await postgres.stop(round == 2 ? .kill : .immediate)
                        try await postgres.start()
                    }
                    try await load.finished()
                    #expect(await dispatcher.process.stop() == .status(0))
                    try await load.checkOutcomes()
                }
            } catch {
                await postgres.remove()
                throw error
            }
            await postgres.remove()
        }

        @Test(
            "kill -9 of the dispatcher, ten times in 10,000 events, loses no outcome",
            .enabled(
                if: TestEnvironment.kafkaBootstrapServers != nil,
                "KAFKA_BOOTSTRAP_SERVERS is not set: needs a real broker"
            ),
            .timeLimit(.minutes(10))
        )
        func killed() async throws {
            let inFlight = 256
            try await Stack.with(["DISPATCH_IN_FLIGHT": "\(inFlight)"]) { stack in
                let load = try await Load(10_000, on: stack)
                let collected = Collected(stack.simulator)
                for round in 1...10 {
                    // It is fast at first, then slow, so that on a busy machine too the kill comes
                    // when much is in flight and most is still to do.
                    try await stack.simulator.setRules([
                        ["provider": "apns", "delayMs": [20, 80], "times": 500],
                        ["provider": "apns", "delayMs": [1000, 3000]],
                    ])
                    let before = try await stack.simulator.count("apns", status: 200)
                    #expect(before < load.events.count, "all was sent before kill \(round)")
                    let dispatcher = try await stack.start("carillon-dispatcher")
                    _ = try await eventually("requests in round \(round)", within: .seconds(60)) {
                        let now = try await stack.simulator.count("apns", status: 200)
                        return now >= before + 300 + 10 * round ? true : nil
                    }
                    dispatcher.process.signal(SIGKILL)
                    #expect(await dispatcher.process.exit() == .signal(SIGKILL))
                    try await collected.update()
                }
                try await stack.simulator.setRules([])
                let last = try await stack.start("carillon-dispatcher")
                try await load.finished()
                try await collected.update()
                #expect(await last.process.stop() == .status(0), "\(last.process.finalBytes)")

                try await load.checkOutcomes()
                let names = await collected.names
                #expect(Set(names.keys) == Set(load.events.keys))
                let differing = names.values.filter { Set($0).count != 1 || $0.contains("") }
                #expect(differing.isEmpty, "repeats that carry another apns-id: \(differing.count)")
                let repeats = await collected.requests - load.events.count
                print(
                    "kill -9, 10 times over \(load.events.count) events: all outcomes are there, "
                        + "\(repeats) requests were repeats, all with the first one's apns-id"
                )
                // A crash repeats at most the deliveries in flight.
                #expect(repeats <= 10 * inFlight)
            }
        }
    }

    @Suite("Start and exit of the executables", .timeLimit(.minutes(1)))
    struct ExecutableTests {
        static let services = [
            "carillon-registration", "carillon-dispatcher", "carillon-simulator",
        ]

        @Test(
            "--version and --help print their output and end with 0",
            arguments: services + ["carillon"]
        )
        func asked(executable: String) async throws {
            for question in ["--version", "--help"] {
                let answer = try await run(Stack.executable(executable), [question])
                #expect(answer.exit == .status(0), "\(question): \(answer)")
                #expect(!answer.output.isEmpty)
            }
        }

        /// Starts a dispatcher without a Postgres, so that it gets no further than Kafka's client.
        private func dispatcher(kafka servers: String) async throws -> ChildProcess {
            let key = Data(repeating: 7, count: 32).base64EncodedString()
            return try await ChildProcess.start(
                Stack.executable("carillon-dispatcher"),
                environment: [
                    "HTTP_HOST": "127.0.0.1", "OPERATIONS_PORT": "0", "LOG_FORMAT": "json",
                    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
                    "KAFKA_BOOTSTRAP_SERVERS": servers, "CARILLON_MASTER_KEYS": "k:\(key)",
                ]
            )
        }

        @Test(
            "Without a broker the service is not ready, with the reason, and runs until it is stopped"
        )
        func brokerAbsent() async throws {
            let process = try await dispatcher(kafka: "127.0.0.1:1")
            let url = "http://127.0.0.1:\(try await process.port(surface: "operations"))"
            let reasons = try await eventually("readyz says why") {
                let answer = try await http("GET", "\(url)/readyz")
                #expect(answer.status == 503)
                var reasons: [String: String] = [:]
                for part in try JSONValue.parse(answer.body)["notReady"]?.array ?? [] {
                    reasons[part["part"]?.string ?? ""] = part["reason"]?.string
                }
                return reasons["kafka producer"]?.contains("reaches no broker") == true
                    ? reasons : nil
            }
            #expect(reasons["kafka producer"]?.contains("_TRANSPORT") == true)
            // It waits for Postgres first, so that it takes no partition that it cannot process.
            #expect(reasons["kafka consumer"]?.contains("is not running") == true, "\(reasons)")
            #expect(try await http("GET", "\(url)/livez").status == 200)
            #expect(await process.stop() == .status(0), "\(process.finalBytes)")
        }

        @Test(
            "OPERATIONS_PORT moves the operators' routes off the public port, which shows no reasons",
            arguments: ["carillon-registration", "carillon-dispatcher"]
        )
        func operationsApart(executable: String) async throws {
            let key = Data(repeating: 7, count: 32).base64EncodedString()
            let environment = [
                "HTTP_HOST": "127.0.0.1", "HTTP_PORT": "0", "LOG_FORMAT": "json",
                "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
                "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "CARILLON_MASTER_KEYS": "k:\(key)",
            ]
            let together = try await ChildProcess.start(
                Stack.executable(executable),
                environment: environment
            )
            let open = "http://127.0.0.1:\(try await together.port())"
            let parts = try await eventually("it says what is not ready") {
                let answer = try await http("GET", "\(open)/readyz")
                #expect(answer.status == 503)
                let parts = try JSONValue.parse(answer.body)["notReady"]?.array ?? []
                return parts.contains { $0["part"]?.string != "service" } ? parts : nil
            }
            #expect(parts.allSatisfy { $0.object?.keys == ["part"] }, "\(parts)")
            #expect(try await http("GET", "\(open)/metrics").status == 200)
            #expect(await together.stop() == .status(0), "\(together.finalBytes)")

            let apart = try await ChildProcess.start(
                Stack.executable(executable),
                environment: environment.merging(["OPERATIONS_PORT": "0"]) { $1 }
            )
            let own = "http://127.0.0.1:\(try await apart.port(surface: "operations"))"
            for path in ["/livez", "/metrics"] {
                #expect(try await http("GET", own + path).status == 200)
            }
            #expect(try await http("GET", own + "/readyz").text.contains("reason"))
            if executable == "carillon-registration" {
                let open = "http://127.0.0.1:\(try await apart.port())"
                for path in ["/livez", "/readyz", "/metrics"] {
                    #expect(try await http("GET", open + path).status == 404)
                }
                let document = try await http("GET", open + "/openapi.json").text
                #expect(!document.contains("/readyz"))
                #expect(document.contains("/v1/notifications/{id}"))
            }
            #expect(await apart.stop() == .status(0), "\(apart.finalBytes)")
        }

        @Test("The log line of a failed start has the configured format")
        func lastLineHasTheFormat() async throws {
            for (format, start) in [("json", "{\"time\":"), ("text", "20")] {
                let answer = try await run(
                    Stack.executable("carillon-dispatcher"),
                    environment: ["LOG_FORMAT": format, "HTTP_PORT": "eighty"]
                )
                #expect(answer.exit == .status(78), "\(answer)")
                #expect(answer.output.hasPrefix(start), "\(answer)")
            }
        }

        @Test("A cluster that rejects the producer for good ends the service with 1 and the reason")
        func fatalBroker() async throws {
            let cluster = try MockKafkaCluster()
            defer { cluster.close() }
            cluster.refuse(.initProducerID, with: .clusterAuthorizationFailed, times: 10)
            let process = try await dispatcher(kafka: cluster.bootstrapServers)
            #expect(await process.exit() == .status(1), "\(process.finalBytes)")
            let last = try #require(process.events.last)
            #expect(last["level"]?.string == "critical")
            #expect(last["error"]?.string?.contains("CLUSTER_AUTHORIZATION_FAILED") == true)
        }

        @Test(
            "An invalid variable ends the service with 78 and one line that names it",
            arguments: [
                ("carillon-registration", "HTTP_PORT", "eighty"),
                ("carillon-registration", "CARILLON_MASTER_KEYS", "no-key"),
                ("carillon-registration", "DATABASE_URL", ""),
                ("carillon-dispatcher", "DISPATCH_IN_FLIGHT", "0"),
                ("carillon-dispatcher", "SHUTDOWN_GRACE", "25"),
                ("carillon-dispatcher", "KAFKA_BOOTSTRAP_SERVERS", ""),
                ("carillon-simulator", "HTTP_TLS_PORT", "70000"),
            ]
        )
        func badVariable(executable: String, variable: String, value: String) async throws {
            var environment = [
                "HTTP_HOST": "127.0.0.1", "HTTP_PORT": "0", "LOG_FORMAT": "json",
                "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
                "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
                "CARILLON_MASTER_KEYS": "k:\(Data(repeating: 7, count: 32).base64EncodedString())",
            ]
            environment[variable] = value
            let answer = try await run(Stack.executable(executable), environment: environment)
            #expect(answer.exit == .status(78), "\(answer)")
            let lines = (answer.output + "\n" + answer.errors).split(separator: "\n")
            #expect(lines.count == 1, "\(answer)")
            #expect(lines.first?.contains(variable) == true, "\(answer)")
        }
    }
}
