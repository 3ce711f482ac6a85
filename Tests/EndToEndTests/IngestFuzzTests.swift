import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Hostile input to ingest", .serialized, .timeLimit(.minutes(10)))
    struct IngestFuzzTests {
        /// 20,000 requests, or as many as a minute allows; for as long as `CARILLON_FUZZ_SECONDS`
        /// says, if it is set.
        private static let seconds = TestEnvironment.value("CARILLON_FUZZ_SECONDS").flatMap(
            Int.init
        )
        private static let wanted = seconds == nil ? 20_000 : .max
        private static let limit = Duration.seconds(seconds ?? 60)
        private static let connections = 8
        private static let batch = 50

        /// Few constraints, so that odd values reach Postgres.
        private static let schema = """
            {"type": "object", "properties": {
                "_id": {"type": "string"}, "deviceId": {"type": "string"},
                "temperature": {"type": "number"}, "wind": {"type": "integer"},
                "at": {"type": "string", "format": "date-time"}, "is": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]*$"}}},
             "required": ["_id"]}
            """

        @Test("Random bodies and credentials cause no server error and no partly stored request")
        func fuzz() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                let topic = stack.topic("ingest.Sensor")
                // The mock cluster creates a topic for the first client that asks for its metadata.
                if TestEnvironment.kafkaBootstrapServers == nil {
                    let broker = stack.kafka.bootstrapServers
                    _ = try await run("/usr/bin/kcat", ["-L", "-b", broker, "-t", topic])
                }
                let schema = try stack.write(Self.schema, to: "sensor.json")
                try await stack.carillon(
                    "ingest",
                    "type",
                    "put",
                    app.id,
                    "Sensor",
                    "--schema",
                    schema
                )
                let service = try await stack.start(
                    "carillon-ingest",
                    [
                        "RATE_LIMIT_FAILURES_PER_ADDRESS": "0", "HTTP_ACCESS_LOG": "false",
                        "KAFKA_GROUP_ID": stack.topic("ingest"),
                    ]
                )
                let bomb = try await Self.bomb(in: stack)
                let port = UInt16(try #require(URLComponents(string: service.url)?.port))
                let statuses = try await Self.load(port, app, bomb)
                let count = statuses.values.reduce(0, +)
                print(
                    "fuzzed objects: \(count) requests, by status:",
                    statuses.sorted { $0.key < $1.key }
                )
                #expect(count > 2000)
                #expect(statuses.keys.allSatisfy { $0 < 500 || $0 == 503 }, "\(statuses)")
                for good in [200, 201, 204, 400, 401, 404, 405, 413] {
                    #expect((statuses[good] ?? 0) > 0, "\(good): \(statuses)")
                }
                let failures = service.process.events.filter { $0["level"] == "error" }
                #expect(failures.isEmpty, "\(failures.prefix(3).map(\.text))")
                try await Self.checkStored(stack, app, topic)
                #expect(
                    await service.process.stop() == .status(0),
                    "\(service.process.finalBytes)"
                )
            }
        }

        private static func load(
            _ port: UInt16,
            _ app: Stack.App,
            _ bomb: [UInt8]
        ) async throws -> [Int: Int] {
            let end = ContinuousClock.now + limit
            return try await withThrowingTaskGroup(of: [Int: Int].self) { group in
                for number in 0..<connections {
                    group.addTask {
                        try await onThread {
                            var maker = ObjectMaker(seed: UInt64(number) + 1, app: app, bomb: bomb)
                            return try send(wanted / connections, until: end, to: port, &maker)
                        }
                    }
                }
                return try await group.reduce(into: [:]) { $0.merge($1, uniquingKeysWith: +) }
            }
        }

        /// Expects all-or-nothing requests to be on Kafka completely or not at all, and each object
        /// there to be in the view once, or a dead letter.
        private static func checkStored(
            _ stack: Stack,
            _ app: Stack.App,
            _ topic: String
        ) async throws {
            var ids: Set<String> = []
            var batches: [String: Set<String>] = [:]
            for record in try await stack.kafka.records(on: topic) {
                guard let key = record.key else { continue }
                ids.insert(key)
                // `all-or-nothing NUMBER of COUNT`.
                guard let device = record.json?["deviceId"]?.string, device.hasPrefix("all-or-")
                else { continue }
                batches[device, default: []].insert(key)
            }
            #expect(!batches.isEmpty)
            for (device, ids) in batches {
                let wanted = device.split(separator: " ").last.flatMap { Int($0) }
                #expect(ids.count == wanted, "\(device)")
            }
            let shown = try JSONValue.parse(
                try await stack.carillon("ingest", "type", "show", app.id, "Sensor", "--json")
            )
            let view = try #require(shown["view"]?.string)
            let wanted = ids.count
            let stored = try await eventually("all \(wanted) are stored", within: .seconds(120)) {
                let rows = try await stack.database.query("SELECT count(*) FROM \(view)").first
                let dead = try await stack.kafka.records(on: stack.topic("push.dead-letters"))
                    .filter { $0.value.contains("ingest.Sensor") }
                    .compactMap(\.key)
                let sum = (rows.flatMap { Int($0) } ?? 0) + Set(dead).count
                try await Task.sleep(for: .milliseconds(500))
                return sum >= wanted ? sum : nil
            }
            #expect(stored == wanted)
        }

        /// Makes 200 MB of zeros, compressed by gzip.
        private static func bomb(in stack: Stack) async throws -> [UInt8] {
            let path = "\(stack.folder)/bomb.gz"
            _ = try await run(
                "/bin/bash",
                ["-c", "head -c 200000000 /dev/zero | gzip -c >'\(path)'"]
            ).successful("gzip")
            return [UInt8](try Data(contentsOf: URL(filePath: path)))
        }

        /// Sends requests in batches over connections that stay open, and counts the responses.
        private static func send(
            _ count: Int,
            until end: ContinuousClock.Instant,
            to port: UInt16,
            _ maker: inout ObjectMaker
        ) throws -> [Int: Int] {
            var statuses: [Int: Int] = [:]
            var sent = 0
            while sent < count, ContinuousClock.now < end {
                let socket = try LoopbackSocket(port: port)
                defer { socket.close() }
                var requests: [UInt8] = []
                for number in 0..<batch { requests += maker.next(isLast: number == batch - 1) }
                // A request that is too large ends the connection, and the ones after it get no
                // response.
                guard (try? socket.send(requests)) != nil,
                    let bytes = try? socket.receiveAll()
                else {
                    statuses[0, default: 0] += 1
                    sent += 1
                    continue
                }
                let answers = String(decoding: bytes, as: UTF8.self)
                for part in answers.components(separatedBy: "HTTP/1.1 ").dropFirst() {
                    guard let status = Int(part.prefix(3)) else { continue }
                    statuses[status, default: 0] += 1
                    sent += 1
                }
            }
            return statuses
        }
    }
}

