import EventLoop
package import Kafka
import Observability
import Outbox
import PushCore
package import PushEvents
package import ServiceKit

/// Writes unusable records to the dead letters, unchanged, and waits until each is acknowledged:
/// only then may their offsets be committed.
package struct DeadLetterWriter: Sendable {
    /// A record, and the reason why it is unusable.
    package typealias Unusable = (record: IncomingRecord, reason: DeadLetterReason)

    private static let cannotWrite = "dead letters cannot be written to Kafka"

    private let producer: KafkaProducer
    private let topics: KafkaTopics
    private let loop: EventLoop
    private let log: Log
    private let metrics: Metrics
    private let notReady = NotReadyReasons()

    package init(
        _ producer: KafkaProducer,
        topics: KafkaTopics,
        in runtime: ServiceRuntime
    ) {
        self.producer = producer
        self.topics = topics
        (loop, log, metrics) = (runtime.mainLoop, runtime.log, runtime.metrics)
    }

    /// Returns a reason while some are not acknowledged.
    package func notReadyReason() -> String? { notReady.reason }

    /// Writes them, without a time limit.
    ///
    /// - Parameters:
    ///   - unusable: Each record with its reason.
    ///   - isolation: The caller's.
    ///   - isStopping: Checked after each failed attempt.
    /// - Returns: `false` if a stop came first.
    package func write(
        _ unusable: [Unusable],
        isolation: isolated (any Actor)? = #isolation,
        isStopping: () -> Bool
    ) async -> Bool {
        guard !unusable.isEmpty else { return true }
        var waiting = unusable.map { item in (item: item, isContentKept: true) }
        var pause = ExponentialBackoff()
        while !waiting.isEmpty {
            var problem = "unknown"
            do {
                let errors = try await producer.send(
                    waiting.map { letter in
                        KafkaOutgoing(
                            .deadLetter(
                                letter.item.record,
                                because: letter.item.reason,
                                topics: topics,
                                isContentKept: letter.isContentKept
                            )
                        )
                    }
                )
                if let first = errors.lazy.compactMap({ $0 }).first { problem = "\(first)" }
                // A record that the broker will never accept unchanged must not block the
                // partition.
                waiting = zip(waiting, errors).compactMap { letter, error in
                    guard let error else { return nil }
                    return (letter.item, letter.isContentKept && !error.isTooLarge)
                }
            } catch {
                problem = "\(error)"
            }
            guard !waiting.isEmpty else { break }
            notReady.set(Self.cannotWrite)
            log.warning(
                "dead letters are not acknowledged; trying again",
                [.count: .integer(waiting.count), .error: .string(problem)]
            )
            if isStopping() { return false }
            await pause.wait(on: loop)
        }
        notReady.clear(Self.cannotWrite)
        for item in unusable { tell(item) }
        return true
    }

    private func tell(_ item: Unusable) {
        metrics.counter(.pushDeadLetters, ["reason": item.reason.reason.rawValue]).add()
        log.warning(
            "record rejected; dead letter written",
            [
                .kafkaTopic: .string(item.record.topic),
                .kafkaPartition: .integer(Int(item.record.partition)),
                .kafkaOffset: .integer(Int(item.record.offset)),
                .reason: .string(item.reason.reason.rawValue),
                .detail: .string(item.reason.detail),
            ]
        )
    }
}
