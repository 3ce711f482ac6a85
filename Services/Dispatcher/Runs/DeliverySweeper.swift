import Observability
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Claims deliveries that are rows already: retries, released rows, the pages of a broadcast.
/// Claims as many as have free slots, and single devices first.
///
/// Authority: none beyond the claim; claimed rows go to the engine at once.
///
/// Shutdown: claims nothing more.
@DispatchLoop
final class DeliverySweeper: ServicePart {
    nonisolated let name = "sweeper"
    private let worker: ClaimWorker
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    /// Rows claimed by one statement.
    private static let claimLimit = 1000
    /// The poll interval: the longest delay of a due delivery if no wake-up comes.
    private static let idleWait: Duration = .milliseconds(250)

    private let lane: Lane
    private let database: PushDatabase
    private let contexts: PushContextCache
    private let engine: DeliveryEngine
    private let log: Log
    /// Whether the last claim was full: an app with few due rows may wait behind one with many.
    private var isCrowded = false
    /// The app and provider after which the next fair claim continues.
    private var last: DueStore.Client?

    init(
        lane: Lane,
        database: PushDatabase,
        contexts: PushContextCache,
        engine: DeliveryEngine,
        wakeUp: WakeUp,
        runtime: ServiceRuntime
    ) {
        self.lane = lane
        self.database = database
        self.contexts = contexts
        self.engine = engine
        worker = ClaimWorker(
            "due deliveries cannot be claimed",
            wokenBy: wakeUp,
            on: runtime.mainLoop,
            log: runtime.log
        )
        log = runtime.log
    }

    @DispatchLoop func run() async throws {
        await worker.run { try await sweep() ? .again : .sleep(atMost: Self.idleWait) }
    }

    /// - Returns: Whether there may be more.
    private func sweep() async throws -> Bool {
        guard let session = engine.session.working else { return false }
        // Waits until a good part of the lane is free, so that claims stay large while much is in
        // flight.
        let room = engine.flight.room(in: lane)
        guard room > 0, engine.flight.isWorthClaiming(in: lane) else { return false }
        let wasCrowded = isCrowded
        let due: [Delivery]
        do {
            due = try await claim(session, atMost: min(room, Self.claimLimit))
        } catch let error as StorageError where error.kind == .sessionLost {
            engine.abandon(session: session)
            return false
        } catch {
            // The claim may have been committed.
            engine.inHand.lookForStrays()
            throw error
        }
        guard !due.isEmpty else { return wasCrowded }
        var pause = ExponentialBackoff()
        while !Task.isCancelled {
            do {
                let contexts = try await contexts.load(Set(due.map(\.pushID)))
                await engine.take(due, of: contexts, session: session)
                break
            } catch {
                log.warning("pushes cannot be read", [.error: .string("\(error)")])
                await pause.wait(on: DispatchLoop.loop)
            }
        }
        return true
    }

    /// Claims the oldest rows. After a full claim, claims the same number for each app and provider
    /// in turn: a single app loses little by it, and no app waits behind the thousands of another.
    private func claim(_ session: Int, atMost limit: Int) async throws -> [Delivery] {
        if isCrowded {
            isCrowded = false
            let claim = try await database.due.claimFairly(
                session: session,
                lane: lane.rawValue,
                limit: limit,
                after: last
            )
            last = claim.last
            return claim.deliveries
        }
        let due = try await database.due.claim(
            session: session,
            lane: lane.rawValue,
            limit: limit
        )
        isCrowded = due.count >= limit
        return due
    }
}
