internal import JSON
internal import Observability

/// The values used from librdkafka's statistics.
struct KafkaStatistics: Equatable {
    /// Whether some broker is reachable.
    var isBrokerUp = false
    /// The brokers' values of the partitions that are or were read.
    var partitions: [TopicPartition: Partition] = [:]
    /// The produced batches since the previous statistics, by topic.
    var batches: [String: Batches] = [:]

    /// Batches of a producer. The producer sends each batch in a separate request, so all records
    /// of a batch are of one partition.
    struct Batches: Equatable {
        var count = 0
        var records = 0
    }

    struct Partition: Equatable {
        /// One above the last record that may be read.
        var end: Int64
        /// The committed offset of the group.
        var committed: Int64?
    }

    init() {}

    /// Parses the statistics: some kilobytes a partition each second, nearly all of which is
    /// skipped.
    init(_ json: [UInt8]) {
        let read = try? JSONReader.read(json) { reader throws(JSONError) in
            var statistics = KafkaStatistics()
            try statistics.read(&reader)
            return statistics
        }
        self = read ?? KafkaStatistics()
    }

    private mutating func read(_ reader: inout JSONReader) throws(JSONError) {
        try reader.object { key, reader throws(JSONError) in
            if key.isEqual(to: "brokers") {
                try reader.object { _, reader throws(JSONError) in try readBroker(&reader) }
            } else if key.isEqual(to: "topics") {
                try reader.object { topic, reader throws(JSONError) in
                    let topic = topic.text
                    try reader.object { key, reader throws(JSONError) in
                        if key.isEqual(to: "batchcnt") {
                            try readBatches(of: topic, &reader)
                        } else if key.isEqual(to: "partitions") {
                            try reader.object { number, reader throws(JSONError) in
                                let number = Int32(number.text)
                                try readPartition(number, of: topic, &reader)
                            }
                        }
                    }
                }
            }
        }
    }

    private mutating func readBroker(_ reader: inout JSONReader) throws(JSONError) {
        try reader.object { key, reader throws(JSONError) in
            if key.isEqual(to: "state"), try reader.string() == "UP" { isBrokerUp = true }
        }
    }

    private mutating func readBatches(
        of topic: String,
        _ reader: inout JSONReader
    ) throws(JSONError) {
        var batches = Batches()
        try reader.object { key, reader throws(JSONError) in
            if key.isEqual(to: "cnt") {
                batches.count = try reader.integer() ?? 0
            } else if key.isEqual(to: "sum") {
                batches.records = try reader.integer() ?? 0
            }
        }
        if batches.count > 0 { self.batches[topic] = batches }
    }

    private mutating func readPartition(
        _ number: Int32?,
        of topic: String,
        _ reader: inout JSONReader
    ) throws(JSONError) {
        var (stable, high, committed): (Int64?, Int64?, Int64?)
        try reader.object { key, reader throws(JSONError) in
            if key.isEqual(to: "ls_offset") {
                stable = try offset(&reader)
            } else if key.isEqual(to: "hi_offset") {
                high = try offset(&reader)
            } else if key.isEqual(to: "committed_offset") {
                committed = try offset(&reader)
            }
        }
        // Partition -1 is for records that have no partition yet.
        guard let number, number >= 0, let end = stable ?? high else { return }
        partitions[TopicPartition(topic: topic, partition: number)] = Partition(
            end: end,
            committed: committed
        )
    }

    /// Reads an offset; `nil` if it is negative, which means unknown.
    private func offset(_ reader: inout JSONReader) throws(JSONError) -> Int64? {
        try reader.integer().flatMap { $0 >= 0 ? Int64($0) : nil }
    }
}

/// The reasons why a client is not ready; readable from any thread.
final class Availability: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var state: [Aspect: String]

    /// The kinds of reasons; if there are several, the first is reported.
    enum Aspect: Int, Hashable {
        case life, broker, assignment
    }

    init(_ state: [Aspect: String]) { unsafe self.state = state }

    func set(_ aspect: Aspect, _ reason: String?) {
        lock.withLock { unsafe state[aspect] = reason }
    }

    var reason: String? {
        lock.withLock { unsafe state.min { $0.key.rawValue < $1.key.rawValue }?.value }
    }
}
