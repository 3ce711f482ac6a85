import EventLoop
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit
import ServiceShell
import Storage

/// The fast path: looks up pushes for few devices, sends them, and only then writes them.
extension EventIntake {
    /// The pushes of a batch: those that take the fast path, and those that do not.
    struct Entered {
        /// The pushes that are planned.
        var rows: [EventBatch.Usable] = []
        /// The large pushes, which `sendLarge` looks up and sends.
        fileprivate var large: [(run: InlineRun, weight: Int)] = []
        fileprivate(set) var runs: [InlineRun] = []
        fileprivate var timers: [LoopTimer] = []

        /// Waits until all pushes of the fast path have ended.
        ///
        /// - Returns: The pushes that were not written, with how they ended.
        @DispatchLoop
        func waitUntilFinished() async -> [(item: EventBatch.Usable, end: InlineEnd)] {
            for run in runs { await run.waitUntilFinished() }
            for timer in timers { timer.cancel() }
            return runs.flatMap(\.ends)
        }
    }

    /// Looks up the pushes of a batch that are for few devices, and sends the new ones: at a time
    /// as many devices as have free slots. The large pushes are left to `sendLarge`. Those beyond
    /// their app's share are planned.
    ///
    /// - Parameters:
    ///   - items: The batch's events.
    ///   - fetchedAt: The time at which the batch was read.
    ///   - room: The slots that were promised for the batch. Their promise ends here.
    /// - Returns: `nil` if a stop came first; what was sent until then has been recorded or given up.
    func enterFastPath(
        _ items: [EventBatch.Usable],
        fetchedAt: ContinuousClock.Instant,
        room: Int
    ) async -> Entered? {
        var entered = Entered()
        var (small, large): ([Fast], [Fast]) = ([], [])
        let acceptedAt = database.clock.now()
        for item in items {
            let push = NewPush(item, acceptedAt: acceptedAt)
            guard push.isForFewDevices else {
                entered.rows.append(item)
                continue
            }
            let names = item.namedDevices
            if names <= NewPush.largeFrom {
                small.append((item, push, names))
            } else if engine.inline.admitLarge(
                item,
                names,
                limit: push.canBeShard ? engine.flight.budget.perClient / 2 : .max
            ) {
                large.append((item, push, names))
            } else {
                entered.rows.append(item)
            }
        }
        // Before the first wait, so that each copy is treated like the first.
        entered.large = portions(large).map {
            (makeRun($0.pushes, isLarge: true, fetchedAt), $0.weight)
        }
        var room = room
        for (pushes, weight) in portions(small) {
            if weight > room {
                engine.flight.endPromise(room)
                await engine.promiseSlots(for: weight)
                room = weight
            }
            let run = makeRun(pushes, isLarge: false, fetchedAt)
            guard await send(run, room: room, &entered) else {
                for (run, _) in entered.large { run.drop() }
                _ = await entered.waitUntilFinished()
                return nil
            }
            room = 0
        }
        engine.flight.endPromise(room)
        return entered
    }

    /// Looks up and sends the large pushes of a batch.
    ///
    /// - Returns: `false` if a stop came first.
    func sendLarge(_ entered: inout Entered) async -> Bool {
        let large = entered.large
        for (number, (run, weight)) in large.enumerated() {
            await engine.promiseSlots(for: weight, isLarge: true)
            guard await send(run, room: weight, &entered) else {
                for (run, _) in large[(number + 1)...] { run.drop() }
                return false
            }
        }
        return true
    }

    private typealias Fast = (item: EventBatch.Usable, push: NewPush, names: Int)

    private func portions(_ pushes: [Fast]) -> [(pushes: [Fast], weight: Int)] {
        EventBatch.portions(pushes, limit: engine.portion, weight: \.names).map {
            ($0, $0.reduce(0) { $0 + $1.names })
        }
    }

    private func makeRun(
        _ pushes: [Fast],
        isLarge: Bool,
        _ fetchedAt: ContinuousClock.Instant
    ) -> InlineRun {
        let run = InlineRun(in: engine.inline, engine.services, isLarge: isLarge)
        for (item, push, _) in pushes { run.add(item, push, fetchedAt: fetchedAt) }
        return run
    }

    /// - Returns: `false` if a stop came first.
    private func send(_ run: InlineRun, room: Int, _ entered: inout Entered) async -> Bool {
        entered.runs.append(run)
        guard await send(run, room: room) else { return false }
        entered.timers.append(DispatchLoop.loop.schedule(after: hold) { run.hold() })
        return true
    }

    /// - Returns: `false` if a stop came first.
    private func send(_ run: InlineRun, room: Int) async -> Bool {
        let pushes = run.newPushes
        guard !pushes.isEmpty else {
            engine.flight.endPromise(room, isLarge: run.isLarge)
            return true
        }
        guard let found = await lookUp(pushes, by: run.isLarge ? largeLookUps : lookUps),
            let session = await session()
        else {
            engine.flight.endPromise(room, isLarge: run.isLarge)
            run.drop()
            return false
        }
        let lookedUpAt = ContinuousClock.now
        var apps: Set<String> = []
        for (index, what) in found.enumerated() where run.state(of: index) == .lookingUp {
            switch what {
            case .known: run.finish(index, .known)
            case .many: run.finish(index, .rows)
            case .new(let deliveries, let createdAt, let hasRow):
                run.found(index, deliveries, at: createdAt, hasRow: hasRow) {
                    engine.health(of: $0)
                }
                apps.insert(pushes[index].app)
                plannedDeliveries.add(deliveries.count)
            }
        }
        await engine.take(run, of: apps, session: session, lookedUpAt: lookedUpAt, room: room)
        return true
    }

    /// - Returns: `nil` if a stop came first.
    private func lookUp(_ pushes: [NewPush], by lookUps: LookUps) async -> [LookedUpPush]? {
        var pause = ExponentialBackoff()
        while true {
            do {
                let found = try await lookUps(pushes)
                retry.succeeded()
                return found
            } catch let error as StorageError
                where error.isOfTheValues || error.isStatementTimeout
            {
                // As rows, a faulty push is found by halving, and a slow one is planned page by
                // page.
                return pushes.map { _ in .many }
            } catch {
                guard await retry.wait(after: error, &pause) else { return nil }
            }
        }
    }

    /// Returns the session to write under, once there is one; `nil` if a stop came first.
    private func session() async -> Int? {
        while true {
            if let session = engine.session.current { return session }
            guard !engine.session.isStopping else { return nil }
            await engine.waitForRoom(in: .direct, count: 1)
        }
    }
}
