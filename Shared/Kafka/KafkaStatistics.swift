internal import JSON
internal import Observability

/// What we read of librdkafka's statistics.
struct KafkaStatistics: Equatable {
    /// Some broker can be talked to.
    var isBrokerUp = false
    /// Records behind the end, by Kafka topic, over the partitions held.
    var lag: [String: Int] = [:]

    init(_ json: [UInt8]) {
        guard let root = try? JSONValue.parse(json) else { return }
        for broker in root["brokers"]?.object?.values ?? [] {
            if broker["state"]?.string == "UP" { isBrokerUp = true }
        }
        for (topic, value) in root["topics"]?.object ?? JSONObject() {
            var total: Int?
            for partition in value["partitions"]?.object?.values ?? [] {
                // From what is stored, once something is; before that from what was read.
                let lags = [partition["consumer_lag_stored"], partition["consumer_lag"]]
                guard let lag = lags.lazy.compactMap({ $0?.integer }).first(where: { $0 >= 0 })
                else { continue }
                total = (total ?? 0) + lag
            }
            if let total { lag[topic] = total }
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
