package import EventLoop
internal import HTTP2
package import Observability

/// Requests to one origin over several HTTP/2 connections, opened as load needs.
///
/// Authority: sole owner of its connections and of the queue of requests that found no free stream.
/// A request is given to a connection only if the peer's present stream limit has room, so no
/// request waits inside a connection. Each request ends exactly once: with its answer, or with an
/// error that says whether the request may have reached the peer (`isInDoubt`) or never left
/// (`requestWasNotSent`). A request moves to another connection automatically if a peer reports it
/// as not processed (GOAWAY, REFUSED_STREAM), if the socket had not taken it when its connection
/// died, or if a peer does not let all of it through for seconds. No other request is ever sent
/// twice.
///
/// A connection that lets nothing through is replaced within seconds. If its replacements fail as
/// well, the delays grow; after a few consecutive failures the waiting requests fail.
///
/// Confined to one loop. At the end of a turn the pool distributes the waiting requests: urgent
/// ones first, and in turns among their owners, so that no owner gets all streams (`FairShare`).
/// Then each connection writes once.
///
/// Shutdown: `close()` ends every request and leaves nothing registered with the loop;
/// `closeAfterLast()` takes no new requests and does the same once the present ones have ended. An
/// open pool keeps itself alive: its maker must close it.
@safe
package final class HTTP2Pool: @unchecked Sendable {
    package typealias Completion = (Int, Result<HTTP2Response, HTTPTransportError>) -> Void

    private enum State {
        case open, closing, closed
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
    private var table = RequestTable()
    private(set) var reconnect: ReconnectPolicy
    private var replacement: ReplacementPolicy
    /// The number of streams that a connection was last found to allow.
    private var usualStreams = 500
    private var isAtEndOfTurn = false
    /// Whether requests have returned to the queue since the last distribution.
    private var hasReturnedRequests = false
    private var timer: LoopTimer?
    private var timerPeriod = Duration.zero
    /// Whether another turn is scheduled that ends due requests.
    private var isEndingDue = false
    private let start = ContinuousClock.now
    private let tickMilliseconds: Int64
    /// Milliseconds since the start, updated when input arrives.
    private var now: Int64 = 0
    private var itself: HTTP2Pool?
    /// The read buffer of all connections: its bytes are consumed before the next one reads.
    let input: UnsafeMutableRawBufferPointer

    private static let restingTick = Duration.seconds(10)
    /// A request fails once the peer has refused its stream this often.
    private static let maximumRefusals = 10
    /// The waiting requests fail after this many consecutive connections without an answer.
    private static let maximumFailures = 3
    /// The least requests given to one connection at a time: fewer requests a write mean more
    /// writes.
    private static let smallestShare = 32
    /// The most timeouts in one turn.
    static let endsOfTurn = 100

    /// - Throws: `invalidRequest`, `hostRefused`, or `local` if the CA file does not load.
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
        tickMilliseconds = Int64(configuration.tick.milliseconds)
        // After all checks that may throw: an unfinished object has no `deinit`.
        unsafe input = UnsafeMutableRawBufferPointer.allocate(
            byteCount: HTTP2Connection.inputBytes,
            alignment: 16
        )
        reconnect = ReconnectPolicy(forgives: 2 * configuration.maximumConnections)
        replacement = ReplacementPolicy(burst: configuration.maximumConnections)
        itself = self
    }

    deinit { unsafe input.deallocate() }

    // MARK: For the pool's owner, on the loop

    /// The requests accepted and not yet ended.
    package var requestsInside: Int { table.count }

    /// The accepted requests that wait for a stream.
    package var requestsWaiting: Int { table.waiting }

    /// The lookups of a name: one for each connection, so that a provider's new addresses are
    /// found.
    package internal(set) var lookups = 0

    /// The connections that are established or connecting.
    package var connectionCount: Int { connections.count }

    /// Starts each request, in order as far as the connections allow.
    ///
    /// - Parameters:
    ///   - requests: The requests; urgent ones overtake others that wait for a stream.
    ///   - owner: Their owner, if several share the pool: for `withdraw`, and for a fair share.
    ///   - completion: Runs on the loop, once for each index, never before this returns.
    package func send(
        _ requests: consuming HTTP2Requests,
        of owner: ObjectIdentifier? = nil,
        completion: @escaping Completion
    ) {
        assert(loop.isCurrent)
        now = milliseconds
        let terms = requests.terms
        let isMeasured = configuration.waits != nil && terms.first?.isUrgent == true
        let batch = RequestTable.Batch(
            requests.batch,
            of: owner,
            since: isMeasured ? .now : nil,
            completion
        )
        let number = table.enter(owner)
        for index in terms.indices {
            guard state == .open, table.count < configuration.maximumRequests else {
                let kind: HTTPTransportError.Kind = state == .open ? .overloaded : .closed
                let error = HTTPTransportError(kind, requestWasNotSent: true)
                loop.atEndOfTurn { completion(index, .failure(error)) }
                continue
            }
            let due = now + terms[index].milliseconds + tickMilliseconds - 1
            table.add(
                batch,
                index,
                of: number,
                isUrgent: terms[index].isUrgent,
                due: due / tickMilliseconds,
                leastTicks: (requests.answerMilliseconds(of: terms[index]) + tickMilliseconds)
                    / tickMilliseconds
            )
        }
        table.leave(number)
        turnEnds()
    }

    /// Ends every request of which nothing has been written, with `withdrawn`, before this returns;
    /// such a request is never sent later. A request in flight continues to its end, and is not
    /// sent again if the peer reports that it did not process the request.
    ///
    /// - Parameter owner: The owner of the requests; nil for all owners.
    package func withdraw(of owner: ObjectIdentifier? = nil) {
        assert(loop.isCurrent)
        let withdrawn = table.withdraw(of: owner) { recall($0) }
        let error = HTTPTransportError(.withdrawn, requestWasNotSent: true)
        for ended in withdrawn { ended.tell(.failure(error)) }
        turnEnds()
    }

    /// Whether a request in flight will certainly never be sent.
    private func recall(_ place: RequestTable.Place) -> Bool {
        connections.first { $0.number == place.connection }?
            .session.recall(stream: place.stream) ?? false
    }

    /// Gives this connection no more requests, because of its answers; another connection replaces
    /// it. Does nothing if that would be more often than providers tolerate (`ReplacementPolicy`).
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
        for ended in table.endWaiting() { ended.tell(.failure(error)) }
        itself = nil
    }

    /// Takes no further requests, and closes once the present ones have ended.
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
        hasReturnedRequests = false
        for connection in connections {
            connection.flush()
            // A cancelled stream ends when its reset is written.
            takeCompletions(connection)
            if connection.rule.isRetiring, connection.phase == .open,
                connection.session.openStreams == 0, connection.pendingBytes == 0
            {
                connection.shut(Self.lost("retired"))
            }
        }
        if state == .closing, requestsInside == 0 { close() }
        if hasReturnedRequests { turnEnds() }
        setTimer()
    }

    private func shareOut() {
        while table.waiting > 0 {
            var best: HTTP2Connection?
            var room = 0
            var free = 0
            for connection in connections where connection.phase == .open {
                let capacity = capacity(connection)
                free += capacity
                if capacity > room { (best, room) = (connection, capacity) }
            }
            guard let best else { return }
            let fair = table.waiting / connections.count + 1
            let share = min(room, max(Self.smallestShare, fair))
            for index in 0..<share {
                // The remaining streams are reserved for owners without waiting requests.
                guard let number = table.next(freeStreams: free - index) else { return }
                if index == 0 { best.rule.sent(at: now) }
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
        guard let (batch, index) = table.batch(of: number) else { return }
        do {
            let stream = try connection.session.submit(batch.requests, index, tag: number)
            table.started(
                number,
                connection: connection.number,
                stream: stream,
                at: now,
                tick: now / tickMilliseconds
            )
            if let since = batch.since { configuration.waits?.observe(since.duration(to: .now)) }
        } catch {
            switch error {
            case .noStream:
                // The connection had capacity a moment ago, so it has no stream id left.
                table.putBack(number)
                connection.rule.retire()
            case .invalid: finish(number, .failure(Self.invalid))
            }
        }
    }

    private func openConnections() {
        guard table.waiting > 0, reconnect.wait(at: milliseconds) == 0 else { return }
        let count = reconnect.toOpen(
            requests: requestsInside,
            waiting: table.waiting,
            streams: streamsPerConnection(),
            usable: connections.count { !$0.rule.isRetiring },
            isConnecting: connections.contains { $0.phase == .connecting },
            limit: configuration.maximumConnections
        )
        // All connections, including those that only finish their last requests, are at most twice
        // the maximum.
        let room = configuration.maximumConnections * 2 - connections.count
        for _ in 0..<min(count, max(room, 0)) { openConnection() }
    }

    /// Returns the estimated streams of a further connection: the highest limit of the connections
    /// that take requests. A limit from before the peer has accepted a token does not count.
    private func streamsPerConnection() -> Int {
        var known = 0
        for connection in connections where connection.phase == .open {
            let limit = connection.peerStreamLimit
            if connection.rule.accepts(limit: limit) { known = max(known, limit) }
        }
        if known > 0 { usualStreams = min(known, configuration.maximumStreams) }
        return usualStreams
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
                rule: ConnectionPolicy(configuration.limits)
            )
            connections.append(connection)
            connection.start()
        } catch {
            failed(error, isFinal: true)
        }
    }

    // MARK: Events of connections

    func connected(_ connection: HTTP2Connection) {
        connection.rule.opened(at: milliseconds)
        turnEnds()
    }

    /// Notes that a socket that was full takes bytes again: its session may continue, and so may
    /// waiting requests.
    func drained() { turnEnds() }

    func received(_ connection: HTTP2Connection) {
        now = milliseconds
        connection.rule.heard(at: now)
        let session = connection.session
        let isSentAway = session.isGoingAway && !connection.rule.isRetiring
        if isSentAway {
            connection.wasSentAway = true
            connection.rule.retire()
            if let goaway = session.goaway, goaway.code != 0 || !goaway.text.isEmpty {
                let reason = "GOAWAY \(goaway.code) \(goaway.text)"
                log.info("provider ends a connection", [.reason: .string(reason)])
            }
        }
        takeCompletions(connection)
        if isSentAway { countEnd(of: connection) }
        if session.hasUndrainedRequests,
            session.isGoingAway || session.openStreams > session.peerStreamLimit
        {
            // Requests of which nothing was written return to the queue.
            _ = table.putBackAll(from: connection.number) { recall($0) }
        }
        turnEnds()
    }

    /// Notes that the peer ends a connection that has answered. If the peer repeatedly ends
    /// connections soon after they open, the next ones are delayed. The end of a connection without
    /// requests does not count.
    private func countEnd(of connection: HTTP2Connection) {
        guard connection.rule.hasAnswered,
            table.awaited(on: connection.number) > 0 || table.waiting > 0,
            connection.rule.endsEarly(at: now)
        else { return }
        reconnect.endedEarly(at: now, jitter: Double.random(in: 0..<1))
        guard reconnect.earlyEnds > 0 else { return }
        log.info("provider ends connections early", [.count: .integer(reconnect.earlyEnds)])
    }

    private func takeCompletions(_ connection: HTTP2Connection) {
        connection.session.takeCompletions { completed($0, connection, nil) }
    }

    /// Ends a request that was on a connection, or returns it to the queue; the only place to do
    /// so.
    private func completed(
        _ completion: HTTP2.Completion,
        _ connection: HTTP2Connection,
        _ end: HTTPTransportError?
    ) {
        let number = completion.tag
        guard table.isAwaited(number) else {
            _ = table.end(number)
            return
        }
        switch completion.outcome {
        case .answered(let answer):
            if !connection.rule.hasAnswered { reconnect.succeeded() }
            connection.rule.answered(status: answer.status, at: now)
            if connection.rule.hasJustLasted { reconnect.lasted() }
            finish(number, .success(HTTP2Response(answer, connection: connection.number)))
        case .notProcessed:
            let refusals = connection.session.isGoingAway ? 0 : table.refused(number)
            sendAgain(number, refusals, Self.lost("refused"))
        case .notSent: sendAgain(number, 0, end ?? Self.lost("not written"))
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

    private func sendAgain(_ number: Int, _ refusals: Int, _ error: HTTPTransportError) {
        guard state != .closed, refusals < Self.maximumRefusals else {
            var error = error
            error.requestWasNotSent = true
            return finish(number, .failure(error))
        }
        guard !table.isWithdrawn(number) else {
            let error = HTTPTransportError(.withdrawn, requestWasNotSent: true)
            return finish(number, .failure(error))
        }
        table.putBack(number)
        hasReturnedRequests = true
    }

    func ended(_ connection: HTTP2Connection, _ error: HTTPTransportError, wasOpen: Bool) {
        connections.removeAll { $0 === connection }
        // The peer sent GOAWAY, or something to which the session answered with GOAWAY.
        let wasSentAway = connection.wasSentAway
        now = milliseconds
        connection.session.abandon(writtenBytes: connection.writtenBytes) {
            completed($0, connection, error)
        }
        guard state != .closed else { return }
        let rule = connection.rule
        if !rule.hasAnswered, !wasOpen || wasSentAway || !rule.isRetiring {
            log.debug("connection failed", [.error: .string(error.debugDescription)])
            failed(error, isFinal: !wasOpen)
        } else if rule.hasAnswered, !rule.isRetiring {
            countEnd(of: connection)
        }
        turnEnds()
    }

    /// Notes that a connection failed. Waiting requests fail with the error, unless another
    /// connection can still serve them. If the failed connection was established at least, they
    /// fail only after a few consecutive failures.
    private func failed(_ error: HTTPTransportError, isFinal: Bool) {
        reconnect.failed(at: milliseconds, jitter: Double.random(in: 0..<1))
        guard !connections.contains(where: { !$0.rule.isRetiring }),
            isFinal || reconnect.failures >= Self.maximumFailures
        else { return }
        var error = error
        error.requestWasNotSent = true
        // Their completions may send again.
        for ended in table.endWaiting() { ended.tell(.failure(error)) }
    }

    private func finish(_ number: Int, _ result: Result<HTTP2Response, HTTPTransportError>) {
        table.end(number)?.tell(result)
    }

    // MARK: Time

    private var milliseconds: Int64 {
        let (seconds, attoseconds) = (ContinuousClock.now - start).components
        return seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }

    /// Sets one timer for all deadlines; a slow one if there are only idle connections.
    private func setTimer() {
        let isBusy = requestsInside > 0 || connections.contains { $0.phase == .connecting }
        let period =
            isBusy ? configuration.tick : connections.isEmpty ? Duration.zero : Self.restingTick
        guard period != timerPeriod || timer == nil else { return }
        timer?.cancel()
        timer = nil
        timerPeriod = period
        guard period > .zero, state != .closed else { return }
        timer = loop.schedule(after: period, every: period) { [unowned self] in timePasses() }
    }

    /// Ends timed-out requests. With a silent peer thousands time out at the same moment, each
    /// followed by a retry, a record or another request. So one turn ends only some of them, and
    /// other work runs in between.
    private func endDue() {
        guard state != .closed else { return }
        now = milliseconds
        let tick = now / tickMilliseconds
        let due = table.expire(to: tick, atMost: Self.endsOfTurn)
        for (ended, place) in due { timedOut(ended, place) }
        guard table.hasDue(by: tick), !isEndingDue else { return }
        isEndingDue = true
        // The next timer is not started in this timer's callback: libuv would run it before it
        // polls the sockets.
        loop.atEndOfTurn { [self] in
            loop.schedule(after: .zero) { [self] in
                isEndingDue = false
                endDue()
                turnEnds()
            }
        }
    }

    func timePasses() {
        endDue()
        for connection in connections where connection.phase == .open {
            let session = connection.session
            switch connection.rule.check(
                at: now,
                hasSettings: session.hasSettings,
                awaited: table.awaited(on: connection.number),
                isCongested: connection.isCongested,
                isStuck: isStuck(connection),
                movedBytes: session.drainedBodyBytes
            ) {
            case .none: break
            case .ping: try? session.ping()
            case .retire: connection.rule.retire()
            case .giveUp: connection.shut(Self.lost("silent"))
            case .stalled: stalled(connection)
            }
        }
        turnEnds()
    }

    private func isStuck(_ connection: HTTP2Connection) -> Bool {
        let session = connection.session
        let hasNoStream = session.peerStreamLimit == 0 && !connection.rule.isRetiring
        return hasNoStream && table.waiting > 0
            || session.hasUnfinishedRequests && !connection.isCongested
    }

    /// Replaces a connection whose peer lets nothing through. Requests that the peer has not taken
    /// as a whole return to the queue; the other requests are still awaited.
    private func stalled(_ connection: HTTP2Connection) {
        let isNews = !connection.rule.isRetiring
        connection.rule.retire()
        _ = table.putBackAll(from: connection.number) { place in
            connection.session.recallUnfinished(stream: place.stream)
        }
        let error = Self.lost("stalled")
        if isNews {
            log.info("provider connection lets nothing through", [.error: .string(error.detail)])
            failed(error, isFinal: false)
        }
        if table.awaited(on: connection.number) == 0 { connection.shut(error) }
    }

    private func timedOut(_ ended: RequestTable.Ended, _ place: RequestTable.Place?) {
        var wasNotSent = place == nil
        if let place, let connection = connections.first(where: { $0.number == place.connection }) {
            wasNotSent = connection.session.cancel(stream: place.stream)
            connection.rule.timedOut(sentAt: place.sentAt)
        }
        ended.tell(.failure(HTTPTransportError(.timeout, requestWasNotSent: wasNotSent)))
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
