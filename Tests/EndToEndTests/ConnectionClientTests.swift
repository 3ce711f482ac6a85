import Foundation
import JSON
import Support
import Testing

/// A stack with two nodes that hold connections of devices, at addresses that stay.
struct ConnectionStack: Sendable {
    let stack: Stack
    let registration: Stack.Service
    let ports: [Int]

    var urls: String { ports.map { "ws://127.0.0.1:\($0)" }.joined(separator: ",") }

    static func with(
        _ body: (_ running: ConnectionStack, _ nodes: [Stack.Service]) async throws -> Void
    ) async throws {
        try await Stack.with { stack in
            let ports = [try freePort(), try freePort()]
            var nodes: [Stack.Service] = []
            for port in ports { nodes.append(try await startNode(on: stack, port)) }
            let urls = ports.map { "ws://127.0.0.1:\($0)" }.joined(separator: ",")
            let registration = try await stack.start(
                "carillon-registration",
                ["CONNECTION_URLS": urls, "RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]
            )
            let dispatcher = try await stack.start("carillon-dispatcher")
            let running = ConnectionStack(stack: stack, registration: registration, ports: ports)
            try await body(running, nodes)
            for service in [dispatcher, registration] + nodes {
                #expect(await service.process.stop() == .status(0), "\(service.process.finalBytes)")
                let errors = service.process.events.filter { $0["level"] == "error" }
                #expect(errors.isEmpty, "\(errors.prefix(3).map(\.text))")
            }
        }
    }

    static func startNode(on stack: Stack, _ port: Int) async throws -> Stack.Service {
        try await stack.start(
            "carillon-connection",
            [
                "HTTP_PORT": "\(port)", "CONNECTION_DRAIN": "1s",
                "RATE_LIMIT_FAILURES_PER_ADDRESS": "0",
            ]
        )
    }

    func startNode(_ port: Int) async throws -> Stack.Service {
        try await Self.startNode(on: stack, port)
    }

    /// Runs a scenario of `JavaScript/connections.mjs` in the name of an app.
    func play(
        _ scenario: String,
        _ app: Stack.App,
        _ nodes: [Stack.Service]
    ) async throws -> ProgramAnswer {
        try await run(
            "node",
            [scriptFile("JavaScript/connections.mjs"), scenario],
            environment: [
                "NODE_CLIENTS": try #require(TestEnvironment.nodeClients),
                "REGISTRATION_URL": registration.url, "CONNECTION_URLS": urls,
                "NODE_PIDS": nodes.map { "\($0.process.processID)" }.joined(separator: ","),
                "APP_ID": app.id, "APP_KEY": app.appKey, "MASTER_KEY": app.masterKey,
                "CHROMIUM": TestEnvironment.chromium ?? "",
            ]
        )
    }

    /// Expects `kept = received + displaced + expired + waiting`.
    func expectBalance(of app: Stack.App) async throws {
        let shown = try JSONValue.parse(
            try await stack.carillon("connections", app.id, "--json")
        )
        func count(_ name: String) -> Int { shown["messages"]?[name]?.integer ?? 0 }
        #expect(count("kept") > 0)
        let settled = count("received") + count("displaced") + count("expired")
        #expect(count("kept") == settled + count("waiting"), "\(shown.text)")
    }
}

/// Gives all tests of a suite one `ConnectionStack`. Each test has an app of its own.
struct RunningConnections: SuiteTrait, TestScoping {
    @TaskLocal static var running: (ConnectionStack, [Stack.Service])?

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing body: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await ConnectionStack.with { stack, nodes in
            try await Self.$running.withValue((stack, nodes), operation: body)
        }
    }
}

extension EndToEndTests {
    /// The clients are in `JavaScript/connections.mjs`, and compare what they got.
    @Suite(
        "Devices with a connection of their own",
        RunningConnections(),
        .serialized,
        .enabled(if: TestEnvironment.nodeClients != nil, "NODE_CLIENTS is not set"),
        .timeLimit(.minutes(5))
    )
    struct ConnectionClientTests {
        private func play(_ scenario: String) async throws -> (ConnectionStack, ProgramAnswer) {
            let (stack, nodes) = try #require(RunningConnections.running)
            let app = try await stack.stack.makeApp()
            let answer = try await stack.play(scenario, app, nodes)
            try answer.expectChecks("connections.mjs \(scenario)")
            try await stack.expectBalance(of: app)
            return (stack, answer)
        }

