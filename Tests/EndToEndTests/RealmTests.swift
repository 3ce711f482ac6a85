import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    static let needsRealmClient = ConditionTrait.enabled(
        if: TestEnvironment.realmClient != nil,
        "REALM_CLIENT is not set"
    )

    /// The official native client, unchanged: only its base URL is ours.
    @Suite(
        "Realm's client uploads its asymmetric objects, and is never harmed",
        .runningIngest,
        .serialized,
        needsBroker,
        needsRealmClient,
        .timeLimit(.minutes(10))
    )
    struct RealmTests {
        @Test("An anonymous user's objects are stored once, also after the client was killed")
        func anonymous() async throws {
            let bench = try await IngestBench.realm()
            try await withDeviceFolder { folder in
                let device = try await RealmDevice.start(in: folder, bench, async: true)
                let first = IngestBench.makeID()
                try await device.write([IngestBench.realmReading(first)])
                try await device.waitUpload()
                device.expectUnharmed()
                await device.crash()

                // A stored user needs no sign-in, and its file continues.
                let again = try await RealmDevice.start(in: folder, bench, login: nil)
                let second = IngestBench.makeID()
                try await again.write([IngestBench.realmReading(second)])
                try await again.waitUpload()
                again.expectUnharmed()
                await again.quit()
                let rows = try await bench.rows("WeatherSensor", count: 2)
                #expect(rows == [first, second].sorted())
            }
        }

        @Test("The app's id at Atlas is an alias, and an API key signs in")
        func alias() async throws {
            let bench = try await IngestBench.realm()
            let atlas = TestEnvironment.unique("tracker-")
            try await bench.stack.carillon("app", "link", bench.app.id, "--atlas-app", atlas)
            try await withDeviceFolder { folder in
                let device = try await RealmDevice.start(
                    in: folder,
                    bench,
                    appID: atlas,
                    login: ["provider": "apiKey", "key": .string(bench.app.appKey)]
                )
                let id = IngestBench.makeID()
                try await device.write([IngestBench.realmReading(id)])
                try await device.waitUpload()
                device.expectUnharmed()
                await device.quit()
                #expect(try await bench.rows("WeatherSensor", count: 1) == [id])
            }
        }

        @Test("Every field type arrives with its value")
        func types() async throws {
            let bench = try await IngestBench.realm()
            let schema: JSONValue = [
                "type": "object",
                "properties": [
                    "_id": ["type": "string"], "texts": ["type": "array"],
                    "count": ["type": "integer"],
                ],
                "required": ["_id", "count"],
            ]
            try await bench.declare("Everything", schema)
            let id = IngestBench.makeID()
            try await withDeviceFolder { folder in
                let device = try await RealmDevice.start(in: folder, bench, schema: Self.everything)
                try await device.write(
                    [
                        [
                            "_id": .string(id), "int": 9_007_199_254_740_993, "none": .null,
                            "bool": true, "string": "é\"\u{2028}", "binary": "AAEC",
                            "date": ["s": 1_700_000_000, "ns": 123_000_000], "float": 66.7,
                            "double": 0.1, "decimal": "1.10",
                            "objectId": "507f1f77bcf86cd799439011",
                            "uuid": "00112233-4455-6677-8899-aabbccddeeff",
                            "mixed": [1, "a", ["k": .null]], "list": ["a", "b"], "set": ["q"],
                            "dictionary": ["k": "v"], "embedded": ["x": 1],
                            "embeddeds": [["x": 2], ["x": 3]],
                        ]
                    ],
                    class: "Everything"
                )
                try await device.waitUpload()
                device.expectUnharmed()
                await device.quit()
            }
            let expected: JSONValue = [
                "_id": .string(id), "int": 9_007_199_254_740_993, "none": .null, "bool": true,
                "string": "é\"\u{2028}", "binary": "AAEC", "date": "2023-11-14T22:13:20.123Z",
                "float": 66.7, "double": 0.1, "decimal": "1.10",
                "objectId": "507f1f77bcf86cd799439011",
                "uuid": "00112233-4455-6677-8899-aabbccddeeff",
                "mixed": [1, "a", ["k": .null]], "list": ["a", "b"], "set": ["q"],
                "dictionary": ["k": "v"], "embedded": ["x": 1], "embeddeds": [["x": 2], ["x": 3]],
                // Filled from the declared type.
                "texts": [], "count": 0,
            ]
            let view = try await bench.view(of: "Everything")
            let literal = expected.text.replacing("'", with: "''")
            let sql = "SELECT _object = '\(literal)'::jsonb, _object FROM \(view)"
            let row = try await eventually("the object is stored", within: .seconds(60)) {
                try await bench.stack.database.query(sql).first
            }
            #expect(row.hasPrefix("t|"), "\(row)")
        }

        private static let everything: JSONValue = [
            [
                "name": "Everything", "kind": "asymmetric", "pk": "_id",
                "props": [
                    "_id": "objectId", "int": "int", "none": "int?", "bool": "bool",
                    "string": "string", "binary": "binary", "date": "date", "float": "float",
                    "double": "double", "decimal": "decimal", "objectId": "objectId",
                    "uuid": "uuid", "mixed": "mixed?", "list": "string[]", "set": "string<>",
                    "dictionary": "string{}", "embedded": "object:Part?",
                    "embeddeds": "object:Part[]",
                ],
            ],
            ["name": "Part", "kind": "embedded", "props": ["x": "int?"]],
        ]

        @Test("A refused object is a dead letter, its app is told, and later objects go up")
        func refused() async throws {
            let bench = try await IngestBench.realm()
            try await withDeviceFolder { folder in
                let schema: JSONValue = [
                    [
                        "name": "WeatherSensor", "kind": "asymmetric", "pk": "_id",
                        "props": ["_id": "objectId", "deviceId": "string?", "extra": "string?"],
                    ],
                    [
                        "name": "Undeclared", "kind": "asymmetric", "pk": "_id",
                        "props": ["_id": "string"],
                    ],
                ]
                let device = try await RealmDevice.start(in: folder, bench, schema: schema)
                let (bad, good) = (IngestBench.makeID(), IngestBench.makeID())
                try await device.write([
                    ["_id": .string(bad), "deviceId": "x", "extra": "not declared"]
                ])
                try await device.write([["_id": "kü"]], class: "Undeclared")
                try await device.write([["_id": .string(good), "deviceId": "y"]])
                try await device.waitUpload()
                // Transactions that are stored together are reported together.
                _ = try await eventually("the app knows both") {
                    let told = device.syncErrors.map(\.text).joined()
                    return told.contains("extra") && told.contains("Undeclared") ? true : nil
                }
                let errors = device.syncErrors.count
                #expect((1...2).contains(errors))
                device.expectUnharmed(errors: errors)
                await device.quit()
                #expect(try await bench.rows("WeatherSensor", count: 1) == [good])
                let letters = try await bench.stack.carillon("dead-letters", "list", "--json")
                #expect(letters.contains("/v1/ingest/Undeclared"))
            }
        }

        @Test("Two thousand transactions of an outage arrive, each once")
        func backlog() async throws {
            let bench = try await IngestBench.realm()
            try await withDeviceFolder { folder in
                let device = try await RealmDevice.start(in: folder, bench)
                try await device.ask(["cmd": "pause"])
                try await device.ask(
                    [
                        "cmd": "writeMany", "class": "WeatherSensor", "count": 2_000,
                        "perTransaction": 1, "idPrefix": "0123456789abcdef",
                        "template": ["deviceId": "backlog"], "counter": "windSpeedInMph",
                    ],
                    within: .seconds(120)
                )
                let start = ContinuousClock.now
                try await device.ask(["cmd": "resume"])
                try await device.waitUpload(.seconds(120))
                print("realm: 2,000 transactions of an outage in \(ContinuousClock.now - start)")
                device.expectUnharmed()
                await device.quit()
                let view = try await bench.view(of: "WeatherSensor")
                _ = try await eventually("all rows", within: .seconds(60)) {
                    try await bench.stack.database.query(
                        "SELECT count(*), count(DISTINCT \"windSpeedInMph\") FROM \(view)"
                    ) == ["2000|2000"] ? true : nil
                }
            }
        }

        @Test("A transaction of 24 MB goes up, and its object is refused, not its client")
        func large() async throws {
            let bench = try await IngestBench.realm()
            try await bench.declare(
                "Blob",
                [
                    "type": "object",
                    "properties": [
                        "_id": ["type": "string"], "one": ["type": "string"],
                        "two": ["type": "string"],
                    ],
                    "required": ["_id"],
                ]
            )
            try await withDeviceFolder { folder in
                let schema: JSONValue = [
                    [
                        "name": "Blob", "kind": "asymmetric", "pk": "_id",
                        "props": ["_id": "objectId", "one": "string?", "two": "string?"],
                    ]
                ]
                let device = try await RealmDevice.start(in: folder, bench, schema: schema)
                let text = RealmDevice.text(of: 12_000_000)
                let (large, small) = (IngestBench.makeID(), IngestBench.makeID())
                try await device.write(
                    [["_id": .string(large), "one": .string(text), "two": .string(text)]],
                    class: "Blob"
                )
                try await device.write([["_id": .string(small), "one": "x"]], class: "Blob")
                try await device.waitUpload()
                _ = try await eventually("the app is told") {
                    device.syncErrors.count == 1 ? true : nil
                }
                device.expectUnharmed(errors: 1)
                await device.quit()
                let view = try await bench.view(of: "Blob")
                _ = try await eventually("the small one is stored", within: .seconds(30)) {
                    try await bench.stack.database.query("SELECT _id FROM \(view)") == [small]
                        ? true : nil
                }
            }
        }
    }
}

