/// Records that were read and not handed out yet, in order, cut into batches as they arrive: a
/// batch is then handed out without a copy. Pure.
struct ReadyRecords {
    private let maximumBatch: Int
    /// Complete batches: `whole[first...]`.
    private var whole: [Batch] = []
    private var first = 0
    /// The incomplete batch.
    private var open = Batch()
    private(set) var count = 0
    /// The bytes of the records' keys, values and headers.
    private(set) var bytes = 0

    private struct Batch {
        var records: [KafkaRecord] = []
        var bytes = 0
    }

    init(maximumBatch: Int) { self.maximumBatch = maximumBatch }

    /// Takes records over; an array that is a batch by itself is not copied.
    mutating func append(_ records: inout [KafkaRecord]) {
        let size = records.sizeBytes
        count += records.count
        bytes += size
        if open.records.isEmpty, records.count <= maximumBatch {
            swap(&open.records, &records)
            open.bytes = size
            closeFull()
            return
        }
        for record in records {
            open.bytes += record.sizeBytes
            open.records.append(record)
            closeFull()
        }
        records.removeAll(keepingCapacity: true)
    }

    private mutating func closeFull() {
        guard open.records.count == maximumBatch else { return }
        whole.append(open)
        open = Batch()
    }

    /// - Returns: The oldest records, at most a batch, and their bytes; `nil` if there are none.
    mutating func take() -> (records: [KafkaRecord], bytes: Int)? {
        guard count > 0 else { return nil }
        var batch = Batch()
        if first < whole.count {
            swap(&batch, &whole[first])
            first += 1
            // The memory of taken batches must be released even if `whole` never gets empty.
            if first == whole.count || first >= 256 {
                whole.removeFirst(first)
                first = 0
            }
        } else {
            swap(&batch, &open)
        }
        count -= batch.records.count
        bytes -= batch.bytes
        return (batch.records, batch.bytes)
    }

    mutating func removeAll() { self = ReadyRecords(maximumBatch: maximumBatch) }

    /// Drops the records of some partitions.
    mutating func removeAll(of partitions: Set<TopicPartition>) {
        var rest = ReadyRecords(maximumBatch: maximumBatch)
        while let (records, _) = take() {
            var kept = records.filter { !partitions.contains($0.topicPartition) }
            rest.append(&kept)
        }
        self = rest
    }
}