        @Test("A push reaches all connections of a device, and is received once")
        func ownProtocol() async throws {
            let (stack, answer) = try await play("carillon.push.v1")
            let ids = Set(answer.lines("received").compactMap(\.first))
            #expect(ids.count == 1)
            let records = try await eventually("the record of what was received") {
                let all = try await stack.stack.kafka.records(
                    on: stack.stack.topic("push.outcomes")
                )
                .compactMap(\.json).filter { ids.contains($0["pushId"]?.string ?? "") }
                return all.contains { $0["outcome"] == "received" } ? all : nil
            }
            #expect(records.count { $0["outcome"] == "received" } == 1)
            #expect(records.count { $0["outcome"] == "delivered" } == 1)
            #expect(records.allSatisfy { $0["provider"] == "connection" })
        }

        @Test("Messages wait for a device in order, and come again until they are acknowledged")
        func offline() async throws { _ = try await play("offline") }

        @Test("An expired message is never sent")
        func expired() async throws { _ = try await play("expired") }

        @Test("Server-sent events: registration, Last-Event-ID, acknowledgements over HTTP")
        func eventStream() async throws { _ = try await play("server-sent events") }

        @Test("leancloud-push receives a push")
        func webPush() async throws { _ = try await play("leancloud-push") }

        @Test(
            "The example page shows a push in Chromium, acknowledges it, and reports its opening",
            .enabled(if: TestEnvironment.chromium != nil, "there is no Chromium")
        )
        func examplePage() async throws { _ = try await play("the example page") }

        @Test(
            "Live queries and instant messaging are refused, as the errors of their promises",
            arguments: ["leancloud-realtime 4", "leancloud-realtime 5", "live query"]
        )
        func refusals(scenario: String) async throws {
            let (stack, nodes) = try #require(RunningConnections.running)
            let app = try await stack.stack.makeApp()
            try await stack.play(scenario, app, nodes).expectChecks(scenario)
        }
    }

    @Suite(
        "LeanCloud's Java SDK with a connection of its own",
        .enabled(if: TestEnvironment.javaClients != nil, "JAVA_CLIENTS is not set"),
        .timeLimit(.minutes(3))
    )
    struct JavaConnectionTests {
        @Test("Pushes arrive by channel, condition and installation, and after it was offline")
        func pushes() async throws {
            try await ConnectionStack.with { stack, _ in
                let app = try await stack.stack.makeApp()
                let answer = try await runJava(
                    "LeanCloudConnection",
                    of: .leancloudRealtime,
                    environment: [
                        "REGISTRATION_URL": stack.registration.url, "APP_ID": app.id,
                        "APP_KEY": app.appKey, "MASTER_KEY": app.masterKey,
                    ]
                )
                try answer.expectChecks("LeanCloudConnection")
                try await stack.expectBalance(of: app)
            }
        }
    }

    @Suite(
        "Nodes of connections are replaced",
        .enabled(if: TestEnvironment.nodeClients != nil, "NODE_CLIENTS is not set"),
        .timeLimit(.minutes(3))
    )
    struct ConnectionDrainTests {
        @Test("Two nodes are drained and started again: every device gets every push")
        func drained() async throws {
            try await ConnectionStack.with { stack, nodes in
                let app = try await stack.stack.makeApp()
                async let answer = stack.play("drained", app, nodes)
                var restarted: [Stack.Service] = []
                for (port, node) in zip(stack.ports, nodes) {
                    // The scenario has it stop.
                    #expect(await node.process.exit() == .status(0), "\(node.process.finalBytes)")
                    restarted.append(try await stack.startNode(port))
                }
                try await answer.expectChecks("connections.mjs drained")
                try await stack.expectBalance(of: app)
                for node in restarted {
                    #expect(await node.process.stop() == .status(0), "\(node.process.finalBytes)")
                }
            }
        }
    }
}
