import EventLoop
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit
import Storage

/// Claims shards of one lane, and starts a `ShardRun` for each: at most `DISPATCH_SHARDS` of
/// broadcasts, and 64 of pushes that name their devices, so that these do not wait for broadcasts.
/// Any replica may claim any shard. An unfinished shard is due again when its owner's session ends.
///
/// Authority: none beyond the claim.
///
/// Shutdown: claims nothing more, and waits until its shards are released. If the grace period for
/// answers ends first, the end of the session releases the rest.
@DispatchLoop
final class ShardSender: ServicePart {
    nonisolated let name: String
    private let worker: ClaimWorker
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    /// The poll interval: the longest delay of a due shard if no wake-up comes.
    private static let idleWait: Duration = .seconds(1)
    private static let directLimit = 64

    private let database: PushDatabase
    private let contexts: PushContextCache
    private let engine: DeliveryEngine
    private let wakeUp: WakeUp
    private let lane: Lane
    private let limit: Int
    /// The most shards of one app: apps whose providers hang must not take all places.
    private let limitOfApp: Int
    private let unrecorded: UnrecordedBudget
    private let inFlightShare: Int
    private let log: Log
    /// The broadcasts that this process works on.
    private var pushes: [String: PushShare] = [:]
    /// The runs of the shards that this process works on.
    private var runs: [ShardRun] = []
    /// Whether the reply to a claim was lost: this session may own shards that no run works on.
    private var mayHoldMore = false

    /// The part of one push that this process sends.
    private struct PushShare {
        let begun = ContinuousClock.now
        var shards = 0
        var running = 0
        var recorded = 0
    }

    init(
        lane: Lane,
        database: PushDatabase,
        contexts: PushContextCache,
        engine: DeliveryEngine,
        wakeUp: WakeUp,
        configuration: DispatcherConfiguration,
        runtime: ServiceRuntime
    ) {
        self.database = database
        self.contexts = contexts
        self.engine = engine
        self.wakeUp = wakeUp
        worker = ClaimWorker(
            "shards cannot be claimed",
            wokenBy: wakeUp,
            on: runtime.mainLoop,
            log: runtime.log
        )
        self.lane = lane
        switch lane {
        case .direct:
            name = "shards of named devices"
            limit = Self.directLimit
            limitOfApp = Self.directLimit / 4
            // A shard may be a push of 33 devices or of 10,000.
            inFlightShare = configuration.inFlight / 4
        case .broadcast:
            name = "shards"
            limit = configuration.shards
            limitOfApp = limit
            inFlightShare = configuration.inFlight / limit
        }
        // For each lane the same, however many shards it may have.
        unrecorded = UnrecordedBudget(
            checkpointEvery: configuration.checkpointEvery,
            shards: configuration.shards
        )
        log = runtime.log
    }

    @DispatchLoop func run() async throws {
        await worker.run {
            guard try await claim() == 0 else { return .again }
            logFinishedPushes()
            return .sleep(atMost: try await untilNextDue())
        }
        await handBack()
    }

    /// Makes the runs of a cancelled push check its status at once.
    func cancelled(_ pushID: String) {
        for run in runs where run.shard.pushID == pushID { run.look() }
    }

    // MARK: Claiming

