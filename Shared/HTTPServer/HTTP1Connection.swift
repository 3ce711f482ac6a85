internal import EventLoop

/// One HTTP/1 connection: one request at a time, in order, until one side ends the connection.
///
/// Pipelined requests wait in the parser; reading pauses when many bytes of them wait.
final class HTTP1Connection: ProtocolDriver {
    private enum Phase {
        case reading
        /// The handler runs while the body of its request arrives.
        case receiving
        case responding
        /// The head of a response is sent, and its body follows in parts.
        case streaming
        /// The last response is written; nothing more is read.
        case closing
    }

    private unowned let connection: Connection
    private let server: ServerLoop
    private var parser: HTTP1Parser
    private var phase = Phase.reading
    private var isProcessing = false
    private var inputHasEnded = false
    private var isStopping = false
    private var owesContinue = false

    private var current: RequestInProgress?
    /// The body in `Phase.receiving`.
    private var reader: HTTPBodyReader?
    private var currentKeepsAlive = true
    private var deadline: ContinuousClock.Instant?
    private var isIdle = false
    /// Whether the handler has returned without a response.
    private var isUnanswered = false
    /// Counts requests, so that a late response is not matched to another request.
    private var ticket = 0
    /// Whether a request was answered in this turn; further requests wait, so that other
    /// connections get their turn.
    private var hasHadTurn = false
    private var isPostponed = false

    /// The most bytes of later requests that are read while a request is answered.
    private static let readAheadBytes = 64 * 1024

    init(_ connection: Connection) {
        self.connection = connection
        server = connection.server
        let configuration = connection.server.configuration
        parser = HTTP1Parser(
            limits: HTTP1Limits(
                targetBytes: configuration.maximumTargetBytes,
                headBytes: configuration.maximumHeadBytes,
                headerCount: configuration.maximumHeaderCount
            )
        )
        deadline = connection.openedAt + configuration.headTimeout
    }

    func received(_ bytes: UnsafeRawBufferPointer) {
        guard phase != .closing else { return }
        unsafe parser.append(bytes)
        process()
        guard parser.bufferedBytes > Self.readAheadBytes else { return }
        if phase == .streaming {
            // Reading must not pause here: without it, the connection would not notice that the
            // peer ends its side.
            connection.abort()
        } else if phase == .responding || isPostponed || connection.isCongested {
            connection.pauseReading()
        }
    }

    func inputEnded() {
        inputHasEnded = true
        if phase == .receiving {
            process()
            reader?.failAsDisconnected()
            return
        }
        // A client of a stream ends its own side only when it leaves.
        if phase == .streaming { connection.endStream(ticket, .disconnected) } else { process() }
    }

    func outputDrained() { process() }

    /// Takes the next request from the received bytes.
    private func process() {
        guard !isProcessing, !isPostponed else { return }
        isProcessing = true
        hasHadTurn = false
        defer { isProcessing = false }
        while phase == .reading || phase == .receiving, !connection.isCongested {
            if hasHadTurn, phase == .reading, parser.bufferedBytes > 0 {
                isPostponed = true
                return server.postpone(connection)
            }
            guard let event = parser.next() else { return waitForMore() }
            switch event {
            case .head(let head): begin(head)
            case .end(let body) where phase == .receiving: endBody(body)
            case .end(let body): dispatch(body)
            case .failure(let problem) where phase == .receiving: return failBody(problem)
            case .failure(let problem): refuse(problem, of: unreadRequest)
            }
        }
    }

    /// The known part of a request whose head could not be read.
    private var unreadRequest: HTTPServerRequest? {
        parser.failedTarget.flatMap { target in
            HTTPServerRequest(
                refused: .get,
                target,
                headers: [:],
                remoteAddress: connection.stream.remoteAddress,
                scheme: connection.scheme
            )
        }
    }

    /// Counts the received bytes of a body.
    private func holdBody() {
        guard let current else { return }
        do throws(HTTPProblem) {
            try current.hold(parser.bodyBytes)
        } catch {
            refuse(error)
        }
    }

    /// Begins the next turn of a connection that had more than one request.
    func takeTurn() {
        isPostponed = false
        process()
    }

