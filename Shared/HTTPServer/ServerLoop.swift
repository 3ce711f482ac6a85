internal import EventLoop
internal import Observability
internal import Synchronization

/// One loop's share of a server: its listeners, its connections, its timers. Confined to the loop's
/// thread.
final class ServerLoop: @unchecked Sendable {
    let loop: EventLoop
    let configuration: HTTPServerConfiguration
    let router: Router
    let log: Log
    let instruments: ServerMetrics
    var date = HTTPDate()
    /// The body bytes of all requests that are arriving or being handled.
    let heldBodyBytes: ByteBudget
    /// The bytes of responses in memory that peers have not read.
    let heldAnswerBytes = Atomic<Int>(0)
    /// The bytes of responses that are gathered part by part, before they are sent.
    let gatheredBytes: ByteBudget
    /// The connections that hold more than a small response.
    private var holders: [Int: Connection] = [:]
    /// The limit for new HTTP/2 connections; open connections are notified of a change.
    private(set) var maxConcurrentStreams: Int

    private let limits: ConnectionLimits
    private var listeners: [TCPListener] = []
    private var connections: [Int: Connection] = [:]
    /// The connections that are checked at each tick: all but those in `sockets`.
    private var checkedOften: [Int: Connection] = [:]
    /// The open WebSockets, in groups: one group is checked at each tick, as there may be many, and
    /// they are idle for hours.
    private var sockets = [[Int: Connection]](repeating: [:], count: 10)
    private var ticks = 0
    private var silent = SilentConnections()
    private var refusals = SummedLine()
    private var pauses = SummedLine()
    private var clock: LoopTimer?
    private var certificateWatch: LoopTimer?
    private var isReadingCertificate = false
    private var stopped: (() -> Void)?
    /// Connections that have sent further requests before the response to their first.
    private var postponed: [Int] = []
    private var postponedTurn: LoopTimer?
    /// The log lines of the requests that were answered in this turn.
    private var accessLines: LogLines
    /// The connections with output to write when this turn ends.
    private var unflushed: [Connection] = []

    /// How many postponed connections get a turn before the loop looks at its sockets again.
    private static let postponedPerTurn = 64

    init(
        loop: EventLoop,
        configuration: HTTPServerConfiguration,
        router: Router,
        limits: ConnectionLimits,
        instruments: ServerMetrics,
        log: Log
    ) {
        self.loop = loop
        self.configuration = configuration
        self.router = router
        self.limits = limits
        self.instruments = instruments
        self.log = log
        accessLines = LogLines(log)
        heldBodyBytes = ByteBudget(limit: configuration.maximumHeldBodyBytes)
        gatheredBytes = ByteBudget(limit: configuration.maximumHeldAnswerBytes)
        maxConcurrentStreams = configuration.http2.maxConcurrentStreams
    }

    /// Binds one listener and returns its port. The listener retains this object until
    /// `closeListeners`.
    func listen(port: Int, sharesPort: Bool, tls: TLSContextSource?) throws -> Int {
        let listener = try TCPListener(
            host: configuration.host,
            port: port,
            sharesPort: sharesPort,
            on: loop
        ) { [self] stream in accept(stream, tls) }
        listener.onPause = { [self] error in paused(error) }
        listeners.append(listener)
        if clock == nil {
            clock = loop.schedule(after: tickInterval, every: tickInterval) { [self] in
                tick()
            }
        }
        return listener.port
    }

    private func accept(_ stream: TCPStream, _ tls: TLSContextSource?) {
        // Without an address the peer has gone already, and its requests could not be counted.
        guard !stream.remoteAddress.isEmpty, admit(stream.remoteAddress) else {
            instruments.refusedConnections.add(1)
            return stream.closeWithReset()
        }
        var session: TLSSession?
        if let tls {
            session = tls.makeSession()
            // Without memory for a session the connection is refused; it must not become a plain
            // connection.
            guard session != nil else {
                limits.release(stream.remoteAddress)
                instruments.refusedTLS.add(1)
                return stream.closeWithReset()
            }
        }
        instruments.connections.add(1)
        let connection = Connection(
            id: nextConnectionID(),
            server: self,
            stream: stream,
            tls: session
        )
        connections[connection.id] = connection
        checkedOften[connection.id] = connection
        silent.opened(connection.id)
        connection.open()
    }

