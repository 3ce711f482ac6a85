package import Kafka
package import PushCore
package import PushEvents

// What PushEvents knows as values, Kafka's client carries.

extension KafkaOutgoing {
    package init(_ record: OutgoingRecord) {
        self.init(
            topic: record.topic,
            key: record.key,
            value: record.value,
            headers: record.headers.map { KafkaHeader(name: $0.name, value: $0.value) }
        )
    }
}

extension IncomingRecord {
    package init(_ record: KafkaRecord) {
        self.init(
            topic: record.topic,
            partition: record.partition,
            offset: record.offset,
            key: record.key,
            value: record.value,
            headers: record.headers.map { RecordHeader($0.name, $0.value) }
        )
    }
}
