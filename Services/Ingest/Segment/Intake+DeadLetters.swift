import Door
import JSON
import Kafka
import Outbox
import PushCore
import PushEvents

extension Intake {
    /// Where the letters of items say that they came from; a replay goes through intake again.
    static let source = "http:" + SegmentSurface.batch

    /// Below what Kafka's brokers take unless they are told otherwise: a letter that none takes would
    /// have its batch sent again for ever.
    private static let maximumLetterBytes = 900_000

    /// The bytes of an item without the write key, which nobody may read.
    static func withoutKey(_ item: JSONValue) -> [UInt8] {
        guard var object = item.object, object["writeKey"] != nil else { return item.bytes }
        object["writeKey"] = nil
        return JSONValue.object(object).bytes
    }

    /// The record of an item that cannot be used; `nil` is content that may not be kept.
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
