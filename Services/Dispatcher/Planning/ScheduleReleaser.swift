import Observability
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Releases scheduled pushes when they are due. A timer runs until the next due time; a newly
/// accepted push wakes it up.
///
/// Authority: none beyond the release, which is one transaction. It ends the wait of the push, and
/// this session owns the deliveries to devices that the push names one by one; they go to the
/// engine at once. The planner plans a larger audience. So any replica may release, and no push is
/// released twice.
///
/// Shutdown: releases no more pushes.
@DispatchLoop
final class ScheduleReleaser: ServicePart {
    nonisolated let name = "schedules"
    private let worker: ClaimWorker
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    /// The poll interval, in case a notification was missed.
    private static let idleWait: Duration = .seconds(5)
    /// The shortest sleep. If a push is due and was not released here, another replica is releasing
    /// it.
    private static let shortestWait: Duration = .milliseconds(20)

    private let database: PushDatabase
    private let contexts: PushContextCache
    private let engine: DeliveryEngine
    private let log: Log
    private let released: Counter
    private let onRelease: @Sendable () -> Void
    private var retries = ReleaseRetries()

    /// `onRelease` is called when there may be a push to plan, or rows that are due.
    init(
        database: PushDatabase,
        contexts: PushContextCache,
        engine: DeliveryEngine,
        wakeUp: WakeUp,
        runtime: ServiceRuntime,
        onRelease: @escaping @Sendable () -> Void
    ) {
        self.database = database
        self.contexts = contexts
        self.engine = engine
        worker = ClaimWorker(
            "scheduled pushes cannot be released",
            wokenBy: wakeUp,
            on: runtime.mainLoop,
            log: runtime.log
        )
        self.onRelease = onRelease
        log = runtime.log
        released = runtime.metrics.counter(.pushesReleased)
    }

    @DispatchLoop func run() async throws {
        await worker.run {
            let wait = try await releaseDue()
            return wait > .zero ? .sleep(atMost: wait) : .again
        }
    }

    /// Releases the pushes that are due.
    ///
    /// - Returns: The time until the next look.
    private func releaseDue() async throws -> Duration {
        guard let session = engine.session.working else { return .milliseconds(250) }
        let batch: ReleasedBatch
        do {
            batch = try await database.schedules.release(
                session: session,
                limit: retries.limit,
                except: retries.backingOff(at: .now),
                inPages: retries.inPages
            )
        } catch let error as UnreleasablePush {
            try await handle(error)
            return .zero
        } catch let error as StorageError where error.kind == .sessionLost {
            engine.abandon(session: session)
            return .milliseconds(250)
        } catch let error as StorageError where error.mayBeOfThePush && retries.shrink() {
            return .zero
        } catch {
            // The transaction may have been committed.
            engine.inHand.lookForStrays()
            throw error
        }
        retries.released(batch.pushes.map(\.id), isAll: !batch.isFull)
        if !batch.pushes.isEmpty { await handOn(batch, session: session) }
        if batch.isFull { return .zero }
        let next =
            try await database.schedules.untilNextRelease(except: retries.backingOff(at: .now))
            ?? Self.idleWait
        return min(max(next, Self.shortestWait), Self.idleWait)
    }

    /// Fails or retries a push that cannot be released. Otherwise it would come before all others
    /// for ever.
    private func handle(_ error: UnreleasablePush) async throws {
        if error.cause.isOfTheValues {
            log.error(
                "a scheduled push cannot be released",
                [.pushID: .string(error.id), .error: .string(error.cause.description)]
            )
            try await database.pushes.fail(error.id, error: error.cause.description)
            retries.released([error.id], isAll: true)
            return
        }
        log.warning(
            "a scheduled push cannot be released; it is tried in another way, or later",
            [.pushID: .string(error.id), .error: .string(error.cause.description)]
        )
        retries.add(error, at: .now)
    }

    private func handOn(_ batch: ReleasedBatch, session: Int) async {
        released.add(batch.pushes.count)
        log.info("scheduled pushes released", [.count: .integer(batch.pushes.count)])
        var found: [String: PushContext] = [:]
        for push in batch.pushes {
            let context = PushContext(
                pushID: push.id,
                eventID: push.eventID,
                source: push.eventSource,
                request: push.request
            )
            found[push.id] = context
            contexts.remember(context)
        }
        onRelease()
        await engine.take(batch.deliveries, of: found, session: session, isFirst: true)
    }
}
