import EventLoop
import PushCore

/// Rows that wait here for their provider's share of the flight budget.
///
/// Authority: those rows, between "there is no room" and a slot or a later time. Where each stands is
/// `ProviderBacklog`'s to say.
///
/// Confined to the loop.
final class RowBacklogs: @unchecked Sendable {
    private static let tick: Duration = .milliseconds(100)

    private let room: FlightRoom
    private let clock: DatabaseClock
    private let loop: EventLoop
    /// Those for which rows wait.
    private var waited: [OwnedDelivery.Health] = []
    private var timer: LoopTimer?
    /// Takes those for which there is room by now; they hold their slots.
    var onReady: ([OwnedDelivery]) -> Void = { _ in }
    /// Takes one that waits here no longer, with when it is due, and the time now.
    var onHandBack: (OwnedDelivery, Instant, Instant) -> Void = { _, _, _ in }

    init(room: FlightRoom, clock: DatabaseClock, loop: EventLoop) {
        self.room = room
        self.clock = clock
        self.loop = loop
    }

    /// Whether bringing more rows of single devices would only make them wait.
    var isPressed: Bool { waited.contains(where: \.backlog.isPressing) }

    /// Lets a row wait for a slot, or sends it back due later.
    func wait(_ owned: OwnedDelivery, _ now: Instant) {
        let (health, time) = (owned.health, SteadyInstant.now().milliseconds)
        guard owned.use == .direct, health.backlog.admits(at: time),
            room.budget.admitWaiting(health.client)
        else {
            return onHandBack(owned, dueTime(of: health, time, now), now)
        }
        if health.backlog.isEmpty { waited.append(health) }
        health.backlog.add(owned, at: time)
        setTimer()
    }

    private func dueTime(of health: OwnedDelivery.Health, _ time: Int64, _ now: Instant) -> Instant
    {
        now.adding(milliseconds: health.backlog.delay(at: time))
    }

    /// Sends those for which there is room by now.
    func sendReady() {
        guard !waited.isEmpty else { return }
        var ready: [OwnedDelivery] = []
        for health in waited {
            let count = room.budget.start(health.client, atMost: health.backlog.count)
            for owned in health.backlog.take(count) {
                owned.slot = .direct
                ready.append(owned)
            }
        }
        waited.removeAll(where: \.backlog.isEmpty)
        guard !ready.isEmpty else { return }
        onReady(ready)
    }

    private func setTimer() {
        guard timer == nil else { return }
        timer = loop.schedule(after: Self.tick) { [weak self] in
            self?.turn()
        }
    }

    private func turn() {
        timer = nil
        let (time, now) = (SteadyInstant.now().milliseconds, clock.now())
        for health in waited {
            let rows = health.backlog.takeOverdue(at: time)
            room.budget.releaseWaiting(health.client, rows.count)
            for owned in rows {
                onHandBack(owned, dueTime(of: health, time, now), now)
            }
        }
        waited.removeAll(where: \.backlog.isEmpty)
        room.wakeWaiters()
        if !waited.isEmpty { setTimer() }
    }

    /// A stop sends nothing more: what waits is due for whoever is there.
    func handBackAll() {
        let now = clock.now()
        for health in waited {
            let rows = health.backlog.take(health.backlog.count)
            room.budget.releaseWaiting(health.client, rows.count)
            for owned in rows { onHandBack(owned, now, now) }
        }
        waited = []
    }

    /// The session is lost, and with it what waits.
    func dropAll() {
        for health in waited {
            let count = health.backlog.take(health.backlog.count).count
            room.budget.releaseWaiting(health.client, count)
        }
        waited = []
    }
}
