/// Tracks the outstanding records, and for each partition the offset below which all are finished.
/// Pure: no clock, no librdkafka.
///
/// Batches may be finished in any order, and a batch twice; only the offset below which
/// *everything* of a partition is finished is ever returned to be stored. Batches from before a
/// partition was dropped are ignored when they are finished later, even if the partition was
/// assigned again meanwhile.
struct OffsetTracker: Sendable {
    /// The next offset to read from a partition: one above the last finished offset.
    struct Position: Equatable, Sendable {
        let partition: TopicPartition
        let offset: Int64
    }

    /// One batch's share of one partition.
    private struct Segment {
        /// One above the offset of its last record.
        let end: Int64
        var isFinished = false
    }

    /// One assigned partition: its segments in the order in which they were handed out.
    private struct Track {
        /// Distinguishes this assignment of the partition from earlier assignments.
        let epoch: Int
        /// The number of `segments[0]`, counted since the assignment.
        var first = 0
        var segments: [Segment] = []
        /// The offset below which everything is finished; `nil` while nothing was handed out.
        var position: Int64?
        /// The number of finished segments at the front; removed in hundreds.
        var done = 0

        var isDrained: Bool { done == segments.count }

        mutating func append(_ segment: Segment) -> Int {
            segments.append(segment)
            return first + segments.count - 1
        }

        /// Marks one segment finished; returns the position if the finished front moved.
        mutating func finish(_ number: Int) -> Int64? {
            let index = number - first
            guard segments.indices.contains(index), index >= done else { return nil }
            segments[index].isFinished = true
            var reached: Int64?
            while done < segments.count, segments[done].isFinished {
                reached = segments[done].end
                done += 1
            }
            if done == segments.count || done >= 256 {
                segments.removeFirst(done)
                first += done
                done = 0
            }
            if let reached { position = reached }
            return reached
        }
    }

    private struct Share {
        let partition: TopicPartition
        let epoch: Int
        let number: Int
    }

    private struct Batch {
        let count: Int
        let bytes: Int
        let shares: [Share]
    }

    private var tracks: [TopicPartition: Track] = [:]
    private var batches: [Int: Batch] = [:]
    private var lastBatch = 0
    private var lastEpoch = 0
    /// The records in outstanding batches.
    private(set) var outstandingRecords = 0
    /// The bytes of those records.
    private(set) var outstandingBytes = 0

    var outstandingBatches: Int { batches.count }
    var partitions: [TopicPartition] { Array(tracks.keys) }

    func isTracking(_ partition: TopicPartition) -> Bool { tracks[partition] != nil }

    /// Whether nothing of the partition is outstanding.
    func isDrained(_ partition: TopicPartition) -> Bool { tracks[partition]?.isDrained ?? true }

    /// Returns the lag of the assigned partitions, by Kafka topic. A partition of which nothing was
    /// handed out counts from its committed offset, if that is known.
    func lags(_ partitions: [TopicPartition: KafkaStatistics.Partition]) -> [String: Int] {
        var lags: [String: Int] = [:]
        for (partition, track) in tracks {
            let known = partitions[partition]
            guard let end = known?.end, let position = track.position ?? known?.committed else {
                lags[partition.topic, default: 0] += 0
                continue
            }
            lags[partition.topic, default: 0] += max(0, Int(end - position))
        }
        return lags
    }

    /// Notes an assigned partition, with nothing handed out.
    mutating func assign(_ partition: TopicPartition) {
        lastEpoch += 1
        tracks[partition] = Track(epoch: lastEpoch)
    }

    /// Drops a partition that is not assigned any more.
    mutating func drop(_ partition: TopicPartition) {
        tracks[partition] = nil
    }

    /// - Returns: The number by which the batch is finished.
    mutating func handOut(_ records: [KafkaRecord], bytes: Int) -> Int {
        var ends: [TopicPartition: Int64] = [:]
        var start = 0
        while start < records.count {
            let partition = records.partition(at: start)
            let end = records.endOfRun(from: start)
            if tracks[partition]?.position == nil {
                tracks[partition]?.position = records[start].offset
            }
            ends[partition] = records[end - 1].offset + 1
            start = end
        }
        var shares: [Share] = []
        for (partition, end) in ends {
            guard let epoch = tracks[partition]?.epoch,
                let number = tracks[partition]?.append(Segment(end: end))
            else { continue }
            shares.append(Share(partition: partition, epoch: epoch, number: number))
        }
        lastBatch += 1
        batches[lastBatch] = Batch(count: records.count, bytes: bytes, shares: shares)
        outstandingRecords += records.count
        outstandingBytes += bytes
        return lastBatch
    }

    /// Gives a batch up: it is not outstanding any more, and its records are not finished here.
    mutating func leave(_ batch: Int) {
        guard let batch = batches.removeValue(forKey: batch) else { return }
        outstandingRecords -= batch.count
        outstandingBytes -= batch.bytes
    }

    /// - Returns: The positions that may be stored now; empty if the batch is not outstanding.
    mutating func finish(_ batch: Int) -> [Position] {
        guard let batch = batches.removeValue(forKey: batch) else { return [] }
        outstandingRecords -= batch.count
        outstandingBytes -= batch.bytes
        return batch.shares.compactMap { share in
            guard tracks[share.partition]?.epoch == share.epoch,
                let offset = tracks[share.partition]?.finish(share.number)
            else { return nil }
            return Position(partition: share.partition, offset: offset)
        }
    }
}
