package import Kafka
package import PushCore

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
