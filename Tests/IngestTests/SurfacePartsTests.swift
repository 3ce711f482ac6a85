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
        "A body without any object is 400",
        arguments: [
            "", "[]", "5", "null", "[1, 2]", "[{}", "{}}", "[{},]",
        ]
    )
    func nothing(_ body: String) { #expect(Self.status(body) == 400) }

    @Test("Blank lines do not count, and an invalid line is one refused object")
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
        "Nested values count like any others, without a comma between them",
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
        // The values of a large object are not parsed, but its id is reported.
        let id = "507f1f77bcf86cd799439011"
        let zeros = Array(repeating: "0", count: 150_000).joined(separator: ",")
        let long = try Self.objects("[{\"a\": [\(zeros)], \"_id\": \"\(id.uppercased())\"}]")
        let refused = #expect(throws: RefusedObject.self) { try long[0].get() }
        #expect(refused?.id == id)
    }

    @Test("An object that is large only by its escapes and blanks is accepted")
    func escaped() throws {
        let text = String(repeating: "\\u0430", count: 100_000)
        let blanks = String(repeating: " ", count: 300_000)
        for body in ["{\"a\": \"\(text)\"}", "[{\"a\": 1\(blanks)}]"] {
            _ = try #require(try Self.objects(body).first).get()
        }
    }

    @Test(
        "The minimum size of a text never exceeds its size when it is written again",
        arguments: [
            #"{"a": [1, 2.5e3, true, null, "x\"y"], "b": {}}"#, "[ ]", #" {"a" : "\u0041\\"} "#,
        ]
    )
    func leastBytes(_ text: String) throws {
        let least = ObjectText.leastBytes(Array(text.utf8)[...])
        #expect(least <= (try JSONValue.parse(text)).bytes.count)
        #expect(least > 1)
    }

    @Test("A reported pointer is truncated at a name, however long the names are")
    func pointers() {
        let name = "/" + String(repeating: "x", count: 600)
        #expect(RefusedObject(pointer: name + name, reason: "").pointer == name)
        let accents = "/" + String(repeating: "é", count: 600)
        #expect(RefusedObject(pointer: accents, reason: "").pointer == "")
        #expect(RefusedObject(pointer: name, reason: "").pointer == name)
    }

    @Test("A duplicate id in one batch is accepted once")
    func twice() {
        var answer = NativeAnswer()
        let taken = (0..<2).map { _ in answer.accept("507f1f77bcf86cd799439011") }
        #expect(taken == [true, false])
    }

    @Test("A response has the accepted, duplicate and refused objects")
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

    // MARK: One object that cannot be read

    private static let id = "507f1f77bcf86cd799439011"

    @Test(
        "An unreadable object is an error with its place, and its neighbours are read",
        arguments: [
            (#"{"_id": "507F1F77BCF86CD799439011", "a": [1, {"b": "\ud83d"}]}"#, "/a/1/b", id),
            (#"{"a": NaN, "_id": "507f1f77bcf86cd799439011"}"#, "/a", id),
            (#"{"x~/y": [-Infinity]}"#, "/x~0~1y/0", nil),
            ("{\"a\": \"\(String(repeating: "\u{301}", count: 3000))\"}", "/a", nil),
            (
                String(repeating: #"{"a":"#, count: 600) + "1" + String(repeating: "}", count: 600),
                "/a/a/a/a", nil
            ),
            ("{\"a\": \"tab\t\"}", "/a", nil),
        ]
    )
    func oneUnreadable(_ object: String, _ pointer: String, _ id: String?) throws {
        func check(_ batch: NativeBatch) throws {
            var batch = batch
            #expect(batch.count == 3)
            #expect(try batch.object(0).get() == ["a": 1])
            #expect(try batch.object(2).get() == ["a": 2])
            let second = try batch.object(1)
            let refused = #expect(throws: RefusedObject.self) { try second.get() }
            #expect(refused?.pointer == pointer)
            #expect(refused?.id == id)
        }
        try check(try Self.batch("[{\"a\": 1}, \(object), {\"a\": 2}]"))
        try check(try Self.batch("{\"a\": 1}\n\(object)\n{\"a\": 2}", "application/x-ndjson"))
        var batch = try Self.batch(object)
        let alone = try batch.object(0)
        #expect(throws: RefusedObject.self) { try alone.get() }
    }

    @Test("The limit of values is the same for a body read by object and one read at once")
    func valuesOfPieces() {
        let many = "[" + Array(repeating: "1", count: 90_000).joined(separator: ",") + "]"
        func status(_ body: String) -> Int {
            do {
                var batch = try Self.batch(body)
                for index in 0..<batch.count { _ = try batch.object(index) }
                return 200
            } catch { return (error as? HTTPProblem)?.status ?? 500 }
        }
        #expect(status("[{\"a\": NaN}, \(many)]") == 200)
        #expect(status("[{\"a\": NaN}, \(many), \(many), \(many)]") == 413)
    }

    // MARK: Segment

    @Test("A batch of more items than usual clients send is 413, and an empty one is a success")
    func items() throws {
        func count(_ items: Int) throws -> Int {
            let items = Array(repeating: "0", count: items).joined(separator: ",")
            return try SegmentBatch(Array("{\"batch\": [\(items)]}".utf8), nil).count
        }
        #expect(try count(0) == 0)
        #expect(try count(20_000) == 20_000)
        let problem = #expect(throws: HTTPProblem.self) { try count(20_001) }
        #expect(problem?.status == 413)
        // The last of duplicate names counts.
        #expect(try SegmentBatch(Array(#"{"batch": [0], "batch": [0, 0]}"#.utf8), nil).count == 2)
        for body in ["[]", "{}", #"{"batch": [0], "batch": 1}"#] {
            let wrong = #expect(throws: HTTPProblem.self) {
                try SegmentBatch(Array(body.utf8), nil)
            }
            #expect(wrong?.status == 400)
        }
    }

    private static func calls(_ body: String, _ kind: SegmentItem.Kind? = nil) throws
        -> SegmentBatch
    {
        try SegmentBatch(Array(body.utf8), kind)
    }

    @Test("Fields of a batch complete each item, and an item's own take precedence")
    func sharedMembers() throws {
        let batch = try Self.calls(
            #"""
            {"batch": [{"type": "track"},
                {"type": "track", "context": {"ip": "1.1.1.1", "library": null}, "sentAt": "own",
                    "integrations": {"All": true}},
                {"type": "track", "context": "odd", "integrations": null}],
             "context": {"library": {"name": "ruby"}, "ip": "2.2.2.2"},
             "integrations": {"All": false, "Mixpanel": true}, "sentAt": "2026-11-25T08:00:00Z"}
            """#
        )
        let items = try (0..<batch.count).map { index in
            batch.completed(try #require(try batch.item(index).get().object))
        }
        let shared: JSONObject = [
            "context": ["library": ["name": "ruby"], "ip": "2.2.2.2"],
            "integrations": ["All": false, "Mixpanel": true], "sentAt": "2026-11-25T08:00:00Z",
        ]
        for (name, value) in shared { #expect(items[0][name] == value) }
        #expect(items[1]["context"] == ["ip": "1.1.1.1", "library": .null])
        #expect(items[1]["integrations"] == ["All": true, "Mixpanel": true])
        #expect(items[1]["sentAt"] == "own")
        #expect(items[2]["context"] == "odd")
        #expect(items[2]["integrations"] == shared["integrations"])
    }

    @Test("Fields of a batch are bounded, multiplied by the items")
    func sharedBytes() {
        func status(_ items: Int, _ bytes: Int = 8000) -> Int {
            let context = "\"context\": {\"x\": \"\(String(repeating: "x", count: bytes))\"}"
            let list = Array(repeating: "{}", count: items).joined(separator: ",")
            do {
                _ = try Self.calls("{\"batch\": [\(list)], \(context)}")
                return 200
            } catch { return (error as? HTTPProblem)?.status ?? 500 }
        }
        #expect(status(100) == 200)
        #expect(status(200) == 413)
        #expect(status(1, 40_000) == 413)
    }

    @Test("An unreadable item is stored unchanged, without the write key")
    func unreadItem() throws {
        let batch = try Self.calls(
            #"{"batch": [{"type": "track", "x": "\ud83d"}, {"type": "page"}], "sentAt": "now"}"#
        )
        #expect(batch.count == 2)
        #expect(batch.unread(0) == Array(#"{"type": "track", "x": "\ud83d"}"#.utf8))
        #expect(throws: RefusedObject.self) { try batch.item(0).get() }
        #expect(batch.completed(["type": "page"])["sentAt"] == "now")
        for item in [
            #"{"writeKey":"S","x":1,}"#, #"{"writeKey""S"}"#, #"{"a":1 "writeKey":"S"}"#,
            #"[{"writeKey":"S"}NaN]"#, #"{"writeKey\ud800":"S"}"#, #"{"writeK\u0065y" 1}"#,
        ] {
            let leaky = try Self.calls("{\"batch\": [\(item)]}")
            #expect(throws: RefusedObject.self) { try leaky.item(0).get() }
            #expect(leaky.unread(0) == nil, "\(item)")
        }
        // A field for all items is not omitted from them.
        #expect(throws: JSONError.self) {
            try Self.calls(#"{"batch": [{}], "context": {"a": "\ud83d"}}"#)
        }
        let single = try Self.calls(#"{"writeKey": "secret", "event": "\ud83d"}"#, .track)
        #expect(single.count == 1)
        #expect(single.unread(0) == Array(#"{"event":"\ud83d"}"#.utf8))
        for body in [
            "", "5", "[]", "{", #"{"batch": {"a": NaN}"#, #"{"batch": 1}"#, #"{"a": NaN}"#,
        ] {
            #expect(throws: (any Error).self) { try Self.calls(body) }
        }
    }

    @Test("An item is identified by its messageId, whatever that is")
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

    @Test("A single call has the type of its path, and its key is not stored")
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
        "An invalid item is refused",
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

    @Test("Values of encoded data within events count together")
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

    @Test("Headers of an event are unescaped, and unescaped ones stay unchanged")
    func binary() throws {
        let event = try Self.event(
            [
                "ce-id": "1", "ce-source": "caf%C3%A9", "ce-type": "Thing",
                "ce-specversion": "1.0", "ce-note": "100%é",
                "Content-Type": "application/x-www-form-urlencoded",
            ],
            #"{"a": 1}"#
        )
        #expect(event.source == "café")
        #expect(event.attributes.first { $0.name == "note" }?.value == "100%é")
        #expect(event.data == ["a": 1])
    }

    @Test(
        "A header's value is unquoted first, then percent-decoded, and raw characters stay",
        arguments: [
            ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"), (#""a \"b\" %C3%A9""#, #"a "b" é"#),
            (#""a\\b""#, #"a\b"#), (#""100%25""#, "100%"), ("100%", "100%"), ("%zz %4", "%zz %4"),
            (#"s "q" % é 🐎"#, #"s "q" % é 🐎"#), ("s%20 \"q\" \u{E9}", "s%20 \"q\" \u{E9}"),
            ("%FF", "%FF"), (#"""#, #"""#), (#""""#, ""), ("", ""), ("a%2", "a%2"),
        ]
    )
    func headerValues(_ value: String, _ expected: String) {
        #expect(Array(IncomingEvent.unescaped(value).utf8) == Array(expected.utf8))
    }

    @Test("An event without data is the object that its id names")
    func withoutData() throws {
        let head: HTTPHeaders = [
            "ce-id": "1", "ce-source": "/s", "ce-type": "Thing", "ce-specversion": "1.0",
            "ce-time": "2025-12-31T23:00:00.123456789Z",
        ]
        #expect(try Self.event(head, "").data == [:])
        #expect(
            try Self.structured(["specversion": "1.0", "id": "1", "source": "/s", "type": "Thing"])
                .data == [:]
        )
    }

    @Test("A missing required attribute, or data that is not an object, is refused with its place")
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
        #expect(try pointer("{\(base), \"id\": \"1\"}") == nil)
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

    @Test("An event whose id is not an object's is identified by source and id")
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
        "An insert without a required field is 400 with its name",
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

    @Test("An unreadable document is reported with its place")
    func unreadDocument() {
        let head = #""dataSource": "s", "database": "d", "collection": "c""#
        func place(_ body: String, isMany: Bool) -> String? {
            do {
                _ = try AtlasInsert(Array(body.utf8), isMany: isMany)
                return nil
            } catch { return (error as? RefusedDocument).map { $0.place + $0.object.pointer } }
        }
        #expect(
            place(#"{\#(head), "documents": [{}, {"a": "\udc00"}]}"#, isMany: true)
                == "documents[1]/a"
        )
        #expect(place(#"{\#(head), "document": {"a": NaN}}"#, isMany: false) == "document/a")
        #expect(place(#"{\#(head), "documents": [{}], "x": NaN}"#, isMany: true) == nil)
    }

    @Test("An extra slash means the same path, without a redirect")
    func paths() {
        for path in IngestPath.variants("/v1/batch") {
            #expect(IngestPath.plain(path) == "/v1/batch")
        }
    }
}
