internal import EventLoop

/// One HTTP/1 connection: one request at a time, in order, until one of the two wants no more.
///
/// Requests that come early wait in the parser; when there is much of them, reading pauses.
final class HTTP1Connection: ProtocolDriver {
    private enum Phase {
        case reading
        case responding
        /// The last answer is written; nothing more is read.
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
    private var currentKeepsAlive = true
    private var deadline: ContinuousClock.Instant?
    private var isIdle = false
    /// A scripted answer that never comes.
    private var isHung = false

    /// How much of later requests is taken in while one is answered.
    private static let readAheadBytes = 64 * 1024

    init(_ connection: Connection) {
        self.connection = connection
        server = connection.server
        let configuration = connection.server.configuration
        parser = HTTP1Parser(
            limits: HTTP1Parser.Limits(
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
        if phase == .responding || connection.isCongested,
            parser.bufferedBytes > Self.readAheadBytes
        {
            connection.pauseReading()
        }
    }

    func inputEnded() {
        inputHasEnded = true
        process()
    }

    func outputDrained() { process() }

    /// Takes the next request out of what has come.
    private func process() {
        guard !isProcessing else { return }
        isProcessing = true
        defer { isProcessing = false }
        while phase == .reading, !connection.isCongested {
            guard let event = parser.next() else { return waitForMore() }
            switch event {
            case .head(let head): begin(head)
            case .end(let body): dispatch(body)
            case .failure(let problem): refuse(problem)
            }
        }
    }

    private func waitForMore() {
        if inputHasEnded || (isStopping && !parser.isInsideRequest) {
            phase = .closing
            return connection.finish()
        }
        if owesContinue {
            owesContinue = false
            connection.send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8))
        }
        connection.resumeReading()
        // The first head is timed from the connection's start, a later one from its first byte.
        if isIdle, parser.isInsideRequest {
            isIdle = false
            deadline = .now + server.configuration.headTimeout
        }
    }

    private func begin(_ head: HTTP1Parser.Head) {
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
            let progress = RequestInProgress(request, server.router)
            parser.maximumBodyBytes =
                progress.match.maximumBodyBytes ?? server.configuration.maximumBodyBytes
            current = progress
        } catch {
            refuse(error)
        }
    }

    private func dispatch(_ body: [UInt8]) {
        guard var progress = current else { return refuse(bad("there was no head")) }
        owesContinue = false
        deadline = nil
        progress.request.body = body
        current = progress
        phase = .responding
        connection.run(progress, ticket: 0)
    }

    /// Answers a request that cannot be read to its end, so nothing after it can be either.
    private func refuse(_ problem: HTTPProblem) {
        server.instruments.refused(problem.status)
        let response =
            if let current {
                server.router.errorResponse(problem, current.request)
            } else {
                HTTPServerResponse.problem(problem)
            }
        write(response, closes: true)
    }

    func answered(_ ticket: Int, _ response: HTTPServerResponse) {
        guard phase == .responding else { return }
        switch response.effect {
        case .answer:
            write(response, closes: false)
        case .hang:
            isHung = true
            if isStopping { connection.abort() }
        case .reset:
            phase = .closing
            connection.abort()
        case .goaway:
            write(response, closes: true)
        }
    }

    private func write(_ response: HTTPServerResponse, closes: Bool) {
        let closes =
            closes || !currentKeepsAlive || isStopping
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
        if let current { server.record(current, response) }
        current = nil
        if closes {
            phase = .closing
            deadline = nil
            connection.finish()
        } else {
            phase = .reading
            isIdle = true
            deadline = .now + server.configuration.idleTimeout
            process()
        }
    }

    func tick(_ now: ContinuousClock.Instant) {
        guard phase == .reading, let deadline, now >= deadline else { return }
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
        if isHung { connection.abort() } else { process() }
    }

    func fillOutput() {}
}
