import JSON
import Observability
import PushCore
import PushProviders
import PushStorage
import ServiceKit
import Storage

/// Plans large audiences page by page. One transaction writes a page and its cursor, so that a
/// crash repeats nothing and another replica resumes at the cursor (promise 3).
///
/// It claims a push for one page, then releases it. The next page is for the app whose turn was
/// longest ago, so that a small push does not wait behind another app's large ones (promise 8).
/// Pushes with a condition have their own planner: the database may take long to evaluate a
/// condition.
///
/// Authority: the one push that it has claimed, for one page. If the session still owns a push when
/// a turn begins, that push is a stray: the reply to its claim or release was lost. It is released
/// first. `strayRecoveryJob` finds strays that are committed later.
///
/// Shutdown: stops between two pages.
@DispatchLoop
final class AudiencePlanner: ServicePart {
    nonisolated let name: String
    private let worker: ClaimWorker
    /// The reasons why pages of claimed pushes failed.
    private let notReady = NotReadyReasons()
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() ?? notReady.reason }

    private static let idleWait: Duration = .seconds(1)
    /// The members of a shard: enough that the fixed cost of a shard is small, few enough that
    /// every replica gets some shards.
    private static let shardSize = 10_000
    /// The most apps whose turns are stored.
    private static let maximumApps = 1000
    /// How long a transaction may still run after its connection was lost.
    private static let uncertainty: Duration = .seconds(10)
    private static let cannotPlan = "audiences cannot be planned"

    private let kind: AudienceKind
    private let database: PushDatabase
    private let engine: DeliveryEngine
    private let onPage: @Sendable () -> Void
    private let planned: Counter
    private let log: Log
    /// The number of each app's last turn in this process.
    private var turns: [String: Int] = [:]
    private var turn = 0
    private var retries = PlanningRetries()
    /// Set when the reply to a transaction was lost. Until this time, and in one more turn after
    /// it, the session may own a push that no task plans: Postgres may commit a statement a moment
    /// after the connection was lost.
    private var uncertainUntil: ContinuousClock.Instant?

    init(
        _ kind: AudienceKind,
        database: PushDatabase,
        engine: DeliveryEngine,
        wakeUp: WakeUp,
        runtime: ServiceRuntime,
        onPage: @escaping @Sendable () -> Void
    ) {
        name = "planner of \(kind) audiences"
        self.kind = kind
        self.database = database
        self.engine = engine
        worker = ClaimWorker(
            "pushes cannot be claimed for planning",
            wokenBy: wakeUp,
            on: runtime.mainLoop,
            log: runtime.log
        )
        self.onPage = onPage
        planned = runtime.metrics.counter(.pushDeliveriesPlanned, ["lane": "broadcast"])
        log = runtime.log
    }

    @DispatchLoop func run() async throws {
        await worker.run {
            guard try await !planNext() else { return .again }
            notReady.clear(Self.cannotPlan)
            return .sleep(atMost: Self.idleWait)
        }
    }

    /// - Returns: Whether there was a push to plan.
    private func planNext() async throws -> Bool {
        guard let session = engine.session.working else { return false }
        if let until = uncertainUntil {
            let isOver = ContinuousClock.now >= until
            try await database.planning.release(kind, session: session)
            if isOver { uncertainUntil = nil }
        }
        guard let push = try await claim(session) else { return false }
        engine.inHand.begins(planning: push.id)
        defer { engine.inHand.ends(planning: push.id) }
        takeTurn(push.app)
        if let reason = retries.failure(of: push.id) {
            try await fail(push, reason, session: session)
            return true
        }
        do {
            if push.request.isDryRun {
                try await dryRun(push, session: session)
            } else {
                try await planPage(of: push, session: session)
            }
        } catch let error as WhereError {
            try await fail(push, "where: \(error.description)", session: session)
        } catch let error as StorageError where error.kind == .sessionLost {
            // The session is lost, or the push was cancelled in the meantime.
            retries.ended(push.id)
            return false
        } catch let error as StorageError {
            becomeUncertain()
            guard error.isRetryable else {
                try await fail(push, error.description, session: session)
                return true
            }
            // A timeout is a problem of this push, not of this replica.
            if !error.isStatementTimeout { notReady.set(Self.cannotPlan) }
            log.warning(
                "a page of an audience cannot be planned; its push waits",
                [.pushID: .string(push.id), .error: .string(error.description)]
            )
            if let reason = retries.add(error, to: push, at: .now) {
                try await fail(push, reason, session: session)
            }
            return true
        }
        notReady.clear(Self.cannotPlan)
        return true
    }

    private func claim(_ session: Int) async throws -> PlanningPush? {
        do {
            return try await database.planning.claim(
                kind,
                session: session,
                turns: turns,
                except: retries.backingOff(at: .now)
            )
        } catch let error as StorageError where error.kind == .sessionLost {
            engine.abandon(session: session)
            return nil
        } catch {
            // The claim may have been committed.
            becomeUncertain()
            throw error
        }
    }

    private func becomeUncertain() { uncertainUntil = .now + Self.uncertainty }

    /// Moves the app behind all others.
    private func takeTurn(_ app: String) {
        if turns.count >= Self.maximumApps, turns[app] == nil { turns = [:] }
        turn += 1
        turns[app] = turn
    }

    private func fail(
        _ push: PlanningPush,
        _ reason: String,
        session: Int
    ) async throws {
        log.error(
            "a push cannot be planned",
            [.pushID: .string(push.id), .error: .string(reason)]
        )
        // Until the failure is stored, the session owns the push and no task plans it.
        becomeUncertain()
        try await database.pushes.fail(push.id, error: reason, planner: session)
        retries.ended(push.id)
    }

    private func planPage(of push: PlanningPush, session: Int) async throws {
        let page = try await database.planning.planPage(
            session: session,
            pushID: push.id,
            shardSize: Self.shardSize,
            pageSize: retries.pageSize(push.id),
            keepsClaim: false
        )
        retries.planned(push.id)
        planned.add(page.inserted)
        if page.inserted > 0 { onPage() }
        guard page.isFinished else { return }
        retries.ended(push.id)
        log.info(
            "audience planned",
            [.pushID: .string(push.id), .app: .string(push.app), .count: .integer(page.total)]
        )
    }

    /// Does everything except sending: counts the devices of each platform, and renders a sample
    /// payload.
    private func dryRun(_ push: PlanningPush, session: Int) async throws {
        let counts = try await database.planning.countAudience(push)
        let app = try await database.apps.find(push.app)
        let includesPushID = AppSettings(app?.settings ?? [:]).sendsPushIDs
        let context = PushContext(
            pushID: push.id,
            eventID: "",
            source: push.request.source ?? "",
            request: push.request
        )
        var result: JSONObject = [:]
        for platform in Platform.allCases {
            guard let count = counts[platform], count > 0 else { continue }
            var entry: JSONObject = ["count": .integer(Int64(count))]
            do throws(RenderingError) {
                entry["payload"] = .object(
                    try context.payload(
                        platform,
                        includesPushID: includesPushID,
                        at: database.clock.now()
                    )
                    .shown
                )
            } catch {
                entry["error"] = .string(error.description)
            }
            result[platform.rawValue] = .object(entry)
        }
        try await database.planning.finishDryRun(
            session: session,
            pushID: push.id,
            result: result
        )
        retries.ended(push.id)
        log.info("dry run", [.pushID: .string(push.id), .app: .string(push.app)])
    }
}

extension RenderedPayload {
    /// The form for people: headers and body, the body parsed if it is JSON. Values of a single
    /// device are left out.
    fileprivate var shown: JSONObject {
        var headers: JSONObject = [:]
        for header in self.headers { headers[header.name] = .string(header.value) }
        let text = String(decoding: body, as: UTF8.self)
        return [
            "headers": .object(headers),
            "body": (try? JSONValue.parse(body)) ?? .string(text),
        ]
    }
}
