package import EventLoop
package import Kafka
package import Observability
import PushCore
package import PushEvents
import ServiceKit

/// Writes records that cannot be used to the dead letters, as they came, and waits until each is
/// acknowledged: only then may their offsets move on.
package struct DeadLetterWriter: Sendable {
    /// A record, and why it cannot be used.
    package typealias Unusable = (record: IncomingRecord, reason: DeadLetterReason)

    private static let cannotWrite = "dead letters cannot be written to Kafka"

    private let producer: KafkaProducer
    private let topics: KafkaTopics
    private let loop: EventLoop
    private let log: Log
    private let metrics: Metrics
    private let trouble = Trouble()

    package init(
        _ producer: KafkaProducer,
        topics: KafkaTopics,
        on loop: EventLoop,
        log: Log,
        metrics: Metrics
    ) {
        self.producer = producer
        self.topics = topics
        self.loop = loop
        self.log = log
        self.metrics = metrics
    }

    /// That some are not acknowledged yet.
    package func notReadyReason() -> String? { trouble.reason }

    /// Writes them, for as long as it takes.
    ///
    /// - Parameters:
    ///   - unusable: Each with the reason.
    ///   - isolation: Whoever calls.
    ///   - isStopping: Asked after each attempt that failed.
    /// - Returns: `false` when a stop came first.
    package func write(
        _ unusable: [Unusable],
        isolation: isolated (any Actor)? = #isolation,
        isStopping: () async -> Bool
    ) async -> Bool {
        guard !unusable.isEmpty else { return true }
        var waiting = unusable.map { item in (item: item, isContentKept: true) }
        var pause = Pause()
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
                // What the broker will never take as it came must not stop the partition.
                waiting = zip(waiting, errors).compactMap { letter, error in
                    guard let error else { return nil }
                    return (letter.item, letter.isContentKept && !error.isTooLarge)
                }
            } catch {
                problem = "\(error)"
            }
            guard !waiting.isEmpty else { break }
            trouble.set(Self.cannotWrite)
            log.warning(
                "dead letters are not acknowledged; trying again",
                [.count: .integer(waiting.count), .error: .string(problem)]
            )
            if await isStopping() { return false }
            await pause.wait(on: loop)
        }
        trouble.clear(Self.cannotWrite)
        for item in unusable { tell(item) }
        return true
    }

    private func tell(_ item: Unusable) {
        metrics.counter(.pushDeadLetters, ["reason": item.reason.reason.rawValue]).add()
        log.warning(
            "a record cannot be used and is a dead letter now",
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
