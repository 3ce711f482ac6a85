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

    /// What becomes of an item that cannot be used.
    func deadLetter(
        _ item: JSONValue,
        _ refused: RefusedObject,
        _ caller: Caller
    ) -> KafkaOutgoing {
        var item = item
        if var object = item.object, object["writeKey"] != nil {
            object["writeKey"] = nil
            item = .object(object)
        }
        let value = item.bytes
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
                isContentKept: value.count <= Self.maximumLetterBytes
            )
        )
    }
}