    private func admit(_ address: String, at now: ContinuousClock.Instant = .now) -> Bool {
        switch limits.admit(address) {
        case .admitted: return true
        case .isFull:
            if let oldest = silent.oldest(at: now, among: connections) {
                instruments.silentConnections.add(1)
                oldest.abort()
                // Another loop may have taken the place.
                if limits.admit(address) == .admitted { return true }
            }
        case .addressIsFull: break
        }
        if let count = refusals.event(at: now) {
            log.warning(
                "connections refused: too many are open",
                [.count: .integer(count), .networkPeer: .string(address)]
            )
        }
        return false
    }

    private func paused(_ error: EventLoopError) {
        instruments.acceptPauses.add(1)
        guard let count = pauses.event(at: .now) else { return }
        log.warning(
            "accepting paused",
            [.count: .integer(count), .error: .string("\(error)")]
        )
    }

    func closed(_ connection: Connection) {
        guard connections.removeValue(forKey: connection.id) != nil else { return }
        checkedOften[connection.id] = nil
        sockets[connection.id % sockets.count][connection.id] = nil
        instruments.connections.add(-1)
        limits.release(connection.stream.remoteAddress)
        for listener in listeners { listener.resume() }
        if connections.isEmpty { stopped?() }
    }

    // MARK: Time

    /// The tick interval: so short that no deadline is late by more than an eighth.
    private var tickInterval: Duration {
        let shortest = min(
            configuration.headTimeout,
            configuration.bodyTimeout,
            configuration.idleTimeout
        )
        return max(.milliseconds(10), min(.milliseconds(500), shortest / 8))
    }

    func tick(_ now: ContinuousClock.Instant = .now) {
        for connection in checkedOften.values { connection.tick(now) }
        ticks += 1
        for connection in sockets[ticks % sockets.count].values { connection.tick(now) }
        silent.compact(at: now, among: connections)
    }

    /// Checks a connection at every tenth tick, as it became a WebSocket.
    func checkSeldom(_ connection: Connection) {
        guard checkedOften.removeValue(forKey: connection.id) != nil else { return }
        sockets[connection.id % sockets.count][connection.id] = connection
    }

    /// Checks a connection at every tick again, as it is about to end.
    func checkOften(_ connection: Connection) {
        let group = connection.id % sockets.count
        guard sockets[group].removeValue(forKey: connection.id) != nil else { return }
        checkedOften[connection.id] = connection
    }

    // MARK: Fairness

    /// Gives a connection its next turn after the others, so that a thousand clients that send
    /// twenty requests each at once do not delay the rest for twenty thousand responses.
    func postpone(_ connection: Connection) {
        postponed.append(connection.id)
        servePostponed()
    }

    private func servePostponed() {
        guard postponedTurn == nil, !postponed.isEmpty else { return }
        postponedTurn = loop.schedule(after: .zero) { [self] in
            let next = Array(postponed.prefix(Self.postponedPerTurn))
            postponed.removeFirst(next.count)
            for id in next { connections[id]?.driver?.takeTurn() }
            // The next timer is not started in this timer's callback: libuv would run it before it
            // polls the sockets.
            loop.execute { [self] in
                postponedTurn = nil
                servePostponed()
            }
        }
    }

    // MARK: Responses that wait for their peers

    /// Updates the count of held bytes. Connections that hold at most a small response are closed
    /// for others only if the rest is not enough.
    func countHeldBytes(of connection: Connection, _ bytes: Int, before: Int) {
        if bytes == before { return }
        heldAnswerBytes.add(bytes - before, ordering: .relaxed)
        instruments.heldAnswers.add(bytes - before)
        let isHolder = bytes > ByteBudget.small
        if isHolder == (before > ByteBudget.small) { return }
        holders[connection.id] = isHolder ? connection : nil
    }

    /// Makes room for a response, if necessary by closing connections: first the one whose peer
    /// would take the longest to read its held bytes, at its rate so far. Closes no connection if
    /// closing them all would not make enough room.
    ///
    /// - Returns: False if there is no room, and it is too early to tell which peers read slowly.
    func makeRoom(for bytes: Int, at now: ContinuousClock.Instant = .now) -> Bool {
        let limit = configuration.maximumHeldAnswerBytes
        // Without this bound, a response larger than the limit would never have room.
        let needed = min(bytes, limit / 2)
        func missing() -> Int { heldAnswerBytes.load(ordering: .relaxed) + needed - limit }
        if missing() <= 0 { return true }
        for candidates in [Array(holders.values), Array(connections.values)] {
            let slowest =
                candidates
                .compactMap { connection in connection.secondsLeft(now).map { ($0, connection) } }
                .sorted { $0.0 > $1.0 }
            guard slowest.reduce(0, { $0 + $1.1.heldBytes }) >= missing() else { continue }
            for (_, connection) in slowest {
                instruments.slowReaders.add(1)
                connection.abort()
                if missing() <= 0 { return true }
            }
        }
        return false
    }

