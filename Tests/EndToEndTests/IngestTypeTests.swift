import Foundation
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests {
    @Suite("Commands of ingest types", .serialized, .timeLimit(.minutes(2)))
    struct IngestTypeTests {
        /// The original sample, with a bound.
        private static let weather: JSONObject = [
            "type": "object", "required": ["_id", "deviceId"], "additionalProperties": false,
            "properties": [
                "_id": ["type": "string"], "deviceId": ["type": "string", "maxLength": 20],
                "temperatureInFahrenheit": ["type": "number"],
                "windSpeedInMph": ["type": "integer", "minimum": 0],
            ],
        ]

        /// Makes the same type with other properties and members.
        private static func weather(
            _ properties: JSONObject,
            _ members: JSONObject = [:]
        ) -> JSONObject {
            var schema = weather
            var all = schema["properties"]?.object ?? [:]
            for (name, value) in properties {
                if value.isNull { all.removeValue(forKey: name) } else { all[name] = value }
            }
            schema["properties"] = .object(all)
            for (name, value) in members { schema[name] = value }
            return schema
        }

        private func withShop(_ body: (Operator) async throws -> Void) async throws {
            try await withOperator { carillon in
                for name in ["ingest.Weather", "ingest.Tide"] { try carillon.createTopic(name) }
                try await carillon.says("migrate")
                try await carillon.says("app", "create", "shop")
                try await body(carillon)
            }
        }

        private func withFile(
            _ text: String,
            _ body: (String) async throws -> Void
        ) async throws {
            let path =
                FileManager.default.temporaryDirectory.path + "/"
                + TestEnvironment.unique("schema-")
            try text.write(toFile: path, atomically: true, encoding: .utf8)
            defer { try? FileManager.default.removeItem(atPath: path) }
            try await body(path)
        }

        /// Runs `ingest type put shop Weather` with this schema.
        private func put(
            _ schema: JSONObject,
            _ carillon: Operator,
            type: String = "Weather",
            _ options: String...
        ) async throws -> ProgramAnswer {
            try await carillon(
                ["ingest", "type", "put", "shop", type, "--schema", "/dev/stdin"] + options,
                input: JSONValue.object(schema).text
            )
        }

        @Test("A type is declared, found unchanged, widened, listed, shown and audited")
        func lifetime() async throws {
            try await withShop { carillon in
                let rehearsed = try await put(Self.weather, carillon, "--dry-run", "--json")
                let would = try JSONValue.parse(rehearsed.successful("a rehearsal"))
                #expect(would["version"] == 1 && would["changed"] == true)
                #expect(would["dryRun"] == true && would["kafkaTopic"] == "ingest.Weather")
                let builtIn = try await carillon.json("ingest", "type", "list", "shop").array
                #expect(builtIn?.count == BuiltInIngestType.allCases.count)

                let first = try await put(
                    Self.weather,
                    carillon,
                    "--retention",
                    "90d",
                    "--subject",
                    "deviceId"
                ).successful("put")
                #expect(first.contains("declared Weather of shop, version 1"))
                let again = try await put(Self.weather, carillon, "--json").successful("again")
                #expect(try JSONValue.parse(again)["changed"] == false)
                #expect(try JSONValue.parse(again)["version"] == 1)
                #expect(try await put(Self.weather, carillon).output.contains("version 1 already"))
                let kept = try await put(Self.weather, carillon, "--retention", "30d")
                #expect(try kept.successful("kept").contains("still version 1"))

                let wide = Self.weather(
                    ["rain": ["type": "boolean"], "windSpeedInMph": ["type": "number"]],
                    ["required": ["_id"]]
                )
                let widened = try await put(wide, carillon, "--json").successful("widened")
                #expect(try JSONValue.parse(widened)["version"] == 2)
                #expect(try JSONValue.parse(widened)["retentionDays"] == 30)
                #expect(try JSONValue.parse(widened)["subject"] == "deviceId")

                let shown = try await carillon.json("ingest", "type", "show", "shop", "Weather")
                #expect(shown["version"] == 2 && shown["view"] == "ingest_shop_weather")
                #expect(shown["schema"] == .object(wide))
                #expect(shown["subjects"] == ["deviceId"] && shown["retentionDays"] == 30)
                #expect(
                    shown["columns"]?.array?.contains(["name": "rain", "type": "boolean"]) == true
                )
                let text = try await carillon.says("ingest", "type", "show", "shop", "Weather")
                for part in ["ingest_shop_weather", "ingest.Weather", "30d", "rain boolean"] {
                    #expect(text.contains(part), "\(part)")
                }
                for type in ["SegmentTrack", "PushOpened"] {
                    let shown = try await carillon.json("ingest", "type", "show", "shop", type)
                    #expect(
                        shown["builtIn"] == true && shown["kafkaTopic"]?.string == "ingest.\(type)"
                    )
                }
                let list = try await carillon.says("ingest", "type", "list", "shop")
                #expect(list.contains("Weather") && list.contains("SegmentTrack"))
                let audited = try await carillon.says("audit", "shop", "--json")
                let puts = audited.split(separator: "\n").filter { $0.contains("ingest type put") }
                #expect(puts.count == 3)
                #expect(puts.first?.contains("version:2") == true)
                let doctor = try await carillon.json("doctor")["checks"]?.array ?? []
                #expect(doctor.contains { $0["name"] == "ingest" && $0["status"] == "ok" })
            }
        }

        @Test(
            "A schema that accepts less than before is refused with the place, and changes nothing"
        )
        func narrowing() async throws {
            try await withShop { carillon in
                _ = try await put(Self.weather, carillon).successful("put")
                let narrower: [(JSONObject, String)] = [
                    (Self.weather(["deviceId": ["type": "integer"]]), "/properties/deviceId"),
                    (Self.weather(["windSpeedInMph": .null]), "windSpeedInMph"),
                    (
                        Self.weather(["deviceId": ["type": "string", "maxLength": 19]]),
                        "/properties/deviceId"
                    ),
                    (
                        Self.weather(["windSpeedInMph": ["type": "integer", "minimum": 1]]),
                        "/properties/windSpeedInMph"
                    ),
                    (
                        Self.weather([:], ["required": ["_id", "deviceId", "windSpeedInMph"]]),
                        "/required"
                    ),
                ]
                for (schema, pointer) in narrower {
                    for options in [[], ["--dry-run"]] {
                        let answer = try await carillon(
                            ["ingest", "type", "put", "shop", "Weather", "--schema", "-"] + options,
                            input: JSONValue.object(schema).text
                        )
                        #expect(answer.exit == .status(1), "\(pointer)")
                        #expect(answer.errors.contains(pointer), "\(answer.errors)")
                    }
                }
                let shown = try await carillon.json("ingest", "type", "show", "shop", "Weather")
                #expect(shown["version"] == 1 && shown["schema"] == .object(Self.weather))
            }
        }

        @Test("An invalid type is refused with the reason")
        func refusals() async throws {
            try await withShop { carillon in
                let text = JSONValue.object(Self.weather).text
                func refused(
                    _ words: [String],
                    _ named: String,
                    input: String? = nil,
                    code: Int32 = 64
                ) async throws {
                    let answer = try await carillon(
                        ["ingest", "type", "put"] + words,
                        input: input ?? text
                    )
                    #expect(answer.exit == .status(code), "\(words): \(answer.errors)")
                    #expect(answer.errors.contains(named), "\(words): \(answer.errors)")
                }
                let schema = ["--schema", "-"]
                try await refused(["shop", "Weather"], "--schema is missing")
                try await refused(["shop", "9Lives"] + schema, "a type's name is a letter")
                try await refused(["shop", "SegmentTrack"] + schema, "built-in")
                try await refused(["shop", "pushy"] + schema, "built-in")
                try await refused(["shop", "Weather", "--schema", "/none"], "/none")
                try await refused(["shop", "Weather"] + schema, "JSON", input: "{")
                try await refused(
                    ["shop", "Weather"] + schema,
                    "64 KiB",
                    input: text + String(repeating: " ", count: 64 << 10)
                )
                try await refused(
                    ["shop", "Weather"] + schema,
                    "/properties/n",
                    input: JSONValue.object(Self.weather(["n": ["type": "text"]])).text
                )
                for days in ["0d", "12h", "x", "1.5d", "99999999d", ""] {
                    try await refused(
                        ["shop", "Weather", "--retention", days] + schema,
                        "--retention takes whole days"
                    )
                }
                try await refused(
                    ["shop", "Weather", "--subject", "deviceid"] + schema,
                    "did you mean deviceId?"
                )
                try await refused(
                    ["shop", "Weather", "--subject", "windSpeedInMph"] + schema,
                    "is not a string"
                )
                try await refused(["shopp", "Weather"] + schema, "no app", code: 1)
                _ = try await put(Self.weather, carillon).successful("put")
                try await carillon.says("app", "create", "other")
                for app in ["shop", "other"] {
                    try await refused([app, "WEATHER"] + schema, "Weather", code: 1)
                }
                #expect(
                    try await carillon.refuses("ingest", "type", "show", "shop", "Wether")
                        .contains("did you mean Weather?")
                )
                #expect(
                    try await carillon.json("ingest", "type", "list", "other").array?.count
                        == BuiltInIngestType.allCases.count
                )
            }
        }
    }
}