/// Makes random requests, of meaningful and meaningless pieces; the same seed makes the same.
private struct ObjectMaker {
    private var generator: Generator
    private let app: Stack.App
    private let bomb: [UInt8]
    private let seed: UInt64
    private var number = 0

    /// SplitMix64.
    private struct Generator: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var value = state
            value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
            value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
            return value ^ (value >> 31)
        }
    }

    init(seed: UInt64, app: Stack.App, bomb: [UInt8]) {
        generator = Generator(state: seed)
        (self.seed, self.app, self.bomb) = (seed, app, bomb)
    }

    private mutating func one<Value>(_ values: [Value]) -> Value {
        values[Int.random(in: 0..<values.count, using: &generator)]
    }

    private mutating func happens(_ percent: Int) -> Bool {
        Int.random(in: 0..<100, using: &generator) < percent
    }

    private mutating func some(_ range: Range<Int>) -> Int {
        Int.random(in: range, using: &generator)
    }

    private static let odd = [
        "", "0", "a", "WX1278UIT", "é", "e\u{301}", "\u{0}", "%", "\"", "\\", "\u{FFFF}", "🔔",
        "null", "-1", "1e400", "2026-11-25T08:00:00Z", "2026-02-30T25:61:00Z", "Sensor", "$oid",
        "/", "~0~1", "507f1f77bcf86cd799439011", "507F1F77-BCF8-4CD7-9943-901100000000",
        "00000000-0000-0000-0000-000000000000", " ", "\u{202E}", "infinity", "294277-01-01",
    ]

    private mutating func text() -> String {
        switch some(0..<12) {
        case 0: String(repeating: one(Self.odd), count: some(0..<700))
        case 1: one(Self.odd) + one(Self.odd)
        default: one(Self.odd)
        }
    }

    private mutating func value(_ depth: Int = 0) -> JSONValue {
        switch some(0..<(depth > 2 ? 6 : 8)) {
        case 0: return .null
        case 1: return .bool(happens(50))
        case 2: return .integer(one([0, 1, 60, -1, .max, .min]))
        case 3: return .double(one([0.5, -0.0, 1e300, .leastNonzeroMagnitude]))
        case 6: return .array((0..<3).map { _ in value(depth + 1) })
        case 7:
            var object: JSONObject = [:]
            for _ in 0..<some(0..<4) { object[text()] = value(depth + 1) }
            return .object(object)
        default: return .string(text())
        }
    }

    private mutating func id() -> JSONValue {
        switch some(0..<20) {
        case 0: value()
        case 1: ["$oid": .string(text())]
        case 2: ["$oid": .string(hex(24))]
        case 3: .string(text())
        case 4: .string(hex(24).uppercased())
        case 5: .string(one(["00000000000000000000000a", "00000000000000000000000b"]))
        default: .string(hex(24))
        }
    }

    private mutating func hex(_ count: Int) -> String {
        String((0..<count).map { _ in one(Array("0123456789abcdef")) })
    }

    /// Makes an object of the type, most of the time.
    private mutating func object() -> JSONObject {
        var object: JSONObject = [:]
        if !happens(3) { object["_id"] = id() }
        if happens(60) { object["deviceId"] = happens(90) ? .string(text()) : value() }
        if happens(30) { object["temperature"] = happens(90) ? .double(66.7) : value() }
        if happens(30) { object["wind"] = happens(90) ? 2 : value() }
        if happens(20) { object["at"] = happens(70) ? "2026-11-25T08:00:00.123+01:00" : value() }
        if happens(10) { object["is"] = happens(80) ? true : value() }
        if happens(10) { object["tags"] = happens(60) ? ["a", "b"] : value() }
        if happens(8) { object[text()] = value() }
        return object
    }

    private mutating func report() -> JSONObject {
        var object: JSONObject = ["_id": id()]
        for name in ["pushId", "eventId", "source", "installationId", "at", "action"]
        where happens(40) {
            object[name] =
                happens(70) ? .string(one(["2026-11-25T08:00:00Z", text()])) : value()
        }
        return object
    }

    /// Makes objects that must be stored all or not at all: their names contain their number.
    private mutating func family() -> [JSONObject] {
        number += 1
        let ids = Set((0..<some(1..<6)).map { _ in hex(24) }).sorted()
        let name = JSONValue.string("all-or-nothing \(seed).\(number) of \(ids.count)")
        return ids.map { id in
            var object: JSONObject = ["_id": .string(id), "deviceId": name]
            if happens(5) { object["wind"] = value() }
            return object
        }
    }

    private mutating func event(_ object: JSONObject) -> JSONObject {
        var event: JSONObject = [
            "specversion": "1.0", "type": "Sensor", "source": "/sensors/1",
            "id": .string(hex(24)), "data": .object(object),
        ]
        if happens(3) { event["type"] = .string(text()) }
        if happens(3) { event["specversion"] = value() }
        if happens(3) { event["source"] = value() }
        // Another object would not contain the number.
        let odd = value()
        if happens(3), odd.object == nil { event["data"] = odd }
        if happens(3) { event["data_base64"] = .string(text()) }
        if happens(5) { event["time"] = .string(text()) }
        if happens(5) { event["datacontenttype"] = .string(one(["application/json", text()])) }
        if happens(5) { event[one(["traceparent", "UPPER", "x", ""])] = value() }
        return event
    }

    private mutating func item(_ type: String?) -> JSONObject {
        var item: JSONObject = [:]
        if let type { item["type"] = .string(type) }
        for name in ["event", "userId", "anonymousId", "messageId", "timestamp", "groupId", "name"]
        where happens(60) {
            item[name] = happens(85) ? .string(text()) : value()
        }
        for name in ["properties", "context", "traits", "integrations"] where happens(30) {
            item[name] = value()
        }
        return item
    }

    private struct Request {
        var path: String
        var type: String
        var body: [UInt8]
        var headers = ""
    }

    private mutating func request() -> Request {
        switch some(0..<20) {
        case 0...6: return native()
        case 7...10: return segment()
        case 11...14: return cloudEvents()
        case 15...17: return atlas()
        default:
            let path = one([
                "/", "/v1", "/v1/ingest", "/v1/ingest/", "/v1/ingest/%2e%2e/x", "/openapi.json",
                "/v1/ingest/"
                    + (text().addingPercentEncoding(withAllowedCharacters: .alphanumerics)
                        ?? "x"),
                "/i", "/batch/", "/com.snowplowanalytics.snowplow/tp2",
                "/api/client/v2.0/app/\(app.id)/graphql",
            ])
            return Request(path: path, type: "application/json", body: value().bytes)
        }
    }

    private mutating func native() -> Request {
        let isReport = happens(15)
        let path = "/v1/ingest/" + (isReport ? one(["PushOpened", "PushReceived"]) : "Sensor")
        var objects: [JSONValue] = []
        for _ in 0..<(happens(1) ? 1001 : some(0..<8)) {
            if happens(4) {
                objects.append(value())
            } else if isReport {
                objects.append(.object(report()))
            } else {
                objects.append(.object(object()))
            }
        }
        switch some(0..<4) {
        case 0:
            let lines = objects.map(\.text).joined(separator: one(["\n", "\r\n", "\n\n"]))
            return Request(path: path, type: "application/x-ndjson", body: Array(lines.utf8))
        case 1:
            let body = objects.first?.bytes ?? []
            return Request(
                path: path,
                type: one(["application/json", "application/ejson"]),
                body: body
            )
        default:
            return Request(
                path: path,
                type: "application/json",
                body: JSONValue.array(objects).bytes
            )
        }
    }

    private mutating func segment() -> Request {
        let types = ["track", "identify", "group", "page", "screen", "alias"]
        if happens(25) {
            let path = "/v1/" + one(types + ["t", "i", "g", "p", "s", "a"])
            return Request(path: path, type: "application/json", body: item(nil).bytes)
        }
        var items: [JSONValue] = []
        for _ in 0..<some(0..<6) {
            items.append(happens(5) ? value() : .object(item(one(types + ["", "x"]))))
        }
        var body: JSONObject = ["batch": happens(3) ? value() : .array(items)]
        if happens(20) { body["writeKey"] = happens(50) ? .string(app.appKey) : value() }
        return Request(
            path: one(["/v1/batch", "/v1/b", "/v1/import/"]),
            type: "application/json",
            body: body.bytes
        )
    }

    /// Makes an object without a relation to its neighbours.
    private mutating func lone() -> JSONObject {
        var object = family()[0]
        if let name = object["deviceId"]?.string?.components(separatedBy: " of ").first {
            object["deviceId"] = .string(name + " of 1")
        }
        return object
    }

    private mutating func cloudEvents() -> Request {
        let json = "application/cloudevents+json"
        switch some(0..<3) {
        case 0:
            return Request(path: "/events", type: json, body: event(lone()).bytes)
        case 1:
            let events = (0..<some(1..<6)).map { _ in JSONValue.object(event(lone())) }
            return Request(
                path: "/events",
                type: "application/cloudevents-batch+json",
                body: JSONValue.array(events).bytes
            )
        default:
            var headers = ""
            let values = ["1.0", "Sensor", "/sensors/1", hex(24), "caf\u{E9}", "%C3%A9", "%", ""]
            for (name, good) in [
                ("ce-specversion", "1.0"), ("ce-type", "Sensor"), ("ce-source", "/s"),
                ("ce-id", hex(24)), ("ce-time", "2026-11-25T08:00:00Z"), ("ce-x", "1"),
            ] where !happens(5) {
                headers += "\(name): \(happens(90) ? good : one(values))\r\n"
            }
            return Request(
                path: "/events",
                type: one(["application/json", "text/plain", "application/json; charset=utf-8"]),
                body: object().bytes,
                headers: headers
            )
        }
    }

    private mutating func atlas() -> Request {
        let base = "/app/\(happens(95) ? app.id : "none")/endpoint/data/v1/action/"
        let action = one([
            "insertOne", "insertMany", "insertMany", "find", "findOne", "updateOne", "deleteMany",
            "aggregate", "nothing",
        ])
        var body: JSONObject = [
            "dataSource": "cluster", "database": "weather", "collection": "Sensor",
        ]
        if happens(5) { body[one(["dataSource", "database", "collection"])] = value() }
        if action == "insertOne" {
            body["document"] = happens(95) ? .object(object()) : value()
        } else {
            body["documents"] =
                happens(95) ? .array(family().map(JSONValue.object)) : value()
        }
        return Request(
            path: base + action,
            type: one(["application/json", "application/ejson"]),
            body: body.bytes,
            headers: happens(50) ? "apiKey: \(happens(90) ? app.appKey : "x")\r\n" : ""
        )
    }

    /// Changes bytes as a broken client would. Those of all-or-nothing requests keep their content:
    /// a changed `_id` would be one object more.
    private mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        switch some(0..<40) {
        case 0: bytes = Array(bytes.prefix(some(0..<bytes.count + 1)))
        case 1: bytes = Array(repeating: UInt8(ascii: "["), count: some(1..<3000)) + bytes
        case 2: bytes += bytes
        case 3:
            let deep = String(repeating: "{\"a\":", count: some(1..<200))
            bytes = Array(deep.utf8) + bytes
        case 4:
            bytes.insert(contentsOf: [0xEF, 0xBB, 0xBF], at: 0)
        case 5...7 where !bytes.isEmpty:
            // Only punctuation, which is not part of an `_id`.
            let marks = bytes.indices.filter { "{}[]:,\"".utf8.contains(bytes[$0]) }
            if !marks.isEmpty {
                bytes[one(marks)] = UInt8.random(in: 0...255, using: &generator)
            }
        default: break
        }
        return bytes
    }

    private mutating func authorization() -> String {
        let key = app.appKey
        switch some(0..<30) {
        case 0: return ""
        case 1: return "Authorization: Basic \(one(["", "!", "YQ==", "Og=="]))\r\n"
        case 2: return "Authorization: Bearer \(one(["", "x", key]))\r\n"
        case 3: return "X-LC-Id: \(app.id)\r\nX-LC-Key: \(one(["x", "x,master", ""]))\r\n"
        case 4: return "X-LC-Id: \(app.id)\r\nX-LC-Key: \(key)\r\n"
        case 5: return "X-LC-Id: \(app.id)\r\nX-LC-Key: \(app.masterKey),master\r\n"
        case 6:
            return
                "Authorization: Basic \(Data(text().utf8).base64EncodedString().prefix(4000))\r\n"
        default: return "Authorization: Basic \(Data("\(key):".utf8).base64EncodedString())\r\n"
        }
    }

    mutating func next(isLast: Bool) -> [UInt8] {
        var request = request()
        if happens(4) { request.path = one(["/", ""]) + request.path + one(["/", "//", "?x=1"]) }
        if happens(3) {
            request.type = one(["", "text/plain", "x", "application/cloudevents+xml"])
        }
        let method = happens(92) ? "POST" : one(["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
        var body = mutated(request.body)
        var encoding: String?
        switch some(0..<100) {
        case 0..<8: (encoding, body) = ("gzip", StoredGzip.member(body))
        case 8..<10: encoding = one(["gzip", "zstd", "br", "gzip, zstd"])
        case 10:
            // The part after the start is broken.
            (encoding, body) = ("gzip", Array(StoredGzip.member(body).dropLast(some(1..<12))))
        case 11 where happens(10): (encoding, body) = ("gzip", bomb)
        default: break
        }
        var head = "\(method) \(request.path) HTTP/1.1\r\nHost: x\r\n"
        if isLast { head += "Connection: close\r\n" }
        if !request.type.isEmpty { head += "Content-Type: \(request.type)\r\n" }
        if let encoding { head += "Content-Encoding: \(encoding)\r\n" }
        head += authorization() + request.headers
        head += "Content-Length: \(body.count)\r\n\r\n"
        return Array(head.utf8) + body
    }
}

/// gzip without compression: RFC 1952 around stored blocks of RFC 1951.
private enum StoredGzip {
    static func member(_ bytes: [UInt8]) -> [UInt8] {
        var member: [UInt8] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255]
        var rest = bytes[...]
        repeat {
            let block = rest.prefix(65535)
            rest = rest.dropFirst(65535)
            member.append(rest.isEmpty ? 1 : 0)
            member += little(UInt32(block.count), 2) + little(~UInt32(block.count), 2)
            member += block
        } while !rest.isEmpty
        return member + little(checksum(bytes), 4) + little(UInt32(bytes.count), 4)
    }

    private static func little(_ value: UInt32, _ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: value >> (8 * UInt32($0))) }
    }

    /// Computes CRC-32, bit by bit.
    private static func checksum(_ bytes: [UInt8]) -> UInt32 {
        var value = UInt32.max
        for byte in bytes {
            value ^= UInt32(byte)
            for _ in 0..<8 { value = value & 1 == 1 ? (value >> 1) ^ 0xEDB8_8320 : value >> 1 }
        }
        return ~value
    }
}
