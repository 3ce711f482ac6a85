internal import CRDKafka

/// The connection to a cluster, and the operator's properties.
package struct KafkaConfiguration: Sendable {
    /// `host:port,…`.
    package var bootstrapServers: String
    /// librdkafka's own properties by name (`security.protocol`, `sasl.password`, …). They override
    /// our defaults; properties that the promises rely on are refused.
    package var properties: [String: String]
    /// The name of this client in the brokers' logs and quotas.
    package var clientID: String

    package init(
        bootstrapServers: String,
        properties: [String: String] = [:],
        clientID: String = "carillon"
    ) {
        self.bootstrapServers = bootstrapServers
        self.properties = properties
        self.clientID = clientID
    }

    /// Properties that an operator must not change. They ensure that only we commit offsets, that a
    /// moving partition does not stop the others, and that no record is written twice.
    private static let reserved: Set<String> = [
        "acks", "auto.commit.enable", "bootstrap.servers", "enable.auto.commit",
        "enable.auto.offset.store", "enable.idempotence", "enable.partition.eof", "group.id",
        "group.instance.id", "group.protocol", "log.queue", "metadata.broker.list",
        "partition.assignment.strategy", "request.required.acks", "statistics.interval.ms",
    ]

    /// librdkafka's minimum for a group's members to survive a busy broker.
    private static let minimumSessionTimeoutMilliseconds = 6000

    /// Returns our defaults for one kind of client, then the operator's properties, then the
    /// reserved ones.
    func settings(
        for kind: KafkaClient.Kind
    ) throws(KafkaError) -> [(name: String, value: String)] {
        for name in properties.keys.sorted() where Self.reserved.contains(name) {
            throw .property(name, "not to be set: Carillon depends on its value")
        }
        if let text = properties["session.timeout.ms"] {
            guard let value = Int(text), value >= Self.minimumSessionTimeoutMilliseconds else {
                throw .property("session.timeout.ms", "at least 6000")
            }
        }
        guard !bootstrapServers.isEmpty else {
            throw .property("bootstrap.servers", "must not be empty")
        }
        var settings = kind.defaults
        settings += properties.sorted { $0.key < $1.key }.map { (name: $0.key, value: $0.value) }
        settings += kind.fixed
        settings.append(("bootstrap.servers", bootstrapServers))
        settings.append(("client.id", clientID))
        settings.append(("log.queue", "true"))
        return settings
    }
}

extension KafkaClient.Kind {
    /// The return of a broker is noticed within a second, and its absence is not logged each time.
    private static let reconnection: [(name: String, value: String)] = [
        ("reconnect.backoff.ms", "100"),
        ("reconnect.backoff.max.ms", "1000"),
        ("log.connection.close", "false"),
        ("topic.metadata.refresh.interval.ms", "30000"),
    ]

    fileprivate var defaults: [(name: String, value: String)] {
        switch self {
        case .consumer:
            Self.reconnection + [
                ("session.timeout.ms", "6000"),
                // A new member has its partitions after 1.1 to 1.5 s instead of 3.2 to 4.1.
                ("heartbeat.interval.ms", "500"),
                ("auto.offset.reset", "earliest"),
                ("auto.commit.interval.ms", "1000"),
                ("fetch.error.backoff.ms", "100"),
                // The limits of librdkafka's queue, for all partitions together. At either limit
                // librdkafka stops fetching until `wakeFetching`.
                ("queued.min.messages", "100000"),
                ("queued.max.messages.kbytes", "65536"),
                // The limit of one response of a broker, by which the queue may exceed its limits;
                // the default is 50 MB.
                ("fetch.max.bytes", "8388608"),
            ]
        case .producer:
            Self.reconnection + [
                ("linger.ms", "5"),
                // An automatically created topic would have the broker's number of partitions, not
                // ours.
                ("allow.auto.create.topics", "false"),
                // The topic's own limit must decide; librdkafka's default would refuse records
                // before that.
                ("message.max.bytes", "4194304"),
                ("queue.buffering.max.messages", "100000"),
                ("queue.buffering.max.kbytes", "65536"),
                // Java's partitioner: a key has one partition, whatever client writes it.
                ("partitioner", "murmur2_random"),
            ]
        case .admin: Self.reconnection
        }
    }

    fileprivate var fixed: [(name: String, value: String)] {
        switch self {
        case .consumer(let group, let assignment):
            [
                ("group.id", group),
                ("partition.assignment.strategy", assignment.strategy),
                ("enable.auto.offset.store", "false"),
                ("enable.auto.commit", "true"),
                ("statistics.interval.ms", "1000"),
            ]
        case .producer(let deliveryTimeoutMilliseconds):
            [
                ("enable.idempotence", "true"),
                ("acks", "all"),
                ("message.timeout.ms", String(deliveryTimeoutMilliseconds)),
                ("statistics.interval.ms", "1000"),
            ]
        case .admin: []
        }
    }
}

/// Sole owner of one `rd_kafka_conf_t *` until a client takes it over.
@safe
struct ConfigurationHandle: ~Copyable {
    private let pointer: OpaquePointer

    init() { unsafe pointer = rd_kafka_conf_new() }
    deinit { unsafe rd_kafka_conf_destroy(pointer) }

    /// - Throws: `KafkaError` naming the property; the value stays out, it may be a password.
    borrowing func set(_ name: String, _ value: String) throws(KafkaError) {
        let result = unsafe rd_kafka_conf_set(pointer, name, value, nil, 0)
        switch result {
        case RD_KAFKA_CONF_OK: return
        case RD_KAFKA_CONF_UNKNOWN: throw .property(name, "no such property")
        default: throw .property(name, "not a usable value")
        }
    }

    /// Sets the events that the client's queue carries, instead of callbacks.
    borrowing func setEvents(_ events: Int32) {
        unsafe rd_kafka_conf_set_events(pointer, events)
    }

    /// Discards the log, for a client without a log reader.
    borrowing func discardLog() {
        unsafe rd_kafka_conf_set_log_cb(pointer) { _, _, _, _ in }
    }

    /// Makes a client. `rd_kafka_new` takes the configuration over only if it succeeds.
    consuming func makeClient(_ type: rd_kafka_type_t) throws(KafkaError) -> OpaquePointer {
        var text = [CChar](repeating: 0, count: 512)
        let size = text.count
        let client = unsafe text.withUnsafeMutableBufferPointer { buffer in
            unsafe rd_kafka_new(type, pointer, buffer.baseAddress, size)
        }
        guard let client = unsafe client else {
            let reason = text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
            _ = consume self
            throw KafkaError(
                RD_KAFKA_RESP_ERR__INVALID_ARG,
                detail: String(decoding: reason, as: UTF8.self)
            )
        }
        discard self
        return unsafe client
    }
}
