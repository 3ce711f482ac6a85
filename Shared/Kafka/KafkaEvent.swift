internal import CRDKafka
internal import Glibc

/// A borrowed event of librdkafka: data that must outlive it is copied.
@safe
struct KafkaEvent: ~Copyable {
    struct LogLine {
        let level: Int32
        let facility: String
        let text: String
    }

    enum Kind {
        case records
        case deliveries
        case rebalance(Rebalance)
        case committed(KafkaError?)
        case error(KafkaError, partition: TopicPartition?)
        case statistics
        case log(LogLine)
        case other
    }

    enum Rebalance {
        case assign([TopicPartition])
        case revoke([TopicPartition])
        case failed(KafkaError)
    }

    private let pointer: OpaquePointer
    let kind: Kind

    init(borrowing pointer: OpaquePointer) {
        unsafe self.pointer = pointer
        kind = unsafe Self.kind(of: pointer)
    }

    /// Passes the native event to `body`, for answers that only one caller understands; the pointer
    /// must not outlive `body`.
    func withNative<Result>(_ body: (OpaquePointer) -> Result) -> Result {
        unsafe body(pointer)
    }

    private static func kind(of pointer: OpaquePointer) -> Kind {
        switch unsafe rd_kafka_event_type(pointer) {
        case RD_KAFKA_EVENT_FETCH: .records
        case RD_KAFKA_EVENT_DR: .deliveries
        case RD_KAFKA_EVENT_REBALANCE: .rebalance(unsafe rebalance(of: pointer))
        case RD_KAFKA_EVENT_OFFSET_COMMIT: .committed(unsafe commitError(of: pointer))
        case RD_KAFKA_EVENT_ERROR:
            .error(unsafe error(of: pointer), partition: unsafe partition(of: pointer))
        case RD_KAFKA_EVENT_STATS: .statistics
        case RD_KAFKA_EVENT_LOG: .log(unsafe logLine(of: pointer))
        default: .other
        }
    }

    private static func error(of pointer: OpaquePointer) -> KafkaError {
        let text = unsafe rd_kafka_event_error_string(pointer)
        return KafkaError(
            unsafe rd_kafka_event_error(pointer),
            isFatal: unsafe rd_kafka_event_error_is_fatal(pointer) != 0,
            detail: unsafe text.map { unsafe String(cString: $0) } ?? ""
        )
    }

    /// Returns the error of a commit. A commit with nothing to commit has not failed.
    private static func commitError(of pointer: OpaquePointer) -> KafkaError? {
        let code = unsafe rd_kafka_event_error(pointer)
        if code == RD_KAFKA_RESP_ERR_NO_ERROR || code == RD_KAFKA_RESP_ERR__NO_OFFSET {
            return nil
        }
        return KafkaError(code)
    }

    private static func partition(of pointer: OpaquePointer) -> TopicPartition? {
        guard let native = unsafe rd_kafka_event_topic_partition(pointer) else { return nil }
        defer { unsafe rd_kafka_topic_partition_destroy(native) }
        guard let topic = unsafe native.pointee.topic else { return nil }
        return TopicPartition(
            topic: unsafe String(cString: topic),
            partition: unsafe native.pointee.partition
        )
    }

    private static func rebalance(of pointer: OpaquePointer) -> Rebalance {
        let list = unsafe rd_kafka_event_topic_partition_list(pointer)
        switch unsafe rd_kafka_event_error(pointer) {
        case RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
            return .assign(unsafe PartitionList.copy(list))
        case RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
            return .revoke(unsafe PartitionList.copy(list))
        default: return .failed(unsafe error(of: pointer))
        }
    }

    private static func logLine(of pointer: OpaquePointer) -> LogLine {
        var facility: UnsafePointer<CChar>?
        var text: UnsafePointer<CChar>?
        var level: Int32 = 7
        unsafe rd_kafka_event_log(pointer, &facility, &text, &level)
        return LogLine(
            level: level,
            facility: unsafe facility.map { unsafe String(cString: $0) } ?? "",
            text: unsafe text.map { unsafe String(cString: $0) } ?? ""
        )
    }

    /// The statistics' JSON.
    var statistics: [UInt8] {
        guard let text = unsafe rd_kafka_event_stats(pointer) else { return [] }
        return unsafe Array(String(cString: text).utf8)
    }

