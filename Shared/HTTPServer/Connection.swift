internal import EventLoop
internal import HTTP2
internal import Observability

/// One accepted connection: its socket, its TLS session, its output of this turn. Confined to its
/// loop's thread.
///
/// States: open (handshake, then unknown protocol, then one driver), finishing (pending output is
/// sent, then our side ends), lingering (the peer's last bytes are discarded, so that the kernel
/// does not cut off the response with a reset), closed.
final class Connection: @unchecked Sendable {
    let id: Int
    let server: ServerLoop
    let stream: TCPStream
    let scheme: String
    let openedAt = ContinuousClock.now
    /// Whether the whole head of a request has arrived.
    var hasSentHead = false
    private(set) var clientCertificateSubject: String?

    private var tls: TLSSession?
    private(set) var driver: (any ProtocolDriver)?
    /// The first bytes, while they may still be HTTP/2's preface.
    private var firstBytes: [UInt8] = []
    private(set) var output = OutgoingBytes()
    private var flushIsDue = false
    private var isFinishing = false
    private var isLingering = false
    private(set) var isClosed = false
    private(set) var isStopping = false
    private var inputHasEnded = false
    /// Set while the kernel has not taken all output.
    private var progress: PeerProgress?
    /// Set while responses wait for the peer.
    var pace: DrainRate?
    /// The value of `heldBytes` that the loop has counted.
    var countedBytes = 0
    private var lingerDeadline: ContinuousClock.Instant?
    /// The running handlers, including streams.
    var handlers: [Int: Handler] = [:]
    /// When the peer ended its side while a response was outstanding.
    private var leftAt: ContinuousClock.Instant?
    var streams: [Int: HTTPBodyWriter] = [:]
    lazy var answerRoom = LargeResponseGate(
        limit: server.configuration.maximumHeldAnswerBytesPerConnection,
        on: server.loop
    ) { [weak self] in self?.heldBytes ?? 0 }

    /// The backlog beyond which a driver produces no further output until the peer has read.
    private static let congestionBytes = 256 * 1024
    /// The most bytes written at once; all of them stay in memory until the kernel has taken the
    /// last.
    private static let partBytes = 256 * 1024
    private static let lingerTime: Duration = .seconds(2)
    /// How long the requests of a peer that has ended its side are still handled: the peer may have
    /// gone, or may still read the responses.
    private static let timeLimit: Duration = .seconds(1)
    /// The most memory that an empty buffer may hold: there are thousands of connections.
    private var keptBytes = HTTP1Parser.keptBytes

    struct Handler {
        let request: RequestInProgress
        /// Nil until the first suspension.
        var task: Task<Void, Never>?
    }

    init(id: Int, server: ServerLoop, stream: TCPStream, tls: TLSSession?) {
        self.id = id
        self.server = server
        self.stream = stream
        self.tls = tls
        scheme = tls == nil ? "http" : "https"
    }

    func open() {
        unsafe stream.onRead = { [unowned self] bytes in unsafe received(bytes) }
        stream.onEnd = { [unowned self] end in ended(end) }
        stream.onWritten = { [unowned self] in written() }
        stream.startReading()
    }

    // MARK: Input

    private func received(_ bytes: UnsafeRawBufferPointer) {
        if isFinishing { return }
        guard let tls else { return unsafe receivedPlain(bytes) }
        switch unsafe tls.receive(bytes) {
        case .success(let plain):
            if driver == nil, tls.isEstablished {
                clientCertificateSubject = tls.peerSubject
                if tls.negotiatedProtocol == .http2 { startHTTP2() }
            }
            if !plain.isEmpty { unsafe plain.withUnsafeBytes { unsafe receivedPlain($0) } }
            flushSoon()
            if tls.peerHasFinished { inputEnded() }
        case .failure:
            server.instruments.refusedTLS.add(1)
            // The alert gives the reason to a peer that can read it.
            if let alert = tls.drain() { stream.write(alert) }
            abandon()
        }
    }

    private func receivedPlain(_ bytes: UnsafeRawBufferPointer) {
        if let driver { return unsafe driver.received(bytes) }
        unsafe firstBytes.append(contentsOf: bytes)
        let preface = HTTP2Connection.preface
        let common = min(firstBytes.count, preface.count)
        let mayBeHTTP2 = tls == nil && firstBytes[..<common] == preface[..<common]
        if mayBeHTTP2, common < preface.count { return }
        let first = firstBytes
        firstBytes = []
        if mayBeHTTP2 { startHTTP2() } else { start(HTTP1Connection(self)) }
        unsafe first.withUnsafeBytes { unsafe driver?.received($0) }
    }

    private func startHTTP2() {
        guard let driver = HTTP2Connection(self) else { return abort() }
        start(driver)
    }

