import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// boto3 is unchanged except for its endpoint. The expectations come from Cognito Sync's model
    /// and its clients; each scenario has an app and a pool of its own.
    @Suite(
        "Amazon Cognito Sync clients",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(5))
    )
    struct CognitoTests {
        private static let hasPython = TestEnvironment.value("CARILLON_PYTHON_COGNITO") != nil

        @Test(
            "boto3 works unchanged",
            .enabled(if: hasPython, "CARILLON_PYTHON_COGNITO is not set"),
            arguments: ["operations", "semantics", "races", "signatures", "pushes"]
        )
        func boto3(scenario: String) async throws {
            try await play(scenario, of: CognitoBench())
        }

        @Test(
            "Unsigned requests are accepted only if the app allows them",
            .enabled(if: hasPython, "CARILLON_PYTHON_COGNITO is not set")
        )
        func unsigned() async throws {
            let bench = try await CognitoBench()
            try await play("credentials", of: bench)
            try await bench.carillon("app", "set", bench.app.id, "sync-unsigned=on")
            try await play("credentials", of: bench, isUnsigned: true)
        }

        private func play(
            _ scenario: String,
            of bench: CognitoBench,
            isUnsigned: Bool = false
        ) async throws {
            let answer = try await run(
                try #require(TestEnvironment.value("CARILLON_PYTHON_COGNITO")),
                [scriptFile("cognito_client.py"), scenario],
                environment: bench.environment.merging([
                    "UNSIGNED": isUnsigned ? "on" : "off", "PYTHONDONTWRITEBYTECODE": "1",
                ]) { $1 }
            )
            #expect(answer.exit == .status(0), "\(scenario): \(answer.errors.prefix(4000))")
            let last = answer.output.split(separator: "\n").last.map(String.init) ?? "{}"
            #expect((try JSONValue.parse(last)["checked"]?.integer ?? 0) > 0)
        }

        @Test(
            "dataset.changes: lower counts notify no device, and invalid records are dead letters"
        )
        func changes() async throws {
            let bench = try await CognitoBench()
            let (identity, token) = ("us-east-1:\(UUID().uuidString.lowercased())", makeAPNsToken())
            func change(_ count: Int, _ pool: String) -> String {
                let object: JSONValue = [
                    "identityPoolId": .string(pool), "identityId": .string(identity),
                    "datasetName": "inbox", "syncCount": JSONValue(count),
                ]
                return object.text
            }
            try await bench.write([change(1, bench.pool)], key: identity)
            let phone = try await bench.bench.register([
                "deviceType": "ios", "deviceToken": .string(token),
                "apnsTopic": .string(bench.app.bundleID), "apnsEnvironment": "production",
                "identity": .string(identity),
            ])
            try await bench.subscribe(phone, to: "inbox", of: identity)
            try await bench.write(
                [
                    change(5, bench.pool), change(4, bench.pool), "{", change(5, bench.pool),
                    change(6, "us-east-1:0f"), change(0, bench.pool), "",
                ],
                key: identity
            )
            let simulator = bench.bench.simulator
            _ = try await simulator.waitFor(1, for: token)
            // A change after all that, after a window of its own, is notified last.
            try await bench.write([change(3, bench.pool), change(9, bench.pool)], key: identity)
            let told = try await simulator.waitFor(2, for: token).map { received in
                received.body["data"]?["syncCount"]?.string
            }
            #expect(told == ["5", "9"])
            let letters = try await bench.bench.stack.deadLetters(4, key: identity)
            #expect(
                letters.compactMap { $0.header("error.reason") }.sorted()
                    == ["empty_value", "invalid_json", "invalid_request", "unknown_pool"]
            )
            let state = try JSONValue.parse(
                try await bench.carillon("sync", "show", bench.pool, identity, "--json")
            )
            #expect(state["subscriptions"]?[0]?["told"]?.integer == 9)
        }

        @Test("An erased identity leaves nothing, and the receipt counts it")
        func erasure() async throws {
            let bench = try await CognitoBench()
            let identity = "us-east-1:\(UUID().uuidString.lowercased())"
            try await bench.carillon("app", "set", bench.app.id, "sync-unsigned=on")
            let value = TestEnvironment.unique("a-value-")
            try await bench.save("diary", of: identity, key: "day", value: value)
            let phone = try await bench.bench.register([
                "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                "apnsTopic": .string(bench.app.bundleID), "identity": .string(identity),
            ])
            try await bench.subscribe(phone, to: "diary", of: identity)
            let receipt = try JSONValue.parse(
                try await bench.carillon(
                    "erase",
                    bench.app.id,
                    "--identity",
                    identity,
                    "--json"
                )
            )
            let erased = receipt["erased"]
            for name in ["syncDatasets", "syncRecords", "syncDevices", "syncSubscriptions"] {
                #expect(erased?[name]?.integer == 1, "\(name)")
            }
            let left = try await run("pg_dump", [bench.bench.stack.database.url])
                .successful("pg_dump")
            #expect(!left.contains(identity) && !left.contains(value))
        }
    }
}

