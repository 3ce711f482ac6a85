import EventLoop
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// The lane: events for few devices are looked up, sent, and only then written down.
extension EventIntake {
    /// What became of a batch at the entrance of the lane.
    struct Entered {
        /// Those that are planned as rows.
        var rows: [EventBatch.Usable] = []
        let lane = LaneBatch()
        /// Ends what is held for too long.
        var timer: LoopTimer?
    }

    /// Looks up the events of a batch that are for few devices, and sends those that are new.
    ///
    /// - Parameters:
    ///   - items: The batch's.
    ///   - fetchedAt: When it was read.
    ///   - room: What was promised for it; whoever does not take it gives it back here.
    /// - Returns: `nil` when a stop came first.
    func enterLane(
        _ items: [EventBatch.Usable],
        fetchedAt: ContinuousClock.Instant,
        room: Int
    ) async -> Entered? {
        var entered = Entered()
        var fresh: [LaneEvent] = []
        let acceptedAt = database.clock.now()
        for item in items {
            let push = NewPush(item, acceptedAt: acceptedAt)
            guard push.isForFewDevices else {
                entered.rows.append(item)
                continue
            }
            let event = LaneEvent(item, push, fetchedAt: fetchedAt, engine.meters.stages)
            if let known = engine.lane.enter(event) {
                entered.lane.add(item, in: known)
            } else {
                event.onReady = { [recorder = engine.recorder] in recorder.add($0) }
                entered.lane.add(item, in: event)
                fresh.append(event)
            }
        }
        guard !fresh.isEmpty else {
            engine.flight.keepPromise(room)
            return entered
        }
        guard let found = await lookUp(fresh), let session = await session() else {
            engine.flight.keepPromise(room)
            await engine.drop(fresh)
            return nil
        }
        var new: [LaneEvent] = []
        let lookedUp = ContinuousClock.now
        for (event, what) in zip(fresh, found) {
            switch what {
            case .known: event.finish(.known)
            case .many: event.finish(.rows)
            case .new(let deliveries, let createdAt, let hasRow):
                event.found(deliveries, at: createdAt, hasRow: hasRow)
                event.reached(.lookedUp, at: lookedUp)
                plannedDeliveries.add(deliveries.count)
                new.append(event)
            }
        }
        guard !new.isEmpty else {
            engine.flight.keepPromise(room)
            return entered
        }
        await engine.take(new, session: session, room: room)
        entered.timer = loop.schedule(after: hold) { for event in new { event.hold() } }
        return entered
    }

    /// - Returns: `nil` when a stop came first.
    private func lookUp(_ events: [LaneEvent]) async -> [LookedUpPush]? {
        var pause = Pause()
        while true {
            do {
                let found = try await database.fewDevices.lookUp(events.map(\.push), retention)
                engine.meters.lookUps.add(events.count)
                isWell()
                return found
            } catch let error as StorageError
                where error.isOfTheValues || error.isStatementTimeout
            {
                // As rows each shows itself, or is planned page by page.
                return events.map { _ in .many }
            } catch {
                guard await holdBack(error, &pause) else { return nil }
            }
        }
    }

    /// The session to write under.
    private func session() async -> Int? {
        while true {
            if let session = await engine.currentSession { return session }
            guard !(await engine.isStopping) else { return nil }
            await engine.waitForRoom(in: .direct, count: 1)
        }
    }
}
