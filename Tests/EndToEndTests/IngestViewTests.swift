import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Every object leaves the view of all readable",
        .runningIngest,
        .serialized,
        needsBroker,
        .timeLimit(.minutes(5))
    )
    struct IngestViewTests {
        /// RFC 3339 accepts them as times; Postgres' cast rejects the first four.
        private static let odd = [
            ("2016-12-31T23:59:60.5Z", "1483228800.500000"),
            ("0000-02-29T00:00:00Z", "-62162121600.000000"),
            ("1970-01-01T00:00:00+23:59", "-86340.000000"),
            ("1970-01-01T00:00:00.\(String(repeating: "0", count: 200))1Z", "0.000000"),
            ("2016-12-31T23:59:60Z", "1483228800.000000"),
        ]

        @Test("Each accepted time is shown: of a report, and of a declared type")
        func times() async throws {
            let bench = try await IngestBench()
            try await bench.declare(
                "WeatherSensor",
                [
                    "type": "object",
                    "properties": [
                        "_id": ["type": "string"], "deviceId": ["type": "string"],
                        "temperatureInFahrenheit": ["type": "number"],
                        "barometricPressureInHg": ["type": "number"],
                        "windSpeedInMph": ["type": "integer"],
                        "at": ["type": "string", "format": "date-time"],
                    ],
                    "required": ["_id", "deviceId"], "additionalProperties": false,
                ]
            )
            let wanted = Self.odd.map(\.1).sorted()
            for type in ["PushOpened", "WeatherSensor"] {
                try await bench.send(
                    Self.odd.map { at, _ in
                        let id = IngestBench.makeID()
                        return type == "PushOpened"
                            ? ["_id": .string(id), "eventId": "launch", "at": .string(at)]
                            : IngestBench.reading(id, ["at": .string(at)])
                    },
                    type: type
                )
                let rows = try await bench.rows(type, "extract(epoch FROM at)", count: wanted.count)
                #expect(rows.sorted() == wanted, "\(type)")
                _ = try await bench.rows(type, "*", count: wanted.count)
            }
        }

        @Test("A Segment item with an invalid time is accepted, and its time is NULL in the view")
        func segment() async throws {
            let bench = try await IngestBench(declares: nil)
            let times: [JSONValue] =
                ["tomorrow", "2016-02-30T00:00:00Z", 5, ["$date": "x"]]
                + Self.odd.map { .string($0.0) }
            let answer = try await bench.post(
                "/v1/batch",
                [
                    "batch": .array(
                        times.map { time in
                            ["type": "track", "event": "e", "userId": "u", "timestamp": time]
                        }
                    )
                ]
            )
            #expect(answer.status == 200)
            let rows = try await bench.rows(
                "SegmentTrack",
                "coalesce(extract(epoch FROM timestamp)::text, '-')",
                count: times.count
            )
            #expect(rows.count { $0 == "-" } == 4)
            #expect(rows.filter { $0 != "-" }.sorted() == Self.odd.map(\.1).sorted())
        }
    }
}
