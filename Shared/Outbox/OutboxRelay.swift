package import EventLoop
package import Kafka
package import Observability
import PushCore
import ServiceKit
package import Storage

/// Relays accepted pushes from the outbox to Kafka: claims, produces, deletes once acknowledged.
///
/// Authority: only the relay empties the outbox. Several relays share the rows, each claimed for a
/// time. Apps take turns, so that one with many records delays no other. A crash between the
/// acknowledgement and the delete sends a record twice; the event's key deduplicates it. A record
/// that the broker does not accept waits with growing delays, and others overtake it.
///
/// Shutdown: the present round ends; undelivered records stay in the outbox.
package actor OutboxRelay: ServicePart {
    private nonisolated let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    package nonisolated let name = "outbox-relay"

    /// The poll interval without notifications.
    private static let idleWait = Duration.seconds(1)
    private static let batch = 500
    /// The producer's timeout: within the lease of the claims, and within a stop's grace period.
    package static let deliveryTimeout: Duration = .seconds(OutboxStore.leaseSeconds - 5)

    private let database: PushDatabase
    private let producer: KafkaProducer
    private let log: Log
    private let relayed: Counter
    private let wakeUp: WakeUp
    private let worker: ClaimWorker

    package init(
        from database: PushDatabase,
        to producer: KafkaProducer,
        on loop: EventLoop,
        log: Log,
        metrics: Metrics
    ) {
        self.database = database
        self.producer = producer
        self.loop = loop
        self.log = log
        relayed = metrics.counter(.outboxRelayed)
        wakeUp = WakeUp(on: loop)
        worker = ClaimWorker(
            "the outbox cannot be relayed to Kafka",
            wokenBy: wakeUp,
            listening: { wake in
                try await database.onNotification(.outbox) { _ in wake() }
            },
            on: loop,
            log: log
        )
    }

    /// Notes that this process stored records, for transactions that do not notify. From any thread.
    package nonisolated func wake() { loop.execute { [wakeUp] in wakeUp.signal() } }

    package func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        var next = ""
        await worker.run {
            let claim = try await database.outbox.claim(limit: Self.batch, from: next)
            next = claim.next
            try await relay(claim.records)
            // Records after one with an order key could not be claimed before.
            if claim.hasMore || claim.records.contains(where: \.isOrdered) { return .again }
            // A notification may be missed while the listener reconnects.
            return .sleep(atMost: Self.idleWait)
        }
    }

    /// Produces claimed records to Kafka and stores the result of each.
    ///
    /// - Throws: `RelayError` if Kafka was unavailable for some.
    private func relay(_ claimed: [ClaimedOutboxRecord]) async throws {
        guard !claimed.isEmpty else { return }
        let (said, failure) = await produce(claimed)
        let verdicts = Array(zip(claimed, said))
        // In a task of its own: a stop must not leave acknowledged records to be sent again.
        let database = database
        try await Task(executorPreference: loop) {
            try await database.outbox.finish(verdicts)
        }.value
        relayed.add(said.count { $0 == .acknowledged })
        if let failure {
            throw RelayError(unavailable: said.count { $0 == .unavailable }, reason: failure)
        }
    }

    /// - Returns: A verdict for each, and why Kafka was unavailable, if it was.
    private func produce(_ claimed: [ClaimedOutboxRecord]) async -> ([OutboxResult], String?) {
        let outgoing = claimed.map { KafkaOutgoing($0.record) }
        do {
            let errors = try await producer.send(outgoing)
            // Only the size is the record's own fault; all else is the broker's, or an operator's.
            let verdicts = errors.map { error -> OutboxResult in
                guard let error else { return .acknowledged }
                return error.isTooLarge ? .refused : .unavailable
            }
            let refused = verdicts.count { $0 == .refused }
            if refused > 0 {
                log.error(
                    "outbox records exceed Kafka's size limit; retrying later",
                    [.count: .integer(refused)]
                )
            }
            let failure = errors.lazy.compactMap { $0 }.first { !$0.isTooLarge }
            return (verdicts, failure?.description)
        } catch {
            return (claimed.map { _ in .unavailable }, "\(error)")
        }
    }
}

private struct RelayError: Error, CustomStringConvertible {
    let unavailable: Int
    let reason: String
    var description: String {
        "Kafka has not acknowledged \(unavailable) of the outbox's records: \(reason)"
    }
}
