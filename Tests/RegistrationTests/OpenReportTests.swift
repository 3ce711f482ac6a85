import JSON
import Testing

@testable import Registration

@Suite("Opens are counted from reports of statistics", .timeLimit(.minutes(1)))
struct OpenReportTests {
    @Test("The SDKs' form: events by name, each with the times that it occurred")
    func collected() {
        let report = OpenReport([
            "events": [
                "launch": ["sessionId": "s", "date": 1], "terminate": ["activities": []],
                "event": [
                    ["name": "!AV!AppOpen", "ts": 1, "attributes": ["event_id": "_appOpen"]],
                    ["name": "!AV!PushOpen", "acc": 2], ["name": "bought", "acc": 40],
                ],
            ],
            "device": ["iid": "5f0a1b2c3d4e5f6071829304", "os": "Android"],
        ])
        #expect(report.opens == 1)
        #expect(report.pushOpens == 2)
        #expect(report.installation == "5f0a1b2c3d4e5f6071829304")
    }

    @Test("The form of REST: a list of events")
    func opened() {
        let report = OpenReport([
            "client": ["id": "browser"],
            "events": [["event": "!AV!AppOpen"], ["event": "_page", "ts": 2]],
        ])
        #expect(report.opens == 1)
        #expect(report.pushOpens == 0)
        #expect(report.installation == nil)
    }

    @Test(
        "Anything else counts nothing",
        arguments: [
            [:], ["events": "x"], ["events": [1, "!AV!AppOpen", .null]],
            ["events": ["event": ["name": "!AV!AppOpen"]]],
            ["events": [["name": 5, "acc": "many"]], "device": "x"],
        ] as [JSONObject]
    )
    func others(body: JSONObject) { #expect(OpenReport(body).isEmpty) }

    @Test("One report counts only so many, and names no impossible installation")
    func bounds() {
        let many = JSONValue.array(
            Array(repeating: ["event": "!AV!PushOpen", "acc": 999_999_999_999], count: 50)
        )
        let long = JSONValue.string(String(repeating: "x", count: 65))
        #expect(OpenReport(["events": many]).pushOpens == OpenReport.maximum)
        #expect(OpenReport(["events": many, "device": ["iid": long]]).installation == nil)
        #expect(OpenReport(["events": many, "device": ["iid": "a\0"]]).installation == nil)
        #expect(OpenReport(["events": [["event": "!AV!AppOpen", "acc": -4]]]).opens == 1)
    }
}
