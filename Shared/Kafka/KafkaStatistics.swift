internal import JSON
internal import Observability

/// What we read of librdkafka's statistics.
struct KafkaStatistics: Equatable {
    /// Some broker can be talked to.
    var isBrokerUp = false
    /// What the brokers said of the partitions that are or were read.
    var partitions: [TopicPartition: Partition] = [:]

    struct Partition: Equatable {
        /// One above the last record that may be read.
        var end: Int64
        /// What the group has committed.
        var committed: Int64?
    }

    init(_ json: [UInt8]) {
        guard let root = try? JSONValue.parse(json) else { return }
        for broker in root["brokers"]?.object?.values ?? [] {
            if broker["state"]?.string == "UP" { isBrokerUp = true }
        }
        for (topic, value) in root["topics"]?.object ?? JSONObject() {
            for (number, partition) in value["partitions"]?.object ?? JSONObject() {
                // Negative where it is not known; -1 is a partition for what has none yet.
                let offsets = ["ls_offset", "hi_offset", "committed_offset"].map {
                    partition[$0]?.integer.flatMap { $0 >= 0 ? Int64($0) : nil }
                }
                guard let number = Int32(number), number >= 0, let end = offsets[0] ?? offsets[1]
                else { continue }
                partitions[TopicPartition(topic: topic, partition: number)] = Partition(
                    end: end,
                    committed: offsets[2]
                )
            }
        }
    }
}

/// Why a client cannot do its work just now; readable from any thread.
final class Availability: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var state: [Aspect: String]

    /// What can be in the way; several at once, the first is told.
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
