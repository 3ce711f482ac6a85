internal import CRDKafka
package import EventLoop
package import Observability

/// The brokers and topics of a cluster.
package struct KafkaCluster: Sendable, Equatable {
    package struct Topic: Sendable, Equatable {
        package var name: String
        package var partitions: Int

        package init(name: String, partitions: Int) {
            self.name = name
            self.partitions = partitions
        }
    }

    /// `host:port`, in the order of the brokers' numbers.
    package var brokers: [String]
    package var topics: [Topic]
}

/// Admin operations of a cluster. Each call makes its own client, and blocks a thread of libuv's
/// pool, never the loop.
package enum KafkaAdmin {
    /// Creates the missing topics; safe to run concurrently. An existing topic keeps its
    /// partitions; replication is the brokers' default.
    ///
    /// - Returns: The names that this call created.
    /// - Throws: `KafkaError`, retryable if no broker answered in time.
    package static func ensureTopics(
        _ topics: [(name: String, partitions: Int)],
        _ configuration: KafkaConfiguration,
        timeout: Duration = .seconds(15),
        on loop: EventLoop,
        log: Log = .disabled
    ) async throws -> [String] {
        try await loop.blocking {
            let call = try AdminCall(configuration, timeout: timeout, log: log)
            let known = Set(try call.describe().topics.map(\.name))
            let missing = topics.filter { !known.contains($0.name) }
            if missing.isEmpty { return [] }
            let created = try call.create(missing)
            try call.awaitTopics(missing.map(\.name))
            return created
        }
    }

    /// Returns the brokers and topics.
    ///
    /// - Throws: `KafkaError`, retryable if no broker answered in time.
    package static func describe(
        _ configuration: KafkaConfiguration,
        timeout: Duration = .seconds(5),
        on loop: EventLoop,
        log: Log = .disabled
    ) async throws -> KafkaCluster {
        try await loop.blocking {
            try AdminCall(configuration, timeout: timeout, log: log).describe()
        }
    }
}

/// A client for one operation of the operator; blocks its thread, until its deadline at most.
final class AdminCall {
    let client: KafkaClient
    private let deadline: ContinuousClock.Instant

    init(
        _ configuration: KafkaConfiguration,
        as kind: KafkaClient.Kind = .admin,
        timeout: Duration,
        log: Log
    ) throws(KafkaError) {
        client = try KafkaClient(kind, configuration, log: log, metrics: nil)
        deadline = .now + timeout
    }

    deinit {
        drainLog()
        // The client joined no group, even if it is a consumer.
        client.destroy(leavingGroup: false) {}
    }

    var millisecondsLeft: Int32 {
        Int32(clamping: max(1, Int((deadline - .now) / .milliseconds(1))))
    }

    /// Requests all topics, as a request for one topic could create it.
    func describe() throws(KafkaError) -> KafkaCluster {
        var native: UnsafePointer<rd_kafka_metadata_t>?
        let code = unsafe client.withHandle { handle in
            unsafe rd_kafka_metadata(handle, 1, nil, &native, millisecondsLeft)
        }
        drainLog()
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR, let metadata = unsafe native else {
            throw KafkaError(code)
        }
        defer { unsafe rd_kafka_metadata_destroy(metadata) }
        let brokers = unsafe UnsafeBufferPointer(
            start: metadata.pointee.brokers,
            count: Int(metadata.pointee.broker_cnt)
        )
        let topics = unsafe UnsafeBufferPointer(
            start: metadata.pointee.topics,
            count: Int(metadata.pointee.topic_cnt)
        )
        return KafkaCluster(
            brokers: unsafe brokers.sorted { unsafe $0.id < $1.id }
                .map { unsafe "\(String(cString: $0.host)):\($0.port)" },
            topics: unsafe topics.map {
                unsafe KafkaCluster.Topic(
                    name: String(cString: $0.topic),
                    partitions: Int($0.partition_cnt)
                )
            }.sorted { $0.name < $1.name }
        )
    }

