import Door
import EventLoop
import HTTPServer
import Observability
import PushCore

/// A request whose sender is known: what it holds of memory, and what its app is charged for it.
/// Confined to its loop.
///
/// Its app is charged for each object whether it is accepted or refused, and for one where there is none
/// to be found; for none where the request is to be sent again.
final class AdmittedRequest {
    let caller: Caller
    private let intake: Intake
    private let share: HeldShare
    /// Of what its loop reads bodies with.
    private let body: HeldShare
    private var bodyBytes = 0
    private var charged = 0

    /// What a request takes beside its body: its task and its place in a line.
    private static let ownBytes = 4096

    /// - Throws: `IntakeRefusal.overQuota` where nothing of the app's minute is left, `.unavailable` where
    ///   there is no room for it beside what its app holds.
    init(_ request: HTTPServerRequest, _ intake: Intake, of caller: Caller) throws(IntakeRefusal) {
        self.caller = caller
        self.intake = intake
        share = HeldShare(of: intake.held, for: caller.appID, intake.figures.held)
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
        intake.figures.limited.add()
        throw .overQuota(retryAfterSeconds: seconds)
    }

    /// The app is charged for nothing of it.
    func giveBack() {
        let limit = caller.settings.maximumIngestObjectsPerMinute
        _ = intake.quota.charge(caller.appID, 0, insteadOf: charged, limit: limit)
        charged = 0
    }

    /// What was sent, and what came out of it.
    func holdBody(_ bytes: Int) throws(IntakeRefusal) {
        bodyBytes = bytes
        try hold(bytes, bodyBytes: bytes)
    }

    /// Holds so much, and nothing of what it held.
    ///
    /// - Throws: `IntakeRefusal.unavailable`; the app is charged for nothing then.
    func hold(_ bytes: Int, bodyBytes: Int = 0) throws(IntakeRefusal) {
        do throws(IntakeRefusal) {
            try body.hold(bodyBytes)
            try share.hold(bytes + Self.ownBytes)
        } catch {
            giveBack()
            intake.figures.refusedForPressure.add()
            throw error
        }
    }

    /// Before objects are worked on: charges for them, and holds what their records will take.
    ///
    /// - Throws: `IntakeRefusal`.
    func begin(objects: Int, textBytes: Int) throws(IntakeRefusal) {
        try charge(objects)
        let records = HeldBytes.cost(recordBytes: textBytes + textBytes / 8, records: objects)
        try hold(bodyBytes + records, bodyBytes: bodyBytes)
    }

    /// Waits until it is the app's turn to have its objects worked on.
    ///
    /// - Returns: What gives the loop to others between two objects.
    /// - Throws: `FairTurnsFull`, and the app is charged for nothing then; `CancellationError`, also once
    ///   no client waits for the response any more.
    func beginWork() async throws -> FairWork {
        do {
            try await intake.turns.begin(caller.appID)
        } catch let error as FairTurnsFull {
            giveBack()
            intake.figures.refusedForPressure.add()
            throw error
        }
        try caller.checkPresence()
        return FairWork(of: caller.appID, in: intake.turns)
    }
}

extension Intake {
    /// Bodies that are longer are read on another thread.
    private static let longBytes = 64 << 10

    /// Unpacks a request's body, and has it looked through.
    ///
    /// - Parameters:
    ///   - request: Has its body as its sender meant it, then.
    ///   - admitted: The same, as it is counted.
    ///   - scan: Looks through the body; makes no values of it.
    /// - Returns: What `scan` returns.
    /// - Throws: As `decodeBody` and `scan`; `IntakeRefusal.unavailable`; `CancellationError` once nobody
    ///   waits for the answer any more.
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
