import EventLoop
import Kafka
import Observability
import PushEvents
import PushStorage
import ServiceKit

/// Brings accepted pushes from the outbox to Kafka: claims, produces, deletes once acknowledged.
///
/// Authority: it alone empties the outbox. Several relays share the rows, each claimed for a time. A
/// crash between the acknowledgement and the delete sends a record twice, which the event's key
/// absorbs. A record that the broker does not take waits, longer each time, and others pass it.
/// Shutdown: the round that is under way ends; what it did not deliver stays in the outbox.
actor OutboxRelay: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "outbox-relay"

    /// How long without a word a relay waits before it looks by itself.
    private static let idleWait = Duration.seconds(1)
    private static let batch = 500

    private let database: PushDatabase
    private let producer: KafkaProducer
    private let topics: KafkaTopics
    private let log: Log
    private let relayed: Counter
    private let wakeUps: AsyncStream<Void>
    private let wakeUp: AsyncStream<Void>.Continuation

    init(
        from database: PushDatabase,
        to producer: KafkaProducer,
        topics: KafkaTopics,
        on loop: EventLoop,
        log: Log,
        metrics: Metrics
    ) {
        self.database = database
        self.producer = producer
        self.topics = topics
        self.loop = loop
        self.log = log
        relayed = metrics.counter(.outboxRelayed)
        (wakeUps, wakeUp) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    }

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        let ticks = tick()
        defer { ticks.cancel() }
        var backoff = Duration.milliseconds(100)
        var isListening = false
        while !Task.isCancelled {
            do {
                if !isListening {
                    let wakeUp = wakeUp
                    try await database.onNotification(.outbox) { _ in wakeUp.yield() }
                    isListening = true
                }
                let claimed = try await database.outbox.claim(limit: Self.batch)
                let unavailable = try await bring(claimed)
                if unavailable > 0 { throw RelayError(unavailable: unavailable) }
                backoff = .milliseconds(100)
                if claimed.count < Self.batch { await nextWakeUp() }
            } catch is CancellationError {
                return
            } catch {
                log.warning("outbox round failed", [.error: .string("\(error)")])
                do { try await loop.sleep(for: backoff) } catch { return }
                backoff = min(backoff * 2, .seconds(5))
            }
        }
    }

    /// Hands claimed records to Kafka and writes down what it said of each.
    ///
    /// - Returns: How many Kafka could not be asked about.
    private func bring(_ claimed: [ClaimedOutboxRecord]) async throws -> Int {
        guard !claimed.isEmpty else { return 0 }
        let verdicts = await zip(claimed, produce(claimed)).map { (id: $0.id, verdict: $1) }
        // In a task of its own: a stop must not leave what was acknowledged to be sent again.
        let database = database
        try await Task(executorPreference: loop) {
            try await database.outbox.finish(verdicts)
        }.value
        relayed.add(verdicts.count { $0.verdict == .acknowledged })
        return verdicts.count { $0.verdict == .unavailable }
    }

    private func produce(_ claimed: [ClaimedOutboxRecord]) async -> [OutboxVerdict] {
        let outgoing = claimed.map { item in
            KafkaOutgoing(
                topic: item.record.kafkaTopic,
                key: item.record.key,
                value: item.record.value,
                headers: item.record.headers.map { KafkaHeader(name: $0.name, value: $0.value) }
            )
        }
        do {
            let errors = try await producer.send(outgoing)
            let refused = errors.compactMap { $0 }.filter { !$0.isRetryable }
            if let first = refused.first {
                log.error(
                    "Kafka does not take records of the outbox: they are tried again later",
                    [.count: .integer(refused.count), .error: .string(first.description)]
                )
            }
            return errors.map { error in
                guard let error else { return .acknowledged }
                return error.isRetryable ? .unavailable : .refused
            }
        } catch {
            log.debug("outbox records were not sent", [.error: .string("\(error)")])
            return claimed.map { _ in .unavailable }
        }
    }

    private func nextWakeUp() async {
        var iterator = wakeUps.makeAsyncIterator()
        _ = await iterator.next()
    }

    /// A notification may be missed while the listener reconnects.
    private func tick() -> Task<Void, Never> {
        let (loop, wakeUp) = (loop, wakeUp)
        return Task(executorPreference: loop) {
            while (try? await loop.sleep(for: Self.idleWait)) != nil { wakeUp.yield() }
        }
    }
}

private struct RelayError: Error, CustomStringConvertible {
    let unavailable: Int
    var description: String {
        "Kafka has not acknowledged \(unavailable) of the outbox's records; trying again"
    }
}