    // MARK: Output

    func flushAtEndOfTurn(_ connection: Connection) {
        unflushed.append(connection)
        guard unflushed.count == 1 else { return }
        loop.atEndOfTurn { [self] in
            let connections = unflushed
            unflushed = []
            for connection in connections { connection.flush() }
        }
    }

    // MARK: Stopping

    /// Takes no more connections, answers the requests in flight, and calls `done` when all
    /// connections are closed; the rest is cut off after `grace`.
    func stop(within grace: Duration, done: @escaping @Sendable () -> Void) {
        closeListeners()
        let deadline = loop.schedule(after: grace) { [self] in cutOff() }
        stopped = { [self] in
            stopped = nil
            deadline.cancel()
            stopClock()
            done()
        }
        for connection in Array(connections.values) { connection.beginStop() }
        if connections.isEmpty { stopped?() }
    }

    /// Checks the certificate files, on one loop of a server; they are read on the thread pool, as
    /// they may be on a network.
    func watchCertificate(_ tls: TLSContextSource) {
        certificateWatch = loop.schedule(after: .seconds(1), every: .seconds(1)) { [self] in
            guard !isReadingCertificate else { return }
            isReadingCertificate = true
            _ = Task.immediate(executorPreference: loop) { [self] in
                try? await loop.blocking { tls.reloadIfChanged() }
                isReadingCertificate = false
            }
        }
    }

    func closeListeners() {
        certificateWatch?.cancel()
        certificateWatch = nil
        if connections.isEmpty { stopClock() }
        for listener in listeners { listener.close() }
        listeners = []
    }

    func stopClock() {
        clock?.cancel()
        clock = nil
    }

    private func cutOff() {
        if !connections.isEmpty {
            log.warning(
                "connections cut off by the end of the grace period",
                [.count: .integer(connections.count)]
            )
        }
        for connection in Array(connections.values) {
            connection.cancelTasks()
            connection.abort()
        }
    }

    // MARK: Messages to connections

    /// Sets the limit for open and new connections.
    func setMaxConcurrentStreams(_ count: Int) {
        maxConcurrentStreams = count
        for connection in connections.values { connection.driver?.allowStreams(count) }
    }

    func setMaxConcurrentStreams(_ count: Int, connection id: Int) {
        connections[id]?.driver?.allowStreams(count)
    }

    /// Sends GOAWAY to one connection or to all.
    func sendGoAway(connection id: Int?, lastStreamID: Int?, code: UInt32, data: [UInt8]) {
        for connection in Array(connections.values) where id == nil || connection.id == id {
            connection.driver?.sendGoAway(lastStreamID: lastStreamID, code: code, data: data)
        }
    }

    // MARK: Records

    /// Logs a request whose head could not be read: it has no method and no route.
    func recordRefusal(_ status: Int, connection: Int, peer: String) {
        let level = configuration.accessLog ? LogLevel.info : .debug
        guard log.level <= level else { return }
        log.log(
            level,
            "request refused",
            [
                .httpStatus: .integer(status),
                .connection: .integer(connection),
                .networkPeer: .string(peer),
            ]
        )
    }

    func record(_ progress: RequestInProgress, _ response: HTTPServerResponse) {
        let duration = ContinuousClock.now - progress.startedAt
        instruments.answered(progress.request.method, response.status, after: duration)
        let level = configuration.accessLog ? progress.match.logLevel : .debug
        guard log.level <= level else { return }
        if accessLines.isEmpty { loop.atEndOfTurn { [self] in accessLines.writeAll() } }
        // The route, not the path: paths contain tokens.
        accessLines.add(
            level,
            "request answered",
            [
                .httpMethod: .string(progress.request.method.rawValue),
                .httpRoute: .string(progress.match.pattern),
                .httpStatus: .integer(response.status),
                .bytes: .integer(response.body.count),
                .durationMilliseconds: .double((duration / .microseconds(1)).rounded() / 1000),
                .connection: .integer(progress.request.connectionID),
                .networkPeer: .string(progress.request.remoteAddress),
            ]
        )
    }
}

private let connectionCount = Atomic<Int>(0)

private func nextConnectionID() -> Int {
    connectionCount.add(1, ordering: .relaxed).newValue
}
