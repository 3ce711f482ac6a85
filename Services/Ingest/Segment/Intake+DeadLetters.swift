import Gateway
import JSON
import Kafka
import Outbox
import PushCore
import PushEvents

extension Intake {
    /// The source that dead letters of items state; a replay goes through intake again.
    static let source = "http:" + SegmentSurface.batch

    /// The source of dead letters that Realm's clients sent and nobody can read.
    static let realmSource = "http:" + RealmPath.sync

    /// The source of objects of a type, which the native route takes again.
    static func source(ofType name: String) -> String { "http:/v1/ingest/" + name }

    /// The limit of a dead letter, below the default limit of Kafka's brokers. If no broker
    /// accepted a dead letter, its client would send the batch again for ever.
    private static let maximumLetterBytes = 900_000

    /// Returns the bytes of an item without the write key, which must not be readable.
    static func withoutKey(_ item: JSONValue) -> [UInt8] {
        guard var object = item.object, object["writeKey"] != nil else { return item.bytes }
        object["writeKey"] = nil
        return JSONValue.object(object).bytes
    }

    /// Returns the record of an invalid item. `content` is `nil` if it must not be stored.
    func deadLetter(
        _ content: [UInt8]?,
        _ refused: RefusedObject,
        _ caller: Caller
    ) -> KafkaOutgoing {
        Self.deadLetter(content, refused, app: caller.appID, source: Self.source, topics)
    }

    /// Returns the record of an object that is refused, of any surface.
    static func deadLetter(
        _ content: [UInt8]?,
        _ refused: RefusedObject,
        app: String,
        source: String,
        _ topics: KafkaTopics
    ) -> KafkaOutgoing {
        let value = content ?? []
        let detail =
            refused.pointer.isEmpty ? refused.reason : "\(refused.pointer): \(refused.reason)"
        return KafkaOutgoing(
            .deadLetter(
                IncomingRecord(
                    topic: source,
                    partition: 0,
                    offset: 0,
                    key: nil,
                    value: value,
                    headers: [RecordHeader("app", app)]
                ),
                because: DeadLetterReason(.invalidRequest, detail),
                topics: topics,
                isContentKept: content != nil && value.count <= maximumLetterBytes
            )
        )
    }
}
