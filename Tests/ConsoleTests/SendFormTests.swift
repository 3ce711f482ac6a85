import JSON
import PushCore
import Testing

@testable import Console

@Suite("The form in which a push is written")
struct SendFormTests {
    private let t = Words(.english)

    private func request(_ values: [String: String]) throws -> JSONObject {
        try SendForm(values.merging(["text": "hi"]) { own, _ in own }).request(t)
    }

    private func problem(_ values: [String: String]) -> String? {
        do {
            _ = try request(values)
            return nil
        } catch let problem as SendForm.Problem {
            return problem.field
        } catch {
            return "\(error)"
        }
    }

    @Test("Nobody is chosen at first, and an empty choice is refused, so no slip reaches everyone")
    func nobody() throws {
        #expect(problem([:]) == "who")
        #expect(problem(["who": "some"]) == "channels")
        #expect(problem(["who": "some", "f0": "", "v0": "Oslo"]) == "v0")
        #expect(problem(["who": "named"]) == "installations")
        #expect(problem(["who": "condition", "where": "{}"]) == "where")
        #expect(problem(["who": "condition", "where": "[1"]) == "where")
        #expect(try request(["who": "everyone"])["where"] == nil)
    }

    @Test("Conditions become a where")
    func conditions() throws {
        let found = try request([
            "who": "some", "channels": " news \n sport ", "tags": "vip && !muted",
            "f0": "city", "o0": "isAmong", "v0": "Oslo, Bergen",
            "f1": "age", "o1": "atLeast", "v1": "18",
            "f2": "name", "o2": "beginsWith", "v2": "A.b",
        ])
        let wanted: JSONValue = [
            "channels": ["news", "sport"], "tags": "vip && !muted",
            "where": [
                "$and": [
                    ["city": ["$in": ["Oslo", "Bergen"]]], ["age": ["$gte": 18]],
                    ["name": ["$regex": "^A\\.b"]],
                ]
            ],
            "data": ["alert": "hi"],
        ]
        #expect(JSONValue.object(found) == wanted)
        _ = try PushRequest.parse(found, now: .now())
    }

    @Test("A slip in a condition is refused: what is left out would select more devices")
    func slips() throws {
        let row = ["who": "some", "channels": "news"]
        func with(_ more: [String: String]) -> String? { problem(row.merging(more) { $1 }) }
        #expect(with(["f0": "", "v0": "Bergen"]) == "v0")
        #expect(with(["f0": "city", "o0": "beginsWith", "v0": " "]) == "v0")
        #expect(with(["f0": "city", "o0": "differs", "v0": ""]) == "v0")
        #expect(with(["f0": "optOut", "o0": "exists", "v0": "no"]) == "v0")
        #expect(with(["f0": "", "v0": ""]) == nil)
        let named = try request(["who": "named", "identities": "Doe, John\ncn=ann,dc=example"])
        #expect(named["identities"] == ["Doe, John", "cn=ann,dc=example"])
    }

    @Test("A push with fields that the page does not have is not copied without them")
    func uncopied() {
        let sent: JSONObject = ["where": [:], "data": [:], "flow_control": 1000, "topic": "com.b"]
        #expect(SendForm.uncopied(sent) == ["flow_control", "topic"])
        #expect(SendForm.uncopied(["data": ["alert": "hi"], "pace": 5]) == [])
    }

    @Test("A review is of one content")
    func digests() {
        let form = SendForm(["who": "named", "installations": "a"])
        #expect(form.digest == SendForm(form.object).digest)
        #expect(form.digest != SendForm(["who": "everyone"]).digest)
    }

    @Test("A wrong field is named")
    func problems() {
        let all = ["who": "everyone"]
        func with(_ name: String, _ value: String) -> String? {
            problem(all.merging([name: value]) { $1 })
        }
        #expect(with("text", " ") == "text")
        #expect(with("badge", "many") == "badge")
        #expect(with("data", "[]") == "data")
        #expect(with("expiry", "0") == "expiry")
        #expect(with("pace", "-1") == "pace")
        #expect(problem(["who": "everyone", "when": "at", "time": "tomorrow"]) == "time")
        #expect(problem(["who": "everyone", "l0": "de", "y0": ""]) == "y0")
    }

    @Test("A fixed time is in UTC, and a local time has no zone")
    func times() throws {
        let at = try request(["who": "everyone", "when": "at", "time": "2026-12-26T07:30"])
        #expect(at["push_time"] == "2026-12-26T07:30:00Z")
        let berlin = [
            "who": "everyone", "when": "at", "time": "2026-12-26T07:30", "zone": "Europe/Berlin",
        ]
        #expect(try request(berlin)["push_time"] == "2026-12-26T06:30:00.000Z")
        for zone in ["Europe/Nowhere", "../../etc/passwd", "<b>", "europe/berlin"] {
            #expect(problem(berlin.merging(["zone": zone]) { $1 }) == "zone", "\(zone)")
        }
        let local = try request(["who": "everyone", "when": "local", "time": "2026-12-26T07:30"])
        #expect(local["push_time"] == "2026-12-26T07:30:00")
    }

    @Test("Rows are added and removed by buttons, up to ten")
    func rows() {
        var form = SendForm(["f0": "city", "v0": "Oslo"])
        for _ in 0..<20 { form.change("add") }
        #expect(form.rows.count == SendForm.maximumRows)
        form.change("remove-0")
        #expect(form.rows.count == SendForm.maximumRows - 1)
        #expect(form.rows.allSatisfy { $0.field.isEmpty })
        for act in ["remove-99", "remove--1", "remove-x", "add-language", ""] { form.change(act) }
        #expect(form.variants.count == 1)
    }

    @Test("A stored push is copied with its audience")
    func copies() throws {
        let sent: JSONObject = [
            "where": ["city": "Oslo"], "collapse_id": "match", "pace": 5,
            "data": ["alert": "hi", "title": "Hey", "alert-de": "hallo", "match": 8813],
        ]
        #expect(try SendForm(copying: sent).request(t) == sent)
    }

    @Test(
        "An audience without fields of its own is not copied: a part of it would be more devices",
        arguments: [
            ["channels": ["news"], "where": ["city": "Oslo"]],
            ["cql": "select * from _Installation"],
            ["where": [:]], [:], ["identities": ["ann"], "channels": ["news"]],
            ["platforms": ["apns"]],
        ] as [JSONObject]
    )
    func neverBroader(request: JSONObject) {
        var request = request
        request["data"] = ["alert": "hi"]
        #expect(SendForm(copying: request).audience == nil)
    }

    @Test("Only the form's own fields are stored")
    func fields() throws {
        let form = SendForm(["who": "everyone", "token": "secret", "f10": "x", "z1": "x"])
        let stored = SendForm(form.object).object
        #expect(stored == ["who": "everyone"])
    }
}
