/// One header of a record. Names may repeat; a header without a value reads as a header with an
/// empty value.
package struct KafkaHeader: Sendable, Hashable {
    package var name: String
    package var value: [UInt8]

    package init(name: String, value: [UInt8]) {
        self.name = name
        self.value = value
    }

    package init(name: String, value: String) {
        self.init(name: name, value: Array(value.utf8))
    }
}

/// One record that was read: a copy, so no memory of librdkafka is retained.
package struct KafkaRecord: Sendable, Equatable {
    package var topic: String
    package var partition: Int32
    package var offset: Int64
    /// Milliseconds since 1970 in UTC, as the writer or the broker set it; -1 if neither did.
    package var timestampMilliseconds: Int64
    package var key: [UInt8]?
    /// `nil` is a tombstone, which is not the same as an empty value.
    package var value: [UInt8]?
    package var headers: [KafkaHeader]

    package init(
        topic: String,
        partition: Int32,
        offset: Int64,
        timestampMilliseconds: Int64 = -1,
        key: [UInt8]?,
        value: [UInt8]?,
        headers: [KafkaHeader] = []
    ) {
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestampMilliseconds = timestampMilliseconds
        self.key = key
        self.value = value
        self.headers = headers
    }
}

/// One record to be written.
package struct KafkaOutgoing: Sendable, Equatable {
    package var topic: String
    /// Records of one key stay in order, on one partition. `nil` spreads them.
    package var key: [UInt8]?
    /// `nil` is a tombstone.
    package var value: [UInt8]?
    package var headers: [KafkaHeader]
    /// `nil` lets the key decide, by the hash that Java's producer uses.
    package var partition: Int32?

    package init(
        topic: String,
        key: [UInt8]?,
        value: [UInt8]?,
        headers: [KafkaHeader] = [],
        partition: Int32? = nil
    ) {
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.partition = partition
    }
}

/// Records for one Kafka topic, all with the same headers, in one block of memory: no record is an
/// object of its own.
package struct KafkaRecordBlock: Sendable, Equatable {
    private struct Place: Equatable {
        /// The offset in `bytes`; the value follows the key.
        var start: Int
        var valueStart: Int
        var end: Int
    }

    package let topic: String
    /// The headers of each record.
    package let headers: [KafkaHeader]
    private var bytes: [UInt8] = []
    private var places: [Place] = []

    /// Makes an empty block; `count` and `sizeBytes` are estimates of the total.
    package init(
        topic: String,
        headers: [KafkaHeader] = [],
        count: Int = 0,
        sizeBytes: Int = 0
    ) {
        self.topic = topic
        self.headers = headers
        bytes.reserveCapacity(sizeBytes)
        places.reserveCapacity(count)
    }

    package var count: Int { places.count }
    package var isEmpty: Bool { places.isEmpty }
    /// The size of all keys and values.
    package var sizeBytes: Int { bytes.count }

    /// Appends one record; `write` appends its value to the given bytes.
    package mutating func append(key: String, _ write: (inout [UInt8]) -> Void) {
        let start = bytes.count
        bytes.append(contentsOf: key.utf8)
        let valueStart = bytes.count
        write(&bytes)
        places.append(Place(start: start, valueStart: valueStart, end: bytes.count))
    }

    /// Returns the records at the indices, in that order.
    package func only(_ indices: some Sequence<Int>) -> KafkaRecordBlock {
        var block = KafkaRecordBlock(topic: topic, headers: headers)
        for index in indices {
            let place = places[index]
            let start = block.bytes.count
            block.bytes.append(contentsOf: bytes[place.start..<place.end])
            block.places.append(
                Place(
                    start: start,
                    valueStart: start + place.valueStart - place.start,
                    end: block.bytes.count
                )
            )
        }
        return block
    }

    /// Passes key and value of one record to `body`, for the duration of the call.
    func withRecord<Result>(
        _ index: Int,
        _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Result
    ) -> Result {
        let place = places[index]
        return unsafe bytes.withUnsafeBytes { bytes in
            unsafe body(
                UnsafeRawBufferPointer(rebasing: bytes[place.start..<place.valueStart]),
                UnsafeRawBufferPointer(rebasing: bytes[place.valueStart..<place.end])
            )
        }
    }
}

extension KafkaRecord {
    var topicPartition: TopicPartition { TopicPartition(topic: topic, partition: partition) }

    /// The memory of its key, value and headers.
    var sizeBytes: Int {
        var size = (key?.count ?? 0) + (value?.count ?? 0)
        for header in headers { size += header.name.utf8.count + header.value.count }
        return size
    }
}

extension [KafkaRecord] {
    var sizeBytes: Int { indices.reduce(0) { $0 + self[$1].sizeBytes } }

    func partition(at index: Int) -> TopicPartition { self[index].topicPartition }

    /// Returns the end index of the run of records of one partition that begins at `start`. Reads
    /// by index, so that no record is copied.
    func endOfRun(from start: Int) -> Int {
        var end = start + 1
        while end < count, self[end].partition == self[start].partition,
            self[end].topic == self[start].topic
        {
            end += 1
        }
        return end
    }
}

/// Records handed out together; within a partition in the order of their offsets. Pass the batch to
/// `KafkaConsumer.finished` when all its records are durable: until then the batch is not
/// committed.
package struct KafkaBatch: Sendable {
    package let records: [KafkaRecord]
    /// The number that only the consumer of the batch knows.
    let id: Int
}

/// One partition of one Kafka topic.
struct TopicPartition: Hashable, Sendable {
    let topic: String
    let partition: Int32
}