    /// Copies the fetched records: records go to `record`, errors to `failure`.
    func forEachRecord(
        _ lastTopic: inout TopicName,
        _ record: (consuming KafkaRecord) -> Void,
        failure: (KafkaError, TopicPartition) -> Void
    ) {
        // Loops by the count, which is usually one: testing for a further message takes time.
        for _ in 0..<(unsafe rd_kafka_event_message_count(pointer)) {
            guard let message = unsafe rd_kafka_event_message_next(pointer) else { return }
            let topic = unsafe lastTopic.copy(rd_kafka_topic_name(message.pointee.rkt))
            let partition = unsafe message.pointee.partition
            let code = unsafe message.pointee.err
            guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
                failure(KafkaError(code), TopicPartition(topic: topic, partition: partition))
                continue
            }
            var type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE
            let timestamp = unsafe rd_kafka_message_timestamp(message, &type)
            record(
                KafkaRecord(
                    topic: topic,
                    partition: partition,
                    offset: unsafe message.pointee.offset,
                    timestampMilliseconds: timestamp,
                    key: unsafe copyBytes(message.pointee.key, message.pointee.key_len),
                    value: unsafe copyBytes(message.pointee.payload, message.pointee.len),
                    headers: unsafe copyHeaders(of: message)
                )
            )
        }
    }

    /// Calls `body` with each delivery report: the number that the record was produced with, and
    /// its error if any.
    func forEachDelivery(_ body: (Int, KafkaError?) -> Void) {
        while let message = unsafe rd_kafka_event_message_next(pointer) {
            let number = unsafe Int(bitPattern: message.pointee._private)
            let code = unsafe message.pointee.err
            body(number, code == RD_KAFKA_RESP_ERR_NO_ERROR ? nil : KafkaError(code))
        }
    }
}

/// The Kafka topic name of the previous record. The next record usually has the same topic, and
/// then shares the string.
struct TopicName {
    private var last = ""

    mutating func copy(_ name: UnsafePointer<CChar>) -> String {
        let isSame = unsafe last.withCString { unsafe strcmp($0, name) == 0 }
        if !isSame { last = unsafe String(cString: name) }
        return last
    }
}

/// Copies bytes. `nil` stays `nil`, which differs from an empty key or value: that has an address.
private func copyBytes(_ start: UnsafeMutableRawPointer?, _ count: Int) -> [UInt8]? {
    guard let start = unsafe start else { return nil }
    return unsafe Array(UnsafeRawBufferPointer(start: start, count: count))
}

private func copyHeaders(of message: UnsafePointer<rd_kafka_message_t>) -> [KafkaHeader] {
    var native: OpaquePointer?
    guard unsafe rd_kafka_message_headers(message, &native) == RD_KAFKA_RESP_ERR_NO_ERROR else {
        return []
    }
    var headers: [KafkaHeader] = []
    var name: UnsafePointer<CChar>?
    var value: UnsafeRawPointer?
    var size = 0
    while unsafe rd_kafka_header_get_all(native, headers.count, &name, &value, &size)
        == RD_KAFKA_RESP_ERR_NO_ERROR
    {
        headers.append(
            KafkaHeader(
                name: unsafe name.map { unsafe String(cString: $0) } ?? "",
                value: unsafe Array(UnsafeRawBufferPointer(start: value, count: size))
            )
        )
    }
    return headers
}

/// Partitions as librdkafka's list, for the duration of one call.
enum PartitionList {
    static func copy(
        _ list: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>?
    ) -> [TopicPartition] {
        guard let list = unsafe list else { return [] }
        return unsafe UnsafeBufferPointer(start: list.pointee.elems, count: Int(list.pointee.cnt))
            .map { element in
                TopicPartition(
                    topic: unsafe String(cString: element.topic),
                    partition: unsafe element.partition
                )
            }
    }

    static func with<Result>(
        _ partitions: some Collection<TopicPartition>,
        _ body: (UnsafeMutablePointer<rd_kafka_topic_partition_list_t>) -> Result
    ) -> Result {
        unsafe with(partitions.map { ($0, Int64(RD_KAFKA_OFFSET_INVALID)) }, body)
    }

    static func with<Result>(
        _ positions: [(partition: TopicPartition, offset: Int64)],
        _ body: (UnsafeMutablePointer<rd_kafka_topic_partition_list_t>) -> Result
    ) -> Result {
        guard let list = unsafe rd_kafka_topic_partition_list_new(Int32(positions.count)) else {
            preconditionFailure("out of memory")
        }
        defer { unsafe rd_kafka_topic_partition_list_destroy(list) }
        for (partition, offset) in positions {
            let element = unsafe rd_kafka_topic_partition_list_add(
                list,
                partition.topic,
                partition.partition
            )
            unsafe element?.pointee.offset = offset
        }
        return unsafe body(list)
    }
}
