import Kafka
import Observability
import PushCore
import PushEvents
import ServiceKit
import ServiceShell
import Storage
import SyncStorage

/// Reads changes of datasets from `dataset.changes`, made here or in other systems, and opens their
/// windows.
///
/// - Returns: The consumer, which finishes a record once it is noted in Postgres, has no devices to
///   notify, or is a dead letter.
func syncIntake(
    _ consumer: KafkaConsumer,
    _ producer: KafkaProducer,
    _ database: PushDatabase,
    _ topics: KafkaTopics,
    coalesce: Duration,
    in runtime: ServiceRuntime
) -> RecordConsumer {
    let heard = runtime.metrics.counter(.syncChanges)
    return RecordConsumer(
        "sync-intake",
        of: consumer,
        deadLetters: DeadLetterWriter(producer, topics: topics, in: runtime),
        retry: RecordRetry(cannot: "changes of datasets cannot be noted", in: runtime),
        decode: DatasetChangedRecord.decode
    ) { read in
        let verdicts = try await database.syncWindows.note(read.map(\.value), coalesce: coalesce)
        heard.add(read.count)
        return zip(read, verdicts).compactMap { item, verdict in
            reason(verdict, item.value).map { (item.record, $0) }
        }
    }
}

/// Returns why a change can never be announced; `nil` if it is announced, or need not be.
private func reason(
    _ verdict: SyncChangeResult,
    _ change: DatasetChange
) -> DeadLetterReason? {
    switch verdict {
    case .noted, .silent: nil
    case .unknownPool: .unknownPool(change.pool)
    case .tooHigh:
        DeadLetterReason(
            .invalidRequest,
            "syncCount is higher than that of the records stored here"
        )
    case .tooMany:
        DeadLetterReason(
            .invalidRequest,
            "the identity has \(SyncLimits.datasets) datasets, as many as it may"
        )
    }
}
