import EventLoop
import JSON
import Outbox
import PushCore
import PushEvents
import PushStorage
import Storage
import Testing

@Suite("What is judged before a push is kept", .timeLimit(.minutes(1)))
struct PushAcceptanceTests {
    private let event = PushAcceptance.Event(app: "shop", source: "test", id: "order-7")

    /// Judging asks nothing of the database, so nobody listens there.
    private func judge(
        _ body: JSONObject,
        includesPushID: Bool = false
    ) async throws -> PushAcceptance.Judged {
        let loop = try EventLoop(name: "acceptance")
        let database = PushDatabase(
            DatabaseConfiguration(uri: "postgresql://127.0.0.1:1/nobody"),
            on: loop
        )
        let result = Result {
            try PushAcceptance(database, topics: KafkaTopics(prefix: "t."))
                .judge(body, event, includesPushID: includesPushID, now: .now())
        }
        await database.close()
        await loop.stop()
        return try result.get()
    }

    private func body(_ text: String) -> JSONObject {
        ["channels": ["news"], "data": ["alert": .string(text)]]
    }

    @Test("the record names the event, on the topic of push requests, and is what intake reads")
    func record() async throws {
        let judged = try await judge(body("Ring"))
        #expect(judged.record.topic == "t.push.requests")
        #expect(judged.record.key == Array("order-7".utf8))
        let read = try PushEvent.decode(
            IncomingRecord(
                topic: judged.record.topic,
                partition: 0,
                offset: 0,
                key: judged.record.key,
                value: judged.record.value,
                headers: judged.record.headers
            ),
            now: .now()
        )
        #expect((read.app, read.source, read.eventID) == ("shop", "test", "order-7"))
    }

    @Test("the same event is the same push")
    func sameEvent() async throws {
        let first = try await judge(body("Ring"))
        let second = try await judge(body("Another text"))
        #expect(first.push.id == second.push.id)
    }

    @Test("what no platform takes, and what Kafka does not, is too large")
    func tooLarge() async throws {
        for count in [10_000, PushAcceptance.maximumRecordBytes + 1] {
            await #expect(throws: PushTooLarge.self) {
                _ = try await judge(body(String(repeating: "x", count: count)))
            }
        }
        _ = try await judge(body(String(repeating: "x", count: 1000)))
    }

    @Test("a request that cannot be sent is told what is wrong with it")
    func invalid() async throws {
        await #expect(throws: PushRequestError.self) { _ = try await judge(["data": "no object"]) }
    }

    @Test("where devices are told a push's id, its bytes count")
    func pushID() async throws {
        var body = body(String(repeating: "x", count: 4076))
        body["channels"] = nil
        body["tokens"] = [["platform": "apns", "token": "ab"]]
        _ = try await judge(body)
        await #expect(throws: PushTooLarge.self) { try await judge(body, includesPushID: true) }
    }
}
