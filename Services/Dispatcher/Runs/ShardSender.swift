import EventLoop
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Claims shards of broadcasts, as many as `DISPATCH_SHARDS`, and has each of them worked on by a
/// `ShardRun`. Any replica may take any shard; one that nobody finishes is due again when its owner's
/// session ends.
///
/// Authority: none beyond the claim.
///
/// Shutdown: claims nothing more, and waits until its shards have gone back; those that have not
/// when the time for answers is over are left to the end of the session.
actor ShardSender: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "shards"
    private nonisolated let worker: ClaimWorker
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    /// How late a shard may be noticed where nothing rings.
    private static let idleWait: Duration = .seconds(1)

    private let database: PushDatabase
    private let contexts: PushContexts
    private let engine: DeliveryEngine
    private let bell: Bell
    private let limit: Int
    private let checkpointEvery: Int
    private let inFlightShare: Int
    private let log: Log
    private var pushes: [String: PushShare] = [:]
    /// The shards that are worked on.
    private var runs: [ShardRun] = []
    /// The answer to a claim was lost: there may be shards of ours that nobody works on.
    private var mayHoldMore = false

    /// What this process does of one push.
    private struct PushShare {
        let begun = ContinuousClock.now
        var shards = 0
        var running = 0
        var recorded = 0
    }

    init(
        database: PushDatabase,
        contexts: PushContexts,
        engine: DeliveryEngine,
        bell: Bell,
        configuration: DispatcherConfiguration,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        self.database = database
        self.contexts = contexts
        self.engine = engine
        self.bell = bell
        worker = ClaimWorker(
            "shards cannot be claimed",
            wokenBy: bell,
            on: loop,
            log: runtime.log
        )
        limit = configuration.shards
        checkpointEvery = configuration.checkpointEvery
        inFlightShare = configuration.inFlight / configuration.shards
        log = runtime.log
    }

    func run() async throws {
        await worker.run {
            guard try await claim() == 0 else { return .again }
            tellOfEnds()
            return .sleep(atMost: try await untilNextDue())
        }
        await handBack()
    }

    /// A push was cancelled: whoever works on it looks at once.
    func cancelled(_ pushID: String) async {
        for run in runs where run.shard.pushID == pushID { run.look() }
    }

    // MARK: Claiming

    /// - Returns: How many were claimed.
    private func claim() async throws -> Int {
        guard let session = engine.session.working else { return 0 }
        let running = runs
        let room = ShardRoom(
            limit: limit,
            running: running.count,
            paced: running.count(where: \.isPaced)
        )
        guard room.count > 0 else { return 0 }
        if mayHoldMore {
            try await database.shards.releaseAll(
                session: session,
                but: running.map(\.shard)
            )
            mayHoldMore = false
        }
        var holding: [String: Int] = [:]
        for run in running { holding[run.shard.app, default: 0] += 1 }
        let claimed: [ClaimedShard]
        do {
            claimed = try await database.shards.claim(
                session: session,
                limit: room.count,
                holding: holding,
                includesPaced: room.includesPaced
            )
        } catch let error as StorageError where error.kind == .sessionLost {
            await engine.abandon(session: session)
            return 0
        } catch {
            // Whether the claim was committed may not be known.
            mayHoldMore = true
            throw error
        }
        guard !claimed.isEmpty else { return 0 }
        do {
            let contexts = try await contexts.load(Set(claimed.map(\.pushID)))
            try await spread(contexts.values.filter { $0.spreadMilliseconds != nil })
            for shard in claimed {
                guard let context = contexts[shard.pushID] else { continue }
                await begin(shard, context, session: session)
            }
        } catch {
            mayHoldMore = true
            throw error
        }
        return claimed.count
    }

    /// How fast they go is known by how many there are.
    private func spread(_ contexts: [PushContext]) async throws {
        guard !contexts.isEmpty else { return }
        let members = try await database.shards.members(of: Set(contexts.map(\.pushID)))
        for context in contexts { context.spread(over: members[context.pushID] ?? 0) }
    }

    private func begin(_ shard: ClaimedShard, _ context: PushContext, session: Int) async {
        guard engine.session.working == session else { return }
        let run = ShardRun(
            shard,
            session: session,
            context: context,
            environment: ShardRun.Environment(
                engine: engine,
                database: database,
                loop: loop,
                log: log,
                checkpointEvery: checkpointEvery,
                inFlightShare: inFlightShare
            ) { [weak self] run in
                self?.assumeIsolated { $0.ended(run) }
            }
        )
        if pushes[shard.pushID] == nil {
            log.info(
                "broadcast begins here",
                [.pushID: .string(shard.pushID), .app: .string(shard.app)]
            )
        }
        pushes[shard.pushID, default: PushShare()].shards += 1
        pushes[shard.pushID]?.running += 1
        runs.append(run)
        await engine.add(run)
        run.start()
    }

    private func untilNextDue() async throws -> Duration {
        guard engine.session.working != nil, runs.count < limit,
            let due = try await database.shards.nextDue()
        else { return Self.idleWait }
        let wait = due.milliseconds - database.clock.now().milliseconds
        // What is due and could not be claimed is another's in this moment.
        return min(Self.idleWait, .milliseconds(max(wait, 100)))
    }

    // MARK: Ends

    private func ended(_ run: ShardRun) {
        runs.removeAll { $0 === run }
        pushes[run.shard.pushID]?.running -= 1
        pushes[run.shard.pushID]?.recorded += run.recorded
        bell.ring()
    }

    /// Nothing more of a push was to be claimed.
    private func tellOfEnds() {
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
        // In a task of its own: this one is cancelled, and would not sleep.
        let waiting = Task(executorPreference: loop) {
            while await !self.runs.isEmpty, .now < limit {
                try? await self.loop.sleep(for: .milliseconds(10))
            }
        }
        await waiting.value
        let left = runs
        guard !left.isEmpty else { return }
        log.warning("shards are left to the end of the session", [.count: .integer(left.count)])
        for run in left { run.drop() }
    }
}