extension IngestBench {
    /// Makes an app that takes Realm's clients.
    static func realm() async throws -> IngestBench {
        let bench = try await IngestBench()
        try await bench.stack.carillon("app", "set", bench.app.id, "realm-sync=on")
        return bench
    }

    /// Waits until the objects of `RealmDevice.writeMany` are stored, each once.
    func expectNumbered(_ count: Int) async throws {
        let view = try await view(of: "WeatherSensor")
        let sql = "SELECT count(*), count(DISTINCT \"windSpeedInMph\") FROM \(view)"
        _ = try await eventually("\(count) rows, each once", within: .seconds(60)) {
            try await stack.database.query(sql) == ["\(count)|\(count)"] ? true : nil
        }
    }

    /// The sample object, as the driver takes it.
    static func realmReading(_ id: String) -> JSONValue {
        [
            "_id": .string(id), "deviceId": "WX1278UIT", "temperatureInFahrenheit": 66.7,
            "barometricPressureInHg": 29.65, "windSpeedInMph": 2,
        ]
    }
}

/// Gives a device a folder of its own, which is removed afterwards.
func withDeviceFolder(_ body: (String) async throws -> Void) async throws {
    let folder = "/tmp/" + TestEnvironment.unique("carillon-realm-")
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try await body(folder)
}
