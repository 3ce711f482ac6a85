import JSON
import PushCore
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("Pushes that take the fast path", .timeLimit(.minutes(1)))
struct FastPathTests {
    private let now = Instant(seconds: 1_700_000_000)

    private func takes(_ fields: JSONObject, eventID: String = "e") throws -> Bool {
        var object: JSONObject = ["data": ["alert": "x"]]
        for (key, value) in fields { object[key] = value }
        let request = try PushRequest.parse(object, now: now)
        return NewPush(
            id: "p",
            app: "shop",
            eventSource: "test",
            eventID: eventID,
            object: object,
            request: request,
            expiresAt: nil,
            releaseAt: request.releaseTime(acceptedAt: now)
        ).isForFewDevices
    }

    private func names(_ count: Int) -> JSONValue {
        .array((0..<count).map { .string("i\($0)") })
    }

    @Test("A push that names few devices by id, identity or token takes the fast path")
    func few() throws {
        let most = NewPush.fewDevices
        for (field, most) in [("installations", most), ("identities", NewPush.fewNames)] {
            #expect(try takes([field: names(most)]))
            #expect(try !takes([field: names(most + 1)]))
        }
        func tokens(_ count: Int) -> JSONValue {
            .array((0..<count).map { ["platform": "fcm", "token": .string("t\($0)")] })
        }
        #expect(try takes(["tokens": tokens(most)]))
        #expect(try !takes(["tokens": tokens(most + 1)]))
        #expect(try takes(["tokens": tokens(1), "expiration_interval": 60, "prod": "dev"]))
    }

    @Test("A push that may be for more devices than the fast path takes has figures of its own")
    func many() throws {
        func isForMany(_ fields: JSONObject) throws -> Bool {
            var object = fields
            object["data"] = ["alert": "x"]
            return try PushRequest.parse(object, now: now).isForMany
        }
        let most = NewPush.fewDevices
        #expect(try isForMany([:]))
        #expect(try isForMany(["channels": ["news"]]))
        #expect(try isForMany(["where": ["badge": 1]]))
        for field in ["installations", "identities"] {
            #expect(try isForMany([field: names(most + 1)]))
            #expect(try !isForMany([field: names(most), "pace": 1]))
        }
        #expect(try !isForMany(["installations": names(1), "channels": ["news"]]))
        #expect(try !isForMany(["where": ["objectId": "i"]]))
    }

    @Test(
        "A push that needs a row before it is sent does not take the fast path",
        arguments: [
            ["data": ["alert": "x", "badge": "Increment"]],
            ["push_time": "2027-01-15T09:00:00Z"], ["push_time": "2027-01-15T09:00:00"],
            ["pace": 1], ["flow_control": 1000], ["spread": 60], ["dry_run": true],
            ["notification_id": "label"], ["channels": ["news"]], ["where": ["badge": 1]],
            ["tags": "news"], ["identities": ["u"]],
        ] as [JSONObject]
    )
    func rows(fields: JSONObject) throws {
        var object = fields
        object["installations"] = ["i"]
        #expect(try !takes(object), "\(fields)")
    }

    @Test("A push to every device, a topic or an older config does not take the fast path")
    func audiences() throws {
        #expect(try !takes([:]))
        #expect(try !takes(["audience_topic": "news"]))
        #expect(try !takes(["audience_topic": "PUSH_RC", "configVersion": "8"]))
    }

    @Test("An event that Postgres cannot store is found before anything is sent")
    func nul() throws {
        #expect(try takes(["installations": ["i"]], eventID: "a b"))
        #expect(try !takes(["installations": ["i"]], eventID: "a\u{0}b"))
    }
}
