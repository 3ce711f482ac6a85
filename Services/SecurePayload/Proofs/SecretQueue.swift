/// A queue of secrets that wait to be hashed, fair between their senders. Pure: no thread, no clock of its
/// own.
///
/// Networks that recently sent a wrong secret wait behind all others. Apps take turns, then the
/// networks of an app, and the secrets of a network keep their order. Once an app's oldest secret
/// has waited for `overloadAge`, the app's newest network goes first: if the secrets kept their
/// order under overload, every secret would be late. A network has at most a small share of the
/// capacity. If the queue is full, the app with the most
/// secrets gives way, then the network with the most, then the secret that has waited longest. A
/// network that was turned away and returns too early waits behind the others, too.
struct SecretQueue<Job> {
    /// The sender of a secret, and its app. A network is an IPv4 address or an IPv6 /64.
    struct Caller: Hashable {
        let app: [UInt8]
        let network: [UInt8]

        init(app: [UInt8], network: [UInt8]) {
            (self.app, self.network) = (app, network)
        }

        /// Creates the caller for an app's backend, which has proved its master key and sets
        /// secrets. It counts as an app of its own, which takes turns with the app's readers.
        /// Its jobs are limited neither by a network's share nor by `maximumAge`. Its key begins
        /// with a NUL, as no app id does.
        init(backendOf app: [UInt8]) { self.init(app: [0] + app, network: []) }

        fileprivate var isProved: Bool { app.first == 0 }
    }

    enum Admission: Equatable {
        case waits
        case refused
        /// Waits, and displaces the waiting job with this id.
        case waitsInsteadOf(Int)
    }

    /// The age at which a waiting job is refused.
    static var maximumAge: Duration { .seconds(5) }
    /// If an app's oldest job is older than this, the app's newest network goes first, and may
    /// displace that job.
    static var overloadAge: Duration { .seconds(1) }
    /// The seconds for which a network that was turned away should not return.
    static var restSeconds: Int { 2 }
    private static var maximumTurnedAway: Int { 10_000 }

    private struct Waiting {
        let id: Int
        let job: Job
        let caller: Caller
        let since: ContinuousClock.Instant
    }

    /// The turn of a caller with waiting jobs.
    private struct Turn {
        var joined: Int
        var next: Int
        var served = 0
    }

    /// The waiting jobs in order of arrival; at most `maximumWaiting`, so a linear search suffices.
    private var waiting: [Waiting] = []
    private var appTurns: [[UInt8]: Int] = [:]
    private var turns: [Caller: Turn] = [:]
    private var lastTurn = 0
    private var failed = FailedNetworks()
    private var turnedAway: [[UInt8]: ContinuousClock.Instant] = [:]
    let maximumWaiting: Int

    init(maximumWaiting: Int) { self.maximumWaiting = maximumWaiting }

    var count: Int { waiting.count }

    /// Adds a job, unless its caller has as many waiting jobs as it may have.
    ///
    /// - Parameters:
    ///   - job: The work.
    ///   - id: An id that no other waiting job has.
    ///   - caller: The sender.
    ///   - now: The time.
    /// - Returns: Whether the job waits now.
    mutating func add(
        _ job: Job,
        _ id: Int,
        of caller: Caller,
        now: ContinuousClock.Instant
    ) -> Admission {
        if let at = turnedAway[caller.network], now - at < .seconds(Self.restSeconds) {
            failed.insert(caller.network, now: now)
        }
        let hasFailed = failed.contains(caller.network, now: now)
        let own = waiting.count {
            $0.caller.network == caller.network && (!caller.isProved || $0.caller == caller)
        }
        guard caller.isProved || own < share(hasFailed) else { return .refused }
        var admission = Admission.waits
        if waiting.count >= maximumWaiting {
            guard let jobToEvict = jobToEvict(for: caller, hasFailed, own, now) else {
                turnAway(caller.network, now)
                return .refused
            }
            turnAway(jobToEvict.caller.network, now)
            remove(jobToEvict.id)
            admission = .waitsInsteadOf(jobToEvict.id)
        }
        waiting.append(Waiting(id: id, job: job, caller: caller, since: now))
        if appTurns[caller.app] == nil { appTurns[caller.app] = nextTurn() }
        if turns[caller] == nil {
            let turn = nextTurn()
            turns[caller] = Turn(joined: turn, next: turn)
        }
        return admission
    }

    /// Returns the number of jobs that one network may have waiting.
    private func share(_ hasFailed: Bool) -> Int { max(1, maximumWaiting / (hasFailed ? 50 : 10)) }

