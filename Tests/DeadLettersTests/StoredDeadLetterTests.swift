import JSON
import Kafka
import PushEvents
import Testing

@testable import DeadLetters

@Suite("Stored dead letters and their replay", .timeLimit(.minutes(1)))
struct StoredDeadLetterTests {
    private let topics = KafkaTopics(prefix: "p.")

    private func letter(
        _ source: String,
        _ value: String? = #"{"app":"shop"}"#,
        _ headers: [(String, String)] = [],
        detail: String = "why"
    ) -> StoredDeadLetter {
        let own = [
            ("error.reason", "invalid_request"), ("error.detail", detail),
            ("source.topic", source), ("source.partition", "0"), ("source.offset", "0"),
        ]
        return StoredDeadLetter(
            record: KafkaRecord(
                topic: "p.push.dead-letters",
                partition: 3,
                offset: 17,
                timestampMilliseconds: 1_700_000_000_000,
                key: value == nil ? nil : Array("k".utf8),
                value: value.map { Array($0.utf8) },
                headers: (headers + own).map { KafkaHeader(name: $0.0, value: $0.1) }
            )
        )
    }

    @Test("A record is replayed unchanged to its topic, and only to a topic of ours")
    func kafka() {
        let letter = letter("p.push.requests", #"{"app":"shop"}"#, [("ce_type", "push")])
        #expect(letter.replayTarget(topics) == .kafka(topic: "p.push.requests"))
        let outgoing = letter.outgoing(to: "p.push.requests")
        #expect(outgoing.headers == [KafkaHeader(name: "ce_type", value: "push")])
        #expect(outgoing.key == Array("k".utf8) && outgoing.value == letter.record.value)
        #expect(letter.app == "shop" && letter.sourcePlace == "0/0" && letter.id.text == "3/17")
        #expect(
            self.letter("p.ingest.Weather").replayTarget(topics)
                == .kafka(topic: "p.ingest.Weather")
        )
        for source in [
            "push.requests", "orders", "", "p.push.dead-letters", "p.ingest.", "p.ingest.a b",
        ] {
            guard case .none = self.letter(source).replayTarget(topics) else {
                Issue.record("\(source) is no topic of ours")
                continue
            }
        }
    }

    @Test("A Segment item is replayed through ingest, as the app that it came from")
    func intake() throws {
        let item = #"{"type":"track","userId":"u"}"#
        let letter = letter("http:/v1/batch", item, [("app", "shop")])
        #expect(letter.replayTarget(topics) == .intake(route: "/v1/batch", app: "shop"))
        #expect(letter.intakeBody == Array(#"{"batch":[{"type":"track","userId":"u"}]}"#.utf8))
        #expect(letter.sourcePlace == nil && letter.json["sourcePlace"] == nil)
        for broken in [
            self.letter("http:/v1/batch", item),
            self.letter("http:/v1/batch", "{", [("app", "shop")]),
            self.letter("http:/v1/batch", item, [("app", "a/b")]),
            self.letter("http:/v2/batch", item, [("app", "shop")]),
        ] {
            guard case .none = broken.replayTarget(topics) else {
                Issue.record("\(broken.json) cannot be replayed")
                continue
            }
        }
    }

    @Test(
        "A dead letter that was too large cannot be replayed, by its header or an older one's text"
    )
    func leftOut() {
        let why = StoredDeadLetter.ReplayTarget.none(.omitted)
        #expect(
            letter("p.push.requests", nil, [("error.content", "omitted")]).replayTarget(topics)
                == why
        )
        let older = letter("p.push.requests", nil, detail: "long; 9 bytes, too large, are left out")
        #expect(older.replayTarget(topics) == why)
        let words = letter("p.push.requests", "{}", detail: "its name: \"are left out\"")
        #expect(words.replayTarget(topics) == .kafka(topic: "p.push.requests"))
    }

    @Test(
        "A dead letter's id is its partition and offset",
        arguments: ["", "0", "0/", "/1", "a/1", "-1/0", "0/1/2"]
    )
    func ids(text: String) {
        #expect(StoredDeadLetter.ID(text) == nil)
        #expect(StoredDeadLetter.ID("3/17") == letter("x").id)
    }

    @Test("Bytes that are not UTF-8 are shown as Base64")
    func bytes() {
        var record = letter("p.push.requests").record
        record.value = [0xff]
        #expect(StoredDeadLetter(record: record).wholeJSON["value"] == ["base64": "/w=="])
    }
}
