import EventLoop
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// The fast path: pushes for few devices are looked up, sent, and only then written.
extension EventIntake {
    /// The pushes of a batch that take the fast path, and those that do not.
    struct Entered {
        /// Those that are planned as rows.
        var rows: [EventBatch.Usable] = []
        fileprivate(set) var runs: [InlineRun] = []
        fileprivate var timers: [LoopTimer] = []

        /// Waits until all of the fast path are over.
        ///
        /// - Returns: Those that ended in another way than written.
        nonisolated(nonsending) func untilOver() async -> [(
            item: EventBatch.Usable, end: InlineEnd
        )] {
            for run in runs { await run.untilOver() }
            for timer in timers { timer.cancel() }
            return runs.flatMap(\.ends)
        }
    }

    /// Looks up the pushes of a batch that are for few devices, and sends those that are new: as many
    /// devices at a time as find room.
    ///
    /// - Parameters:
    ///   - items: The batch's.
    ///   - fetchedAt: The time at which it was read.
    ///   - room: The slots that were promised for it. They are given back here.
    /// - Returns: `nil` if a stop came first.
    func enterFastPath(
        _ items: [EventBatch.Usable],
        fetchedAt: ContinuousClock.Instant,
        room: Int
    ) async -> Entered? {
        var entered = Entered()
        var few: [(item: EventBatch.Usable, push: NewPush)] = []
        let acceptedAt = database.clock.now()
        for item in items {
            let push = NewPush(item, acceptedAt: acceptedAt)
            if push.isForFewDevices { few.append((item, push)) } else { entered.rows.append(item) }
        }
        var room = room
        let portions = EventBatch.portions(few, limit: engine.portion) { $0.item.namedDevices }
        for portion in portions {
            let weight = portion.reduce(0) { $0 + $1.item.namedDevices }
            if weight > room {
                engine.flight.keepPromise(room)
                await engine.promiseRoom(for: weight)
                room = weight
            }
            let run = InlineRun(in: engine.inline, engine.services)
            for (item, push) in portion { run.add(item, push, fetchedAt: fetchedAt) }
            entered.runs.append(run)
            guard await send(run, room: room) else { return nil }
            room = 0
            entered.timers.append(loop.schedule(after: hold) { run.hold() })
        }
        engine.flight.keepPromise(room)
        return entered
    }

    /// - Returns: `false` if a stop came first.
    private func send(_ run: InlineRun, room: Int) async -> Bool {
        let pushes = run.newPushes
        guard !pushes.isEmpty else {
            engine.flight.keepPromise(room)
            return true
        }
        guard let found = await lookUp(pushes), let session = await session() else {
            engine.flight.keepPromise(room)
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
    private func lookUp(_ pushes: [NewPush]) async -> [LookedUpPush]? {
        var pause = Pause()
        while true {
            do {
                let found = try await database.fewDevices.lookUp(pushes, retention)
                engine.meters.lookUps.add(pushes.count)
                isWell()
                return found
            } catch let error as StorageError
                where error.isOfTheValues || error.isStatementTimeout
            {
                // As rows each shows itself, or is planned page by page.
                return pushes.map { _ in .many }
            } catch {
                guard await holdBack(error, &pause) else { return nil }
            }
        }
    }

    /// The session to write under.
    private func session() async -> Int? {
        while true {
            if let session = engine.session.current { return session }
            guard !engine.session.isStopping else { return nil }
            await engine.waitForRoom(in: .direct, count: 1)
        }
    }
}