/// An app with a pool of its own that pushes, on the running stack.
struct CognitoBench: Sendable {
    let bench: Bench
    let pool = "us-east-1:\(UUID().uuidString.lowercased())"

    var app: Stack.App { bench.app }

    init() async throws {
        bench = try await Bench()
        try await carillon("app", "link", app.id, "--cognito-identity-pool", pool)
    }

    @discardableResult
    func carillon(_ arguments: String...) async throws -> String {
        try await run(
            Stack.executable("carillon"),
            arguments,
            environment: bench.stack.environment
        )
        .successful("carillon \(arguments)")
    }

    var environment: [String: String] {
        [
            "REGISTRATION_URL": bench.registration, "SIMULATOR_URL": bench.simulator.url,
            "CHANNEL_ORIGIN": bench.stack.origin, "APP_ID": app.id, "APP_KEY": app.appKey,
            "MASTER_KEY": app.masterKey, "POOL": pool,
        ]
    }

    /// Writes records of `dataset.changes`, in order.
    func write(_ values: [String], key: String) async throws {
        try await bench.stack.kafka.produce(
            values.map { (key, $0) },
            to: bench.stack.topic("dataset.changes")
        )
    }

    private func path(_ dataset: String, of identity: String) -> String {
        "\(bench.registration)/identitypools/\(pool)/identities/\(identity)/datasets/\(dataset)"
    }

    /// Saves one record, unsigned.
    func save(_ dataset: String, of identity: String, key: String, value: String) async throws {
        let path = path(dataset, of: identity)
        let token = try await http("GET", path + "/records").json?["SyncSessionToken"]
        let answer = try await http(
            "POST",
            path,
            body: [
                "SyncSessionToken": token ?? .null,
                "RecordPatches": [
                    [
                        "Op": "replace", "Key": .string(key), "Value": .string(value),
                        "SyncCount": 0,
                    ]
                ],
            ]
        )
        guard answer.status == 200 else { throw TestFailure("\(answer.status) \(answer.text)") }
    }

    /// Subscribes an installation, unsigned, once its dataset exists; from then on the pool pushes.
    func subscribe(_ device: String, to dataset: String, of identity: String) async throws {
        try await carillon("app", "set", app.id, "sync-unsigned=on")
        _ = try await bench.stack.database.query(
            """
            UPDATE sync_pools SET is_pushing = true,
                push_sync = '{"ApplicationArns": ["arn:aws:sns:us-east-1:1:app/APNS/x"]}'
            WHERE name = '\(pool)'
            """
        )
        _ = try await eventually("the dataset is there") {
            let answer = try await http(
                "POST",
                path(dataset, of: identity) + "/subscriptions/\(device)"
            )
            return answer.status == 200 ? true : nil
        }
    }
}
