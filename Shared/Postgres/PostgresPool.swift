package import EventLoop
package import Observability

/// The connections of one loop to one Postgres.
///
/// Authority: every connection that the loop's services use. *Shared* connections are pipelined:
/// `execute` sends the statements of one turn of the loop as a group that ends with one Sync, so
/// that the writes of many tasks commit together. A task gets its result only after the server has
/// answered that Sync. An *exclusive* connection is lent to one `transaction`, `stream` or COPY at
/// a time, in the order of requests. A *listener*, if needed, receives notifications.
///
/// States: idle until first used (or `run`), then open, then draining, then closed. A slot is a
/// task that opens a connection, waits until it breaks, and opens another, with backoff. Requests
/// in flight on a broken connection fail with a retryable error; unsent requests keep waiting
/// within their time limit.
///
/// Shutdown: `close` (or the cancellation of `run`) refuses new work, lets present work finish
/// within `drainTimeout`, then closes the connections. The parts that stop before wait for their
/// statements: in the second half of the grace period a server that does not answer is given up.
package actor PostgresPool {
    let configuration: PostgresConfiguration
    nonisolated let loop: EventLoop
    let log: Log
    nonisolated let readiness = SharedText("postgres: not started")
    /// The reason while writes fail for lack of disk space.
    nonisolated let diskReadiness = SharedText(nil)

    enum Phase { case idle, open, draining, closed }
    enum Role { case shared, exclusive, listener }

    var phase = Phase.idle
    private var slots: [Task<Void, Never>] = []
    private var clockwork: LoopTimer?
    private var lastError: PostgresError?
    /// Whether the server does not answer while the process stops, and no connection was opened
    /// since: no request waits for it.
    private(set) var isGivenUp = false

    // Shared connections.
    var shared: [PostgresConnection] = []
    var queue: [PostgresRequest] = []
    var pending = 0

    // Exclusive connections.
    var idle: [PostgresConnection] = []
    var waiters: [Waiter] = []
    var lent: [PostgresConnection] = []
    private var exclusiveSlots = 0
    var nextWaiter = 0

    // The listener.
    var subscriptions: [Int: Subscription] = [:]
    var nextSubscription = 0
    var listener: PostgresConnection?
    private var hasListenerSlot = false

    // Disk space.
    var diskProbe: Task<Void, Never>?
    var diskProbePause = PostgresPool.shortestDiskProbePause
    var lastDiskRecovery: ContinuousClock.Instant?

    private var drained: [CheckedContinuation<Void, Never>] = []

    private let connections: Gauge?
    private let reconnects: Counter?
    private let answers: [String: Counter]

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    package init(
        _ configuration: PostgresConfiguration,
        on loop: EventLoop,
        log: Log = .disabled,
        metrics: Metrics? = nil
    ) {
        self.configuration = configuration
        self.loop = loop
        self.log = log
        connections = metrics?.gauge(.postgresConnections)
        reconnects = metrics?.counter(.postgresReconnects)
        var answers: [String: Counter] = [:]
        if let metrics {
            for outcome in ["ok", "cancelled"] + PostgresError.metricLabels {
                answers[outcome] = metrics.counter(.postgresStatements, ["outcome": outcome])
            }
        }
        self.answers = answers
    }

    // MARK: Life

    /// Maintains the connections until the task is cancelled or the loop stops, then drains and
    /// closes.
    ///
    /// - Parameter isEager: Whether it connects before the first request.
    /// - Throws: Nothing. It runs as long as the part that owns the pool.
    package func run(isEager: Bool = true) async throws {
        if isEager { start() }
        while (try? await loop.sleep(for: .seconds(86_400))) != nil {}
        await close()
    }

    /// Returns nil while statements can be run; else the reason, without secrets.
    package nonisolated func notReadyReason() -> String? {
        readiness.value ?? notWritableReason()
    }

    /// Returns nil while writes can succeed, as far as is known.
    package nonisolated func notWritableReason() -> String? { diskReadiness.value }

    func start() {
        guard phase == .idle else { return }
        phase = .open
        readiness.value = "postgres: connecting"
        for _ in 0..<configuration.sharedConnections { addSlot(.shared) }
        clockwork = loop.schedule(after: .milliseconds(200), every: .milliseconds(200)) {
            self.assumeIsolated { $0.tick() }
        }
    }

    /// Refuses new work, waits for present work, closes the connections.
    package func close() async {
        switch phase {
        case .closed: return
        case .idle:
            phase = .closed
            readiness.value = "postgres: closed"
            return
        case .draining, .open: break
        }
        phase = .draining
        readiness.value = "postgres: closing"
        if !isDrained {
            let timer = loop.schedule(after: configuration.drainTimeout) {
                self.assumeIsolated { $0.shut() }
            }
            await withCheckedContinuation { waiter in
                if isDrained { waiter.resume() } else { drained.append(waiter) }
            }
            timer.cancel()
        }
        shut()
    }

    private var isDrained: Bool {
        phase == .closed || (pending == 0 && lent.isEmpty && waiters.isEmpty)
    }

    func checkDrained() {
        guard phase == .draining || phase == .closed, isDrained else { return }
        for continuation in drained { continuation.resume() }
        drained = []
    }

    private func shut() {
        guard phase != .closed else { return }
        phase = .closed
        readiness.value = "postgres: closed"
        clockwork?.cancel()
        diskProbe?.cancel()
        for slot in slots { slot.cancel() }
        slots = []
        for connection in shared + idle + lent { connection.fail(.closed) }
        listener?.fail(.closed)
        shared = []
        idle = []
        let (waiting, requests) = (waiters, queue)
        waiters = []
        queue = []
        for waiter in waiting { waiter.continuation.resume(throwing: PostgresError.closed) }
        for request in requests { request.finish(.failure(PostgresError.closed)) }
        for subscription in subscriptions.values { subscription.fail(PostgresError.closed) }
        subscriptions = [:]
        checkDrained()
    }

    /// Fails requests that waited too long and closes connections of vanished peers.
    private func tick() {
        let now = ContinuousClock.now
        let limit = limitWhileStopping(at: now)
        for connection in shared + idle + lent {
            if connection.checkProgress(at: now, within: limit), limit != nil { isGivenUp = true }
        }
        _ = listener?.checkProgress(at: now, within: limit)
        // The deadline of a request that has waited as long as it may.
        let usual = configuration.acquireTimeout
        let late = now + usual - min(usual, limit ?? usual)
        while let request = queue.first, let deadline = request.deadline,
            isGivenUp || deadline <= late
        {
            if limit != nil { isGivenUp = true }
            queue.removeFirst()
            request.finish(.failure(unavailable()))
        }
        while let waiter = waiters.first, isGivenUp || waiter.deadline <= late {
            waiters.removeFirst()
            waiter.continuation.resume(throwing: unavailable())
        }
        for subscription in subscriptions.values where subscription.deadline <= now {
            subscription.fail(unavailable())
        }
        checkDrained()
    }

    /// Returns how long the server may be silent while the process stops; `nil` before its second
    /// half. A server that works answers sooner, even if its disk is slow; a shorter stop allows less.
    private func limitWhileStopping(at now: ContinuousClock.Instant) -> Duration? {
        let clock = loop.stopClock
        guard clock.hasPassed(share: 0.5, at: now) else { return nil }
        return clock.limit(.seconds(5), share: 0.5, at: now)
    }

    func unavailable() -> PostgresError {
        // If no connection is open at all, the last error says why.
        let reason = shared.isEmpty ? lastError.map { ": \($0.description)" } ?? "" : ""
        return PostgresError(
            .unavailable,
            "no connection to Postgres came free in time" + reason,
            sqlState: lastError?.sqlState,
            detail: lastError?.debugDescription ?? ""
        )
    }

    // MARK: Slots

    private func addSlot(_ role: Role) {
        slots.append(Task(executorPreference: loop) { await self.keep(role) })
    }

    func addExclusiveSlotIfAllowed() {
        guard exclusiveSlots < configuration.exclusiveConnections else { return }
        exclusiveSlots += 1
        addSlot(.exclusive)
    }

    func addListenerSlot() {
        guard !hasListenerSlot else { return }
        hasListenerSlot = true
        addSlot(.listener)
    }

    /// Runs one slot for its whole life: opens a connection, serves until it breaks, opens another.
    private func keep(_ role: Role) async {
        var failures = 0
        let (uri, name) = (configuration.uri, configuration.applicationName)
        let start = ConnectionStart(on: loop) {
            try ConnectionHandle(connecting: uri, applicationName: name)
        }
        while phase == .open || phase == .draining {
            do {
                let connection = try await PostgresConnection.open(
                    configuration,
                    by: start,
                    isShared: role == .shared,
                    on: loop
                )
                guard phase == .open || phase == .draining else {
                    connection.fail(.closed)
                    return
                }
                failures = 0
                connections?.add(1)
                enter(connection, role)
                await connection.untilBroken()
                connections?.add(-1)
                leave(connection, role)
                guard phase == .open || phase == .draining else { return }
                reconnects?.add()
                log.warning(
                    "connection to postgres lost",
                    [.error: .string(connection.brokenBy?.description ?? "")]
                )
            } catch {
                if phase == .closed || error is CancellationError { return }
                failures += 1
                lastError = error as? PostgresError
                let reason = lastError?.description ?? "cannot connect to Postgres"
                if shared.isEmpty, phase == .open { readiness.value = reason }
                log.warning("cannot connect to postgres", [.error: .string(reason)])
            }
            // Backoff: 50 ms, doubling to 3.2 s; each wait is random between half and all of that.
            let longest = 50.0 * Double(1 << min(failures, 6))
            let wait = Double.random(in: longest / 2...longest)
            try? await loop.sleep(for: .milliseconds(Int(wait)))
        }
    }

    private func enter(_ connection: PostgresConnection, _ role: Role) {
        connection.onServerError = { [weak self] error in
            self?.assumeIsolated { $0.noteServerError(error) }
        }
        isGivenUp = false
        switch role {
        case .shared:
            shared.append(connection)
            if phase == .open { readiness.value = nil }
            let waiting = queue
            queue = []
            for request in waiting { connection.submit(request) }
        case .exclusive: offer(connection)
        case .listener: listenerOpened(connection)
        }
    }

    private func leave(_ connection: PostgresConnection, _ role: Role) {
        switch role {
        case .shared:
            shared.removeAll { $0 === connection }
            if shared.isEmpty, phase == .open { readiness.value = "postgres: connection lost" }
        case .exclusive: idle.removeAll { $0 === connection }
        case .listener: listenerClosed(connection)
        }
    }

    // MARK: Statements

    /// Runs one statement. It is sent and committed together with the other statements of this turn
    /// of the loop, but their errors do not affect it. Pass values only as parameters, `$1` on.
    ///
    /// - Returns: Its result, once it is committed.
    /// - Throws: `PostgresError`; `CancellationError` if it was cancelled before it was done.
    package func execute(
        _ sql: String,
        _ parameters: [PostgresValue] = []
    ) async throws -> PostgresResult {
        try await execute([(sql, parameters)])[0]
    }

    /// Runs several statements in one round trip and in their order. If one fails, the effects of
    /// the others remain.
    ///
    /// - Returns: A result for each.
    /// - Throws: The first error.
    package func execute(
        _ statements: [(sql: String, parameters: [PostgresValue])]
    ) async throws -> [PostgresResult] {
        if statements.isEmpty { return [] }
        guard phase == .open || phase == .idle else { throw PostgresError.closed }
        if isGivenUp { throw unavailable() }
        guard pending < configuration.maximumPending else {
            count("overloaded")
            throw PostgresError(.overloaded, "too many statements wait for Postgres")
        }
        try Task.checkCancellation()
        start()
        pending += statements.count
        defer {
            pending -= statements.count
            if phase != .open { checkDrained() }
        }
        let batch = RequestBatch(statements.count)
        do {
            let results = try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    batch.start(continuation)
                    for (sql, parameters) in statements {
                        submit(batch.add { PostgresRequest(sql, parameters, completion: $0) })
                    }
                }
            } onCancel: {
                loop.execute {
                    self.assumeIsolated { pool in
                        for request in batch.requests { pool.cancel(request) }
                    }
                }
            }
            count("ok")
            return results
        } catch {
            count((error as? PostgresError)?.metricLabel ?? "cancelled")
            throw error
        }
    }

    func count(_ outcome: String) { answers[outcome]?.add() }

    private func submit(_ request: PostgresRequest) {
        // All statements of one turn use one connection, so that they commit together.
        var chosen: PostgresConnection?
        for connection in shared where connection.isUsable {
            if connection.groupSize > 0 { return connection.submit(request) }
            if let least = chosen, least.backlog <= connection.backlog { continue }
            chosen = connection
        }
        if let chosen { return chosen.submit(request) }
        request.deadline = .now + configuration.acquireTimeout
        queue.append(request)
    }

    private func cancel(_ request: PostgresRequest) {
        guard !request.isFinished else { return }
        if let connection = request.connection { return connection.cancel(request) }
        queue.removeAll { $0 === request }
        request.finish(.failure(CancellationError()))
    }
}

/// A string that other threads read.
final class SharedText: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var text: String?

    init(_ text: String?) { unsafe self.text = text }

    var value: String? {
        get { lock.withLock { unsafe text } }
        set { lock.withLock { unsafe text = newValue } }
    }
}

/// The loop of a pool, for modules that may import Postgres but not EventLoop.
package typealias PostgresLoop = EventLoop
