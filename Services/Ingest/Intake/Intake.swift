import Door
import EventLoop
import HTTPServer
import JSON
import JSONSchema
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage

/// What intake can refuse a whole request for, in no protocol's words.
enum IntakeRefusal: Error, Equatable, Sendable {
    /// Kafka does not take it now.
    case unavailable
    /// The app has sent as much as it may.
    case overQuota(retryAfterSeconds: Int)
    /// The app has no such type.
    case unknownType(String)
}

/// Objects on their way to Kafka, of one request.
struct IntakeWrite: Sendable {
    /// Of one topic, all with the same headers.
    var block: KafkaRecordBlock?
    /// All others.
    var singles: [KafkaOutgoing] = []

    var recordCount: Int { (block?.count ?? 0) + singles.count }
    var recordBytes: Int {
        singles.reduce(block?.sizeBytes ?? 0) {
            $0 + ($1.key?.count ?? 0) + ($1.value?.count ?? 0)
        }
    }
}

/// What one loop takes objects in with: the types it knows, its producer, and what all loops share of
/// limits.
///
/// Authority: an object is accepted once all in-sync replicas have it, and never before.
struct Intake: Sendable {
    let loop: EventLoop
    let types: TypeDirectory
    let producer: KafkaProducer
    let topics: KafkaTopics
    let held: HeldBytes
    /// Bodies, of what the loop reads them with.
    let heldBodies: HeldBytes
    let quota: ObjectQuota
    /// The turns in which apps' objects are checked on the loop.
    let turns: FairTurns
    /// The threads on which apps' long bodies are read.
    let pool: FairPool
    let figures: IntakeFigures
    let log: Log

    /// How long a record may wait for its acknowledgement; a request waits no longer than that.
    static let deliveryTimeout = Duration.seconds(15)
    /// What callers are told who come while Kafka takes nothing.
    static let retryAfterSeconds = 2

    /// - Throws: `IntakeRefusal`; `StorageError` where types are not known and the database is away.
    func type(_ name: String, of caller: Caller) async throws -> KnownType {
        guard IngestTypeName.isWellFormed(name),
            let type = try await types.find(name, of: caller.appID)
        else { throw IntakeRefusal.unknownType(name) }
        return type
    }

    /// All types of the caller's app, by their names.
    ///
    /// - Throws: `StorageError` where they are not known and the database is away.
    func types(of caller: Caller) async throws -> TextMap<KnownType> {
        try await types.all(of: caller.appID)
    }

    /// Headers of each object of a type.
    static func headers(app: String, version: Int, receivedAt: Instant) -> [KafkaHeader] {
        [
            KafkaHeader(name: "app", value: app),
            KafkaHeader(name: "schema.version", value: String(version)),
            KafkaHeader(name: "received.at", value: receivedAt.iso8601),
        ]
    }

    /// Returns when Kafka has all of it. The request's body is let go of before that is waited for.
    ///
    /// - Parameters:
    ///   - write: Objects, and what goes along with them.
    ///   - objects: How many of the records are objects.
    ///   - request: What they came by.
    ///   - admitted: The same, as it is counted.
    ///   - answerBytes: What is to be answered.
    /// - Throws: `IntakeRefusal.unavailable` where some may not be written. They are sent again then,
    ///   all of them, and known by their ids.
    func write(
        _ write: consuming IntakeWrite,
        objects: Int,
        for request: inout HTTPServerRequest,
        _ admitted: AdmittedRequest,
        answerBytes: Int = 0
    ) async throws {
        request.dropBody()
        let count = write.recordCount
        let cost = HeldBytes.cost(recordBytes: write.recordBytes, records: count)
        try admitted.hold(cost + answerBytes)
        guard count > 0 else { return }
        if let failure = await failure(of: write) {
            figures.notWritten.add(count)
            log.info("objects are not acknowledged", [.error: .string(failure)])
            admitted.giveBack()
            throw IntakeRefusal.unavailable
        }
        figures.accepted.add(objects)
    }

    /// - Returns: Why some of it is not written; `nil` where all of it is.
    private func failure(of write: consuming IntakeWrite) async -> String? {
        let (block, singles) = (write.block, write.singles)
        write = IntakeWrite()
        do {
            // The producer has the only reference to a block, so that it can let go of it.
            if let block, let error = try await producer.send(block).values.first {
                return "\(error)"
            }
            guard !singles.isEmpty else { return nil }
            return try await producer.send(singles).lazy.compactMap { $0 }.first.map { "\($0)" }
        } catch {
            return "\(error)"
        }
    }

    /// Why a body is not to be read now; `nil`: it is.
    var isUnderPressure: Bool {
        guard held.isFull else { return false }
        figures.refusedForPressure.add()
        return true
    }
}

/// What is counted of intake.
struct IntakeFigures: Sendable {
    let accepted: Counter
    let limited: Counter
    let refusedForPressure: Counter
    let notWritten: Counter
    let held: Gauge
    private let refused: [Reason: Counter]

    /// Why objects are refused: a closed set.
    enum Reason: String, CaseIterable, Sendable {
        case id, schema, malformed
        case unknownType = "unknown_type"
        case segmentItem = "segment_item"
    }

    init(_ metrics: Metrics) {
        accepted = metrics.counter(.ingestAccepted)
        limited = metrics.counter(.ingestLimited, ["limit": "quota"])
        refusedForPressure = metrics.counter(.ingestLimited, ["limit": "held_bytes"])
        notWritten = metrics.counter(.ingestNotWritten)
        held = metrics.gauge(.ingestHeldBytes)
        refused = Dictionary(
            uniqueKeysWithValues: Reason.allCases.map {
                ($0, metrics.counter(.ingestRefused, ["reason": $0.rawValue]))
            }
        )
    }

    func refused(_ reason: Reason, _ count: Int = 1) {
        if count > 0 { refused[reason]?.add(count) }
    }

    func refused(_ object: RefusedObject) {
        refused(object.pointer == "/_id" && object.id == nil ? .id : .schema)
    }
}
