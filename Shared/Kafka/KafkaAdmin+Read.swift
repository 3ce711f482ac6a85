internal import CRDKafka
package import EventLoop
package import Observability

/// The records that a read of a topic found.
package struct KafkaReading: Sendable {
    /// The wanted records, by partition and offset.
    package var records: [KafkaRecord]
    /// Whether the topic has older records that were not read.
    package var hasOlder: Bool
    /// The number of records that were read, and left out for their size.
    package var leftOut: Int
}

extension KafkaAdmin {
    /// Reads the present records of a topic without a group: nothing is committed, and no
    /// partitions move.
    ///
    /// Returns the last `limit` wanted records of each partition, or the one record of `only`.
    ///
    /// - Parameters:
    ///   - topic: The topic, as `describe` returned it: a request that names a missing topic could
    ///     create it.
    ///   - only: A partition and an offset: nothing else is read.
    ///   - last: How many offsets before a partition's end to read; `nil`: all there are.
    ///   - limit: How many records of a partition to return.
    ///   - maximumBytes: The limit of the returned records of a partition. The oldest are left out.
    ///   - configuration: The connection to the cluster.
    ///   - timeout: The limit of the whole call.
    ///   - loop: The loop whose thread pool runs the call.
    ///   - log: Gets librdkafka's lines.
    ///   - isWanted: Called for each record, in the order of a partition's offsets.
    /// - Returns: The wanted records.
    /// - Throws: `KafkaError`, retryable if a broker did not answer in time.
    package static func read(
        _ topic: KafkaCluster.Topic,
        only: (partition: Int32, offset: Int64)? = nil,
        last: Int64? = nil,
        limit: Int,
        maximumBytes: Int = .max,
        _ configuration: KafkaConfiguration,
        timeout: Duration,
        on loop: EventLoop,
        log: Log = .disabled,
        where isWanted: @escaping @Sendable (KafkaRecord) -> Bool
    ) async throws -> KafkaReading {
        try await loop.blocking {
            let call = try AdminCall(
                configuration,
                as: .consumer(group: "carillon-reader"),
                timeout: timeout,
                log: log
            )
            var ranges = try call.persist { () throws(KafkaError) in
                try call.ranges(of: topic)
            }
            if let only {
                ranges = ranges.filter {
                    $0.key.partition == only.partition && $0.value.contains(only.offset)
                }.mapValues { _ in only.offset..<only.offset + 1 }
            }
            var hasOlder = false
            if let last {
                ranges = ranges.mapValues { range in
                    let start = max(range.lowerBound, range.upperBound - last)
                    if start > range.lowerBound { hasOlder = true }
                    return start..<range.upperBound
                }
            }
            var kept: [Int32: KeptRecords] = [:]
            try call.read(ranges) { record in
                guard isWanted(record) else { return }
                kept[record.partition, default: KeptRecords()]
                    .add(record, limit: limit, maximumBytes: maximumBytes)
            }
            return KafkaReading(
                records: kept.sorted { $0.key < $1.key }.flatMap(\.value.records),
                hasOlder: hasOlder,
                leftOut: kept.values.reduce(0) { $0 + $1.leftOut }
            )
        }
    }
}

/// The latest records of one partition, within two limits.
private struct KeptRecords {
    private(set) var records: [KafkaRecord] = []
    private(set) var leftOut = 0
    private var bytes = 0

    mutating func add(_ record: KafkaRecord, limit: Int, maximumBytes: Int) {
        records.append(record)
        bytes += record.sizeBytes
        if records.count > limit { removeOldest() }
        while bytes > maximumBytes, !records.isEmpty {
            removeOldest()
            leftOut += 1
        }
    }

    private mutating func removeOldest() { bytes -= records.removeFirst().sizeBytes }
}

extension AdminCall {
    /// The silence after which a read ends: the last offset may be that of a transaction marker,
    /// not of a record.
    private static let silence = Duration.seconds(3)

    /// Returns the offsets of each partition that has records.
    fileprivate func ranges(
        of topic: KafkaCluster.Topic
    ) throws(KafkaError) -> [TopicPartition: Range<Int64>] {
        let partitions = (0..<topic.partitions).map {
            TopicPartition(topic: topic.name, partition: Int32(clamping: $0))
        }
        if partitions.isEmpty { return [:] }
        let starts = try offsets(of: partitions, at: Int64(RD_KAFKA_OFFSET_BEGINNING))
        let ends = try offsets(of: partitions, at: Int64(RD_KAFKA_OFFSET_END))
        var ranges: [TopicPartition: Range<Int64>] = [:]
        for partition in partitions {
            guard let start = starts[partition], let end = ends[partition], start < end else {
                continue
            }
            ranges[partition] = start..<end
        }
        return ranges
    }

    fileprivate func read(
        _ ranges: [TopicPartition: Range<Int64>],
        _ take: (KafkaRecord) -> Void
    ) throws(KafkaError) {
        if ranges.isEmpty { return }
        assign(ranges.map { ($0.key, $0.value.lowerBound) })
        // Otherwise all fetched records would still be served.
        defer { assign(nil) }
        var open = ranges
        var topic = TopicName()
        var failure: KafkaError?
        var lastRecord = ContinuousClock.now
        while !open.isEmpty, failure == nil {
            guard millisecondsLeft > 1 else { throw .timedOut }
            _ = client.serveOne(waiting: min(millisecondsLeft, 200)) { event in
                guard case .records = event.kind else { return }
                event.forEachRecord(&topic) { record in
                    lastRecord = .now
                    let partition = record.topicPartition
                    guard let range = open[partition] else { return }
                    if record.offset >= range.upperBound - 1 { open[partition] = nil }
                    if range.contains(record.offset) { take(record) }
                } failure: { error, _ in
                    if !error.isRetryable { failure = error }
                }
            }
            if open.count < ranges.count, ContinuousClock.now - lastRecord > Self.silence { break }
        }
        if let failure { throw failure }
    }

    private func assign(_ positions: [(partition: TopicPartition, offset: Int64)]?) {
        unsafe client.withHandle { handle in
            guard let positions else {
                _ = unsafe rd_kafka_assign(handle, nil)
                return
            }
            unsafe PartitionList.with(positions) { list in
                _ = unsafe rd_kafka_assign(handle, list)
            }
        }
    }
}
