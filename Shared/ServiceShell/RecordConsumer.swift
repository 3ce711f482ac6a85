import EventLoop
package import Kafka
import Observability
import PushCore
package import PushEvents
package import ServiceKit

/// Finishes each record once it is durable, or a dead letter that Kafka has acknowledged.
///
/// Authority: the steps from reading a record to finishing its offset. An invalid record never
/// stops it; a failing dependency is waited for, with the batch in memory (`RecordRetry`).
///
/// Shutdown: ends with its consumer. A record that is not durable by then is read again by the
/// partition's next owner.
package struct RecordConsumer: ServicePart {
    package typealias Unusable = DeadLetterWriter.Unusable
    /// Makes records durable.
    ///
    /// - Returns: The records that can never be stored, with the reason; `nil` if a stop came
    ///   first.
    package typealias Handler =
        @Sendable ([KafkaRecord]) async throws -> [Unusable]?

    package let name: String
    private let consumer: KafkaConsumer
    private let batches: Int
    private let deadLetters: DeadLetterWriter
    private let retry: RecordRetry
    private let handler: Handler

    /// - Parameters:
    ///   - name: The part's name.
    ///   - consumer: Comes after this part, as it must stop first.
    ///   - batches: The batches that are processed at once.
    ///   - deadLetters: Get unusable records.
    ///   - retry: Waits for dependencies.
    ///   - handler: Runs on the loop of the service's parts.
    package init(
        _ name: String,
        of consumer: KafkaConsumer,
        batches: Int = 1,
        deadLetters: DeadLetterWriter,
        retry: RecordRetry,
        handler: @escaping Handler
    ) {
        self.name = name
        self.consumer = consumer
        self.batches = batches
        self.deadLetters = deadLetters
        self.retry = retry
        self.handler = handler
    }

    /// Makes a consumer of records that each hold one value. An error of `decode` is the reason why
    /// a record is unusable. `store` makes values durable, and returns those that can never be; if
    /// it throws, it is retried.
    package init<Value: Sendable>(
        _ name: String,
        of consumer: KafkaConsumer,
        deadLetters: DeadLetterWriter,
        retry: RecordRetry,
        decode: @escaping @Sendable (IncomingRecord) throws(DeadLetterReason) -> Value,
        store:
            @escaping @Sendable ([(record: IncomingRecord, value: Value)]) async throws ->
            [Unusable]
    ) {
        self.init(name, of: consumer, deadLetters: deadLetters, retry: retry) { records in
            var unusable: [Unusable] = []
            var read: [(record: IncomingRecord, value: Value)] = []
            for record in records.lazy.map(IncomingRecord.init) {
                do throws(DeadLetterReason) {
                    read.append((record, try decode(record)))
                } catch {
                    unusable.append((record, error))
                }
            }
            guard !read.isEmpty else { return unusable }
            let values = read
            guard let refused = await retry.untilDone({ try await store(values) }) else {
                return nil
            }
            return unusable + refused
        }
    }

    package func notReadyReason() -> String? { retry.reason ?? deadLetters.notReadyReason() }

    package func run() async throws {
        guard batches > 1 else { return try await read() }
        try await withThrowingTaskGroup { group in
            for _ in 0..<batches {
                group.addTask(executorPreference: retry.loop) { try await read() }
            }
            try await group.waitForAll()
        }
    }

    private func read() async throws {
        while let batch = try await consumer.next() {
            guard let unusable = try await handler(batch.records),
                await deadLetters.write(unusable, isStopping: retry.isStopping)
            else {
                await consumer.leave(batch)
                continue
            }
            await consumer.finished(batch)
        }
    }
}

/// Retries while a dependency fails, such as an unavailable database. Meanwhile their partitions
/// are held: each try logs a warning, and `/readyz` has the reason.
package struct RecordRetry: Sendable {
    let loop: EventLoop
    let isStopping: @Sendable () -> Bool
    private let cannot: StaticString
    private let log: Log
    private let notReady = NotReadyReasons()

    /// - Parameters:
    ///   - cannot: The consequence meanwhile: "changes of datasets cannot be noted".
    ///   - runtime: The backoff sleeps on its main loop.
    ///   - isStopping: Whether to give up.
    package init(
        cannot: StaticString,
        in runtime: ServiceRuntime,
        isStopping: @escaping @Sendable () -> Bool = { Task.isCancelled }
    ) {
        self.cannot = cannot
        (loop, log) = (runtime.mainLoop, runtime.log)
        self.isStopping = isStopping
    }

    var reason: String? { notReady.reason }

    /// Clears the failure.
    package func succeeded() { notReady.clear("\(cannot)") }

    /// Waits before the next try.
    ///
    /// - Returns: `false` if a stop came first.
    package func wait(after error: any Error, _ pause: inout ExponentialBackoff) async -> Bool {
        if isStopping() { return false }
        notReady.set("\(cannot)")
        log.warning(
            cannot,
            [.error: .string("\(error)"), .detail: "the partitions are held"]
        )
        await pause.wait(on: loop)
        return !Task.isCancelled
    }

    /// Retries without a limit.
    ///
    /// - Returns: `nil` if a stop came first.
    package func untilDone<Value>(
        isolation: isolated (any Actor)? = #isolation,
        _ body: () async throws -> Value
    ) async -> Value? {
        var pause = ExponentialBackoff()
        while true {
            do {
                let value = try await body()
                succeeded()
                return value
            } catch {
                guard await wait(after: error, &pause) else { return nil }
            }
        }
    }
}

extension IncomingRecord {
    package init(_ record: KafkaRecord) {
        self.init(
            topic: record.topic,
            partition: record.partition,
            offset: record.offset,
            key: record.key,
            value: record.value,
            headers: record.headers.map { RecordHeader($0.name, $0.value) }
        )
    }
}
