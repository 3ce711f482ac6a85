import EventLoop
import Gateway
import HTTPServer
import Kafka
import Observability
import PushCore
import RealmSync

/// The outcome of some uploads of one socket.
struct RealmOutcome: Sendable {
    /// Those that are durable, in their order.
    var stored: [(ticket: RealmUpload.Ticket, changesets: [RealmStored])] = []
    var end: End?

    enum End: Sendable {
        /// The others cannot be stored now.
        case unavailable
        /// The next one cannot be read.
        case fault(RealmFault)
        /// The app takes Realm's clients no longer.
        case closed
    }
}

/// The resources with which one loop stores the uploads of Realm's clients.
struct RealmIntake: Sendable {
    let intake: Intake
    /// All loops share it.
    let gate: RealmGate
    let counts: RealmSocketCounts
    /// The budget for messages that arrive, and uploads that wait; all loops share it.
    let held: HeldBytes
    let metrics: RealmMetrics
    let status: RealmStatus

    /// A transaction is one message, and a client with a larger one cannot send anything any more.
    static let limits: RealmLimits = {
        var limits = RealmLimits()
        limits.messageBytes = 64 << 20
        limits.unpackedBytes = 64 << 20
        limits.sessions = 64
        return limits
    }()

    /// The size up to which uploads are read on the loop itself.
    private static let shortBytes = 16 << 10

    /// Makes the socket of an accepted client.
    ///
    /// - Throws: 503 if there are too many, or no memory for their messages.
    func socket(
        _ dialect: RealmDialect,
        of app: String,
        from address: String,
        in apps: KnownApps,
        agent: String
    ) throws(HTTPProblem) -> RealmSocket {
        if intake.isUnderPressure { throw RealmPath.unavailable("Kafka is unavailable") }
        guard counts.enter(app, address) else {
            metrics.refusedSockets.add()
            throw RealmPath.unavailable("too many sockets are open")
        }
        status.connected(app, agent: agent)
        return RealmSocket(dialect, of: app, from: address, in: apps, self)
    }

    /// Stores uploads: each object in its type's topic, each refused one as a dead letter.
    ///
    /// - Parameters:
    ///   - uploads: Of one socket, in their order.
    ///   - app: The socket's.
    ///   - apps: The app's settings as they are now.
    ///   - isWanted: Whether the client is still there; a client that comes again repeats them.
    /// - Returns: Once Kafka has them, or cannot take them.
    func store(
        _ uploads: [RealmUpload],
        of app: String,
        in apps: KnownApps,
        while isWanted: () -> Bool
    ) async -> RealmOutcome {
        let bytes = uploads.reduce(0) { $0 + $1.byteCount }
        var outcome = RealmOutcome()
        let isLong = bytes > Self.shortBytes
        let cost = RealmGate.cost(ofBytes: bytes)
        if isLong { await gate.enter(app, cost: cost) }
        defer { if isLong { gate.leave(app, cost: cost) } }
        do {
            guard let caller = try await apps.caller(ofApp: app), caller.settings.takesRealmClients
            else {
                outcome.end = .closed
                return outcome
            }
            let reader = RealmReader(
                uploads,
                of: app,
                try await intake.types(of: caller),
                intake.topics,
                at: .now()
            )
            try await store(reader, of: caller, isLong: isLong, while: isWanted, &outcome)
        } catch {
            intake.log.info("a Realm client has to repeat", [.error: .string("\(error)")])
            outcome.end = .unavailable
        }
        return outcome
    }

    private func store(
        _ reader: RealmReader,
        of caller: Caller,
        isLong: Bool,
        while isWanted: () -> Bool,
        _ outcome: inout RealmOutcome
    ) async throws {
        let share = HeldShare(of: intake.held, for: caller.appID, intake.metrics.held)
        var charge = QuotaCharge(intake.quota, caller)
        while isWanted(), let slice = try await next(of: reader, app: caller.appID, isLong: isLong)
        {
            if !slice.records.isEmpty {
                do {
                    try charge.add(slice.records.count)
                    try share.hold(
                        HeldBytes.cost(recordBytes: slice.bytes, records: slice.records.count)
                    )
                    try await write(slice)
                } catch {
                    charge.giveBack()
                    throw error
                }
                share.releaseBytes()
            }
            note(slice, of: caller.appID)
            outcome.stored += slice.ended
            if let fault = slice.fault {
                outcome.end = .fault(fault)
                return
            }
        }
    }

    private func next(
        of reader: RealmReader,
        app: String,
        isLong: Bool
    ) async throws -> RealmReader.Slice? {
        isLong ? try await intake.pool.run(of: app) { reader.next() } : reader.next()
    }

    private func write(_ slice: RealmReader.Slice) async throws {
        let failure = try await intake.producer.send(slice.records).lazy.compactMap { $0 }.first
        guard let failure else { return }
        intake.metrics.notWritten.add(slice.records.count)
        throw failure
    }

    private func note(_ slice: RealmReader.Slice, of app: String) {
        intake.metrics.accepted.add(slice.objects)
        for refused in slice.refused { intake.metrics.refused(refused) }
        metrics.dropped.add(slice.dropped)
        metrics.unreadable.add(slice.unreadable.count)
        if let reason = slice.unreadable.first {
            intake.log.error(
                "transactions of a Realm client cannot be read, and are dead letters",
                [
                    .app: .string(app), .count: .integer(slice.unreadable.count),
                    .reason: .string(reason),
                ]
            )
        }
        status.stored(
            app,
            objects: slice.objects,
            refused: slice.refused.count,
            unreadable: slice.unreadable.count
        )
    }
}

/// The objects that an app is charged for some uploads.
private struct QuotaCharge {
    private let quota: ObjectQuota
    private let app: String
    private let limit: Int
    private var charged = 0

    init(_ quota: ObjectQuota, _ caller: Caller) {
        self.quota = quota
        app = caller.appID
        limit = caller.settings.maximumIngestObjectsPerMinute
    }

    /// - Throws: `IntakeRefusal.overQuota`.
    mutating func add(_ count: Int) throws(IntakeRefusal) {
        let wanted = charged + count
        if let seconds = quota.charge(app, wanted, insteadOf: charged, limit: limit) {
            throw .overQuota(retryAfterSeconds: seconds)
        }
        charged = wanted
    }

    mutating func giveBack() {
        _ = quota.charge(app, 0, insteadOf: charged, limit: limit)
        charged = 0
    }
}
