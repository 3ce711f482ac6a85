import EventLoop
import JSON
import Outbox
import PushCore
import PushEvents
import PushStorage
import Storage
import Testing

@Suite("Validation of a push before it is stored", .timeLimit(.minutes(1)))
struct PushAcceptanceTests {
    private let event = PushAcceptance.Event(app: "shop", source: "test", id: "order-7")

    /// Validation needs no database, so there is no server at this address.
    private func validate(
        _ body: JSONObject,
        includesPushID: Bool = false
    ) async throws -> PushAcceptance.ValidatedPush {
        let loop = try EventLoop(name: "acceptance")
        let database = PushDatabase(
            DatabaseConfiguration(uri: "postgresql://127.0.0.1:1/nobody"),
            on: loop
        )
        let result = Result {
            try PushAcceptance(database, topics: KafkaTopics(prefix: "t."))
                .validate(body, event, includesPushID: includesPushID, now: .now())
        }
        await database.close()
        await loop.stop()
        return try result.get()
    }

    private func body(_ text: String) -> JSONObject {
        ["channels": ["news"], "data": ["alert": .string(text)]]
    }

    @Test(
        "The record names the event, is on the topic of push requests, and is read by the consumer"
    )
    func record() async throws {
        let validated = try await validate(body("Ring"))
        #expect(validated.record.topic == "t.push.requests")
        #expect(validated.record.key == Array("order-7".utf8))
        let read = try PushEvent.decode(
            IncomingRecord(
                topic: validated.record.topic,
                partition: 0,
                offset: 0,
                key: validated.record.key,
                value: validated.record.value,
                headers: validated.record.headers
            ),
            now: .now()
        )
        #expect((read.app, read.source, read.eventID) == ("shop", "test", "order-7"))
    }

    @Test("The same event is the same push")
    func sameEvent() async throws {
        let first = try await validate(body("Ring"))
        let second = try await validate(body("Another text"))
        #expect(first.push.id == second.push.id)
    }

    @Test("A push that every platform or Kafka rejects for its size is too large")
    func tooLarge() async throws {
        for count in [10_000, PushAcceptance.maximumRecordBytes + 1] {
            await #expect(throws: PushTooLarge.self) {
                _ = try await validate(body(String(repeating: "x", count: count)))
            }
        }
        _ = try await validate(body(String(repeating: "x", count: 1000)))
    }

    @Test("An invalid request gets the reason")
    func invalid() async throws {
        await #expect(throws: PushRequestError.self) {
            _ = try await validate(["data": "no object"])
        }
    }

    @Test("The push id counts in the size if devices get it")
    func pushID() async throws {
        var body = body(String(repeating: "x", count: 4076))
        body["channels"] = nil
        body["tokens"] = [["platform": "apns", "token": "ab"]]
        _ = try await validate(body)
        await #expect(throws: PushTooLarge.self) { try await validate(body, includesPushID: true) }
    }
}
