// PushEvents defines the Kafka records: the names of the topics, the key of each record, and the
// codec of each event. It treats records as values and uses no client library: the services produce
// and consume them.
//
// A record that cannot be read is never an obstacle: decoding throws a `DeadLetterReason`, and the
// unchanged record goes to `push.dead-letters`.

package import PushCore

/// A record as it came from Kafka.
package struct IncomingRecord: Sendable, Equatable {
    package var topic: String
    package var partition: Int32
    package var offset: Int64
    package var key: [UInt8]?
    package var value: [UInt8]?
    package var headers: [RecordHeader]

    package init(
        topic: String,
        partition: Int32,
        offset: Int64,
        key: [UInt8]?,
        value: [UInt8]?,
        headers: [RecordHeader] = []
    ) {
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.headers = headers
    }
}
