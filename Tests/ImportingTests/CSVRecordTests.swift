import JSON
import PushCore
import Testing

@testable import Importing

@Suite("CSV", .timeLimit(.minutes(1)))
struct CSVRecordTests {
    private func reason(_ body: () throws -> Void) -> String? {
        do {
            try body()
            return nil
        } catch let error as Rejection {
            return error.reason
        } catch let error as ImportError {
            return error.description
        } catch {
            return "\(error)"
        }
    }

    @Test("Values are split as RFC 4180 says")
    func values() throws {
        let lines: [(String, [String])] = [
            ("a,b,c\r", ["a", "b", "c"]), ("", [""]), (",", ["", ""]),
            ("\"a,b\",\"c\"\"d\"", ["a,b", "c\"d"]), ("\"x\ny\",", ["x\ny", ""]),
            ("\"\",é", ["", "é"]),
        ]
        for (line, expected) in lines {
            #expect(try CSVRecord.values(Array(line.utf8)) == expected, "\(line)")
        }
        #expect(
            reason { _ = try CSVRecord.values(Array("\"a".utf8)) }
                == "a quotation mark is not closed"
        )
        #expect(
            reason { _ = try CSVRecord.values(Array("\"a\"b,c".utf8)) }
                == "text follows a closing quotation mark"
        )
        #expect(reason { _ = try CSVRecord.values(Array("a\"b".utf8)) } != nil)
        #expect(reason { _ = try CSVRecord.values([0x61, 0xff]) } == "invalid UTF-8")
    }

    @Test("Columns fill their usual fields, or those that are named")
    func mapping() throws {
        let usual = try CSVMapping(
            header: ["id", "Device_Token", "platform", "user-id", "Tags", "city"],
            given: [:]
        )
        #expect(
            usual.fields == [
                "objectId", "deviceToken", "deviceType", "identity", "channels", "city",
            ]
        )
        let named = try CSVMapping(
            header: ["x y", "reg", "note"],
            given: ["x y": "installationId", "reg": "registrationId", "note": "skip"]
        )
        #expect(named.fields == ["installationId", "registrationId", nil])
        let wrong: [([String], [String: String], String)] = [
            (["token", "x y"], [:], "--map \"x y=field"),
            (["token", "a"], ["b": "c"], "--map names \"b\""),
            (["city"], [:], "no column has a device's address"),
            (["token", "user", "identity"], [:], "two columns fill the field identity"),
            (["token", "a"], ["a": "_azure"], "cannot be a field"),
            (["token"] + (0..<500).map { "c\($0)" }, [:], "more than 500 columns"),
        ]
        for (header, given, expected) in wrong {
            let found = reason { _ = try CSVMapping(header: header, given: given) }
            #expect(found?.contains(expected) == true, "\(header): \(found ?? "nothing")")
        }
    }

    @Test("Values have the type of their field")
    func types() throws {
        let mapping = try CSVMapping(
            header: ["token", "platform", "badge", "valid", "channels", "created", "level"],
            given: [:]
        )
        func fields(_ line: String) throws -> RecordFields {
            try CSVRecord.fields(Array(line.utf8), mapping)
        }
        let record = try fields("aa11,iPhone,3,no,news;sport|x,1700000000,7")
        #expect(record.body["deviceToken"] == "aa11" && record.body["deviceType"] == "ios")
        #expect(record.body["badge"] == 3 && record.body["channels"] == ["news", "sport", "x"])
        #expect(record.body["level"] == "7")
        #expect(record.createdAt == Instant(seconds: 1_700_000_000))
        #expect(record.invalidReason == Installation.inactiveReason)
        let android = try fields("f:1,FCM,,,\"[\"\"a b\"\"]\",2026-01-02T03:04:05,")
        #expect(android.body["registrationId"] == "f:1" && android.body["channels"] == ["a b"])
        #expect(android.body["level"] == nil && android.invalidReason == nil)
        #expect(android.createdAt == Instant(iso8601: "2026-01-02T03:04:05Z"))
        #expect(reason { _ = try fields("a,ios,x,,,,") } == "badge must be a whole number")
        #expect(reason { _ = try fields("a,ios,,maybe,,,") } == "valid must be true or false")
        #expect(reason { _ = try fields("a,,,,,,") }?.hasPrefix("deviceType is missing") == true)
        #expect(
            reason { _ = try fields("a,ios,,,,soon,") } == "createdAt must be a time in ISO 8601"
        )
        #expect(
            reason { _ = try fields("a,ios") }
                == "the number of values is not that of the header line"
        )
    }
}
