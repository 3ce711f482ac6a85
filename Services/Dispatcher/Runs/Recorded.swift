import Kafka
import PushEvents
import PushStorage

/// A run as its recorder sees it: places, each with an end and an entry of the ledger.
@DispatchLoop
protocol RecordedRun: AnyObject, Sendable {
    var kind: LedgerEntry.Kind { get }
    var session: Int { get }
    /// The number of outcomes that `writeOutcomes` writes.
    func outcomes(of place: Int) -> Int
    func writeOutcomes(
        of place: Int,
        by writer: inout OutcomeWriter,
        to block: inout KafkaRecordBlock
    )
    /// Notes that Kafka has acknowledged the outcomes.
    func acknowledged(_ place: Int, at now: ContinuousClock.Instant)
    /// Returns the ledger entry of a place. It is the same until the place is recorded.
    func entry(of place: Int) -> LedgerEntry
    /// Notes which rows this process will own after the write. Calls `remember` with the context of
    /// a push that will be needed again.
    func willWrite(_ place: Int, remember: (PushContext) -> Void)
    /// Ends a place and frees its slots; a second call changes nothing.
    func recorded(_ place: Int, _ end: RecordedEnd, at now: ContinuousClock.Instant)
}

extension RecordedRun {
    func acknowledged(_ place: Int, at now: ContinuousClock.Instant) {}
    func willWrite(_ place: Int, remember: (PushContext) -> Void) {}
}

/// The recorder to which runs add ended places.
@DispatchLoop
protocol RunRecording: AnyObject, Sendable {
    func add(_ run: any RecordedRun, _ place: Int)
}

/// How recording a place ended.
enum RecordedEnd: Equatable {
    case recorded(LedgerResult)
    /// Postgres will never accept the entry.
    case refused(String)
    /// The session was lost before the write, or the drain has ended. The next owner sends again.
    case lost
}

/// The log to which outcomes are written.
protocol OutcomeLog: Sendable {
    /// Produces records until each is acknowledged or has failed.
    ///
    /// - Returns: The errors of records that are not written, by index.
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

/// The writer of the ledger.
protocol LedgerWriting: Sendable {
    /// Writes entries like `PushLedger.write`.
    func write(_ entries: [LedgerEntry], session: Int) async throws -> [LedgerResult]
}

extension PushLedger: LedgerWriting {}