    /// Switches from HTTP to a WebSocket; `rest` is what was read after the request.
    func become(_ socket: WebSocket, _ rest: [UInt8]) {
        driver = socket
        server.checkSeldom(self)
        // Most sockets are idle, and there are many.
        keptBytes = 0
        socket.open()
        if isStopping { return socket.beginStop() }
        if !rest.isEmpty { unsafe rest.withUnsafeBytes { unsafe socket.received($0) } }
        if isClosed || isFinishing { return }
        if inputHasEnded { socket.inputEnded() } else { resumeReading() }
    }

    private func start(_ driver: any ProtocolDriver) {
        self.driver = driver
        if isStopping { driver.beginStop() }
    }

    private func ended(_ end: TCPStream.End) {
        switch end {
        case .failed: close()
        case .finished where isFinishing || driver == nil: close()
        case .finished: inputEnded()
        }
    }

    private func inputEnded() {
        guard !inputHasEnded else { return }
        inputHasEnded = true
        leftAt = .now
        if let driver { driver.inputEnded() } else { abandon() }
    }

    func pauseReading() { stream.stopReading() }

    func resumeReading() {
        if !inputHasEnded { stream.startReading() }
    }

    // MARK: Output

    var isCongested: Bool { backlogBytes > Self.congestionBytes }

    /// The bytes written that the kernel has not taken.
    var backlogBytes: Int { stream.pendingBytes + output.count }

    func send(_ bytes: [UInt8]) {
        guard !isFinishing else { return }
        output.append(bytes)
        flushSoon()
    }

    func send(_ write: (inout [UInt8]) -> Void) {
        guard !isFinishing else { return }
        output.append(write)
        flushSoon()
    }

    /// Schedules one flush for all output of this turn.
    func flushSoon() {
        guard !flushIsDue, !isClosed else { return }
        flushIsDue = true
        server.flushAtEndOfTurn(self)
    }

    func flush() {
        guard !isClosed else { return }
        driver?.fillOutput()
        flushIsDue = false
        guard !isClosed else { return }
        let wasCongested = isCongested
        writeOutput()
        if stream.pendingBytes == 0 { progress = nil }
        if isFinishing, !isLingering, output.isEmpty { linger() }
        if !streams.isEmpty, stream.pendingBytes == 0 { outputMoved() }
        if wasCongested, !isCongested, !isClosed {
            // The kernel took everything at once, so `written` is not called.
            driver?.outputDrained()
            flushSoon()
        }
        countHeldBytes()
        checkDrainRate()
    }

    /// Writes as much as the kernel takes, and one part more.
    private func writeOutput() {
        while !output.isEmpty, stream.pendingBytes == 0 {
            output.take(upTo: Self.partBytes) { part in
                guard let tls else { return stream.write(part) }
                tls.send(part)
                if let sealed = tls.drain() { stream.write(sealed) }
            }
        }
        if output.isEmpty { output.clear(keeping: keptBytes) }
        guard let tls, output.isEmpty else { return }
        if isFinishing, !isLingering { tls.finish() }
        if let sealed = tls.drain() { stream.write(sealed) }
    }

    private func written() {
        if stream.pendingBytes == 0 { progress = nil }
        if isLingering {
            if stream.pendingBytes == 0 { lingerDeadline = .now + Self.lingerTime }
        } else {
            if !isCongested { driver?.outputDrained() }
            flushSoon()
        }
        if !streams.isEmpty { outputMoved() }
    }

    private func outputMoved() {
        for writer in streams.values { writer.outputMoved() }
    }

    /// Sends the pending output, then ends our side.
    func finish() {
        guard !isFinishing, !isClosed else { return }
        isFinishing = true
        server.checkOften(self)
        // Outstanding requests will not get a response.
        allClientsDisconnected()
        flushSoon()
    }

    private func linger() {
        isLingering = true
        lingerDeadline = .now + Self.lingerTime
        stream.shutDown()
        if inputHasEnded, stream.pendingBytes == 0 { close() } else { stream.startReading() }
    }

    /// Ends without a response.
    private func abandon() {
        isFinishing = true
        linger()
    }

    /// Drops the connection, so that the peer sees a reset.
    func abort() {
        guard !isClosed else { return }
        stream.closeWithReset()
        didClose()
    }

    func close() {
        guard !isClosed else { return }
        stream.close()
        didClose()
    }

    private func didClose() {
        isClosed = true
        isFinishing = true
        driver?.connectionClosed()
        for ticket in Array(streams.keys) { endStream(ticket, .disconnected) }
        driver = nil
        allClientsDisconnected()
        output.clear()
        pace = nil
        countHeldBytes()
        tls = nil
        server.closed(self)
    }

    // MARK: Requests

    var unansweredCount: Int { handlers.count }

