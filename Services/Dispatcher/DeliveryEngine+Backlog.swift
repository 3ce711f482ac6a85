import EventLoop
import PushCore

/// Rows that wait here for their provider's share of the flight budget.
extension DeliveryEngine {
    private static let tick: Duration = .milliseconds(100)

    /// Whether bringing more rows of single devices would only make them wait.
    var isPressed: Bool { backlogged.contains(where: \.backlog.isPressing) }

    /// Lets a row wait for a slot, or sends it back due later.
    func wait(_ owned: OwnedDelivery, _ now: Instant) {
        let (health, time) = (owned.health, SteadyInstant.now().milliseconds)
        guard owned.use == .direct, health.backlog.admits(at: time),
            budget.admitWaiting(health.client)
        else {
            return finish(owned, .handBack(at: dueTime(of: health, time, now)), now)
        }
        if health.backlog.isEmpty { backlogged.append(health) }
        health.backlog.add(owned, at: time)
        setBacklogTimer()
    }

    private func dueTime(of health: ProviderHealth, _ time: Int64, _ now: Instant) -> Instant {
        now.adding(milliseconds: health.backlog.delay(at: time))
    }

    /// Sends those for which there is room by now.
    func sendBacklogs() {
        guard !backlogged.isEmpty else { return }
        var ready: [OwnedDelivery] = []
        for health in backlogged {
            let count = budget.start(health.client, atMost: health.backlog.count)
            for var owned in health.backlog.take(count) {
                owned.slot = .direct
                ready.append(owned)
            }
        }
        backlogged.removeAll(where: \.backlog.isEmpty)
        guard !ready.isEmpty else { return }
        send(ready, .now())
    }

    private func setBacklogTimer() {
        guard backlogTimer == nil else { return }
        backlogTimer = loop.schedule(after: Self.tick) { [weak self] in
            self?.assumeIsolated { $0.backlogTick() }
        }
    }

    private func backlogTick() {
        backlogTimer = nil
        let (time, now) = (SteadyInstant.now().milliseconds, Instant.now())
        for health in backlogged {
            let rows = health.backlog.takeOverdue(at: time)
            budget.releaseWaiting(health.client, rows.count)
            for owned in rows {
                finish(owned, .handBack(at: dueTime(of: health, time, now)), now)
            }
        }
        backlogged.removeAll(where: \.backlog.isEmpty)
        wakeWaiters()
        if !backlogged.isEmpty { setBacklogTimer() }
    }

    /// A stop sends nothing more: what waits is due for whoever is there.
    func handBackBacklogs() {
        let now = Instant.now()
        for health in backlogged {
            let rows = health.backlog.take(health.backlog.count)
            budget.releaseWaiting(health.client, rows.count)
            for owned in rows { finish(owned, .handBack(at: now), now) }
        }
        backlogged = []
    }

    /// The session is lost, and with it what waits.
    func dropBacklogs() {
        for health in backlogged {
            let count = health.backlog.take(health.backlog.count).count
            budget.releaseWaiting(health.client, count)
        }
        backlogged = []
    }
}
