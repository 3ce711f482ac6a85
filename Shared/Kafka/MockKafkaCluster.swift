internal import CRDKafka
internal import Observability

/// librdkafka's own mock cluster, on loopback, in this process and in memory.
///
/// It serves producers, consumer groups and metadata; it does not answer `CreateTopics`, so
/// `createTopic` makes topics. The records are lost when the cluster closes.
@safe
package final class MockKafkaCluster: @unchecked Sendable {
    private let client: OpaquePointer
    private let cluster: OpaquePointer
    private let lock = Lock()
    private var isClosed = false
    /// `host:port,…`
    package let bootstrapServers: String

    package init(brokers: Int = 1) throws(KafkaError) {
        let native = ConfigurationHandle()
        native.discardLog()
        unsafe client = try native.makeClient(RD_KAFKA_PRODUCER)
        guard let cluster = unsafe rd_kafka_mock_cluster_new(client, Int32(brokers)) else {
            unsafe rd_kafka_destroy(client)
            throw KafkaError(RD_KAFKA_RESP_ERR__FAIL, detail: "no mock cluster")
        }
        unsafe self.cluster = cluster
        unsafe bootstrapServers = String(cString: rd_kafka_mock_cluster_bootstraps(cluster))
    }

    deinit { close() }

    /// Makes a missing topic.
    package func createTopic(_ name: String, partitions: Int) throws(KafkaError) {
        let code = unsafe rd_kafka_mock_topic_create(cluster, name, Int32(partitions), 1)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code) }
    }

    /// Cuts a broker off, or lets it answer again. Brokers are numbered from 1.
    package func setBroker(_ id: Int = 1, isUp: Bool) throws(KafkaError) {
        let code =
            isUp
            ? unsafe rd_kafka_mock_broker_set_up(cluster, Int32(id))
            : unsafe rd_kafka_mock_broker_set_down(cluster, Int32(id))
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code) }
    }

    /// Requests that can be answered with an error, by the protocol's numbers.
    package enum Request: Int16, Sendable {
        case produce = 0
        case listOffsets = 2
        case offsetFetch = 9
        case findCoordinator = 10
        case heartbeat = 12
        case initProducerID = 22
    }

    /// Errors of a real cluster, by the protocol's codes.
    package enum Refusal: Int32, Sendable {
        case notLeaderForPartition = 6
        case coordinatorNotAvailable = 15
        case groupAuthorizationFailed = 30
        case clusterAuthorizationFailed = 31
        case fencedInstanceID = 82
        case invalidRecord = 87
    }

    /// Answers the next requests of a kind with an error.
    package func refuse(_ request: Request, with refusal: Refusal, times: Int = 1) {
        let errors = Array(repeating: rd_kafka_resp_err_t(refusal.rawValue), count: times)
        unsafe rd_kafka_mock_push_request_errors_array(cluster, request.rawValue, times, errors)
    }

    /// Closes the cluster. Blocks for some milliseconds, so do not call it on a loop. A repeated
    /// call changes nothing.
    package func close() {
        let isFirst = lock.withLock {
            defer { isClosed = true }
            return !isClosed
        }
        guard isFirst else { return }
        unsafe rd_kafka_mock_cluster_destroy(cluster)
        unsafe rd_kafka_destroy(client)
    }
}
