import EventLoop

/// One libpq connection, driven by one event loop and confined to that loop.
///
/// States: connecting → plain ⇄ pipeline → broken. In **pipeline** mode requests are sent as they
/// come, and one Sync ends the group of one turn of the loop. In **plain** mode one borrower at a
/// time runs a script, a row stream or a COPY. A broken connection stays broken: all its waiters
/// get the error, and the pool discards the object and opens another connection.
final class PostgresConnection: @unchecked Sendable {
    enum Mode { case connecting, plain, pipeline, broken }

    let loop: EventLoop
    let handle: ConnectionHandle
    /// Whether innocent members of a failed group run again. Otherwise all get the group's error,
    /// as they belong to one transaction.
    let isShared: Bool
    let configuration: PostgresConfiguration

    var mode = Mode.connecting
    private(set) var brokenBy: PostgresError?
    var watch: DescriptorWatch?

    // Pipeline mode.
    var ledger = PipelineTracker<PostgresRequest>()
    var statements: StatementCache
    var deallocations: [String] = []
    /// The parameters of the request being sent; stored to reuse their memory.
    var parameters = EncodedParameters()
    var groupSize = 0
    var isTurnScheduled = false
    var lastProgress = ContinuousClock.now
    /// The server's last message before it hung up.
    var lastFatal: PostgresError?

    // Plain mode: the waiter for the socket.
    var socketWaiter: CheckedContinuation<Void, any Error>?
    private var waitingSince = ContinuousClock.now
    /// How long a wait for the socket may take; zero: without limit.
    var silenceLimit = Duration.zero

    // Cancelling the running statement.
    private(set) var isCancelling = false
    private var cancelWaiters: [CheckedContinuation<Void, Never>] = []
    var lastCancel: ContinuousClock.Instant?

    /// The columns of the running stream or COPY.
    var currentColumns: ColumnSet?

    private var brokenWaiters: [CheckedContinuation<Void, Never>] = []
    var onNotification: ((String, String) -> Void)?
    /// Called for every error report of the server.
    var onServerError: ((PostgresError) -> Void)?

    /// The limit of a group: each member of a failed group runs again, so larger groups are costly.
    static let maximumGroup = 128

    private init(
        _ handle: ConnectionHandle,
        _ configuration: PostgresConfiguration,
        isShared: Bool,
        on loop: EventLoop
    ) {
        self.handle = handle
        self.configuration = configuration
        self.isShared = isShared
        self.loop = loop
        statements = StatementCache(limit: configuration.maximumPrepared)
    }

    // MARK: Connecting

    /// Connects and sets the session up.
    ///
    /// - Parameters:
    ///   - configuration: The pool's.
    ///   - start: Shared by all attempts of the slot.
    ///   - isShared: Whether failed groups run again.
    ///   - loop: The pool's.
    /// - Returns: A connection in pipeline mode.
    /// - Throws: `PostgresError.connect`.
    static func open(
        _ configuration: PostgresConfiguration,
        by start: ConnectionStart,
        isShared: Bool,
        on loop: EventLoop
    ) async throws -> PostgresConnection {
        let deadline = ContinuousClock.now + configuration.connectTimeout
        let handle = try await start.handle(within: configuration.connectTimeout)
        let connection = PostgresConnection(handle, configuration, isShared: isShared, on: loop)
        let timer = loop.schedule(after: deadline - .now) {
            connection.fail(PostgresError(.connect, "cannot connect to Postgres: timed out"))
        }
        defer { timer.cancel() }
        do {
            try await connection.finishConnecting()
        } catch {
            let cause = connection.brokenBy
            connection.fail(cause ?? .closed)
            if error is CancellationError { throw error }
            throw cause ?? error
        }
        return connection
    }

    private func finishConnecting() async throws {
        var step = ConnectionHandle.Step.writable
        while true {
            switch step {
            case .readable: try await waitForSocket(.readable)
            case .writable: try await waitForSocket(.writable)
            case .failed: throw PostgresError.connect(libpq: handle.errorText)
            case .connected:
                guard handle.setNonblocking() else {
                    throw PostgresError.connect(libpq: handle.errorText)
                }
                mode = .plain
                watchSocket()
                _ = try await runScript(configuration.sessionScript)
                try enterPipelineMode()
                return
            }
            // libpq may close this descriptor and open another.
            watch?.close()
            watch = nil
            step = handle.pollConnecting()
        }
    }

    func watchSocket() {
        // This does not leak: every connection breaks in the end, which closes the watch and so
        // releases the connection.
        watch = loop.watch(handle.descriptor) { self.ready($0) }
    }

    private func ready(_ readiness: DescriptorReadiness) {
        switch mode {
        case .connecting, .plain:
            watch?.interest = []
            let waiter = socketWaiter
            socketWaiter = nil
            waiter?.resume()
        case .pipeline: pipelineReady(readiness)
        case .broken: break
        }
    }

