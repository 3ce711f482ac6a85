/// Records that were read and not handed out yet, in the order in which they came, cut into batches
/// as they arrive: a batch is then handed out without a copy. Pure.
struct ReadyRecords {
    private let maximumBatch: Int
    /// Whole batches: `whole[first...]`.
    private var whole: [[KafkaRecord]] = []
    private var first = 0
    /// The batch that grows.
    private var open: [KafkaRecord] = []
    private(set) var count = 0

    init(maximumBatch: Int) { self.maximumBatch = maximumBatch }

    /// Takes records over; those that make a batch by themselves stay the array that they are.
    mutating func append(_ records: inout [KafkaRecord]) {
        count += records.count
        if open.isEmpty, records.count <= maximumBatch {
            swap(&open, &records)
            closeFull()
            return
        }
        for record in records {
            open.append(record)
            closeFull()
        }
        records.removeAll(keepingCapacity: true)
    }

    private mutating func closeFull() {
        guard open.count == maximumBatch else { return }
        whole.append(open)
        open = []
    }

    /// - Returns: The oldest records, at most a batch of them; `nil` when there are none.
    mutating func take() -> [KafkaRecord]? {
        guard count > 0 else { return nil }
        var batch: [KafkaRecord] = []
        if first < whole.count {
            swap(&batch, &whole[first])
            first += 1
            // A reader that never catches up must not keep what it has read.
            if first == whole.count || first >= 256 {
                whole.removeFirst(first)
                first = 0
            }
        } else {
            swap(&batch, &open)
        }
        count -= batch.count
        return batch
    }

    mutating func removeAll() { self = ReadyRecords(maximumBatch: maximumBatch) }

    /// Drops those of some partitions.
    mutating func removeAll(of partitions: Set<TopicPartition>) {
        var rest = ReadyRecords(maximumBatch: maximumBatch)
        while let batch = take() {
            var kept = batch.filter { !partitions.contains($0.topicPartition) }
            rest.append(&kept)
        }
        self = rest
    }
}