    /// Runs a handler; the driver gets its response, perhaps before this returns.
    func run(_ progress: RequestInProgress, ticket: Int) {
        if progress.answerAtOnce() {
            progress.dropBody()
            _ = deliver(progress, ticket)
            return
        }
        handlers[ticket] = Handler(request: progress)
        progress.request.caller.use(answerRoom)
        let task = Task.immediate(executorPreference: server.loop) { [self] in
            await handle(progress, ticket)
        }
        handlers[ticket]?.task = task
    }

    private func handle(_ progress: RequestInProgress, _ ticket: Int) async {
        await progress.runHandler()
        progress.dropBody()
        guard let writer = deliver(progress, ticket) else { return }
        switch writer.stream.source {
        case .task(let body): await feed(writer, body)
        case .feed(let feed): leave(writer, to: feed)
        }
    }

    /// Gives the response to the driver; returns the writer if the body is streamed and must be
    /// fed.
    // If inlined, it would put copies of the response into the frame of every request's task.
    @inline(never)
    private func deliver(_ progress: RequestInProgress, _ ticket: Int) -> HTTPBodyWriter? {
        let response = progress.takeResponse()
        guard response.stream != nil else {
            answered(ticket, held(response, of: progress), to: progress)
            return nil
        }
        return startStream(response, of: progress, ticket)
    }

    /// Returns the response, or 503 if there is no room for it beside unread responses. A request
    /// that may have changed something always gets its response.
    private func held(
        _ response: consuming HTTPServerResponse,
        of progress: RequestInProgress
    ) -> HTTPServerResponse {
        let (bytes, method) = (response.body.count, progress.request.method)
        guard driver != nil, !server.makeRoom(for: bytes), bytes > ByteBudget.small,
            method == .get || method == .head
        else { return response }
        server.instruments.refused(503)
        let problem = HTTPProblem(
            status: 503,
            detail: "too many answers wait to be read",
            headers: ["Retry-After": "1"]
        )
        return server.router.errorResponse(problem, progress.request)
    }

    func answered(
        _ ticket: Int,
        _ response: HTTPServerResponse,
        to progress: RequestInProgress
    ) {
        server.loop.checkIsolated()
        handlers.removeValue(forKey: ticket)
        driver?.answered(ticket, response)
        progress.request.caller.leaveRoom()
        countHeldBytes()
    }

    /// Marks that the client no longer waits for the response to this request.
    func clientDisconnected(_ ticket: Int) {
        handlers[ticket]?.request.request.caller.leave()
    }

    private func allClientsDisconnected() {
        for handler in handlers.values { handler.request.request.caller.leave() }
    }

    func cancelTasks() {
        for handler in handlers.values { handler.task?.cancel() }
    }

    // MARK: Time

    func tick(_ now: ContinuousClock.Instant) {
        if isClosed { return }
        if let leftAt, now >= leftAt + Self.timeLimit { allClientsDisconnected() }
        if readsTooSlowly(now) {
            server.instruments.slowReaders.add(1)
            pace = nil
            if backlogBytes > 0 { return abort() }
            driver?.discardUnread()
        }
        if stream.pendingBytes > 0 {
            if hasStalled(now) { return abort() }
            // The streams wait for the connection's output, which moves, so their idle time
            // restarts.
            for writer in streams.values { writer.restartIdleTimer(now) }
        }
        for (ticket, writer) in streams {
            if let reason = writer.due(now, idleTimeout: server.configuration.idleTimeout) {
                endStream(ticket, reason)
            }
        }
        if isClosed { return }
        if stream.pendingBytes > 0 {
            // A request body that does not arrive times out even while output is pending.
            if !isFinishing { driver?.tick(now) }
        } else if let lingerDeadline {
            if now >= lingerDeadline { close() }
        } else if let driver {
            driver.tick(now)
        } else if now >= openedAt + server.configuration.headTimeout {
            guard !firstBytes.isEmpty else { return abandon() }
            // The peer has sent only a prefix of HTTP/2's preface: it gets 408, like any slow head.
            start(HTTP1Connection(self))
            let first = firstBytes
            firstBytes = []
            unsafe first.withUnsafeBytes { unsafe driver?.received($0) }
            driver?.tick(now)
        }
    }

    private func hasStalled(_ now: ContinuousClock.Instant) -> Bool {
        let taken = stream.takenBytes
        if progress == nil { progress = PeerProgress(taken: taken, at: now) }
        return progress?.isStalled(
            taken: taken,
            at: now,
            limit: server.configuration.idleTimeout
        ) == true
    }

    func beginStop() {
        isStopping = true
        for (ticket, writer) in streams where writer.stream.endsOnStop {
            endStream(ticket, .serverStops)
        }
        if let driver { driver.beginStop() } else { abandon() }
    }
}
