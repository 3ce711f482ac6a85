import Cryptography
import Foundation
import JSON
import Support
import Testing

/// Gives all tests of a suite one stack with `carillon-ingest`. Each test has an app of its own, so
/// that they share nothing but the executable and the topics.
struct RunningIngest: SuiteTrait, TestScoping {
    /// Whether pushes can be sent, too.
    var withPushes = false
    var settings: [String: String] = [:]

    struct Running: Sendable {
        let stack: Stack
        let service: Stack.Service
        let registration: Stack.Service?
        /// An app whose stored objects show that earlier ones are stored.
        let fence: IngestBench
    }

    @TaskLocal static var running: Running?

    /// The suite's stack.
    static var current: Running {
        get throws {
            guard let running else { throw TestFailure("this suite runs no ingest") }
            return running
        }
    }

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing body: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await Stack.with { stack in
            let service = try await IngestBench.start(on: stack, settings)
            let registration = withPushes ? try await stack.start("carillon-registration") : nil
            let dispatcher = withPushes ? try await stack.start("carillon-dispatcher") : nil
            let fence = IngestBench(stack, service, try await stack.makeApp())
            try await fence.declare("WeatherSensor", IngestBench.weatherSensor)
            let running = Running(
                stack: stack,
                service: service,
                registration: registration,
                fence: fence
            )
            try await Self.$running.withValue(running, operation: body)
            for service in [dispatcher, registration, service].compactMap({ $0 }) {
                #expect(await service.process.stop() == .status(0), "\(service.process.finalBytes)")
            }
            let errors = service.process.events.filter { $0["level"] == "error" }
            #expect(errors.isEmpty, "\(errors.prefix(3).map(\.text))")
        }
    }
}

extension Trait where Self == RunningIngest {
    static var runningIngest: Self { Self() }
    static func runningIngest(withPushes: Bool = false, _ settings: [String: String] = [:]) -> Self
    {
        Self(withPushes: withPushes, settings: settings)
    }
}

extension EndToEndTests {
    /// Types have topics of their own, which a mock broker does not create.
    static let needsBroker = ConditionTrait.enabled(
        if: TestEnvironment.kafkaBootstrapServers != nil,
        "KAFKA_BOOTSTRAP_SERVERS is not set: there is no real broker"
    )
}

/// An app of its own, with the original sample type, on a running stack with ingest.
struct IngestBench: Sendable {
    let stack: Stack
    let service: Stack.Service
    let app: Stack.App

    init(_ stack: Stack, _ service: Stack.Service, _ app: Stack.App) {
        (self.stack, self.service, self.app) = (stack, service, app)
    }

    /// Makes one on the suite's stack.
    init(declares schema: JSONValue? = weatherSensor) async throws {
        let running = try RunningIngest.current
        self.init(running.stack, running.service, try await running.stack.makeApp())
        if let schema { try await declare("WeatherSensor", schema) }
    }

    static func start(
        on stack: Stack,
        _ extra: [String: String] = [:]
    ) async throws -> Stack.Service {
        try await stack.start(
            "carillon-ingest",
            ["KAFKA_GROUP_ID": "\(stack.prefix)ingest", "RATE_LIMIT_FAILURES_PER_ADDRESS": "0"]
                .merging(extra) { $1 }
        )
    }

    // MARK: Types

    /// The sample of Atlas' documentation, as JSON Schema.
    static let weatherSensor: JSONValue = [
        "type": "object",
        "properties": [
            "_id": ["type": "string"], "deviceId": ["type": "string"],
            "temperatureInFahrenheit": ["type": "number"],
            "barometricPressureInHg": ["type": "number"],
            "windSpeedInMph": ["type": "integer"],
        ],
        "required": ["_id", "deviceId"], "additionalProperties": false,
    ]

    /// The same as Atlas exported it.
    static let atlasWeatherSensor: JSONValue = [
        "title": "WeatherSensor", "bsonType": "object",
        "properties": [
            "_id": ["bsonType": "objectId"], "deviceId": ["bsonType": "string"],
            "temperatureInFahrenheit": ["bsonType": "float"],
            "barometricPressureInHg": ["bsonType": "float"],
            "windSpeedInMph": ["bsonType": "int"],
        ],
        "required": [
            "_id", "deviceId", "temperatureInFahrenheit", "barometricPressureInHg",
            "windSpeedInMph",
        ],
    ]

