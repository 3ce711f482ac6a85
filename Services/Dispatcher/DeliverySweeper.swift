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
    private nonisolated let trouble = Trouble()
    nonisolated func notReadyReason() -> String? { trouble.reason }

    /// Rows claimed by one statement.
    private static let claimLimit = 1000
    /// How late a due delivery may be noticed where nothing rings.
    private static let idleWait: Duration = .milliseconds(250)
    private static let cannotClaim = "due deliveries cannot be claimed"

    private let lane: Lane
    private let database: PushDatabase
    private let contexts: PushContexts
    private let engine: DeliveryEngine
    private let bell: Bell
    private let log: Log

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
        self.bell = bell
        log = runtime.log
    }

    func run() async throws {
        var pause = Pause()
        while !Task.isCancelled {
            do {
                let claimed = try await sweep()
                trouble.clear(Self.cannotClaim)
                pause = Pause()
                if claimed == 0 { await bell.wait(atMost: Self.idleWait) }
            } catch is CancellationError {
                return
            } catch {
                if Task.isCancelled { return }
                trouble.set(Self.cannotClaim)
                log.warning("due deliveries cannot be claimed", [.error: .string("\(error)")])
                await pause.wait(on: loop)
            }
        }
    }

    /// - Returns: How many were claimed.
    private func sweep() async throws -> Int {
        guard let session = await engine.workingSession else { return 0 }
        // Waiting for a part of the lane keeps the claims large while much is in flight.
        let room = await engine.room(in: lane)
        guard room > 0, await engine.isWorthClaiming(in: lane) else { return 0 }
        let due: [Delivery]
        do {
            due = try await database.deliveries.claimDue(
                session: session,
                lane: lane.rawValue,
                limit: min(room, Self.claimLimit)
            )
        } catch let error as StorageError where error.kind == .sessionLost {
            await engine.abandon(session: session)
            return 0
        } catch {
            // Whether the claim was committed may not be known.
            await engine.lookForStrays()
            throw error
        }
        guard !due.isEmpty else { return 0 }
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
        return due.count
    }
}
