import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// One app whose patterns and schemas are as expensive as allowed, and another app beside it.
    /// Prints the other's times.
    @Suite(
        "An app's patterns and schemas delay no other app",
        .serialized,
        .alone,
        .timeLimit(.minutes(4))
    )
    struct NeighbourCostTests {
        /// All clients have one address.
        private static let settings = ["RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]
        private static let attackers = 24
        /// It is far more than a slice and the machine's other work, and far less than a queue of
        /// the attacker's.
        private static let bound = Duration.seconds(1)

        /// Members that form no range, all beyond U+00FF, where PCRE2 compares them one by one.
        private static let members: [Unicode.Scalar] = (0..<1600).compactMap {
            Unicode.Scalar(0x100 + 2 * $0)
        }

        private static func text(_ scalars: some Sequence<Unicode.Scalar>) -> String {
            var view = String.UnicodeScalarView()
            view.append(contentsOf: scalars)
            return String(view)
        }

        private static let classPattern = "[\(text(members))]"
        /// As many of the last members as a custom signal may have.
        private static let dearText = text((0..<500).map { members[1500 + $0 % 100] })

        /// Returns the 99th percentile over this many calls one after the other, or those of 20 s.
        private func slowest(
            _ count: Int,
            _ call: @Sendable () async throws -> Void
        ) async throws -> Duration {
            var times: [Duration] = []
            let end = ContinuousClock.now + .seconds(20)
            while times.count < count, ContinuousClock.now < end {
                times.append(try await ContinuousClock().measure { try await call() })
                try await Task.sleep(for: .milliseconds(10))
            }
            return times.sorted()[(times.count * 99 - 1) / 100]
        }

        /// Measures the honest call before, during and after an attack by many at once.
        private func compare(
            _ name: String,
            honest: @escaping @Sendable () async throws -> Void,
            attack: @escaping @Sendable (_ number: Int) async throws -> Void
        ) async throws {
            _ = try await slowest(20, honest)
            let before = try await slowest(100, honest)
            let during = try await withThrowingTaskGroup(of: Void.self) { group in
                for attacker in 0..<Self.attackers {
                    group.addTask {
                        var number = attacker
                        while !Task.isCancelled {
                            // A call that is cut off at the end is not a failure.
                            try? await attack(number)
                            number += Self.attackers
                        }
                    }
                }
                try await Task.sleep(for: .seconds(1))
                let during = try await slowest(100, honest)
                group.cancelAll()
                return during
            }
            let after = try await slowest(100, honest)
            print("neighbour-cost \(name): p99 before \(before), during \(during), after \(after)")
            #expect(during < Self.bound, "\(name): \(during)")
            #expect(after < Self.bound, "\(name): \(after)")
        }

        @Test("12 patterns with a class of 1,600 characters delay no other app's fetches")
        func fetches() async throws {
            try await ConfigBench.run(Self.settings) { bench in
                let other = try await bench.stack.makeApp()
                let honest = ConfigBench(
                    stack: bench.stack,
                    watcher: bench.watcher,
                    app: other,
                    token: try await bench.stack.configToken(of: other.id, named: "ci")
                )
                for app in [bench.app.id, other.id] {
                    try await bench.stack.carillon("app", "set", app, "config-fetches-per-hour=0")
                }
                try await honest.publish(ConfigBench.template("silver"))
                let conditions = (0..<12).map { number -> JSONValue in
                    let pattern = "(?:\(Self.classPattern)+)+[bc]\(number)?$"
                    return [
                        "name": .string("c\(number)"),
                        "expression": .string("app.customSignal['k'].matches(['\(pattern)'])"),
                    ]
                }
                let values = JSONObject(
                    (0..<12).map { ("c\($0)", ["value": .string("\($0)")]) }
                )
                try await bench.publish([
                    "conditions": .array(conditions),
                    "parameters": [
                        "bell": [
                            "defaultValue": ["value": "none"],
                            "conditionalValues": .object(values),
                        ]
                    ],
                ])
                let signals: JSONObject = [
                    "customSignals": ["k": .string(Self.dearText)]
                ]
                // They are false, and the client has its response.
                let answer = try await bench.fetch("dear", signals)
                #expect(answer.json?["entries"] == ["bell": "none"], "\(answer.text)")
                try await compare("fetches") {
                    let answer = try await honest.fetch("one")
                    #expect(answer.status == 200)
                } attack: { number in
                    _ = try await bench.fetch("i\(number)", signals)
                }
            }
        }

        @Test(
            "Objects that take long to validate delay no other app's objects",
            needsBroker,
            arguments: ["pattern", "recursion"]
        )
        func objects(kind: String) async throws {
            try await Stack.with { stack in
                let service = try await IngestBench.start(on: stack, Self.settings)
                let honest = IngestBench(stack, service, try await stack.makeApp())
                let dear = IngestBench(stack, service, try await stack.makeApp())
                try await honest.declare("WeatherSensor", IngestBench.weatherSensor)
                try await dear.declare("Dear", kind == "pattern" ? Self.pattern : Self.recursion)
                let value: JSONValue =
                    kind == "pattern" ? .string(Self.dearText) : Self.nested(24)
                let objects: @Sendable () -> JSONValue = {
                    .array(
                        (0..<50).map { _ in
                            ["_id": .string(IngestBench.makeID()), "x": value]
                        }
                    )
                }
                // Each is refused separately, as the response says.
                let answer = try await dear.post("/v1/ingest/Dear", objects())
                #expect(answer.status == 200)
                #expect(answer.json?["refused"]?.array?.count == 50)
                #expect(
                    answer.json?["refused"]?[0]?["reason"]?.string == "takes too long to check"
                )
                try await compare("objects, \(kind)") {
                    try await honest.send([IngestBench.reading(IngestBench.makeID())])
                } attack: { _ in
                    _ = try await dear.post("/v1/ingest/Dear", objects())
                }
                #expect(await service.process.stop() == .status(0))
            }
        }

        @Test("A pattern or schema that costs too much is refused with its place")
        func refusals() async throws {
            try await ConfigBench.run(Self.settings) { bench in
                let slow = String(repeating: "[\u{100}-\u{10FFFF}]", count: 5)
                let template: JSONValue = [
                    "conditions": [
                        [
                            "name": "slow",
                            "expression": .string("app.version.matches(['(?i)\(slow)'])"),
                        ]
                    ]
                ]
                for query in ["", "?validate_only=true"] {
                    let answer = try await http(
                        "PUT",
                        "\(bench.project)/remoteConfig\(query)",
                        headers: bench.bearer.merging(["If-Match": "*"]) { $1 },
                        body: template
                    )
                    #expect(answer.status == 400)
                    #expect(answer.text.contains("condition slow: a pattern"), "\(answer.text)")
                }
                func refuse(_ words: [String], _ wanted: String) async throws {
                    let answer = try await run(
                        Stack.executable("carillon"),
                        words,
                        environment: bench.stack.environment
                    )
                    #expect(answer.exit != .status(0))
                    #expect(answer.errors.contains(wanted), "\(answer.errors)")
                }
                let file = try bench.stack.write(template.text, to: "slow.json")
                try await refuse(
                    ["config", "put", bench.app.id, file, "--force"],
                    "condition slow: a pattern"
                )
                var definitions: JSONObject = ["d0": true]
                for level in 1...29 {
                    let inner: JSONValue = ["$ref": .string("#/$defs/d\(level - 1)")]
                    definitions["d\(level)"] = ["allOf": [inner, inner]]
                }
                let schema: JSONValue = [
                    "type": "object", "required": ["_id"],
                    "properties": ["_id": ["type": "string"], "x": ["$ref": "#/$defs/d29"]],
                    "$defs": .object(definitions),
                ]
                let doubling = try bench.stack.write(schema.text, to: "doubling.json")
                for more in [[], ["--dry-run"]] {
                    try await refuse(
                        ["ingest", "type", "put", bench.app.id, "Dear", "--schema", doubling]
                            + more,
                        "more than 1000 schemas apply to one value"
                    )
                }
            }
        }

        private static let pattern: JSONValue = [
            "type": "object",
            "properties": [
                "_id": ["type": "string"],
                "x": ["pattern": .string("(?:\(classPattern)+)+[bc]$")],
            ],
            "required": ["_id"],
        ]

        /// Each level applies the next twice.
        private static let recursion: JSONValue = [
            "type": "object",
            "properties": ["_id": ["type": "string"], "x": ["$ref": "#/$defs/n"]],
            "required": ["_id"],
            "$defs": [
                "n": [
                    "anyOf": [
                        ["required": ["b"], "properties": ["a": ["$ref": "#/$defs/n"]]],
                        ["required": ["c"], "properties": ["a": ["$ref": "#/$defs/n"]]],
                    ]
                ]
            ],
        ]

        private static func nested(_ levels: Int) -> JSONValue {
            (0..<levels).reduce(["z": 1]) { inner, _ in ["a": inner] }
        }
    }
}