    /// - Returns: The number of shards that were claimed.
    private func claim() async throws -> Int {
        guard let session = engine.session.working else { return 0 }
        let running = runs
        let room = ShardCapacity(
            limit: limit,
            running: running.count,
            paced: running.count(where: \.isPaced)
        )
        guard room.count > 0 else { return 0 }
        if mayHoldMore {
            try await database.shards.releaseAll(
                session: session,
                lane: lane,
                except: running.map(\.shard)
            )
            mayHoldMore = false
        }
        var holding: [String: Int] = [:]
        for run in running { holding[run.shard.app, default: 0] += 1 }
        let claimed: [ClaimedShard]
        do {
            claimed = try await database.shards.claim(
                session: session,
                lane: lane,
                limit: room.count,
                holding: holding,
                most: limitOfApp,
                leavesFree: lane == .direct,
                includesPaced: room.includesPaced
            )
        } catch let error as StorageError where error.kind == .sessionLost {
            engine.abandon(session: session)
            return 0
        } catch {
            // The claim may have been committed.
            mayHoldMore = true
            throw error
        }
        guard !claimed.isEmpty else { return 0 }
        do {
            let contexts = try await contexts.load(Set(claimed.map(\.pushID)))
            try await spread(contexts.values.filter { $0.spreadMilliseconds != nil })
            for shard in claimed {
                guard let context = contexts[shard.pushID] else { continue }
                begin(shard, context, session: session)
            }
        } catch {
            mayHoldMore = true
            throw error
        }
        return claimed.count
    }

    /// Sets the pace of pushes that are spread over a time, from the number of their members.
    private func spread(_ contexts: [PushContext]) async throws {
        guard !contexts.isEmpty else { return }
        let members = try await database.shards.members(of: Set(contexts.map(\.pushID)))
        for context in contexts { context.spread(over: members[context.pushID] ?? 0) }
    }

    private func begin(_ shard: ClaimedShard, _ context: PushContext, session: Int) {
        guard engine.session.working == session else { return }
        let run = ShardRun(
            shard,
            session: session,
            context: context,
            environment: ShardRun.Environment(
                engine: engine,
                database: database,
                log: log,
                unrecorded: unrecorded,
                inFlightShare: inFlightShare
            ) { [weak self] run in
                self?.ended(run)
            }
        )
        if lane == .broadcast { logStart(shard) }
        runs.append(run)
        engine.add(run)
        run.start()
    }

    private func logStart(_ shard: ClaimedShard) {
        if pushes[shard.pushID] == nil {
            log.info(
                "broadcast begins here",
                [.pushID: .string(shard.pushID), .app: .string(shard.app)]
            )
        }
        pushes[shard.pushID, default: PushShare()].shards += 1
        pushes[shard.pushID]?.running += 1
    }

    private func untilNextDue() async throws -> Duration {
        guard engine.session.working != nil, runs.count < limit,
            let due = try await database.shards.nextDue(in: lane)
        else { return Self.idleWait }
        let wait = due.milliseconds - database.clock.now().milliseconds
        // A shard that is due and could not be claimed is being claimed by another session, or its
        // app must leave places for others.
        return min(Self.idleWait, .milliseconds(max(wait, 100)))
    }

    // MARK: Ends

    private func ended(_ run: ShardRun) {
        runs.removeAll { $0 === run }
        pushes[run.shard.pushID]?.running -= 1
        pushes[run.shard.pushID]?.recorded += run.recorded
        wakeUp.signal()
    }

    /// Logs the pushes that have no more shards to claim here.
    private func logFinishedPushes() {
        for (pushID, share) in pushes where share.running == 0 {
            pushes[pushID] = nil
            log.info(
                "broadcast ends here",
                [
                    .pushID: .string(pushID), .shards: .integer(share.shards),
                    .count: .integer(share.recorded),
                    .durationMilliseconds: .integer(
                        Int((ContinuousClock.now - share.begun) / .milliseconds(1))
                    ),
                ]
            )
        }
    }

    private func handBack() async {
        let limit = engine.session.stopsAt ?? .now
        // In a separate task, as this one is cancelled and could not sleep.
        let waiting = DispatchLoop.task {
            while !self.runs.isEmpty, .now < limit {
                try? await DispatchLoop.loop.sleep(for: .milliseconds(10))
            }
        }
        await waiting.value
        let left = runs
        guard !left.isEmpty else { return }
        log.warning("shards are left to the end of the session", [.count: .integer(left.count)])
        for run in left { run.drop() }
    }
}
