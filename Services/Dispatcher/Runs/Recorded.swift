import Kafka
import PushEvents
import PushStorage

/// Something that has ended here and is recorded: a row, an event of the fast path, members of a shard.
/// Confined to the loop.
protocol Recorded: AnyObject, Sendable {
    var kind: LedgerEntry.Kind { get }
    /// Under which it was sent.
    var session: Int { get }
    /// How many outcomes `writeOutcomes` writes.
    var outcomes: Int { get }
    func writeOutcomes(by writer: inout OutcomeWriter, to block: inout KafkaRecordBlock)
    /// Kafka has its outcomes.
    func acknowledged(at now: ContinuousClock.Instant)
    /// What is written of it.
    var entry: LedgerEntry { get }
    /// It is about to be written: its rows are in hand, and its push is remembered, before they are in
    /// the table.
    func willWrite(_ inHand: WorkInHand, remember: (PushContext) -> Void)
    /// It is over; told once more it does nothing.
    func ended(_ end: RecordedEnd, at now: ContinuousClock.Instant) -> Released
}

/// How recording something ended.
enum RecordedEnd: Equatable {
    case recorded(LedgerResult)
    /// Postgres will never take it.
    case refused(String)
    /// The session was lost before it was written, or the drain is over: the next owner sends it again.
    case lost
}

/// Deliveries that something that is over leaves behind.
struct Released {
    /// Not in anybody's way any more.
    var deliveries: [OwnedDelivery] = []
    /// Ended while they became rows.
    var rows: [OwnedDelivery] = []
}

/// Where outcomes go.
protocol OutcomeLog: Sendable {
    /// Produces records until each is acknowledged or has failed.
    ///
    /// - Returns: The errors of those that are not written, by index.
    func append(_ block: KafkaRecordBlock) async -> [Int: any Error]
}

extension KafkaProducer: OutcomeLog {
    func append(_ block: KafkaRecordBlock) async -> [Int: any Error] {
        do {
            return try await send(block)
        } catch {
            return Dictionary(uniqueKeysWithValues: (0..<block.count).map { ($0, error) })
        }
    }
}

/// Where the ledger is.
protocol LedgerWriting: Sendable {
    /// As `PushLedger.write`.
    func write(_ entries: [LedgerEntry], session: Int) async throws -> [LedgerResult]
}

extension PushLedger: LedgerWriting {}
