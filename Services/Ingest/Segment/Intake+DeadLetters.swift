import Gateway
import JSON
import Kafka
import Outbox
import PushCore
import PushEvents

extension Intake {
    /// The source that dead letters of items state; a replay goes through intake again.
    static let source = "http:" + SegmentSurface.batch

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
        let value = content ?? []
        let detail =
            refused.pointer.isEmpty ? refused.reason : "\(refused.pointer): \(refused.reason)"
        return KafkaOutgoing(
            .deadLetter(
                IncomingRecord(
                    topic: Self.source,
                    partition: 0,
                    offset: 0,
                    key: nil,
                    value: value,
                    headers: [RecordHeader("app", caller.appID)]
                ),
                because: DeadLetterReason(.invalidRequest, detail),
                topics: topics,
                isContentKept: content != nil && value.count <= Self.maximumLetterBytes
            )
        )
    }
}
