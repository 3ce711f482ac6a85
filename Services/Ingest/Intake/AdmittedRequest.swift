import EventLoop
import Gateway
import HTTPServer
import Observability
import PushCore

/// A request with an authenticated sender: the memory that it holds, and the objects that its app is charged.
/// Confined to its loop.
///
/// The app is charged for each object, accepted or refused, and for at least one object. It is
/// charged nothing if the client has to send the request again.
final class AdmittedRequest {
    let caller: Caller
    private let intake: Intake
    private let share: HeldShare
    /// The part of the loop's budget for bodies that this request holds.
    private let body: HeldShare
    private var bodyBytes = 0
    private var charged = 0

    /// The bytes of a request beside its body: its task and its place in a queue.
    private static let ownBytes = 4096

    /// - Throws: `IntakeRefusal.overQuota` if the app's quota is used up, `.unavailable` if the
    ///   memory that the app may hold is used up.
    init(_ request: HTTPServerRequest, _ intake: Intake, of caller: Caller) throws(IntakeRefusal) {
        self.caller = caller
        self.intake = intake
        share = HeldShare(of: intake.held, for: caller.appID, intake.metrics.held)
        body = HeldShare(of: intake.heldBodies, for: caller.appID)
        try charge(1)
        try holdBody(request.body.count)
    }

    private func charge(_ count: Int) throws(IntakeRefusal) {
        let limit = caller.settings.maximumIngestObjectsPerMinute
        let seconds = intake.quota.charge(
            caller.appID,
            count,
            insteadOf: charged,
            limit: limit
        )
        guard let seconds else {
            charged = count
            return
        }
        giveBack()
        intake.metrics.limited.add()
        throw .overQuota(retryAfterSeconds: seconds)
    }

    /// Charges the app nothing for the request.
    func giveBack() {
        let limit = caller.settings.maximumIngestObjectsPerMinute
        _ = intake.quota.charge(caller.appID, 0, insteadOf: charged, limit: limit)
        charged = 0
    }

    /// Holds the bytes of the body: both as sent and as decoded.
    func holdBody(_ bytes: Int) throws(IntakeRefusal) {
        bodyBytes = bytes
        try hold(bytes, bodyBytes: bytes)
    }

    /// Holds so many bytes, in place of those that the request held before.
    ///
    /// - Throws: `IntakeRefusal.unavailable`; then the app is charged nothing.
    func hold(_ bytes: Int, bodyBytes: Int = 0) throws(IntakeRefusal) {
        do throws(IntakeRefusal) {
            try body.hold(bodyBytes)
            try share.hold(bytes + Self.ownBytes)
        } catch {
            giveBack()
            intake.metrics.refusedForPressure.add()
            throw error
        }
    }

    /// Charges for objects before they are checked, and holds the bytes of their records.
    ///
    /// - Throws: `IntakeRefusal`.
    func begin(objects: Int, textBytes: Int) throws(IntakeRefusal) {
        try charge(objects)
        let records = HeldBytes.cost(recordBytes: textBytes + textBytes / 8, records: objects)
        try hold(bodyBytes + records, bodyBytes: bodyBytes)
    }

    /// Waits for the app's turn to have its objects checked.
    ///
    /// - Returns: The turn, which yields the loop between two objects.
    /// - Throws: `FairTurnsFull`, and then the app is charged nothing; `CancellationError`, also once no
    ///   client waits for the response any more.
    func beginWork() async throws -> FairWork {
        do {
            try await intake.turns.begin(caller.appID)
        } catch let error as FairTurnsFull {
            giveBack()
            intake.metrics.refusedForPressure.add()
            throw error
        }
        try caller.checkPresence()
        return FairWork(of: caller.appID, in: intake.turns)
    }
}

extension Intake {
    /// The length beyond which a body is read on another thread.
    private static let longBytes = 64 << 10

    /// Decodes a request's body, and scans it.
    ///
    /// - Parameters:
    ///   - request: The request. Afterwards, it has its decoded body.
    ///   - admitted: The same request, with its charges.
    ///   - scan: Scans the body without making values of it.
    /// - Returns: The result of `scan`.
    /// - Throws: As `decodeBody` and `scan`; `IntakeRefusal.unavailable`; `CancellationError` once no client
    ///   waits for the response any more.
    func read<Scanned: Sendable>(
        _ request: inout HTTPServerRequest,
        _ admitted: AdmittedRequest,
        _ scan: @escaping @Sendable ([UInt8]) throws -> Scanned
    ) async throws -> Scanned {
        guard request.isBodyCoded || request.body.count > Self.longBytes else {
            return try scan(request.body)
        }
        let (pool, app) = (pool, admitted.caller.appID)
        let sent = request.body.count
        let isCoded = request.isBodyCoded
        try await request.decodeBody { work in try await pool.run(of: app) { try work() } }
        try admitted.caller.checkPresence()
        let body = request.body
        if isCoded { try admitted.holdBody(sent + body.count) }
        guard body.count > Self.longBytes else { return try scan(body) }
        return try await pool.run(of: app) { try scan(body) }
    }
}
