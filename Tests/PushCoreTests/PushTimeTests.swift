import JSON
import PushCore
import Testing

@Suite("The time of a push", .timeLimit(.minutes(1)))
struct PushTimeTests {
    private let now: Instant

    init() throws {
        now = try #require(Instant(iso8601: "2026-11-20T12:00:00Z"))
    }

    private func parse(_ text: String) throws -> PushRequest {
        let object = try #require(try JSONValue.parse(#"{"data": {}, "# + text + "}").object)
        return try PushRequest.parse(object, now: now)
    }

    private func error(_ text: String) throws -> PushRequestError? {
        let object = try #require(try JSONValue.parse(#"{"data": {}, "# + text + "}").object)
        return #expect(throws: PushRequestError.self) {
            _ = try PushRequest.parse(object, now: now)
        }
    }

    private func release(_ text: String) throws -> String? {
        try parse(text).releaseTime(acceptedAt: now)?.iso8601
    }

    @Test("A time with its zone is an instant, and one without is each device's local time")
    func reads() throws {
        #expect(
            try parse(#""push_time": "2026-11-21T09:00:00+02:00""#).pushTime
                == .at(try #require(Instant(iso8601: "2026-11-21T07:00Z")))
        )
        let local = try #require(LocalDateTime(iso8601: "2026-11-21T09:00:00.500"))
        #expect(try parse(#""push_time": "2026-11-21T09:00:00.5""#).pushTime == .local(local))
        #expect(local.iso8601 == "2026-11-21T09:00:00.500")
        #expect(local.earliest.iso8601 == "2026-11-20T19:00:00.500Z")
        #expect(local.latest.iso8601 == "2026-11-21T21:00:00.500Z")
        #expect(try parse(#""push_time": null"#).pushTime == nil)
    }

    @Test(
        "An invalid time is refused by its name",
        arguments: [
            #""tomorrow""#, #""2026-11-21""#, #""2026-13-01T00:00:00""#, #""2026-02-29T00:00:00""#,
            #""2026-11-21T25:00:00Z""#, #""2026-11-21T09:00:00ZZ""#, "1795000000", "{}",
            #""2036-12-01T00:00:00Z""#, #""9999-01-01T00:00:00""#,
        ]
    )
    func refuses(value: String) throws {
        #expect(try error(#""push_time": \#(value)"#)?.field == "push_time")
    }

    @Test("A push is released at its time, at once if that has passed, and a dry run does not wait")
    func releases() throws {
        #expect(try release(#""channels": []"#) == nil)
        #expect(try release(#""push_time": "2026-11-20T11:59:59Z""#) == nil)
        #expect(try release(#""push_time": "2026-11-20T12:00:00Z""#) == nil)
        let ahead = #""push_time": "2026-11-20T12:00:00.001Z""#
        #expect(try release(ahead) == "2026-11-20T12:00:00.001Z")
        #expect(try release(ahead + #", "dry_run": true"#) == nil)
    }

    @Test("A device-local push is released when the first clocks show its time")
    func releasesLocal() throws {
        // The time is ahead everywhere, past in some zones, past in all.
        #expect(try release(#""push_time": "2026-11-21T09:00:00""#) == "2026-11-20T19:00:00.000Z")
        #expect(try release(#""push_time": "2026-11-20T09:00:00""#) == "2026-11-19T19:00:00.000Z")
        #expect(try release(#""push_time": "2026-11-20T00:00:00""#) == nil)
    }

    @Test("An interval counts from push_time, or else from the call")
    func countsFromPushTime() throws {
        func end(_ text: String) throws -> String? {
            try parse(text).expiresAt(acceptedAt: now)?.iso8601
        }
        let interval = #", "expiration_interval": 60"#
        #expect(
            try end(#""push_time": "2026-11-21T09:00:00Z""# + interval)
                == "2026-11-21T09:01:00.000Z"
        )
        #expect(try end(#""channels": []"# + interval) == "2026-11-20T12:01:00.000Z")
        // This is the latest end among the devices.
        #expect(
            try end(#""push_time": "2026-11-21T09:00:00""# + interval)
                == "2026-11-21T21:01:00.000Z"
        )
    }

    @Test(
        "An expiration that is not after push_time is refused by its name",
        arguments: [
            #""push_time": "2026-11-21T09:00:00Z", "expiration_time": "2026-11-21T08:00:00Z""#,
            #""push_time": "2026-11-21T09:00:00Z", "expiration_time": "2026-11-21T09:00:00Z""#,
            #""push_time": "2026-11-20T09:00:00Z", "expiration_time": "2026-11-20T08:00:00Z""#,
            #""push_time": "2026-11-21T09:00:00", "expiration_time": "2026-11-20T18:00:00Z""#,
        ]
    )
    func refusesEarlyExpiration(text: String) throws {
        #expect(try error(text)?.field == "expiration_time")
    }

    @Test(
        "An expiration must be after push_time, which for a device-local push is the first device's"
    )
    func takesLaterExpiration() throws {
        let start = #""push_time": "2026-11-21T09:00:00"#
        #expect(
            try parse(start + #"Z", "expiration_time": "2026-11-21T09:00:01Z""#).expiration
                == .at(try #require(Instant(iso8601: "2026-11-21T09:00:01Z")))
        )
        let local = try parse(start + #"", "expiration_time": "2026-11-21T09:00:00Z""#)
        #expect(local.expiresAt(acceptedAt: now)?.iso8601 == "2026-11-21T09:00:00.000Z")
    }
}
