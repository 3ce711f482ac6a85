package import EventLoop
internal import HTTP2
package import Observability

/// Requests to one origin over several HTTP/2 connections, opened as load needs.
///
/// Authority: owns its connections and the queue of requests that found no free stream; nobody
/// else uses them. A request is given to a connection only where the peer's stream limit of that
/// moment has room, so none waits inside a connection. Each ends exactly once: with its answer, or
/// with an error that says whether it may have reached the peer (`isInDoubt`) or never left
/// (`requestWasNotSent`). What a peer says it has not processed (GOAWAY, REFUSED_STREAM), and what
/// no socket had taken when its connection died, moves to another connection by itself; nothing
/// else is ever sent twice.
///
/// Confined to one loop. At the end of a turn the waiting requests are shared out, and each
/// connection writes once.
///
/// Shutdown: `close()` ends every request and leaves nothing registered with the loop;
/// `closeAfterLast()` takes no new requests and does the same once those inside are through. An
/// open pool keeps itself alive: whoever makes one closes it.
package final class HTTP2Pool: @unchecked Sendable {
    package typealias Completion = (Int, Result<HTTP2Response, HTTPTransportError>) -> Void

    private enum State {
        case open, closing, closed
    }

    /// Requests that came together are kept together, until the last of them has ended.
    private final class Batch {
        let requests: [HTTP2Request]
        let completion: Completion

        init(_ requests: [HTTP2Request], _ completion: @escaping Completion) {
            self.requests = requests
            self.completion = completion
        }
    }

    private struct Slot {
        /// Nil where the request has ended.
        var batch: Batch?
        var index = 0
        /// Negative while it waits.
        var sentAt: Int64 = -1
        var connection = 0
        var stream: Int32 = 0
        var refusals: Int32 = 0
    }

    let configuration: HTTP2PoolConfiguration
    let loop: EventLoop
    private let log: Log
    private let url: URLParts
    private let verdict: HostPolicy.Verdict
    private let trust: TrustStore
    private var state = State.open
    private(set) var connections: [HTTP2Connection] = []
    private var connectionsMade = 0
    private var slots: ContiguousArray<Slot> = []
    private var freeSlots: [Int] = []
    private var waiting = WaitingLine()
    private var wheel = DeadlineWheel()
    private var reconnect = ReconnectRule()
    private var replacement: ReplacementRule
    /// What the last connection was allowed.
    private var usualStreams = 500
    private var isAtEndOfTurn = false
    private var timer: LoopTimer?
    private var timerPeriod = Duration.zero
    private let start = ContinuousClock.now
    /// Since the start, read anew where something comes in.
    private var now: Int64 = 0
    private var itself: HTTP2Pool?

    private static let tick = Duration.milliseconds(50)
    private static let restingTick = Duration.seconds(10)
    /// A peer that refuses a stream again and again means it.
    private static let maximumRefusals = 10
    /// Connections in a row that stood, and ended without an answer.
    private static let patience = 3
    /// At least so many requests go to one connection at a time: fewer bytes a write, more writes.
    private static let smallestShare = 32

    /// - Throws: `invalidRequest`, `hostRefused`, or `local` where the CA file does not load.
    package init(
        _ configuration: HTTP2PoolConfiguration,
        on loop: EventLoop,
        log: Log = .disabled
    ) throws(HTTPTransportError) {
        guard let url = URLParts(configuration.origin), url.scheme == "https" else {
            throw HTTPTransportError(.invalidRequest, requestWasNotSent: true, detail: "origin")
        }
        verdict = configuration.transport.allowedHosts.verdict(on: url)
        guard verdict != .refused else {
            throw HTTPTransportError(.hostRefused, requestWasNotSent: true, detail: url.host)
        }
        trust = try TrustStore.shared(caFile: configuration.transport.caFile)
        self.url = url
        self.configuration = configuration
        self.loop = loop
        self.log = log
        replacement = ReplacementRule(burst: configuration.maximumConnections)
        itself = self
    }

    // MARK: For its owner, on the loop

    /// Requests accepted and not yet ended.
    package var requestsInside: Int { wheel.count }

    /// Connections that stand, or are being made.
    package var connectionCount: Int { connections.count }

    /// Starts each of them, in order as far as the connections allow. `completion` runs on the
    /// loop, once for each index, never before this returns.
    package func send(_ requests: [HTTP2Request], completion: @escaping Completion) {
        assert(loop.isCurrent)
        now = milliseconds
        let batch = Batch(requests, completion)
        for (index, request) in requests.enumerated() {
            guard state == .open, wheel.count < configuration.maximumRequests else {
                let kind: HTTPTransportError.Kind = state == .open ? .overloaded : .closed
                let error = HTTPTransportError(kind, requestWasNotSent: true)
                loop.atEndOfTurn { completion(index, .failure(error)) }
                continue
            }
            let slot = Slot(batch: batch, index: index)
            let number = freeSlots.popLast() ?? slots.count
            if number == slots.count { slots.append(slot) } else { slots[number] = slot }
            let due = (now + Int64(request.timeout.milliseconds) + Self.tickMilliseconds - 1)
            wheel.add(number, due: due / Self.tickMilliseconds)
            waiting.add(number)
        }
        turnEnds()
    }

    /// Gives this connection nothing more, as what came over it was bad; others take its place.
    /// Not more often than providers bear.
    package func retire(_ connection: Int, because reason: String) {
        guard let found = connections.first(where: { $0.number == connection }),
            !found.rule.isRetiring, replacement.admits(at: milliseconds)
        else { return }
        log.info("provider connection replaced", [.reason: .string(reason)])
        found.rule.retire()
        turnEnds()
    }

    /// Ends every request with `closed` and closes every connection. Safe to repeat.
    package func close() {
        assert(loop.isCurrent)
        guard state != .closed else { return }
        state = .closed
        timer?.cancel()
        timer = nil
        let error = HTTPTransportError(.closed, requestWasNotSent: true)
        for connection in connections { connection.shut(error) }
        while let number = waiting.next() { finish(number, .failure(error)) }
        itself = nil
    }

    /// Takes no further requests, and closes once those inside are through.
    package func closeAfterLast() {
        assert(loop.isCurrent)
        guard state == .open else { return }
        state = .closing
        turnEnds()
    }

    // MARK: The end of a turn

    private func turnEnds() {
        guard !isAtEndOfTurn, state != .closed else { return }
        isAtEndOfTurn = true
        loop.atEndOfTurn { self.atEndOfTurn() }
    }

    private func atEndOfTurn() {
        isAtEndOfTurn = false
        guard state != .closed else { return }
        now = milliseconds
        shareOut()
        openConnections()
        for connection in connections {
            connection.flush()
            // Cancelled streams end as they are written.
            takeCompletions(connection)
            if connection.rule.isRetiring, connection.phase == .open,
                connection.session.openStreams == 0, connection.pendingBytes == 0
            {
                connection.shut(Self.lost("retired"))
            }
        }
        if state == .closing, requestsInside == 0 { close() }
        setTimer()
    }

    private func shareOut() {
        while waiting.count > 0 {
            var best: HTTP2Connection?
            var room = 0
            for connection in connections where connection.phase == .open {
                let free = capacity(connection)
                if free > room { (best, room) = (connection, free) }
            }
            guard let best else { return }
            let fair = waiting.count / connections.count + 1
            let share = min(room, max(Self.smallestShare, fair))
            best.rule.sent(at: now)
            for _ in 0..<share {
                guard let number = waiting.next() else { break }
                submit(number, on: best)
            }
        }
    }

    private func capacity(_ connection: HTTP2Connection) -> Int {
        guard !connection.isCongested else { return 0 }
        let session = connection.session
        return connection.rule.capacity(free: session.freeStreams, open: session.openStreams)
    }

    private func submit(_ number: Int, on connection: HTTP2Connection) {
        // One that has run out of time while it waited.
        guard let batch = slots[number].batch else { return forget(number) }
        let index = slots[number].index
        do {
            slots[number].stream = try connection.session.submit(
                batch.requests[index].head.template,
                path: batch.requests[index].path,
                values: batch.requests[index].values,
                body: batch.requests[index].body,
                tag: number
            )
            slots[number].connection = connection.number
            slots[number].sentAt = now
            connection.awaited += 1
        } catch {
            switch error {
            case .noStream:
                // Its capacity was asked a moment ago: it has no stream id left.
                waiting.putBack(number)
                connection.rule.retire()
            case .invalid: finish(number, .failure(Self.invalid))
            }
        }
    }

    /// One that had run out of time while it waited is out of the line.
    private func forget(_ number: Int) {
        waiting.passed()
        freeSlots.append(number)
    }

    private func openConnections() {
        guard waiting.live > 0, reconnect.wait(at: milliseconds) == 0 else { return }
        let count = reconnect.toOpen(
            requests: requestsInside,
            waiting: waiting.live,
            streams: usualStreams,
            usable: connections.count { !$0.rule.isRetiring },
            isConnecting: connections.contains { $0.phase == .connecting },
            limit: configuration.maximumConnections
        )
        // Those that only end their last requests count too, but never so that nothing can start.
        let room = configuration.maximumConnections * 2 - connections.count
        for _ in 0..<min(count, max(room, 0)) { openConnection() }
    }

    private func openConnection() {
        connectionsMade += 1
        do throws(HTTPTransportError) {
            let connection = try HTTP2Connection(
                number: connectionsMade,
                pool: self,
                url: url,
                verdict: verdict,
                trust: trust,
                rule: ConnectionRule(configuration.limits)
            )
            connections.append(connection)
            connection.start()
        } catch {
            failed(error, isFinal: true)
        }
    }

    // MARK: What connections tell

    func connected(_ connection: HTTP2Connection) {
        connection.rule.opened(at: milliseconds)
        turnEnds()
    }

    /// A socket that was full takes bytes again: its session may go on, and so may those in line.
    func drained() { turnEnds() }

    func received(_ connection: HTTP2Connection) {
        now = milliseconds
        connection.rule.heard(at: now)
        let session = connection.session
        if session.isGoingAway, !connection.rule.isRetiring {
            connection.rule.retire()
            if let goaway = session.goaway, goaway.code != 0 || !goaway.text.isEmpty {
                let reason = "GOAWAY \(goaway.code) \(goaway.text)"
                log.info("provider ends a connection", [.reason: .string(reason)])
            }
        }
        takeCompletions(connection)
        turnEnds()
    }

    private func takeCompletions(_ connection: HTTP2Connection) {
        connection.session.takeCompletions { completed($0, connection, nil) }
    }

    /// The one place where a request that was on a connection ends, or goes back into the line.
    private func completed(
        _ completion: HTTP2.Completion,
        _ connection: HTTP2Connection,
        _ end: HTTPTransportError?
    ) {
        let number = completion.tag
        guard slots[number].batch != nil else { return freeSlots.append(number) }
        connection.awaited -= 1
        switch completion.outcome {
        case .answered(let answer):
            if !connection.rule.hasAnswered {
                reconnect.succeeded()
                usualStreams = max(
                    1,
                    min(configuration.maximumStreams, connection.session.peerStreamLimit)
                )
            }
            connection.rule.answered(status: answer.status, at: now)
            finish(number, .success(HTTP2Response(answer, connection: connection.number)))
        case .notProcessed:
            slots[number].refusals += connection.session.isGoingAway ? 0 : 1
            sendAgain(number, Self.lost("refused"))
        case .notSent: sendAgain(number, end ?? Self.lost("not written"))
        case .unsendable: finish(number, .failure(Self.invalid))
        case .reset(let code): finish(number, .failure(Self.lost("reset \(code)")))
        case .lost:
            var error = end ?? Self.lost("")
            error.requestWasNotSent = false
            finish(number, .failure(error))
        case .tooLarge:
            finish(
                number,
                .failure(HTTPTransportError(.responseTooLarge, requestWasNotSent: false))
            )
        case .malformed:
            finish(
                number,
                .failure(HTTPTransportError(.protocolViolation, requestWasNotSent: false))
            )
        }
    }

    private func sendAgain(_ number: Int, _ error: HTTPTransportError) {
        guard state != .closed, slots[number].refusals < Self.maximumRefusals else {
            var error = error
            error.requestWasNotSent = true
            return finish(number, .failure(error))
        }
        slots[number].sentAt = -1
        waiting.putBack(number)
    }

    func ended(_ connection: HTTP2Connection, _ error: HTTPTransportError, wasOpen: Bool) {
        connections.removeAll { $0 === connection }
        let wasSentAway = connection.session.goaway != nil
        connection.session.abandon(writtenBytes: connection.writtenBytes) {
            completed($0, connection, error)
        }
        guard state != .closed else { return }
        let rule = connection.rule
        if !rule.hasAnswered, !wasOpen || wasSentAway || !rule.isRetiring {
            log.debug("connection failed", [.error: .string(error.debugDescription)])
            failed(error, isFinal: !wasOpen)
        }
        turnEnds()
    }

    /// A connection led nowhere. Those that wait for one hear why, unless another may still come,
    /// or this one at least stood and it has not happened often.
    private func failed(_ error: HTTPTransportError, isFinal: Bool) {
        reconnect.failed(at: milliseconds, jitter: Double.random(in: 0..<1))
        guard !connections.contains(where: { !$0.rule.isRetiring }),
            isFinal || reconnect.failures >= Self.patience
        else { return }
        var error = error
        error.requestWasNotSent = true
        // Their completions may send again.
        for number in waiting.takeAll() { finish(number, .failure(error)) }
    }

    private func finish(_ number: Int, _ result: Result<HTTP2Response, HTTPTransportError>) {
        freeSlots.append(number)
        guard let batch = slots[number].batch.take() else { return }
        let index = slots[number].index
        wheel.remove(number)
        batch.completion(index, result)
    }

    // MARK: Time

    private static var tickMilliseconds: Int64 { Int64(tick.milliseconds) }

    private var milliseconds: Int64 {
        let (seconds, attoseconds) = (ContinuousClock.now - start).components
        return seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }

    /// One timer for all deadlines; a slow one where nothing but idle connections is left.
    private func setTimer() {
        let isBusy = requestsInside > 0 || connections.contains { $0.phase == .connecting }
        let period =
            isBusy ? Self.tick : connections.isEmpty ? Duration.zero : Self.restingTick
        guard period != timerPeriod || timer == nil else { return }
        timer?.cancel()
        timer = nil
        timerPeriod = period
        guard period > .zero, state != .closed else { return }
        timer = loop.schedule(after: period, every: period) { [unowned self] in timePasses() }
    }

    func timePasses() {
        now = milliseconds
        for number in wheel.advance(to: now / Self.tickMilliseconds) { timedOut(number) }
        // Where nothing moves, the line still does.
        while let first = waiting.first, slots[first].batch == nil, let number = waiting.next() {
            forget(number)
        }
        for connection in connections where connection.phase == .open {
            let session = connection.session
            switch connection.rule.check(
                at: now,
                hasSettings: session.hasSettings,
                awaited: connection.awaited,
                isCongested: connection.isCongested
            ) {
            case .none: break
            case .ping: try? session.ping()
            case .retire: connection.rule.retire()
            case .giveUp: connection.shut(Self.lost("silent"))
            }
        }
        turnEnds()
    }

    /// The slot stays taken until its stream has ended, or its turn in the line has come.
    private func timedOut(_ number: Int) {
        let slot = slots[number]
        guard let batch = slots[number].batch.take() else { return }
        var wasNotSent = slot.sentAt < 0
        if wasNotSent {
            waiting.left()
        } else if let connection = connections.first(where: { $0.number == slot.connection }) {
            wasNotSent = connection.session.cancel(stream: slot.stream)
            connection.awaited -= 1
            connection.rule.timedOut(sentAt: slot.sentAt)
        }
        let error = HTTPTransportError(.timeout, requestWasNotSent: wasNotSent)
        batch.completion(slot.index, .failure(error))
    }

    private static let invalid = HTTPTransportError(
        .invalidRequest,
        requestWasNotSent: true,
        detail: "header"
    )

    private static func lost(_ detail: String) -> HTTPTransportError {
        HTTPTransportError(.connectionLost, requestWasNotSent: false, detail: detail)
    }
}
