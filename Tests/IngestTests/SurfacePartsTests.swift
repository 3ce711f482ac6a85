import HTTPServer
import JSON
import PushCore
import Testing

@testable import Ingest

@Suite(.timeLimit(.minutes(1)))
struct SurfacePartsTests {
    // MARK: Native

    private static func batch(
        _ body: String,
        _ contentType: String = "application/json"
    ) throws -> NativeBatch {
        try NativeBatch(
            try HTTPServerRequest(
                .post,
                "/v1/ingest/Thing",
                headers: ["Content-Type": contentType],
                body: Array(body.utf8)
            )
        )
    }

    private static func status(_ body: String, _ type: String = "application/json") -> Int {
        do {
            _ = try batch(body, type)
            return 200
        } catch let problem as HTTPProblem {
            return problem.status
        } catch {
            return HTTPProblem(ofIntake: error)?.status ?? 500
        }
    }

    @Test(
        "A body that holds no object at all is 400",
        arguments: [
            "", "[]", "5", "null", "[1, 2]", "[{}", "{}}", "[{},]",
        ]
    )
    func nothing(_ body: String) { #expect(Self.status(body) == 400) }

    @Test("Of lines, blank ones do not count, and a broken one is one refused object")
    func lines() throws {
        let batch = try Self.batch("{\"a\":1}\r\n\n  \n{\"a\":\n{}", "application/x-ndjson")
        #expect(batch.objects.count == 3)
        #expect(throws: RefusedObject.self) { try batch.objects[1].get() }
        #expect(Self.status("\n\n", "application/x-ndjson") == 400)
    }

    @Test("More than 1,000 objects are 413, as an array and as lines")
    func tooMany() {
        let objects = Array(repeating: "{}", count: 1001)
        #expect(Self.status("[" + objects.joined(separator: ",") + "]") == 413)
        #expect(Self.status(objects.joined(separator: "\n"), "application/x-ndjson") == 413)
        #expect(Self.status("[" + objects.dropLast().joined(separator: ",") + "]") == 200)
    }

    @Test("Values of all lines count together, as those of an array do")
    func tooManyValues() {
        let line = "[" + Array(repeating: "1", count: 1000).joined(separator: ",") + "]"
        let lines = Array(repeating: "{\"a\":\(line)}", count: 250).joined(separator: "\n")
        #expect(Self.status(lines, "application/x-ndjson") == 413)
    }

    @Test("An object of more than 256 KiB is refused, and the others are not")
    func tooLarge() throws {
        let large = "{\"a\": \"" + String(repeating: "x", count: 256 << 10) + "\"}"
        let batch = try Self.batch("[{}, \(large)]")
        #expect(throws: RefusedObject.self) { try batch.objects[1].get() }
        _ = try batch.objects[0].get()
    }

    @Test("An id that comes twice in one batch is accepted once")
    func twice() {
        var answer = NativeAnswer()
        let taken = (0..<2).map { _ in answer.accept("507f1f77bcf86cd799439011") }
        #expect(taken == [true, false])
    }

    // MARK: Segment

    @Test("An item is known by its messageId, whatever that is")
    func messageIDs() throws {
        func id(_ message: String) throws -> String? {
            let item: JSONValue = [
                "type": "track", "event": "x", "userId": "u", "messageId": .string(message),
            ]
            return try SegmentItem(item, nil).object["_id"]?.string
        }
        let uuid = "0F8FAD5B-D9CB-469F-A165-70867728950E"
        #expect(try id(uuid) == uuid.lowercased())
        let derived = try id("ajs-next-1700000000-x")
        #expect(try derived == id("ajs-next-1700000000-x"))
        #expect(derived.flatMap(IngestID.canonical) == derived)
        #expect(try derived != id("ajs-next-1700000000-y"))
    }

    @Test("A call of its own is of the kind that its path says, and keeps no key")
    func single() throws {
        let item = try SegmentItem(
            ["event": "x", "userId": "u", "writeKey": "secret", "type": "page"],
            .track
        )
        #expect(item.kind == .track)
        #expect(item.object["type"] == "track")
        #expect(item.object["writeKey"] == nil)
    }

    @Test(
        "What is no item is refused",
        arguments: [
            "5", "{}", #"{"type": "purchase"}"#,
            "{\"type\": \"track\", \"x\": \"\(String(repeating: "x", count: 32 << 10))\"}",
        ]
    )
    func noItem(_ text: String) throws {
        let value = try JSONValue.parse(text)
        #expect(throws: RefusedObject.self) { try SegmentItem(value, nil) }
    }

    // MARK: CloudEvents

    private static func event(
        _ headers: HTTPHeaders,
        _ body: String
    ) throws -> IncomingEvent {
        try IncomingEvent(
            binary: try HTTPServerRequest(
                .post,
                "/events",
                headers: headers,
                body: Array(body.utf8)
            )
        )
    }

    @Test("Headers of an event are unescaped, and taken as they are where they are not escaped")
    func binary() throws {
        let event = try Self.event(
            [
                "ce-id": "1", "ce-source": "caf%C3%A9", "ce-type": "Thing",
                "ce-specversion": "1.0", "ce-note": "100%é",
            ],
            #"{"a": 1}"#
        )
        #expect(event.source == "café")
        #expect(event.attributes.first { $0.name == "note" }?.value == "100%é")
        #expect(event.data == ["a": 1])
    }

    @Test("A needed attribute that is missing, or data that is no object, names its place")
    func broken() throws {
        func pointer(_ text: String) throws -> String? {
            do {
                _ = try IncomingEvent(structured: try JSONValue.parse(text))
                return nil
            } catch let refused as RefusedObject {
                return refused.pointer
            }
        }
        let base = #""specversion": "1.0", "source": "s", "type": "Thing""#
        #expect(try pointer("{\(base), \"id\": \"1\", \"data\": {}}") == nil)
        #expect(try pointer("{\(base), \"data\": {}}") == "/id")
        #expect(try pointer("{\(base), \"id\": \"1\"}") == "/data")
        #expect(try pointer("{\(base), \"id\": \"1\", \"data\": \"x\"}") == "/data")
        #expect(try pointer("{\(base), \"id\": \"1\", \"time\": \"now\", \"data\": {}}") == "/time")
        #expect(try pointer("{\(base), \"id\": \"1\", \"Bad\": 1, \"data\": {}}") == "/Bad")
        #expect(try pointer("{\(base), \"id\": \"1\", \"ext\": {}, \"data\": {}}") == "/ext")
        #expect(
            try pointer("{\(base), \"id\": \"1\", \"data_base64\": \"e30=\", \"data\": {}}")
                == "/data_base64"
        )
        #expect(try pointer("{\(base), \"id\": \"1\", \"data_base64\": \"e30=\"}") == nil)
    }

