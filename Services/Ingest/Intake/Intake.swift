import EventLoop
import Gateway
import HTTPServer
import JSON
import JSONSchema
import Kafka
import Observability
import PushCore
import PushEvents

/// The reasons to refuse a whole request, independent of the protocol.
enum IntakeRefusal: Error, Equatable, Sendable {
    /// Kafka does not accept records now.
    case unavailable
    /// The app has used up its quota.
    case overQuota(retryAfterSeconds: Int)
    /// The app has no such type.
    case unknownType(String)
}

/// The records of one request that are to be written to Kafka.
struct IntakeWrite: Sendable {
    /// Records of one topic, all with the same headers.
    var block: KafkaRecordBlock?
    /// All other records.
    var singles: [KafkaOutgoing] = []

    var recordCount: Int { (block?.count ?? 0) + singles.count }
    var recordBytes: Int {
        singles.reduce(block?.sizeBytes ?? 0) {
            $0 + ($1.key?.count ?? 0) + ($1.value?.count ?? 0)
        }
    }
}

/// The resources with which one loop accepts objects: its types, its producer, and the limits that all loops
/// share.
///
/// Authority: an object is accepted once all in-sync replicas have it, and never before.
struct Intake: Sendable {
    let loop: EventLoop
    let types: IngestTypeCache
    let producer: KafkaProducer
    let topics: KafkaTopics
    let held: HeldBytes
    /// The budget for the bodies that the loop reads.
    let heldBodies: HeldBytes
    let quota: ObjectQuota
    /// The turns in which apps' objects are checked on the loop.
    let turns: FairTurns
    /// The threads on which apps' long bodies are read.
    let pool: FairPool
    let metrics: IngestMetrics
    let log: Log

    /// The time that a record may wait for its acknowledgement; a request waits no longer than that.
    static let deliveryTimeout = Duration.seconds(15)
    /// The `Retry-After` of responses while Kafka accepts nothing.
    static let retryAfterSeconds = 2

    /// - Throws: `IntakeRefusal`; `StorageError` if types are not cached and the database is not reachable.
    func type(_ name: String, of caller: Caller) async throws -> KnownType {
        guard IngestTypeName.isWellFormed(name),
            let type = try await types.find(name, of: caller.appID)
        else { throw IntakeRefusal.unknownType(name) }
        return type
    }

    /// Returns all types of the caller's app, by their names.
    ///
    /// - Throws: `StorageError` if they are not cached and the database is not reachable.
    func types(of caller: Caller) async throws -> ExactStringMap<KnownType> {
        try await types.all(of: caller.appID)
    }

    /// Returns the headers of the record of each object.
    static func headers(app: String, version: Int, receivedAt: Instant) -> [KafkaHeader] {
        [
            KafkaHeader(name: "app", value: app),
            KafkaHeader(name: "schema.version", value: String(version)),
            KafkaHeader(name: "received.at", value: receivedAt.iso8601),
        ]
    }

    /// Writes records to Kafka, and returns once Kafka has all of them. Releases the request's body
    /// first.
    ///
    /// - Parameters:
    ///   - write: The objects, and the records that accompany them.
    ///   - objects: The number of objects among the records.
    ///   - request: The request that contained them.
    ///   - admitted: The same request, with its charges.
    ///   - answerBytes: The size of the response.
    /// - Throws: `IntakeRefusal.unavailable` if some records may not have been written. Then the
    ///   client sends all of them again, and they are deduplicated by their ids.
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
            metrics.notWritten.add(count)
            log.info("objects are not acknowledged", [.error: .string(failure)])
            admitted.giveBack()
            throw IntakeRefusal.unavailable
        }
        metrics.accepted.add(objects)
    }

    /// - Returns: The reason why some records are not written; `nil` if all are.
    private func failure(of write: consuming IntakeWrite) async -> String? {
        let (block, singles) = (write.block, write.singles)
        write = IntakeWrite()
        do {
            // The producer alone refers to the block now, so that it can release it.
            if let block, let error = try await producer.send(block).values.first {
                return "\(error)"
            }
            guard !singles.isEmpty else { return nil }
            return try await producer.send(singles).lazy.compactMap { $0 }.first.map { "\($0)" }
        } catch {
            return "\(error)"
        }
    }

    /// Whether memory is full, so that a body must not be read now. Counts the refusal.
    var isUnderPressure: Bool {
        guard held.isFull else { return false }
        metrics.refusedForPressure.add()
        return true
    }
}

/// The counters of intake.
struct IngestMetrics: Sendable {
    let accepted: Counter
    let limited: Counter
    let refusedForPressure: Counter
    let notWritten: Counter
    let held: Gauge
    private let refused: [Reason: Counter]

    /// The reasons for which objects are refused: a closed set.
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
