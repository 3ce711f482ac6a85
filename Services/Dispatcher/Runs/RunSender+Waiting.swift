import EventLoop
import PushCore

/// Members that wait here for their provider's share. `ProviderBacklog` decides which members may
/// wait.
extension RunSender {
    private static let tick: Duration = .milliseconds(100)

    /// Whether further members for single devices would only wait.
    var isPressed: Bool { waited.contains(where: \.backlog.isPressing) }

    /// Lets a member wait for a slot, or releases it until later.
    func wait(_ position: Int, of run: any Run, _ now: Instant) {
        guard let member = run.member(at: position) else { return }
        let (health, time) = (run.health(at: position), MonotonicInstant.now().milliseconds)
        guard member.use == .direct, health.backlog.admits(at: time),
            room.budget.admitWaiting(health.client)
        else {
            return release(position, of: run, at: dueTime(of: health, time, now), now)
        }
        if health.backlog.isEmpty { waited.append(health) }
        health.backlog.add(WaitingMember(run: run, position: position), at: time)
        setTimer()
    }

    private func dueTime(of health: ClientHealth, _ time: Int64, _ now: Instant) -> Instant {
        now.adding(milliseconds: health.backlog.delay(at: time))
    }

    /// Sends the waiting members that have free slots by now.
    func sendReady() {
        guard !waited.isEmpty else { return }
        var ready: [(run: any Run, positions: [Int])] = []
        for health in waited {
            let count = room.budget.start(health.client, atMost: health.backlog.count)
            for waiting in health.backlog.take(count) {
                waiting.run.admitted(waiting.position)
                if let last = ready.last, last.run === waiting.run {
                    ready[ready.count - 1].positions.append(waiting.position)
                } else {
                    ready.append((waiting.run, [waiting.position]))
                }
            }
        }
        waited.removeAll(where: \.backlog.isEmpty)
        let now = clock.now()
        for (run, positions) in ready { send(positions, of: run, now) }
    }

    private func setTimer() {
        guard timer == nil else { return }
        timer = DispatchLoop.loop.schedule(after: Self.tick) { [weak self] in
            self?.turn()
        }
    }

    private func turn() {
        timer = nil
        let (time, now) = (MonotonicInstant.now().milliseconds, clock.now())
        for health in waited {
            let overdue = health.backlog.takeOverdue(at: time)
            room.budget.releaseWaiting(health.client, overdue.count)
            for waiting in overdue {
                let due = dueTime(of: health, time, now)
                release(waiting.position, of: waiting.run, at: due, now)
            }
        }
        waited.removeAll(where: \.backlog.isEmpty)
        room.wakeWaiters()
        if !waited.isEmpty { setTimer() }
    }

    /// Releases all waiting members to other processes: a stop sends nothing more.
    func releaseWaiting() {
        let now = clock.now()
        for waiting in takeWaiting() { release(waiting.position, of: waiting.run, at: now, now) }
    }

    /// Drops all waiting members: their session is lost.
    func dropWaiting() { _ = takeWaiting() }

    private func takeWaiting() -> [WaitingMember] {
        let taken = waited.flatMap { health in
            let waiting = health.backlog.take(health.backlog.count)
            room.budget.releaseWaiting(health.client, waiting.count)
            return waiting
        }
        waited = []
        return taken
    }
}