    @discardableResult
    func declare(_ type: String, _ schema: JSONValue) async throws -> String {
        let file = try stack.write(schema.text, to: TestEnvironment.unique("schema-") + ".json")
        return try await stack.carillon(
            "ingest",
            "type",
            "put",
            app.id,
            type,
            "--schema",
            file
        )
    }

    /// Returns the name of the type's view.
    func view(of type: String) async throws -> String {
        let shown = try JSONValue.parse(
            try await stack.carillon("ingest", "type", "show", app.id, type, "--json")
        )
        guard let view = shown["view"]?.string else { throw TestFailure("no view: \(shown.text)") }
        return view
    }

    // MARK: Sending

    static func basic(_ user: String, _ password: String = "") -> [String: String] {
        ["Authorization": "Basic " + Base64.encode(Array("\(user):\(password)".utf8))]
    }

    var key: [String: String] { Self.basic(app.appKey) }

    /// Calls with the app key, unless the headers have credentials.
    func ask(
        _ method: String,
        _ path: String,
        _ headers: [String: String] = [:],
        _ bytes: [UInt8] = []
    ) async throws -> HTTPAnswer {
        try await http(
            method,
            service.url + path,
            headers: key.merging(headers) { $1 },
            bytes: bytes
        )
    }

    func post(_ path: String, _ body: JSONValue, type: String = "application/json") async throws
        -> HTTPAnswer
    {
        try await ask("POST", path, ["Content-Type": type], body.bytes)
    }

    /// Sends by the native route, and expects that nothing is refused.
    func send(_ objects: [JSONValue], type: String = "WeatherSensor") async throws {
        let answer = try await post("/v1/ingest/\(type)", .array(objects))
        guard answer.status == 200, answer.json?["refused"] == [] else {
            throw TestFailure("not taken: \(answer.status) \(answer.text.prefix(500))")
        }
    }

    static func reading(_ id: String, _ more: JSONObject = [:]) -> JSONValue {
        var object: JSONObject = [
            "_id": .string(id), "deviceId": "WX1278UIT", "temperatureInFahrenheit": 66.7,
            "barometricPressureInHg": 29.65, "windSpeedInMph": 2,
        ]
        for (name, value) in more { object[name] = value }
        return .object(object)
    }

    static func makeID() -> String { Hex.encode(randomBytes(12)) }

    // MARK: Results

    /// Returns the rows of a type's view, once there are as many as expected and all earlier
    /// objects are stored, so that no more can come.
    func rows(_ type: String, _ columns: String = "_id", count: Int) async throws -> [String] {
        let view = try await view(of: type)
        func read() async throws -> [String] {
            try await stack.database.query("SELECT \(columns) FROM \(view) ORDER BY _id")
        }
        _ = try await eventually("\(count) rows of \(type)", within: .seconds(60)) {
            try await read().count >= count ? true : nil
        }
        try await fence(type)
        return try await read()
    }

    /// Waits until objects that another app sends last, to every partition of the topic, are
    /// stored.
    func fence(_ type: String) async throws {
        let other = try RunningIngest.current.fence
        let ids = (0..<64).map { _ in Self.makeID() }
        try await other.send(
            ids.map { id in
                switch type {
                case _ where type.hasPrefix("Segment"):
                    ["_id": .string(id), "event": "fence", "userId": "fence"]
                case _ where type.hasPrefix("Push"):
                    ["_id": .string(id), "eventId": "fence"]
                default: Self.reading(id)
                }
            },
            type: type
        )
        let view = try await other.view(of: type)
        let list = ids.map { "'\($0)'" }.joined(separator: ",")
        _ = try await eventually("the fence of \(type)", within: .seconds(60)) {
            try await stack.database.query("SELECT count(*) FROM \(view) WHERE _id IN (\(list))")
                == ["64"] ? true : nil
        }
    }

    /// Returns a counter of the service, over all its labels.
    func count(_ name: String) async throws -> Int {
        let text = try await http("GET", "\(service.url)/metrics").text
        return text.split(separator: "\n")
            .filter { $0.hasPrefix(name + " ") || $0.hasPrefix(name + "{") }
            .compactMap { $0.split(separator: " ").last.flatMap { Double($0) } }
            .reduce(0) { $0 + Int($1) }
    }
}