    // MARK: Waiting, outside the pipeline

    /// - Throws: The error that broke the connection; `CancellationError` if the task is cancelled
    ///   and `isCancellable` is true.
    func waitForSocket(
        _ interest: DescriptorReadiness,
        isCancellable: Bool = true,
        isolation: isolated (any Actor)? = #isolation
    ) async throws {
        loop.checkIsolated()
        if let brokenBy { throw brokenBy }
        if watch == nil { watchSocket() }
        guard isCancellable else {
            try await withCheckedThrowingContinuation { suspend($0, interest) }
            return
        }
        try Task.checkCancellation()
        try await withTaskCancellationHandler {
            // Without this capture the closure would run on the global pool: a closure does not
            // inherit the isolation of a nonisolated caller.
            _ = isolation
            try await withCheckedThrowingContinuation { suspend($0, interest) }
        } onCancel: {
            loop.execute {
                let waiter = self.socketWaiter
                self.socketWaiter = nil
                if waiter != nil { self.watch?.interest = [] }
                waiter?.resume(throwing: CancellationError())
            }
        }
    }

    private func suspend(
        _ continuation: CheckedContinuation<Void, any Error>,
        _ interest: DescriptorReadiness
    ) {
        loop.checkIsolated()
        precondition(socketWaiter == nil, "two wait for one socket")
        socketWaiter = continuation
        waitingSince = .now
        watch?.interest = interest
    }

    // MARK: Breaking

    /// Ends the connection: all its waiters get an error. A repeated call changes nothing.
    func fail(_ cause: PostgresError) {
        guard mode != .broken else { return }
        mode = .broken
        brokenBy = cause
        watch?.close()
        watch = nil
        let waiter = socketWaiter
        socketWaiter = nil
        waiter?.resume(throwing: cause)
        for request in ledger.abandon() {
            let isUnknown = isShared || request.commits
            request.finish(.failure(PostgresError.lost(cause, outcomeIsUnknown: isUnknown)))
        }
        for waiter in brokenWaiters + cancelWaiters { waiter.resume() }
        brokenWaiters = []
        cancelWaiters = []
        onNotification = nil
        onServerError = nil
    }

    /// Fails the connection after libpq reported it gone.
    func failFromLibpq() {
        fail(lastFatal ?? .lost(PostgresError(.connectionLost, "", detail: handle.errorText)))
    }

    var isUsable: Bool { mode == .plain || mode == .pipeline }

    func untilBroken() async {
        // The mode is checked inside the closure, as the task may be queued once more before the
        // closure runs.
        await withCheckedContinuation { waiter in
            if mode == .broken { waiter.resume() } else { brokenWaiters.append(waiter) }
        }
    }

    /// Closes the connection if the server has vanished: if a pipeline gets no byte for 10 s longer
    /// than the statement timeout, or a stream or COPY gets none within its silence limit.
    ///
    /// - Parameters:
    ///   - now: The time.
    ///   - most: A shorter limit for all of them; `nil` for none.
    /// - Returns: Whether it was closed because the server does not answer.
    func checkProgress(
        at now: ContinuousClock.Instant,
        within most: Duration? = nil
    ) -> Bool {
        if mode == .pipeline, !handle.isAlive {
            failFromLibpq()
            return false
        }
        let (usual, since): (Duration, ContinuousClock.Instant)
        switch mode {
        case .pipeline where !ledger.isEmpty:
            let timeout = configuration.statementTimeout
            (usual, since) = (timeout > .zero ? timeout + .seconds(10) : .zero, lastProgress)
        case .plain where socketWaiter != nil: (usual, since) = (silenceLimit, waitingSince)
        case .pipeline, .plain, .connecting, .broken: return false
        }
        let limits = [usual > .zero ? usual : nil, most].compactMap(\.self)
        guard let limit = limits.min(), now - since > limit else { return false }
        // If the server is only slow, it should not continue a statement that no task waits for.
        cancelRunning()
        fail(PostgresError(.connectionLost, "the server does not answer"))
        return true
    }

    // MARK: Cancelling

    /// Asks the server to end the running statement of this connection.
    func cancelRunning() {
        guard !isCancelling, isUsable, let cancellation = handle.makeCancellation() else { return }
        isCancelling = true
        lastCancel = .now
        cancellation.request { [loop] in loop.execute { self.cancellationIsSent() } }
    }

    /// Notes that the server has the cancellation, which may take effect a moment later.
    private func cancellationIsSent() {
        isCancelling = false
        lastCancel = .now
        for waiter in cancelWaiters { waiter.resume() }
        cancelWaiters = []
    }

    /// Returns when no cancellation is in flight, or the connection has broken.
    func settleCancellation() async {
        await withCheckedContinuation { waiter in
            if isCancelling, mode != .broken {
                cancelWaiters.append(waiter)
            } else {
                waiter.resume()
            }
        }
    }
}
