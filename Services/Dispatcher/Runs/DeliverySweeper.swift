import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Claims the deliveries that are rows already (retries, what was handed back, the pages of a
/// broadcast) as far as there is room for them, single devices first.
///
/// Authority: none beyond the claim; what it claims is the engine's at once.
///
/// Shutdown: claims nothing more.
actor DeliverySweeper: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "sweeper"
    private nonisolated let worker: ClaimWorker
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    /// Rows claimed by one statement.
    private static let claimLimit = 1000
    /// How late a due delivery may be noticed where nothing rings.
    private static let idleWait: Duration = .milliseconds(250)

    private let lane: Lane
    private let database: PushDatabase
    private let contexts: PushContexts
    private let engine: DeliveryEngine
    private let log: Log
    /// The last claim came full: who has little that is due may stand behind who has much.
    private var isCrowded = false
    /// Behind whom the next fair claim goes on.
    private var last: DueStore.Client?

    init(
        lane: Lane,
        database: PushDatabase,
        contexts: PushContexts,
        engine: DeliveryEngine,
        bell: Bell,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        self.lane = lane
        self.database = database
        self.contexts = contexts
        self.engine = engine
        worker = ClaimWorker(
            "due deliveries cannot be claimed",
            wokenBy: bell,
            on: loop,
            log: runtime.log
        )
        log = runtime.log
    }

    func run() async throws {
        await worker.run { try await sweep() ? .again : .sleep(atMost: Self.idleWait) }
    }

    /// - Returns: Whether there may be more.
    private func sweep() async throws -> Bool {
        guard let session = engine.session.working else { return false }
        // Waiting for a part of the lane keeps the claims large while much is in flight.
        let room = engine.flight.room(in: lane)
        guard room > 0, engine.flight.isWorthClaiming(in: lane) else { return false }
        let wasCrowded = isCrowded
        let due: [Delivery]
        do {
            due = try await claim(session, atMost: min(room, Self.claimLimit))
        } catch let error as StorageError where error.kind == .sessionLost {
            await engine.abandon(session: session)
            return false
        } catch {
            // Whether the claim was committed may not be known.
            engine.inHand.lookForStrays()
            throw error
        }
        guard !due.isEmpty else { return wasCrowded }
        var pause = Pause()
        while !Task.isCancelled {
            do {
                let contexts = try await contexts.load(Set(due.map(\.pushID)))
                await engine.take(due, of: contexts, session: session)
                break
            } catch {
                log.warning("pushes cannot be read", [.error: .string("\(error)")])
                await pause.wait(on: loop)
            }
        }
        return true
    }

    /// The oldest; where that was as many as may come, then of everybody alike, in turns: one alone
    /// loses little by it, and nobody waits behind somebody else's thousands.
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
