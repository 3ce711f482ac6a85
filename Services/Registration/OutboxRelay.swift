import EventLoop
import Kafka
import Observability
import PushEvents
import PushStorage
import ServiceKit

/// Brings accepted pushes from the outbox to Kafka: reads, produces, deletes once acknowledged.
///
/// Authority: it alone empties the outbox. Several relays share the rows. A crash between the
/// acknowledgement and the delete sends a record twice, which the event's key absorbs.
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
                let round = try await database.outbox.relay(limit: Self.batch) { records in
                    try await self.produce(records)
                }
                relayed.add(round.acknowledged)
                if round.taken > round.acknowledged {
                    throw RelayError(refused: round.taken - round.acknowledged)
                }
                backoff = .milliseconds(100)
                if round.taken < Self.batch { await nextWakeUp() }
            } catch is CancellationError {
                return
            } catch {
                log.warning("outbox round failed", [.error: .string("\(error)")])
                do { try await loop.sleep(for: backoff) } catch { return }
                backoff = min(backoff * 2, .seconds(5))
            }
        }
    }

    private func produce(_ records: [OutboxRecord]) async throws -> [Bool] {
        let outgoing = records.map { record in
            KafkaOutgoing(
                topic: record.kafkaTopic,
                key: record.key,
                value: record.value,
                headers: record.headers.map { KafkaHeader(name: $0.name, value: $0.value) }
            )
        }
        let results = try await producer.send(outgoing)
        if let error = results.compactMap({ $0 }).first {
            log.warning("outbox records refused", [.error: .string(error.description)])
        }
        return results.map { $0 == nil }
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
    let refused: Int
    var description: String { "Kafka did not acknowledge \(refused) of the outbox's records" }
}
