import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Each run of a program has an app of its own on one stack.
    @Suite(
        "Firebase's own packages for Remote Config, with only the address changed",
        .runningConfig,
        .serialized,
        .timeLimit(.minutes(5))
    )
    struct ConfigClientTests {
        @Test(
            "The Admin SDK for Python works",
            .enabled(
                if: TestEnvironment.pythonWithFirebase != nil,
                "CARILLON_PYTHON_FIREBASE is not set"
            ),
            arguments: ["manage", "server"]
        )
        func python(scenario: String) async throws {
            let bench = try await makeBench(for: scenario)
            let answer = try await run(
                try #require(TestEnvironment.pythonWithFirebase),
                [scriptFile("firebase_client.py"), scenario],
                environment: bench.clientEnvironment
            )
            #expect(answer.exit == .status(0), "\(scenario): \(answer.errors)")
        }

        @Test(
            "JavaScript: the Admin SDK and the SDK for web pages work",
            .enabled(if: TestEnvironment.nodeClients != nil, "NODE_CLIENTS is not set"),
            arguments: ["manage", "server", "page"]
        )
        func javascript(scenario: String) async throws {
            let bench = try await makeBench(for: scenario)
            let clients = try #require(TestEnvironment.nodeClients)
            let answer = try await run(
                "node",
                [scriptFile("JavaScript/config.mjs"), scenario],
                environment: bench.clientEnvironment.merging(["NODE_CLIENTS": clients]) { $1 }
            )
            try answer.expectChecks(scenario)
        }

        @Test(
            "Java: the Admin SDK works",
            .enabled(if: TestEnvironment.javaClients != nil, "JAVA_CLIENTS is not set")
        )
        func java() async throws {
            let bench = try await makeBench(for: "server")
            let answer = try await runJava(
                "Firebase",
                of: .firebase,
                environment: bench.clientEnvironment
            )
            try answer.expectChecks("Java")
        }

        @Test(
            "Go: the Admin SDK works",
            .enabled(if: TestEnvironment.goPrograms != nil, "GO_CLIENTS is not set")
        )
        func go() async throws {
            let bench = try await makeBench(for: "server")
            let answer = try await runGo("firebase", "server", bench.clientEnvironment)
            try answer.expectChecks("Go")
        }

        /// Makes a new app with a token, and with a server template for programs that evaluate one.
        private func makeBench(for scenario: String) async throws -> ConfigBench {
            let bench = try await RunningConfig.makeBench()
            guard scenario == "server" else { return bench }
            let answer = try await http(
                "PUT",
                "\(bench.project)/namespaces/firebase-server/remoteConfig",
                headers: bench.bearer.merging(["If-Match": "*"]) { $1 },
                body: Self.serverTemplate
            )
            #expect(answer.status == 200, "\(answer.text)")
            return bench
        }

        private static let serverTemplate: JSONValue = [
            "conditions": [
                [
                    "name": "gold",
                    "condition": [
                        "orCondition": [
                            "conditions": [
                                [
                                    "andCondition": [
                                        "conditions": [
                                            [
                                                "customSignal": [
                                                    "customSignalOperator":
                                                        "STRING_EXACTLY_MATCHES",
                                                    "customSignalKey": "tier",
                                                    "targetCustomSignalValues": ["gold"],
                                                ]
                                            ]
                                        ]
                                    ]
                                ]
                            ]
                        ]
                    ],
                ],
                // Firebase's console shows it in this form.
                [
                    "name": "vip",
                    "expression":
                        "app.customSignal['tier'].exactlyMatches(['vip']) && percent <= 100",
                ],
                [
                    "name": "all",
                    "condition": [
                        "percent": [
                            "percentOperator": "LESS_OR_EQUAL", "microPercent": 100_000_000,
                            "seed": "s",
                        ]
                    ],
                ],
            ],
            "parameters": [
                "limit": [
                    "defaultValue": ["value": "10"],
                    "conditionalValues": ["gold": ["value": "100"], "vip": ["value": "200"]],
                    "valueType": "NUMBER",
                ],
                "greeting": ["defaultValue": ["value": "hello"]],
                "everybody": [
                    "defaultValue": ["value": "false"],
                    "conditionalValues": ["all": ["value": "true"]], "valueType": "BOOLEAN",
                ],
            ],
        ]
    }
}
