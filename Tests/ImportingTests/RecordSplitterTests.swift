import JSON
import Testing

@testable import Importing

@Suite("Records of a file", .timeLimit(.minutes(1)))
struct RecordSplitterTests {
    /// Splits a text that comes in parts of this size.
    private func split(
        _ text: String,
        _ form: RecordSplitter.Form,
        part: Int = .max,
        maximumBytes: Int = 1000
    ) throws -> [RawRecord] {
        var splitter = RecordSplitter(form, maximumBytes: maximumBytes)
        var found: [RawRecord] = []
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let next = Array(rest.prefix(part))
            rest = rest.dropFirst(part)
            try splitter.take(next) { record in found.append(record) }
        }
        if let last = try splitter.finish() { found.append(last) }
        return found
    }

    private static let files: [(String, RecordSplitter.Form, [String])] = [
        (
            "#filetype:JSON-streaming {\"type\":\"Class\"}\n{\"a\":1}\r\n\n  \n{\"b\":\"\\n\"}",
            .lines, ["{\"a\":1}\r", "{\"b\":\"\\n\"}"]
        ),
        ("", .lines, []), ("\n\n", .lines, []),
        (
            "[{\"a\":\"]}\\\"\"},\n {\"b\":[1,{}]} ]\n", .array,
            ["{\"a\":\"]}\\\"\"}", "{\"b\":[1,{}]}"]
        ),
        ("[]", .array, []), ("[{}][{\"c\":1}]", .array, ["{}", "{\"c\":1}"]),
        (
            "{\"NextToken\":\"[{\",\"x\":[[1]],\"Endpoints\": [{\"a\":{\"Endpoints\":[]}}, {}]}\n"
                + "{\"Endpoints\":[{\"b\":2}]}",
            .container(["Endpoints"]),
            ["{\"a\":{\"Endpoints\":[]}}", "{}", "{\"b\":2}"]
        ),
        ("{\n \"a\": {}\n}\n{\"b\":1}", .values, ["{\n \"a\": {}\n}", "{\"b\":1}"]),
        (
            "a,b\r\n\"1\n2\",\"x\"\"y\n\"\n\n3,4",
            .csv, ["a,b\r", "\"1\n2\",\"x\"\"y\n\"", "3,4"]
        ),
    ]

    @Test("The records are the same however the bytes come", arguments: 0..<files.count)
    func parts(index: Int) throws {
        let (text, form, expected) = Self.files[index]
        for part in [1, 2, 3, 7, 1000] {
            let found = try split(text, form, part: part)
            #expect(found.map { String(decoding: $0.bytes, as: UTF8.self) } == expected, "\(part)")
            #expect(found.allSatisfy { !$0.isCut && !$0.isTooLong })
        }
    }

    @Test(
        "After each record, the rest of the file has the other records",
        arguments: 0..<files.count
    )
    func resumes(index: Int) throws {
        let (text, form, _) = Self.files[index]
        let all = try split(text, form)
        for (number, record) in all.enumerated() {
            var splitter = RecordSplitter(
                form,
                position: record.end,
                line: record.endLine,
                isResumed: true
            )
            var rest: [RawRecord] = []
            try splitter.take(Array(Array(text.utf8)[record.end...])) { rest.append($0) }
            if let last = try splitter.finish() { rest.append(last) }
            #expect(rest == Array(all[(number + 1)...]))
        }
    }

    @Test("Lines are numbered from 1; records of a list are numbered instead")
    func numbers() throws {
        #expect(try split("\n{}\n\n{}\n", .lines).map(\.line) == [2, 4])
        #expect(try split("h\n\"\n\n\",1\nx\n", .csv).map(\.line) == [1, 2, 5])
        #expect(try split("[\n\n{},{}\n,{}]", .array).map(\.line) == [1, 2, 3])
    }

    @Test("A record that is too long is reported without its bytes, and the next one is whole")
    func tooLong() throws {
        let long = "{\"a\":\"" + String(repeating: "x", count: 5000) + "\"}"
        for (form, text) in [
            (RecordSplitter.Form.lines, "\(long)\n{}\n"), (.array, "[\(long),{}]"),
            (.csv, "\(long.replacing("\"", with: ""))\n{}\n"), (.values, "\(long) {}"),
        ] {
            for part in [100, 999, 100_000] {
                let found = try split(text, form, part: part)
                try #require(found.count == 2, "\(form)")
                #expect(found[0].isTooLong && found[0].bytes.isEmpty)
                #expect(found[1].bytes == Array("{}".utf8) && !found[1].isTooLong)
            }
        }
    }

    @Test("A file that ends inside a list is broken after its last whole record")
    func truncated() throws {
        for text in ["[{},{\"a\":", "[{}", "[{},"] {
            var splitter = RecordSplitter(.array)
            var found = 0
            try splitter.take(Array(text.utf8)) { _ in found += 1 }
            #expect(found == 1)
            #expect(throws: ImportError.self) { _ = try splitter.finish() }
        }
        #expect(throws: ImportError.self) { _ = try split("[{}, 7]", .array) }
        #expect(throws: ImportError.self) {
            _ = try split("{\"results\":[{}x]}", .container(["results"]))
        }
        // The last record of other files is rejected alone.
        #expect(try split("{} {\"a\":", .values).map(\.isCut) == [false, true])
        #expect(try split("a\n\"b\nc", .csv).map(\.isCut) == [false, true])
    }

    @Test("The form of a file is that of its head")
    func forms() {
        let heads: [(ImportFormat, String, RecordSplitter.Form)] = [
            (.leancloud, "#filetype:JSON-streaming {}\n{\"results\":[]}", .lines),
            (.leancloud, "{\"a\":1}\n{\"results\":[]}\n", .lines),
            (.leancloud, " [\n{", .array), (.leancloud, "\u{FEFF}[{}]", .array),
            (.leancloud, "{ \"results\" : [", .container(["results"])),
            (.leancloud, "{\n  \"objectId\": \"a\"\n}\n", .values),
            // Its first line is broken, and rejected alone.
            (.leancloud, "{\"a\":\n{\"b\":1}\n", .lines),
            (.parse, "{\"_id\":\"x\"}", .lines),
            (.sns, "{\"NextToken\":\"a\",\"Endpoints\":[]}", .container(["Endpoints"])),
            (.azure, "<AppleRegistrationDescription>", .lines), (.csv, "[", .csv),
        ]
        for (format, head, form) in heads {
            #expect(RecordSplitter.form(format, head: Array(head.utf8)) == form, "\(head)")
        }
    }
}