    /// - Returns: The topics that this call created; topics that another call created meanwhile are
    ///   left out.
    func create(_ topics: [(name: String, partitions: Int)]) throws(KafkaError) -> [String] {
        var natives: [OpaquePointer?] = unsafe []
        defer { unsafe natives.forEach { unsafe rd_kafka_NewTopic_destroy($0) } }
        for (name, partitions) in topics {
            let native = unsafe rd_kafka_NewTopic_new(name, Int32(partitions), -1, nil, 0)
            guard let native = unsafe native else {
                throw KafkaError(RD_KAFKA_RESP_ERR__INVALID_ARG, detail: "topic \(name)")
            }
            unsafe natives.append(native)
        }
        let count = unsafe natives.count
        unsafe ask(
            RD_KAFKA_ADMIN_OP_CREATETOPICS,
            for: millisecondsLeft
        ) { handle, options, queue in
            unsafe rd_kafka_CreateTopics(handle, &natives, count, options, queue)
        }
        return try awaitAnswer { $0.createdTopics }
    }

    /// Sends a request, and does not wait: one answer comes, at the latest after `milliseconds`.
    /// `question` gets the client, the options and the queue for the answer. librdkafka copies its
    /// input, so no pointer outlives `question`.
    func ask(
        _ operation: rd_kafka_admin_op_t,
        for milliseconds: Int32,
        _ question: (OpaquePointer, _ options: OpaquePointer?, _ queue: OpaquePointer?) -> Void
    ) {
        unsafe client.withHandle { handle in
            unsafe client.withQueue { queue in
                let options = unsafe rd_kafka_AdminOptions_new(handle, operation)
                defer { unsafe rd_kafka_AdminOptions_destroy(options) }
                unsafe rd_kafka_AdminOptions_set_request_timeout(
                    options,
                    milliseconds,
                    nil,
                    0
                )
                unsafe question(handle, options, queue)
            }
        }
    }

    /// Serves the queue until `read` finds the answer in an event.
    func awaitAnswer<Answer>(
        _ read: (borrowing KafkaEvent) -> Result<Answer, KafkaError>?
    ) throws(KafkaError) -> Answer {
        var answer: Result<Answer, KafkaError>?
        while true {
            if let answer { return try answer.get() }
            guard ContinuousClock.now < deadline else { throw .timedOut }
            _ = client.serveOne(waiting: min(millisecondsLeft, 1000)) { event in
                answer = read(event) ?? answer
            }
        }
    }

    /// Waits until new topics are visible, as a broker does not know them at once.
    func awaitTopics(_ names: [String]) throws(KafkaError) {
        while true {
            let known = Set(try describe().topics.map(\.name))
            if names.allSatisfy(known.contains) { return }
            guard ContinuousClock.now < deadline else { throw .timedOut }
            _ = client.serveOne(waiting: 50) { _ in }
        }
    }

    func drainLog() {
        while client.serveOne({ _ in }) {}
    }
}

extension KafkaEvent {
    /// The names that a `CreateTopics` made, or the first error other than "already exists"; `nil`
    /// for another event.
    fileprivate var createdTopics: Result<[String], KafkaError>? {
        unsafe withNative { event in
            guard let result = unsafe rd_kafka_event_CreateTopics_result(event) else { return nil }
            let code = unsafe rd_kafka_event_error(event)
            guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { return .failure(KafkaError(code)) }
            var count = 0
            let topics = unsafe rd_kafka_CreateTopics_result_topics(result, &count)
            var created: [String] = []
            for index in 0..<count {
                let topic = unsafe topics?[index]
                let name = unsafe String(cString: rd_kafka_topic_result_name(topic))
                switch unsafe rd_kafka_topic_result_error(topic) {
                case RD_KAFKA_RESP_ERR_NO_ERROR: created.append(name)
                case RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS: break
                case let code: return .failure(KafkaError(code, detail: "topic \(name)"))
                }
            }
            return .success(created)
        }
    }
}
