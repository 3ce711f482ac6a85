internal import CRDKafka
package import EventLoop
package import Observability

/// The position of a consumer group in one partition. Offsets are of records, and never negative.
package struct KafkaGroupPosition: Sendable, Equatable {
    package var kafkaTopic: String
    package var partition: Int32
    /// The record that the group reads next; `nil` if the group has committed no offset.
    package var committed: Int64?
    /// The oldest record that still exists.
    package var start: Int64
    /// The first record not older than the given moment; `end` if no such record exists.
    package var recent: Int64
    /// One above the last record that may be read; records of open transactions do not count.
    package var end: Int64

    package init(
        kafkaTopic: String,
        partition: Int32,
        committed: Int64?,
        start: Int64,
        recent: Int64,
        end: Int64
    ) {
        self.kafkaTopic = kafkaTopic
        self.partition = partition
        self.committed = committed
        self.start = start
        self.recent = recent
        self.end = end
    }
}

extension KafkaAdmin {
    /// Returns the position of a group in each partition of these topics, which must come from
    /// `describe`: a request that names a missing topic could create it. The group need not have
    /// any member.
    ///
    /// `moment`, in milliseconds since 1970, defines `recent`. The timeout is for all requests
    /// together: four to each broker, whatever the number of partitions, repeated while the broker
    /// is not ready. A broker that never had a group creates `__consumer_offsets` first, which
    /// takes about a second.
    ///
    /// - Returns: One position for each partition, in the order of the topics.
    /// - Throws: `KafkaError`, retryable if a broker did not answer in time.
    package static func positions(
        of group: String,
        in topics: [KafkaCluster.Topic],
        since moment: Int64,
        _ configuration: KafkaConfiguration,
        timeout: Duration,
        on loop: EventLoop,
        log: Log = .disabled
    ) async throws -> [KafkaGroupPosition] {
        let partitions = topics.flatMap { topic in
            (0..<topic.partitions).map {
                TopicPartition(topic: topic.name, partition: Int32(clamping: $0))
            }
        }
        // librdkafka refuses an empty list.
        if partitions.isEmpty { return [] }
        return try await loop.blocking {
            // The client is a consumer of the group, which it never joins: librdkafka 2.0 ends the
            // process if an admin client's request meets a group whose coordinator has moved.
            let call = try AdminCall(
                configuration,
                as: .consumer(group: group),
                timeout: timeout,
                log: log
            )
            return try call.persist { () throws(KafkaError) in
                try call.positions(in: partitions, since: moment)
            }
        }
    }
}

extension KafkaAdmin {
    /// Copies the positions of the group `former` to `group`, in the partitions where `group` has
    /// no position: so `group` continues where `former` stopped. Call it before joining the group.
    /// If the group has members already, nothing is copied, as they have done this.
    ///
    /// - Returns: How many partitions got a position.
    /// - Throws: `KafkaError`, retryable if a broker did not answer in time.
    @discardableResult
    package static func inheritPositions(
        of group: String,
        from former: String,
        in isRead: @Sendable (_ kafkaTopic: String) -> Bool,
        _ configuration: KafkaConfiguration,
        timeout: Duration = .seconds(10),
        on loop: EventLoop,
        log: Log = .disabled
    ) async throws -> Int {
        // Missing topics are left out: they were not read, and a request could create them.
        let partitions = try await describe(configuration, timeout: timeout, on: loop, log: log)
            .topics.filter { isRead($0.name) }
            .flatMap { topic in
                (0..<topic.partitions).map {
                    TopicPartition(topic: topic.name, partition: Int32(clamping: $0))
                }
            }
        if partitions.isEmpty { return 0 }
        return try await loop.blocking {
            func positions(of group: String) throws -> ([TopicPartition: Int64], AdminCall) {
                let call = try AdminCall(
                    configuration,
                    as: .consumer(group: group),
                    timeout: timeout,
                    log: log
                )
                let committed = try call.persist { () throws(KafkaError) in
                    try call.committed(in: partitions)
                }
                return (committed, call)
            }
            let (own, call) = try positions(of: group)
            let inherited = try positions(of: former).0.filter { own[$0.key] == nil }
            if inherited.isEmpty { return 0 }
            return try call.persist { () throws(KafkaError) in try call.commit(inherited) }
        }
    }
}

