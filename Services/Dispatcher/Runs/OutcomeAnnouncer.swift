import EventLoop
import Kafka
import Observability
import ServiceKit

/// Tells the rest of the company what became of deliveries, rows and members alike: the first half
/// of recording (promise 4).
///
/// Authority: outcomes between their end here and Kafka's acknowledgement.
///
/// Confined to the loop.
final class OutcomeAnnouncer: @unchecked Sendable {
    private static let cannotAnnounce = "outcomes cannot be written to Kafka"

    let topic: String
    private let producer: KafkaProducer
    private let session: WorkSession
    private let trouble: Trouble
    private let loop: EventLoop
    private let log: Log

    init(
        topic: String,
        producer: KafkaProducer,
        session: WorkSession,
        trouble: Trouble,
        loop: EventLoop,
        log: Log
    ) {
        self.topic = topic
        self.producer = producer
        self.session = session
        self.trouble = trouble
        self.loop = loop
        self.log = log
    }

    /// Produces outcomes until each is acknowledged.
    ///
    /// - Returns: `false` when the session was lost meanwhile, or the drain is over: the next owner
    ///   will say so.
    func announce(_ outcomes: KafkaRecordBlock, session number: Int) async -> Bool {
        var waiting = outcomes
        var pause = Pause()
        while !waiting.isEmpty {
            guard session.isCurrent(number), !session.hasEnded else { return false }
            var problem: String?
            do {
                let errors = try await producer.send(waiting)
                problem = errors.first.map { "\($0.value)" }
                waiting = waiting.only(errors.keys.sorted())
            } catch {
                problem = "\(error)"
            }
            guard !waiting.isEmpty else { break }
            trouble.set(Self.cannotAnnounce)
            log.warning(
                "outcomes are not acknowledged; trying again",
                [.count: .integer(waiting.count), .error: .string(problem ?? "unknown")]
            )
            await pause.wait(on: loop)
        }
        trouble.clear(Self.cannotAnnounce)
        return true
    }
}
