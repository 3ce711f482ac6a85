import Cryptography
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
        try NativeBatch(Array(body.utf8), mediaType: contentType)
    }

    private static func objects(
        _ body: String,
        _ contentType: String = "application/json"
    ) throws -> [Result<JSONValue, RefusedObject>] {
        var batch = try batch(body, contentType)
        return try (0..<batch.count).map { try batch.object($0) }
    }

    private static func status(_ body: String, _ type: String = "application/json") -> Int {
        do {
            _ = try objects(body, type)
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
        let objects = try Self.objects(
            "{\"a\":1}\r\n\n  \n{\"a\":\n{}",
            "application/x-ndjson"
        )
        #expect(objects.count == 3)
        #expect(throws: RefusedObject.self) { try objects[1].get() }
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

    @Test(
        "Values that are nested count as any others, without a comma between them",
        arguments: ["application/x-ndjson", "application/json"]
    )
    func nestedValues(_ type: String) {
        let (open, close) = ("{\"\":", "}")
        let nested =
            String(repeating: open, count: 400) + "0" + String(repeating: close, count: 400)
        let many = Array(repeating: nested, count: 600)
        let isLines = type == "application/x-ndjson"
        let body = isLines ? many.joined(separator: "\n") : "[\(many.joined(separator: ","))]"
        #expect(Self.status(body, type) == 413)
    }

    @Test("An object of more than 256 KiB is refused, and the others are not")
    func tooLarge() throws {
        let large = "{\"a\": \"" + String(repeating: "x", count: 256 << 10) + "\"}"
        let objects = try Self.objects("[{}, \(large)]")
        #expect(throws: RefusedObject.self) { try objects[1].get() }
        _ = try objects[0].get()
        // Of one with many values no value is made; it is named all the same.
        let id = "507f1f77bcf86cd799439011"
        let zeros = Array(repeating: "0", count: 150_000).joined(separator: ",")
        let long = try Self.objects("[{\"a\": [\(zeros)], \"_id\": \"\(id.uppercased())\"}]")
        let refused = #expect(throws: RefusedObject.self) { try long[0].get() }
        #expect(refused?.id == id)
    }

    @Test("An object that is large by its escapes and blanks alone is taken")
    func escaped() throws {
        let text = String(repeating: "\\u0430", count: 100_000)
        let blanks = String(repeating: " ", count: 300_000)
        for body in ["{\"a\": \"\(text)\"}", "[{\"a\": 1\(blanks)}]"] {
            _ = try #require(try Self.objects(body).first).get()
        }
    }

    @Test(
        "What a text has at least is never more than it has when it is written anew",
        arguments: [
            #"{"a": [1, 2.5e3, true, null, "x\"y"], "b": {}}"#, "[ ]", #" {"a" : "\u0041\\"} "#,
        ]
    )
    func leastBytes(_ text: String) throws {
        let least = ObjectText.leastBytes(Array(text.utf8)[...])
        #expect(least <= (try JSONValue.parse(text)).bytes.count)
        #expect(least > 1)
    }

    @Test("A pointer that is answered is cut at a name, however long its sender's names are")
    func pointers() {
        let name = "/" + String(repeating: "x", count: 600)
        #expect(RefusedObject(pointer: name + name, reason: "").pointer == name)
        let accents = "/" + String(repeating: "é", count: 600)
        #expect(RefusedObject(pointer: accents, reason: "").pointer == "")
        #expect(RefusedObject(pointer: name, reason: "").pointer == name)
    }

    @Test("An id that comes twice in one batch is accepted once")
    func twice() {
        var answer = NativeAnswer()
        let taken = (0..<2).map { _ in answer.accept("507f1f77bcf86cd799439011") }
        #expect(taken == [true, false])
    }

    @Test("An answer names what was accepted, what came twice and what was refused")
    func answer() throws {
        let id = "507f1f77bcf86cd799439011"
        var answer = NativeAnswer()
        _ = answer.accept(id)
        _ = answer.accept(id)
        answer.refuse(RefusedObject(pointer: "/a\"b", reason: "no"), at: 2)
        answer.refuse(RefusedObject(id: id, pointer: "", reason: "too"), at: 3)
        let wanted: JSONValue = [
            "accepted": [.string(id)], "duplicates": [.string(id)],
            "refused": [
                ["index": 2, "pointer": "/a\"b", "reason": "no"],
                ["index": 3, "_id": .string(id), "pointer": "", "reason": "too"],
            ],
        ]
        #expect(try JSONValue.parse(answer.response.body) == wanted)
        let empty: JSONValue = ["accepted": [], "duplicates": [], "refused": []]
        #expect(try JSONValue.parse(NativeAnswer().response.body) == empty)
    }

    // MARK: Segment

    @Test("A batch of more items than any good one has is 413, and no items are a success")
    func items() throws {
        func count(_ items: Int) throws -> Int {
            let items = Array(repeating: "0", count: items).joined(separator: ",")
            return try SegmentBatch(Array("{\"batch\": [\(items)]}".utf8), nil).count
        }
        #expect(try count(0) == 0)
        #expect(try count(20_000) == 20_000)
        let problem = #expect(throws: HTTPProblem.self) { try count(20_001) }
        #expect(problem?.status == 413)
        // Of a name that comes twice the last counts.
        #expect(try SegmentBatch(Array(#"{"batch": [0], "batch": [0, 0]}"#.utf8), nil).count == 2)
        for body in ["[]", "{}", #"{"batch": [0], "batch": 1}"#] {
            let wrong = #expect(throws: HTTPProblem.self) {
                try SegmentBatch(Array(body.utf8), nil)
            }
            #expect(wrong?.status == 400)
        }
    }

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

    private static func structured(_ value: JSONValue) throws -> IncomingEvent {
        var valuesLeft = ObjectLimits.valuesOfBody
        return try IncomingEvent(structured: value, valuesLeft: &valuesLeft)
    }

    @Test("Values of data that are coded within events count together")
    func codedValues() throws {
        let zeros = Array(repeating: "0", count: 90_000).joined(separator: ",")
        let data = Base64.encode(Array("{\"a\":[\(zeros)]}".utf8))
        let event = """
            {"specversion": "1.0", "id": "1", "source": "s", "type": "Thing", "data_base64": "\(data)"}
            """
        let body = Array("[\(event),\(event),\(event)]".utf8)
        let request = try HTTPServerRequest(.post, "/events")
        var batch = try EventBatch(body, .batched)
        for index in 0..<2 { _ = try batch.event(index, of: request) }
        let refused = #expect(throws: RefusedObject.self) { try batch.event(2, of: request) }
        #expect(refused?.pointer == "/data_base64")
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
                _ = try Self.structured(try JSONValue.parse(text))
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
        _ = try Self.structured(.object(event))
        for number in 0..<64 { event["ext\(number)"] = "x" }
        let tooMany = event
        #expect(throws: RefusedObject.self) { try Self.structured(.object(tooMany)) }
    }

    @Test("An event whose id is no object's is known by source and id")
    func derived() throws {
        func id(_ source: String, _ id: String) throws -> String {
            try Self.structured([
                "specversion": "1.0", "source": .string(source), "id": .string(id),
                "type": "Thing", "data": [:],
            ]).objectID
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

    @Test("A slash too many is the same path, and never a redirect")
    func paths() {
        for path in IngestPath.variants("/v1/batch") {
            #expect(IngestPath.plain(path) == "/v1/batch")
        }
    }
}