extension AdminCall {
    /// Commits positions for a group without members.
    ///
    /// - Returns: How many; 0 if the group has members.
    fileprivate func commit(_ positions: [TopicPartition: Int64]) throws(KafkaError) -> Int {
        let code = unsafe PartitionList.with(
            positions.map { (partition: $0.key, offset: $0.value) }
        ) { list in
            unsafe client.withHandle { handle in unsafe rd_kafka_commit(handle, list, 0) }
        }
        drainLog()
        switch code {
        case RD_KAFKA_RESP_ERR_NO_ERROR: return positions.count
        case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
            RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
            return 0
        default: throw KafkaError(code)
        }
    }

    /// The time limit of librdkafka for one request to the group, whose coordinator it may have to
    /// find first.
    private static let maximumAgeMilliseconds: Int32 = 1500

    /// Repeats a request until the deadline, or a final answer. While a topic is being created, its
    /// partitions have no leader, and a group may have no coordinator.
    func persist<Answer>(
        _ question: () throws(KafkaError) -> Answer
    ) throws(KafkaError) -> Answer {
        while true {
            do throws(KafkaError) {
                return try question()
            } catch {
                guard error.isRetryable, millisecondsLeft > 100 else { throw error }
                _ = client.serveOne(waiting: 100) { _ in }
            }
        }
    }

    fileprivate func positions(
        in partitions: [TopicPartition],
        since moment: Int64
    ) throws(KafkaError) -> [KafkaGroupPosition] {
        // The end is read last: a position committed before is not above it.
        let committed = try committed(in: partitions)
        let starts = try offsets(of: partitions, at: Int64(RD_KAFKA_OFFSET_BEGINNING))
        let recent = try offsets(of: partitions, at: max(0, moment))
        let ends = try offsets(of: partitions, at: Int64(RD_KAFKA_OFFSET_END))
        return try partitions.map { partition throws(KafkaError) in
            guard let start = starts[partition], let end = ends[partition] else {
                throw KafkaError(
                    RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
                    detail: "\(partition.topic) \(partition.partition)"
                )
            }
            return KafkaGroupPosition(
                kafkaTopic: partition.topic,
                partition: partition.partition,
                committed: committed[partition],
                start: start,
                recent: min(recent[partition] ?? end, end),
                end: end
            )
        }
    }

    /// Returns the committed offsets of the client's group, for the partitions that have an offset.
    fileprivate func committed(
        in partitions: [TopicPartition]
    ) throws(KafkaError) -> [TopicPartition: Int64] {
        let answer = unsafe PartitionList.with(partitions) { list in
            let code = unsafe client.withHandle { handle in
                unsafe rd_kafka_committed(
                    handle,
                    list,
                    min(millisecondsLeft, Self.maximumAgeMilliseconds)
                )
            }
            guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
                return Result<[TopicPartition: Int64], KafkaError>.failure(KafkaError(code))
            }
            return unsafe PartitionList.offsets(list)
        }
        drainLog()
        return try answer.get()
    }

    /// Returns the first offset of each partition from `time` on, in milliseconds since 1970;
    /// librdkafka's two constants stand for the beginning and the end. A partition without such a
    /// record has no offset. Sends one request to each leader.
    func offsets(
        of partitions: [TopicPartition],
        at time: Int64
    ) throws(KafkaError) -> [TopicPartition: Int64] {
        let answer = unsafe PartitionList.with(partitions.map { ($0, time) }) { list in
            let code = unsafe client.withHandle { handle in
                unsafe rd_kafka_offsets_for_times(handle, list, millisecondsLeft)
            }
            guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
                return Result<[TopicPartition: Int64], KafkaError>.failure(KafkaError(code))
            }
            return unsafe PartitionList.offsets(list)
        }
        drainLog()
        return try answer.get()
    }
}

extension PartitionList {
    /// Returns the offsets of the partitions that have an offset, or the first partition's error.
    fileprivate static func offsets(
        _ list: UnsafePointer<rd_kafka_topic_partition_list_t>?
    ) -> Result<[TopicPartition: Int64], KafkaError> {
        guard let list = unsafe list else { return .success([:]) }
        let elements = unsafe UnsafeBufferPointer(
            start: list.pointee.elems,
            count: Int(list.pointee.cnt)
        )
        var offsets: [TopicPartition: Int64] = [:]
        for index in elements.indices {
            let element = unsafe elements[index]
            let partition = TopicPartition(
                topic: unsafe String(cString: element.topic),
                partition: unsafe element.partition
            )
            guard unsafe element.err == RD_KAFKA_RESP_ERR_NO_ERROR else {
                return .failure(
                    KafkaError(
                        unsafe element.err,
                        detail: "\(partition.topic) \(partition.partition)"
                    )
                )
            }
            // A partition that has no offset shows a negative number.
            if unsafe element.offset >= 0 { offsets[partition] = unsafe element.offset }
        }
        return .success(offsets)
    }
}