    @Test("Attributes are bounded together, as they become headers of a record")
    func attributes() throws {
        var event: JSONObject = [
            "specversion": "1.0", "id": "1", "source": "s", "type": "Thing", "data": [:],
        ]
        _ = try IncomingEvent(structured: .object(event))
        for number in 0..<64 { event["ext\(number)"] = "x" }
        let tooMany = event
        #expect(throws: RefusedObject.self) { try IncomingEvent(structured: .object(tooMany)) }
    }

    @Test("An event whose id is no object's is known by source and id")
    func derived() throws {
        func id(_ source: String, _ id: String) throws -> String {
            try IncomingEvent(
                structured: [
                    "specversion": "1.0", "source": .string(source), "id": .string(id),
                    "type": "Thing", "data": [:],
                ]
            ).objectID
        }
        #expect(try id("s", "507F1F77BCF86CD799439011") == "507f1f77bcf86cd799439011")
        #expect(try id("s", "1") == id("s", "1"))
        #expect(try id("s", "1") != id("t", "1"))
        #expect(try id("s1", "1") != id("s", "11"))
    }

    // MARK: Atlas

    @Test(
        "An insert without one of its fields is 400 that names it",
        arguments: [
            (#"{"database": "d", "collection": "c", "document": {}}"#, "dataSource"),
            (#"{"dataSource": "s", "collection": "c", "document": {}}"#, "database"),
            (#"{"dataSource": "s", "database": "d", "document": {}}"#, "collection"),
            (#"{"dataSource": "s", "database": "d", "collection": "c"}"#, "document"),
        ]
    )
    func insert(_ body: String, _ field: String) {
        do {
            _ = try AtlasInsert(Array(body.utf8), isMany: false)
            Issue.record("taken")
        } catch let problem as HTTPProblem {
            #expect(problem.status == 400)
            #expect(problem.detail.hasPrefix(field + " "))
        } catch {
            Issue.record("\(error)")
        }
    }

    // MARK: Limits

    @Test(
        "A quota lets a minute's worth through at once, a batch whole, and then waits for what is owed"
    )
    func quota() {
        let quota = ObjectQuota()
        let start = ContinuousClock.now
        #expect(quota.wait("shop", limit: 60, now: start) == nil)
        quota.take("shop", 90, limit: 60, now: start)
        #expect(quota.wait("shop", limit: 60, now: start) == 31)
        #expect(quota.wait("other", limit: 60, now: start) == nil)
        #expect(quota.wait("shop", limit: 60, now: start + .seconds(30)) == 1)
        #expect(quota.wait("shop", limit: 60, now: start + .seconds(31)) == nil)
        #expect(quota.wait("shop", limit: 0, now: start) == nil)
        quota.take("shop", 100_000, limit: 60, now: start + .seconds(31))
        #expect(quota.wait("shop", limit: 60, now: start + .seconds(31)) == 61)
    }

    @Test("What waits for Kafka is bounded, but one alone is always let in")
    func held() {
        let held = HeldBytes(limit: 100)
        #expect(held.hold(500))
        #expect(held.isFull)
        #expect(!held.hold(1))
        held.letGo(500)
        #expect(held.hold(60))
        #expect(!held.hold(60))
        #expect(held.hold(40))
        held.letGo(100)
        #expect(held.count == 0)
    }

    @Test("A slash too many is the same path, and never a redirect")
    func paths() {
        for path in IngestPath.variants("/v1/batch") {
            #expect(IngestPath.plain(path) == "/v1/batch")
        }
    }
}
