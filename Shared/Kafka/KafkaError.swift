internal import CRDKafka

/// An error of librdkafka or of the broker, by its code.
package struct KafkaError: Error, Sendable, Equatable {
    /// librdkafka's `rd_kafka_resp_err_t`: negative codes are librdkafka's own, positive codes the
    /// broker's.
    package let code: Int32
    /// The code's constant name without its prefix: `_MSG_TIMED_OUT`, `NOT_ENOUGH_REPLICAS`.
    package let name: String
    /// Whether the client is unusable: it must be closed and made again.
    package let isFatal: Bool
    /// The meaning of the code, in librdkafka's words; for a property, its name and the reason.
    package let explanation: String
    /// Further details: hosts, properties. Not part of `description`.
    package let detail: String

    init(
        _ code: rd_kafka_resp_err_t,
        isFatal: Bool = false,
        explanation: String? = nil,
        detail: String = ""
    ) {
        self.code = code.rawValue
        self.isFatal = isFatal || code == RD_KAFKA_RESP_ERR__FATAL
        self.detail = detail
        name = unsafe String(cString: rd_kafka_err2name(code))
        self.explanation = unsafe explanation ?? String(cString: rd_kafka_err2str(code))
    }

    /// Copies an error object and frees it; `nil` if there is none, which means success.
    init?(adopting error: OpaquePointer?) {
        guard let error = unsafe error else { return nil }
        defer { unsafe rd_kafka_error_destroy(error) }
        self.init(
            unsafe rd_kafka_error_code(error),
            isFatal: unsafe rd_kafka_error_is_fatal(error) != 0,
            detail: unsafe String(cString: rd_kafka_error_string(error))
        )
    }

    /// Makes the error of an invalid property, by name; its value may be secret and stays out.
    static func property(_ name: String, _ problem: String) -> KafkaError {
        KafkaError(
            RD_KAFKA_RESP_ERR__INVALID_ARG,
            explanation: "the property \(name): \(problem)",
            detail: "\(name): \(problem)"
        )
    }

    /// Returns the error of a code; `nil` for success.
    static func of(_ code: rd_kafka_resp_err_t) -> KafkaError? {
        code == RD_KAFKA_RESP_ERR_NO_ERROR ? nil : KafkaError(code)
    }

    static var closed: KafkaError { KafkaError(RD_KAFKA_RESP_ERR__DESTROY) }
    static var timedOut: KafkaError { KafkaError(RD_KAFKA_RESP_ERR__TIMED_OUT) }

    /// Whether the same call may succeed later, without a change.
    package var isRetryable: Bool {
        if isFatal { return false }
        switch rd_kafka_resp_err_t(code) {
        case RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR__TIMED_OUT,
            RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
            RD_KAFKA_RESP_ERR__RESOLVE, RD_KAFKA_RESP_ERR__QUEUE_FULL,
            RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE, RD_KAFKA_RESP_ERR__RETRY,
            RD_KAFKA_RESP_ERR__PURGE_QUEUE, RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
            RD_KAFKA_RESP_ERR__DESTROY, RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
            RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
            RD_KAFKA_RESP_ERR__WAIT_COORD, RD_KAFKA_RESP_ERR__NO_OFFSET,
            RD_KAFKA_RESP_ERR__STATE,
            RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
            RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
            RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE,
            RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION, RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
            RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            RD_KAFKA_RESP_ERR_NOT_CONTROLLER, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
            RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED:
            return true
        default:
            return false
        }
    }

    /// Whether the record is larger than the topic allows: it can never be written.
    package var isTooLarge: Bool {
        [RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE]
            .contains(rd_kafka_resp_err_t(code))
    }

    /// A label from a closed set: the names of librdkafka's codes.
    package var metricLabel: String { name }
}

extension KafkaError: CustomStringConvertible, CustomDebugStringConvertible {
    package var description: String { "Kafka \(name): \(explanation)" }
    package var debugDescription: String {
        detail.isEmpty || explanation.hasSuffix(detail) ? description : "\(description) (\(detail))"
    }
}
