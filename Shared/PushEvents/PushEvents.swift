// PushEvents says what travels through Kafka: the names of the topics, the key of each record, and
// the codec of each event. It knows records as values and no client library: the services carry
// them.
//
// A record that cannot be read is never an obstacle: reading it gives a `DeadLetterReason`, and the
// record goes to `push.dead-letters` as it came.

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