    private func waitForMore() {
        if phase == .receiving { return passBody() }
        if inputHasEnded || (isStopping && !parser.isInsideRequest) {
            phase = .closing
            return connection.finish()
        }
        holdBody()
        guard phase == .reading else { return }
        if owesContinue {
            owesContinue = false
            connection.send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8))
        }
        connection.resumeReading()
        // The first head is timed from the connection's start, a later head from its first byte.
        if isIdle, parser.isInsideRequest {
            isIdle = false
            deadline = .now + server.configuration.headTimeout
        }
    }

    private func begin(_ head: HTTP1Head) {
        connection.hasSentHead = true
        currentKeepsAlive = head.keepsAlive
        owesContinue = head.expectsContinue
        isIdle = false
        deadline = head.hasBody ? .now + server.configuration.bodyTimeout : nil
        do throws(HTTPProblem) {
            let request = try HTTPServerRequest(
                head.method,
                head.target,
                headers: head.headers,
                remoteAddress: connection.stream.remoteAddress,
                scheme: connection.scheme,
                protocolVersion: head.version,
                clientCertificateSubject: connection.clientCertificateSubject,
                connectionID: connection.id
            )
            let progress = RequestInProgress(request, server)
            parser.maximumBodyBytes = progress.maximumBodyBytes
            current = progress
            if head.hasBody, let problem = server.router.refusalBeforeBody(request) {
                refuse(problem)
            } else if head.hasBody, progress.streamsBody {
                receive(progress)
            }
        } catch {
            let request = HTTPServerRequest(
                refused: head.method,
                head.target,
                headers: head.headers,
                remoteAddress: connection.stream.remoteAddress,
                scheme: connection.scheme
            )
            refuse(error, of: request)
        }
    }

    // MARK: Bodies that are handled while they arrive

    private func receive(_ progress: RequestInProgress) {
        let reader = progress.makeBodyReader()
        reader.onRoom = { [weak self] in
            if self?.phase == .receiving { self?.connection.resumeReading() }
        }
        self.reader = reader
        deadline = nil
        phase = .receiving
        ticket += 1
        connection.run(progress, ticket: ticket)
    }

    private func passBody() {
        guard let reader else { return }
        if owesContinue {
            owesContinue = false
            connection.send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8))
        }
        reader.append(parser.takeBody())
        if phase == .receiving {
            if reader.isFull { connection.pauseReading() } else { connection.resumeReading() }
        }
    }

    private func endBody(_ rest: [UInt8]) {
        owesContinue = false
        phase = .responding
        let reader = reader
        self.reader = nil
        reader?.append(rest)
        reader?.end()
    }

    private func failBody(_ problem: HTTPProblem) {
        server.instruments.refused(problem.status)
        connection.pauseReading()
        reader?.fail(problem)
    }

    private func dispatch(_ body: [UInt8]) {
        guard let progress = current else { return refuse(bad("there was no head")) }
        owesContinue = false
        deadline = nil
        phase = .responding
        ticket += 1
        do throws(HTTPProblem) {
            try progress.takeBody(body)
            connection.run(progress, ticket: ticket)
        } catch {
            server.instruments.refused(error.status)
            write(server.router.errorResponse(error, progress.request), closes: false)
        }
    }

    /// Refuses a request that cannot be read to its end; nothing after it can be read either.
    private func refuse(_ problem: HTTPProblem, of request: HTTPServerRequest? = nil) {
        server.instruments.refused(problem.status)
        let response =
            if let request = current?.request ?? request {
                server.router.errorResponse(problem, request)
            } else {
                HTTPServerResponse.problem(problem)
            }
        write(response, closes: true)
    }

    func answered(_ ticket: Int, _ response: HTTPServerResponse) {
        guard isOpen(ticket) else { return }
        if let upgrade = response.upgrade { return switchProtocol(upgrade, response) }
        guard let ending = response.ending else { return write(response, closes: false) }
        ending(Exchange(connection: self, ticket: ticket, response: response))
        guard isOpen(ticket) else { return }
        isUnanswered = true
        if isStopping { connection.abort() }
    }

    /// Hands the connection over to a WebSocket.
    private func switchProtocol(_ upgrade: WebSocketUpgrade, _ response: HTTPServerResponse) {
        phase = .closing
        deadline = nil
        var head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade"
        head += "\r\nSec-WebSocket-Accept: \(upgrade.handshake.accept)"
        if let subprotocol = upgrade.subprotocol {
            head += "\r\nSec-WebSocket-Protocol: \(cleanFieldValue(subprotocol))"
        }
        connection.send(Array((head + "\r\n\r\n").utf8))
        if let current {
            var answer = response
            answer.status = 101
            server.record(current, answer)
        }
        current = nil
        let rest = parser.takeRest()
        connection.become(WebSocket(connection, upgrade), rest)
    }

    private func isOpen(_ ticket: Int) -> Bool {
        (phase == .responding || phase == .receiving) && ticket == self.ticket
    }

    private struct Exchange: HTTPExchange {
        let connection: HTTP1Connection
        let ticket: Int
        let response: HTTPServerResponse

        func answer() {
            if connection.isOpen(ticket) { connection.write(response, closes: false) }
        }

        func reset(code: UInt32) {
            guard connection.isOpen(ticket) else { return }
            connection.phase = .closing
            connection.connection.abort()
        }

        func goaway(lastStreamID: Int?, code: UInt32, data: [UInt8]) {}
    }

    private func write(_ response: HTTPServerResponse, closes: Bool) {
        // The rest of a body is not read.
        let closes =
            closes || !currentKeepsAlive || isStopping || phase == .receiving
            || response.headers.hasToken("close", in: "connection")
        let request = current?.request
        connection.send { output in
            writeHTTP1(
                response,
                to: request?.method,
                version: request?.protocolVersion ?? .http11,
                closes: closes,
                date: server.date.now(),
                into: &output
            )
        }
        if let current {
            server.record(current, response)
        } else {
            server.recordRefusal(
                response.status,
                connection: connection.id,
                peer: connection.stream.remoteAddress
            )
        }
        current = nil
        reader = nil
        if closes {
            phase = .closing
            deadline = nil
            parser.discard()
            connection.finish()
        } else {
            startOver()
        }
    }

    /// Waits for the next request.
    private func startOver() {
        phase = .reading
        hasHadTurn = true
        isIdle = true
        deadline = .now + server.configuration.idleTimeout
        process()
    }

    // MARK: Streamed responses

    func startStream(_ ticket: Int, _ response: HTTPServerResponse) -> Bool {
        guard isOpen(ticket), let request = current?.request,
            sendsBody(response, to: request.method)
        else { return false }
        // In HTTP/1.0 only the end of the connection marks the end of a body.
        currentKeepsAlive =
            currentKeepsAlive && !isStopping && phase != .receiving
            && request.protocolVersion == .http11
            && !response.headers.hasToken("close", in: "connection")
        phase = .streaming
        connection.send { output in
            writeHTTP1(
                response,
                to: request.method,
                version: request.protocolVersion,
                closes: !currentKeepsAlive,
                date: server.date.now(),
                into: &output
            )
        }
        return true
    }

    func sendPart(_ ticket: Int, _ bytes: [UInt8]) {
        guard phase == .streaming, ticket == self.ticket else { return }
        let isChunked = current?.request.protocolVersion == .http11
        connection.send { output in
            if isChunked { output.append(contentsOf: "\(String(bytes.count, radix: 16))\r\n".utf8) }
            output.append(contentsOf: bytes)
            if isChunked { output.append(contentsOf: "\r\n".utf8) }
        }
    }

    func backlog(_ ticket: Int) -> Int { connection.backlogBytes }

    func endStream(_ ticket: Int, isWhole: Bool, isLast: Bool) {
        guard phase == .streaming, ticket == self.ticket else { return }
        phase = .closing
        guard isWhole else { return connection.abort() }
        if current?.request.protocolVersion == .http11 {
            connection.send(Array("0\r\n\r\n".utf8))
        }
        current = nil
        if isLast || isStopping || !currentKeepsAlive { connection.finish() } else { startOver() }
    }

    func tick(_ now: ContinuousClock.Instant) {
        if phase == .receiving { reader?.tick(now) }
        guard phase == .reading else { return }
        // The idle time begins once the peer has read the previous response.
        if isIdle, connection.backlogBytes > 0 {
            deadline = now + server.configuration.idleTimeout
        }
        guard !isPostponed, let deadline, now >= deadline else { return }
        self.deadline = nil
        guard parser.isInsideRequest else {
            phase = .closing
            return connection.finish()
        }
        let part = parser.isInsideHead ? "head" : "body"
        refuse(HTTPProblem(status: 408, detail: "the \(part) took too long"))
    }

    func beginStop() {
        isStopping = true
        if phase == .receiving { failBody(HTTPProblem(status: 503, detail: "the service stops")) }
        if isUnanswered { connection.abort() } else { process() }
    }

    func connectionClosed() { reader?.failAsDisconnected() }

    func fillOutput() {}

    func allowStreams(_ count: Int) {}
    func sendGoAway(lastStreamID: Int?, code: UInt32, data: [UInt8]) {}

    // A whole response is put into the connection's output at once.
    var heldBytes: Int { 0 }
    var unsentBytes: Int { 0 }
    var sentBytes: Int? { nil }

    func discardUnread() { connection.abort() }
}
