import Compression
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Requests over plain HTTP that no vendor's client library would send.
    @Suite(
        "Ingest accepts objects, reports refused ones, and never returns them",
        .runningIngest,
        .serialized,
        needsBroker,
        .timeLimit(.minutes(10))
    )
    struct IngestTests {
        private static let native = "/v1/ingest/WeatherSensor"
        private static let lines = "application/x-ndjson"

        // MARK: The native route

        @Test("A body is one object, an array, or one object a line, compressed or not")
        func forms() async throws {
            let bench = try await IngestBench()
            var sent: [String] = []
            func expect(
                _ ids: [String],
                _ bytes: [UInt8],
                _ headers: [String: String]
            ) async throws {
                let answer = try await bench.ask("POST", Self.native, headers, bytes)
                #expect(answer.status == 200, "\(headers): \(answer.text)")
                #expect(
                    answer.json
                        == [
                            "accepted": .array(ids.map(JSONValue.string)), "duplicates": [],
                            "refused": [],
                        ],
                    "\(headers)"
                )
                sent += ids
            }
            let json = ["Content-Type": "application/json"]
            var id = IngestBench.makeID()
            try await expect([id], IngestBench.reading(id).bytes, json)
            id = IngestBench.makeID()
            try await expect([id], IngestBench.reading(id).bytes, [:])
            for coding in [nil, "gzip", "zstd"] {
                let ids = (0..<20).map { _ in IngestBench.makeID() }
                let objects = ids.map { IngestBench.reading($0) }
                let more = ids.map { String($0.reversed()) }
                let text = more.map { IngestBench.reading($0).text }
                let packed: ([UInt8]) throws -> [UInt8] = { bytes in
                    try coding.flatMap(Compression.init(contentCoding:))?.compress(bytes) ?? bytes
                }
                let encoding = coding.map { ["Content-Encoding": $0] } ?? [:]
                try await expect(
                    ids,
                    try packed(JSONValue.array(objects).bytes),
                    json.merging(encoding) { $1 }
                )
                try await expect(
                    more,
                    try packed(Array(text.joined(separator: "\r\n\r\n").utf8)),
                    ["Content-Type": Self.lines].merging(encoding) { $1 }
                )
            }
            // An id has no case, and may be a UUID.
            let uuid = UUID().uuidString
            try await expect([uuid.lowercased()], IngestBench.reading(uuid).bytes, json)
            let rows = try await bench.rows("WeatherSensor", count: sent.count)
            #expect(rows == sent.sorted())
        }

        @Test(
            "A refused object is reported with the place of its error, and can be sent again corrected"
        )
        func refused() async throws {
            let bench = try await IngestBench()
            let (good, bad, twice) = (
                IngestBench.makeID(), IngestBench.makeID(), IngestBench.makeID()
            )
            let objects: [JSONValue] = [
                IngestBench.reading(good),
                IngestBench.reading(bad, ["windSpeedInMph": "calm"]),
                IngestBench.reading(twice), IngestBench.reading(twice, ["windSpeedInMph": 9]),
                ["deviceId": "no id"], ["_id": "seven", "deviceId": "x"], 7,
                IngestBench.reading(IngestBench.makeID(), ["a/b~c": 1]),
                IngestBench.reading(IngestBench.makeID(), ["deviceId": "a\u{0}b"]),
                ["_id": .string(IngestBench.makeID())],
            ]
            let answer = try await bench.post(Self.native, .array(objects))
            #expect(answer.status == 200)
            #expect(answer.json?["accepted"] == [.string(good), .string(twice)])
            let refused = answer.json?["refused"]?.array ?? []
            #expect(refused.map { $0["index"]?.integer } == [1, 4, 5, 6, 7, 8, 9])
            #expect(
                refused.map { $0["pointer"]?.string } == [
                    "/windSpeedInMph", "/_id", "/_id", "", "/a~1b~0c", "/deviceId", "/deviceId",
                ]
            )
            #expect(refused.first?["_id"]?.string == bad)
            #expect(refused.allSatisfy { $0["reason"]?.string?.isEmpty == false })

            // Among lines an invalid one is a refused object, and blank ones do not count.
            let more = IngestBench.makeID()
            let text = "\n{\"_id\": \n  \r\n\(IngestBench.reading(more).text)\n[]"
            let lines = try await bench.ask(
                "POST",
                Self.native,
                ["Content-Type": Self.lines],
                Array(text.utf8)
            )
            #expect(lines.json?["accepted"] == [.string(more)])
            #expect(lines.json?["refused"]?.array?.map { $0["index"]?.integer } == [0, 2])

            try await bench.send([IngestBench.reading(bad, ["windSpeedInMph": 4])])
            let rows = try await bench.rows("WeatherSensor", "_id, \"windSpeedInMph\"", count: 4)
            #expect(
                rows == ["\(good)|2", "\(twice)|2", "\(more)|2", "\(bad)|4"].sorted()
            )
            let pages = try await http("GET", "\(bench.service.url)/metrics").text
            #expect(pages.contains("ingest_objects_refused_total"))
        }

        @Test("The same _id, concurrent, repeated and by every protocol, is one object: the first")
        func oneObject() async throws {
            let bench = try await IngestBench()
            let ids = (0..<20).map { _ in IngestBench.makeID() }
            let path = Self.native
            try await bench.send(ids.map { IngestBench.reading($0) })
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<8 {
                    group.addTask {
                        let later = ids.map { IngestBench.reading($0, ["windSpeedInMph": 77]) }
                        let answer = try await bench.post(path, .array(later))
                        #expect(answer.status == 200)
                        let told =
                            (answer.json?["accepted"]?.array ?? [])
                            + (answer.json?["duplicates"]?.array ?? [])
                        #expect(Set(told.compactMap(\.string)) == Set(ids))
                        let id = ids[number]
                        let event = try await bench.post(
                            "/events",
                            [
                                "specversion": "1.0", "type": "WeatherSensor", "source": "/x",
                                "id": .string(id.uppercased()), "data": ["deviceId": "other"],
                            ],
                            type: "application/cloudevents+json"
                        )
                        #expect(event.status == 204)
                        let insert = try await bench.atlas(
                            "insertOne",
                            ["document": ["_id": ["$oid": .string(id)], "deviceId": "other"]],
                            type: "application/ejson"
                        )
                        #expect(insert.status == 201)
                    }
                }
                try await group.waitForAll()
            }
            let rows = try await bench.rows(
                "WeatherSensor",
                "_id, \"windSpeedInMph\", \"deviceId\"",
                count: ids.count
            )
            #expect(rows == ids.sorted().map { "\($0)|2|WX1278UIT" })
        }

        @Test("A request that cannot contain objects is refused, without a redirect")
        func faults() async throws {
            let bench = try await IngestBench()
            let id = IngestBench.makeID()
            for path in ["\(Self.native)/", "/\(Self.native)", "/\(Self.native)/"] {
                let answer = try await bench.post(path, IngestBench.reading(id))
                #expect(answer.status == 200, "\(path): \(answer.status)")
            }
            for body in ["", "7", "[]", "null", "{", "[7]", "\"text\""] {
                let answer = try await bench.ask(
                    "POST",
                    Self.native,
                    ["Content-Type": "application/json"],
                    Array(body.utf8)
                )
                #expect(answer.status == 400, "\(body): \(answer.text)")
            }
            let empty = try await bench.ask("POST", Self.native, ["Content-Type": Self.lines], [10])
            #expect(empty.status == 400)
            for type in ["Undeclared", "weathersensor", "a%20b", "SegmentNone"] {
                let answer = try await bench.post("/v1/ingest/\(type)", IngestBench.reading(id))
                #expect(answer.status == 404, "\(type): \(answer.status)")
            }
            let many = JSONValue.array((0..<1001).map { _ in IngestBench.reading(id) })
            #expect(try await bench.post(Self.native, many).status == 413)
            let large = [UInt8](repeating: 0x20, count: (4 << 20) + 1)
            #expect(try await bench.ask("POST", Self.native, [:], large).status == 413)
            let bomb = try Compression(contentCoding: "gzip")?.compress(
                [UInt8](repeating: 0x20, count: 64 << 20)
            )
            let burst = try await bench.ask(
                "POST",
                Self.native,
                ["Content-Encoding": "gzip"],
                bomb ?? []
            )
            #expect(burst.status == 413 || burst.status == 400, "\(burst.status)")
            let coded = try await bench.ask(
                "POST",
                Self.native,
                ["Content-Encoding": "br"],
                [1, 2, 3]
            )
            #expect(coded.status == 415)
            for path in [
                "/batch/", "/i", "/com.snowplowanalytics.snowplow/tp2",
                "/api/client/v2.0/app/\(bench.app.id)/graphql", "/v1/nothing",
            ] {
                #expect(try await bench.post(path, ["a": 1]).status == 404, "\(path)")
            }
            let rows = try await bench.rows("WeatherSensor", count: 1)
            #expect(rows == [id])
        }

        @Test("Reading, changing and deleting are 405 with a reason, by every method")
        func oneWay() async throws {
            let bench = try await IngestBench()
            try await bench.send([IngestBench.reading(IngestBench.makeID())])
            let atlas = "/app/\(bench.app.id)/endpoint/data/v1/action/"
            let paths = [
                Self.native, "/v1/batch", "/v1/track", "/events", atlas + "insertOne",
                atlas + "insertMany",
            ]
            let master = bench.app.masterHeaders
            for path in paths {
                for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE"] {
                    let answer = try await http(
                        method,
                        bench.service.url + path,
                        headers: master,
                        bytes: []
                    )
                    #expect(answer.status == 405, "\(method) \(path): \(answer.status)")
                    #expect(answer.header("allow") == "POST, OPTIONS", "\(method) \(path)")
                    #expect(method == "HEAD" || answer.text.contains("cannot be read"))
                }
            }
            for action in [
                "find", "findOne", "aggregate", "updateOne", "updateMany", "replaceOne",
                "deleteOne", "deleteMany",
            ] {
                let answer = try await bench.atlas(action, ["filter": [:]])
                #expect(answer.status == 405, "\(action): \(answer.status)")
                #expect(answer.json?["error"]?.string?.isEmpty == false)
            }
        }

        @Test("Web pages of any origin may send, and webhooks validate first")
        func preflights() async throws {
            let bench = try await IngestBench()
            let origin = "https://shop.example"
            for path in [Self.native, "/v1/batch", "/events", "/v1/t"] {
                let asked = try await http(
                    "OPTIONS",
                    bench.service.url + path,
                    headers: [
                        "Origin": origin, "Access-Control-Request-Method": "POST",
                        "Access-Control-Request-Headers": "authorization, content-type",
                    ],
                    bytes: []
                )
                #expect((200..<300).contains(asked.status), "\(path): \(asked.status)")
                let allowed = asked.header("access-control-allow-origin")
                #expect(allowed == "*" || allowed == origin, "\(path): \(allowed ?? "none")")
                #expect(asked.header("access-control-allow-methods")?.contains("POST") == true)
                #expect(
                    asked.header("access-control-allow-headers")?.contains("authorization") == true
                )
            }
            let sent = try await bench.ask(
                "POST",
                Self.native,
                ["Origin": origin, "Content-Type": "application/json"],
                IngestBench.reading(IngestBench.makeID()).bytes
            )
            #expect(sent.header("access-control-allow-origin") != nil)
            let webhook = try await http(
                "OPTIONS",
                bench.service.url + "/events",
                headers: [
                    "WebHook-Request-Origin": "eventemitter.example.com",
                    "WebHook-Request-Rate": "120",
                ],
                bytes: []
            )
            #expect((200..<300).contains(webhook.status))
            #expect(webhook.header("webhook-allowed-origin") == "eventemitter.example.com")
            #expect(webhook.header("webhook-allowed-rate") != nil)
            #expect(webhook.header("allow")?.contains("POST") == true)
        }

        // MARK: Atlas

        @Test(
            "Atlas' inserts, in JSON and in extended JSON, go into a type of its own schema file",
            arguments: ["application/json", "application/ejson"]
        )
        func atlas(type: String) async throws {
            let bench = try await IngestBench(declares: IngestBench.atlasWeatherSensor)
            let isExtended = type == "application/ejson"
            var sent: [String] = []
            func document(_ id: String?) -> JSONValue {
                var object: JSONObject = ["deviceId": "WX1278UIT"]
                if isExtended {
                    object["temperatureInFahrenheit"] = ["$numberDouble": "66.7"]
                    object["barometricPressureInHg"] = 29.65
                    object["windSpeedInMph"] = ["$numberInt": "2"]
                    object["_id"] = id.map { ["$oid": .string($0)] }
                } else {
                    object["temperatureInFahrenheit"] = 66.7
                    object["barometricPressureInHg"] = 29.65
                    object["windSpeedInMph"] = 2
                    object["_id"] = id.map(JSONValue.string)
                }
                return .object(object)
            }
            func plain(_ told: JSONValue?) throws -> String {
                try #require((isExtended ? told?["$oid"] : told)?.string)
            }
            let id = IngestBench.makeID()
            let one = try await bench.atlas("insertOne", ["document": document(id)], type: type)
            #expect(one.status == 201)
            #expect(try plain(one.json?["insertedId"]) == id)
            let made = try await bench.atlas("insertOne", ["document": document(nil)], type: type)
            sent += [id, try plain(made.json?["insertedId"])]
            #expect(sent[1].utf8.count == 24)
            let many = try await bench.atlas(
                "insertMany",
                ["documents": .array((0..<50).map { _ in document(nil) })],
                type: type
            )
            #expect(many.status == 201)
            let told = try (many.json?["insertedIds"]?.array ?? []).map { try plain($0) }
            #expect(Set(told).count == 50)
            sent += told

            // All or nothing.
            var bad = try #require(document(nil).object)
            bad["windSpeedInMph"] = "calm"
            let refused = try await bench.atlas(
                "insertMany",
                ["documents": [document(nil), .object(bad), document(nil)]],
                type: type
            )
            #expect(refused.status == 400)
            #expect(refused.json?["error_code"] == "SchemaValidationFailedWrite")
            #expect(
                refused.json?["error"]?.string?.hasPrefix("documents[1]/windSpeedInMph: ") == true,
                "\(refused.text)"
            )
            let whole: JSONValue = ["document": document(nil), "collection": "Nobodys"]
            let unknown = try await bench.atlas("insertOne", whole, type: type)
            #expect(unknown.status == 404 && unknown.json?["error_code"] == "NoSuchType")
            let wrong = try await bench.atlas(
                "insertOne",
                ["document": document(nil)],
                type: type,
                key: "not-a-key"
            )
            #expect(wrong.status == 401 && wrong.json?["error_code"] == "InvalidSession")
            let path = "/app/\(bench.app.id)/endpoint/data/v1/action/insertOne"
            let halves: [JSONValue] = [
                ["collection": "WeatherSensor", "document": document(nil)],
                ["dataSource": "a", "database": "b", "collection": "WeatherSensor"],
                [],
            ]
            for half in halves {
                let answer = try await bench.post(path, half, type: type)
                #expect(answer.status == 400, "\(half.text): \(answer.status)")
            }
            let rows = try await bench.rows(
                "WeatherSensor",
                """
                _id, "deviceId", "temperatureInFahrenheit", "barometricPressureInHg", \
                "windSpeedInMph", _object->>'_id' = _id
                """,
                count: sent.count
            )
            #expect(rows == sent.sorted().map { "\($0)|WX1278UIT|66.7|29.65|2|t" })
        }

        // MARK: The sample type

        @Test(
            "The same type from JSON Schema and from Atlas' schema file has the same columns",
            arguments: [IngestBench.weatherSensor, IngestBench.atlasWeatherSensor]
        )
        func seed(schema: JSONValue) async throws {
            let bench = try await IngestBench(declares: schema)
            let id = IngestBench.makeID()
            try await bench.send([IngestBench.reading(id)])
            let rows = try await bench.rows(
                "WeatherSensor",
                """
                _id, "deviceId", "temperatureInFahrenheit", "barometricPressureInHg", \
                "windSpeedInMph", _schema_version, _received_at <= now()
                """,
                count: 1
            )
            #expect(rows == ["\(id)|WX1278UIT|66.7|29.65|2|1|t"])
            let view = try await bench.view(of: "WeatherSensor")
            let columns = try await bench.stack.database.query(
                """
                SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
                WHERE attrelid = '\(view)'::regclass AND attnum > 0 ORDER BY attnum
                """
            )
            #expect(
                Set(columns) == [
                    "_id|text", "_received_at|timestamp with time zone",
                    "_schema_version|integer", "_object|jsonb", "deviceId|text",
                    "temperatureInFahrenheit|double precision",
                    "barometricPressureInHg|double precision", "windSpeedInMph|bigint",
                ]
            )
            let record = try #require(
                try await bench.stack.kafka
                    .records(on: bench.stack.topic("ingest.WeatherSensor"))
                    .first { $0.key == id }
            )
            #expect(record.json == IngestBench.reading(id))
            #expect(record.header("app") == bench.app.id)
            #expect(record.header("schema.version") == "1")
            #expect(record.header("received.at")?.hasSuffix("Z") == true)
        }

        @Test("Another app's key reaches no type of ours, and its objects are in no view of ours")
        func anotherApp() async throws {
            let bench = try await IngestBench()
            let stranger = try await IngestBench(declares: nil)
            let id = IngestBench.makeID()
            let answer = try await stranger.post(Self.native, IngestBench.reading(id))
            #expect(answer.status == 404)
            let insert = try await http(
                "POST",
                "\(bench.service.url)/app/\(bench.app.id)/endpoint/data/v1/action/insertOne",
                headers: ["apiKey": stranger.app.appKey],
                body: [
                    "dataSource": "a", "database": "b", "collection": "WeatherSensor",
                    "document": IngestBench.reading(id),
                ]
            )
            #expect(insert.status == 401)
            // Both have the type, and each sees only its own objects, even with the same ids.
            try await stranger.declare("WeatherSensor", IngestBench.weatherSensor)
            _ = try await eventually("the type is known") {
                let answer = try await stranger.post(
                    Self.native,
                    IngestBench.reading(id, ["deviceId": "theirs"])
                )
                return answer.status == 200 ? true : nil
            }
            try await bench.send([IngestBench.reading(id, ["deviceId": "ours"])])
            for (one, name) in [(bench, "ours"), (stranger, "theirs")] {
                let rows = try await one.rows("WeatherSensor", "_id, \"deviceId\"", count: 1)
                #expect(rows == ["\(id)|\(name)"])
            }
        }
    }
}

extension IngestBench {
    /// Calls an action of Atlas' Data API, and adds the common members of the body.
    func atlas(
        _ action: String,
        _ body: JSONValue,
        type: String = "application/json",
        key: String? = nil
    ) async throws -> HTTPAnswer {
        var whole: JSONObject = [
            "dataSource": "mongodb-atlas", "database": "weather", "collection": "WeatherSensor",
        ]
        for (name, value) in body.object ?? [:] { whole[name] = value }
        return try await http(
            "POST",
            "\(service.url)/app/\(app.id)/endpoint/data/v1/action/\(action)",
            headers: [
                "apiKey": key ?? app.appKey, "Content-Type": type, "Accept": type,
            ],
            bytes: JSONValue.object(whole).bytes
        )
    }
}