    /// Returns the job that is evicted from a full queue for a job of this caller; `nil` if no job
    /// is.
    private mutating func jobToEvict(
        for caller: Caller,
        _ hasFailed: Bool,
        _ own: Int,
        _ now: ContinuousClock.Instant
    ) -> Waiting? {
        let behind = waiting.filter { failed.contains($0.caller.network, now: now) }
        if !hasFailed, !behind.isEmpty {
            return newest(ofGreatest(behind, by: \.app).jobs)
        }
        let alike = hasFailed ? behind : waiting
        let ofApp = alike.filter { $0.caller.app == caller.app }
        let greatest = ofGreatest(alike, by: \.app)
        if greatest.key != caller.app, greatest.jobs.count > ofApp.count + 1 {
            return newest(greatest.jobs)
        }
        let most = ofGreatest(ofApp, by: \.network).jobs
        if most.count > own + 1 { return most.last }
        guard own == 0, !hasFailed, let oldest = ofApp.first, now - oldest.since > Self.overloadAge
        else { return nil }
        return oldest
    }

    private func newest(_ jobs: [Waiting]) -> Waiting? {
        ofGreatest(jobs, by: \.network).jobs.last
    }

    private mutating func turnAway(_ network: [UInt8], _ now: ContinuousClock.Instant) {
        guard !network.isEmpty else { return }
        if turnedAway.count >= Self.maximumTurnedAway {
            turnedAway = turnedAway.filter { now - $0.value < .seconds(Self.restSeconds) }
            if turnedAway.count >= Self.maximumTurnedAway { turnedAway = [:] }
        }
        turnedAway[network] = now
    }

    private func ofGreatest(
        _ jobs: [Waiting],
        by part: KeyPath<Caller, [UInt8]>
    ) -> (key: [UInt8], jobs: [Waiting]) {
        let groups = Dictionary(grouping: jobs) { $0.caller[keyPath: part] }
        // Among groups of equal size, the one with the newest job counts as the greatest.
        func weight(_ jobs: [Waiting]) -> (Int, Int) { (jobs.count, jobs.last?.id ?? 0) }
        let greatest = groups.max { weight($0.value) < weight($1.value) }
        return (greatest?.key ?? [], greatest?.value ?? [])
    }

    /// Removes and returns the next job.
    mutating func next(now: ContinuousClock.Instant) -> (id: Int, job: Job)? {
        let clean = waiting.filter { !failed.contains($0.caller.network, now: now) }
        let tier = clean.isEmpty ? waiting : clean
        guard let app = Set(tier.map(\.caller.app)).min(by: { turn($0) < turn($1) }) else {
            return nil
        }
        let jobs = tier.filter { $0.caller.app == app }
        let isOverloaded = jobs.first.map { now - $0.since > Self.overloadAge } ?? false
        let callers = Set(jobs.map(\.caller))
        let chosen = callers.min { first, second in
            guard let first = turns[first], let second = turns[second] else { return false }
            return isOverloaded
                ? (first.served, second.joined) < (second.served, first.joined)
                : first.next < second.next
        }
        guard let next = jobs.first(where: { $0.caller == chosen }) else { return nil }
        let (appTurn, callerTurn) = (nextTurn(), nextTurn())
        appTurns[app] = appTurn
        turns[next.caller]?.next = callerTurn
        turns[next.caller]?.served += 1
        remove(next.id)
        return (next.id, next.job)
    }

    private func turn(_ app: [UInt8]) -> Int { appTurns[app] ?? 0 }

    private mutating func nextTurn() -> Int {
        lastTurn += 1
        return lastTurn
    }

    /// Removes a job, for example one that no caller waits for any longer.
    mutating func remove(_ id: Int) {
        guard let index = waiting.firstIndex(where: { $0.id == id }) else { return }
        let caller = waiting.remove(at: index).caller
        if !waiting.contains(where: { $0.caller == caller }) { turns[caller] = nil }
        if !waiting.contains(where: { $0.caller.app == caller.app }) { appTurns[caller.app] = nil }
    }

    /// Removes the jobs that have waited too long, and returns their ids.
    mutating func removeOld(now: ContinuousClock.Instant) -> [Int] {
        let late = waiting.filter { now - $0.since >= Self.maximumAge && !$0.caller.isProved }
        for one in late {
            remove(one.id)
            turnAway(one.caller.network, now)
        }
        return late.map(\.id)
    }

    /// Removes all jobs and returns their ids.
    mutating func removeAll() -> [Int] {
        let ids = waiting.map(\.id)
        (waiting, appTurns, turns) = ([], [:], [:])
        return ids
    }

    /// Records a wrong secret of a network. Its waiting jobs, and those of the next minutes, then
    /// wait behind all others.
    mutating func noteFailure(from network: [UInt8], now: ContinuousClock.Instant) {
        failed.insert(network, now: now)
    }
}
