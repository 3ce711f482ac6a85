internal import EventLoop
internal import HTTP2
internal import Observability

/// One HTTP/2 connection: a libnghttp2 session, and the phase of each of its streams.
final class HTTP2Connection: ProtocolDriver {
    private enum Phase {
        case head
        case body
        /// The handler runs while the body of its request arrives.
        case receiving
        /// The request is complete, and waits until the peer has read enough of the earlier
        /// responses.
        case waiting
        case responding
        /// The head of a response is sent, and its body follows in parts.
        case streaming
        /// Answered, or reset. The rest of the request is read and discarded, up to a limit: a
        /// client whose stream is reset while it sends loses the response (libcurl 7.88).
        case done
        /// The handler has returned without a response.
        case unanswered
    }

    private struct Stream {
        var phase = Phase.head
        var deadline: ContinuousClock.Instant?
        var request: RequestInProgress?
        var body: [UInt8] = []
        /// The body in `Phase.receiving`.
        var reader: HTTPBodyReader?
        var maximumBodyBytes = 0
        var discardedBytes = 0
        /// The bytes of the response that flow control held back at the last tick.
        var unsent: Int?
    }

    static let preface = HTTP2.clientPreface

    private unowned let connection: Connection
    private let server: ServerLoop
    private let session: HTTP2ServerSession
    private var streams: [Int32: Stream] = [:]
    /// The highest limit ever announced: a client may still use it while a lower limit is in
    /// flight.
    private var mostStreams: Int
    private var bufferedBytes = 0
    /// The requests in `Phase.waiting`, and some whose streams are closed.
    private var waiting: [Int32] = []
    private var isPostponed = false
    private var idleSince = ContinuousClock.now
    private var isHandlingEvents = false
    /// When the stop was announced; the last GOAWAY follows once clients have had time to see the
    /// announcement.
    private var stoppingSince: ContinuousClock.Instant?
    private var hasSaidLast = false
    private var hasFailed = false

    private static let maximumDiscardedBytes = 1024 * 1024
    private static let discardTime: Duration = .seconds(2)
    private static let announcementTime: Duration = .milliseconds(100)

    /// Makes a session; nil if libnghttp2 has no memory for it.
    init?(_ connection: Connection) {
        self.connection = connection
        server = connection.server
        mostStreams = server.maxConcurrentStreams
        let settings = HTTP2ServerSession.Settings(
            maxConcurrentStreams: connection.server.maxConcurrentStreams,
            initialWindowBytes: server.configuration.http2.initialWindowBytes,
            maximumHeadBytes: server.configuration.maximumHeadBytes
        )
        guard let session = try? HTTP2ServerSession(settings) else { return nil }
        self.session = session
        connection.flushSoon()
    }

    // MARK: In

    func received(_ bytes: UnsafeRawBufferPointer) {
        guard !hasFailed else { return }
        attempt { () throws(HTTP2SessionError) in try unsafe session.receive(bytes) }
        handleEvents()
        connection.flushSoon()
    }

    func inputEnded() { connection.finish() }

    private func handleEvents() {
        guard !isHandlingEvents else { return }
        isHandlingEvents = true
        defer { isHandlingEvents = false }
        while !connection.isClosed {
            let events = session.takeEvents()
            if events.isEmpty { return }
            for event in events { handle(event) }
        }
    }

    private func handle(_ event: HTTP2.ServerEvent) {
        switch event {
        case .opened(let id):
            streams[id] = Stream(deadline: .now + server.configuration.headTimeout)
        case .head(let id, let head):
            begin(id, head)
        case .body(let id, let bytes):
            gather(id, bytes)
        case .end(let id):
            dispatch(id)
        case .closed(let id, _):
            let stream = streams.removeValue(forKey: id)
            bufferedBytes -= stream?.body.count ?? 0
            if stream?.phase == .streaming { connection.endStream(Int(id), .disconnected) }
            if stream?.phase == .responding || stream?.phase == .receiving {
                connection.clientDisconnected(Int(id))
            }
            if let reader = stream?.reader {
                reader.failAsDisconnected()
                readOn()
            }
            if streams.isEmpty { idleSince = .now }
        }
    }

    private func begin(_ id: Int32, _ head: HTTP2.RequestHead) {
        guard var stream = streams[id], stream.phase == .head else { return }
        stream.phase = .body
        stream.deadline = .now + server.configuration.bodyTimeout
        streams[id] = stream
        do throws(HTTPProblem) {
            let progress = RequestInProgress(try makeRequest(id, head), server)
            connection.hasSentHead = true
            stream.request = progress
            stream.maximumBodyBytes = progress.maximumBodyBytes
            streams[id] = stream
            let declared = progress.request.headers["content-length"].flatMap { Int($0) } ?? 0
            if declared > stream.maximumBodyBytes {
                refuse(id, tooLarge(stream))
            } else if head.method == "POST",
                let problem = server.router.refusalBeforeBody(progress.request)
            {
                refuse(id, problem)
            } else if progress.streamsBody {
                receive(id, progress)
            }
        } catch {
            refuse(id, error, of: head)
        }
    }

    /// Runs the handler of a body that arrives.
    private func receive(_ id: Int32, _ progress: RequestInProgress) {
        let reader = progress.makeBodyReader()
        reader.onRoom = { [weak self] in self?.readOn() }
        streams[id]?.reader = reader
        streams[id]?.deadline = nil
        start(id, progress, as: .receiving)
    }

    /// Reads on once no body waits for its handler. A full body holds up the whole connection.
    private func readOn() {
        let isHeldUp = streams.values.contains { $0.reader?.isFull == true }
        if isHeldUp { connection.pauseReading() } else { connection.resumeReading() }
    }

    private func makeRequest(
        _ id: Int32,
        _ head: HTTP2.RequestHead
    ) throws(HTTPProblem) -> HTTPServerRequest {
        let configuration = server.configuration
        guard !head.isTooLarge, head.fields.count <= configuration.maximumHeaderCount else {
            throw HTTPProblem(status: 431, detail: "the head is too large")
        }
        guard head.path.utf8.count <= configuration.maximumTargetBytes else {
            throw HTTPProblem(status: 414, detail: "the target is too long")
        }
        guard let method = HTTPMethod(rawValue: head.method) else {
            throw HTTPProblem(status: 501, detail: "the method is not known")
        }
        guard head.path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "#") })
        else { throw bad("the target has a character that cannot be in it") }
        var headers = HTTPHeaders(
            head.fields.map { HTTPHeaders.Field(name: $0.name, value: $0.value) }
        )
        if !head.authority.isEmpty { headers["host"] = head.authority }
        guard headers.all("host").count == 1, isHost((headers["host"] ?? "").utf8) else {
            throw bad("invalid host")
        }
        return try HTTPServerRequest(
            method,
            head.path,
            headers: headers,
            remoteAddress: connection.stream.remoteAddress,
            scheme: connection.scheme,
            protocolVersion: .http2,
            clientCertificateSubject: connection.clientCertificateSubject,
            connectionID: connection.id,
            streamID: Int(id)
        )
    }

    private func gather(_ id: Int32, _ bytes: [UInt8]) {
        guard var stream = streams[id] else { return }
        if stream.phase == .receiving, let reader = stream.reader {
            reader.append(bytes)
            if reader.isFull { connection.pauseReading() }
            return
        }
        guard stream.phase == .body else {
            stream.discardedBytes += bytes.count
            streams[id] = stream
            if stream.discardedBytes > Self.maximumDiscardedBytes {
                reset(id, HTTP2.ErrorCode.noError)
            }
            return
        }
        guard stream.body.count + bytes.count <= stream.maximumBodyBytes else {
            return refuse(id, tooLarge(stream))
        }
        guard bufferedBytes + bytes.count <= server.configuration.http2.maximumBufferedBytes else {
            streams[id]?.phase = .done
            return reset(id, HTTP2.ErrorCode.enhanceYourCalm)
        }
        do throws(HTTPProblem) {
            try stream.request?.hold(stream.body.count + bytes.count)
        } catch {
            return refuse(id, error)
        }
        bufferedBytes += bytes.count
        streams[id]?.body.append(contentsOf: bytes)
    }

    private func dispatch(_ id: Int32) {
        if let reader = streams[id]?.reader {
            streams[id]?.reader = nil
            if streams[id]?.phase == .receiving { streams[id]?.phase = .responding }
            reader.end()
            // Nothing more comes for it, whether its handler reads the rest or not.
            return readOn()
        }
        guard var stream = streams[id], stream.phase == .body,
            let progress = stream.request
        else { return }
        do throws(HTTPProblem) {
            try progress.takeBody(stream.body)
        } catch {
            return refuse(id, error)
        }
        stream.phase = .waiting
        stream.deadline = nil
        streams[id] = stream
        if waiting.isEmpty, connection.hasRoomForAnswers {
            run(id)
        } else {
            waiting.append(id)
        }
    }

    /// Begins waiting requests, in order, while there is room for further responses.
    func takeTurn() {
        isPostponed = false
        var begun = 0
        while begun < waiting.count, connection.hasRoomForAnswers, !connection.isClosed {
            begun += 1
            run(waiting[begun - 1])
        }
        waiting.removeFirst(min(begun, waiting.count))
        connection.flushSoon()
    }

    private func run(_ id: Int32) {
        guard var stream = streams[id], stream.phase == .waiting, let progress = stream.request
        else { return }
        bufferedBytes -= stream.body.count
        stream.body = []
        streams[id] = stream
        start(id, progress, as: .responding)
    }

    private func start(_ id: Int32, _ progress: RequestInProgress, as phase: Phase) {
        // Handlers outlive the streams that their clients reset.
        guard connection.unansweredCount < 2 * max(mostStreams, 100) else {
            return fail(
                HTTP2SessionError(
                    errorCode: HTTP2.ErrorCode.enhanceYourCalm,
                    "more requests are being handled than streams may be open"
                )
            )
        }
        streams[id]?.phase = phase
        connection.run(progress, ticket: Int(id))
    }

    // MARK: Out

    /// Refuses a request that is not read to its end, and cancels the rest of it.
    private func refuse(
        _ id: Int32,
        _ problem: HTTPProblem,
        of head: HTTP2.RequestHead? = nil
    ) {
        guard let stream = streams[id] else { return }
        server.instruments.refused(problem.status)
        let request = stream.request?.request ?? head.flatMap(refused)
        let response =
            request.map { server.router.errorResponse(problem, $0) }
            ?? HTTPServerResponse.problem(problem)
        submit(id, response)
    }

    /// Returns the known part of a request whose head is invalid.
    private func refused(_ head: HTTP2.RequestHead) -> HTTPServerRequest? {
        var headers = HTTPHeaders(
            head.fields.map { HTTPHeaders.Field(name: $0.name, value: $0.value) }
        )
        if !head.authority.isEmpty { headers["host"] = head.authority }
        return HTTPServerRequest(
            refused: HTTPMethod(rawValue: head.method) ?? .get,
            head.path,
            headers: headers,
            remoteAddress: connection.stream.remoteAddress,
            scheme: connection.scheme
        )
    }

    private func tooLarge(_ stream: Stream) -> HTTPProblem {
        HTTPProblem(
            status: 413,
            detail: "the body is larger than \(stream.maximumBodyBytes) bytes"
        )
    }

    func answered(_ ticket: Int, _ response: HTTPServerResponse) {
        let id = Int32(ticket)
        guard isOpen(id) else { return }
        if let ending = response.ending {
            ending(Exchange(connection: self, id: id, response: response))
            if isOpen(id) { streams[id]?.phase = .unanswered }
        } else {
            submit(id, response)
        }
        finishIfDone()
        connection.flushSoon()
    }

    /// Whether a handler still has to answer.
    private func isOpen(_ id: Int32) -> Bool {
        let phase = streams[id]?.phase
        return phase == .responding || phase == .receiving
    }

    private struct Exchange: HTTPExchange {
        let connection: HTTP2Connection
        let id: Int32
        let response: HTTPServerResponse

        private var isOpen: Bool { connection.isOpen(id) }

        func answer() {
            if isOpen { connection.submit(id, response) }
        }

        func reset(code: UInt32) {
            guard isOpen else { return }
            connection.streams[id]?.phase = .done
            connection.reset(id, code)
        }

        func goaway(lastStreamID: Int?, code: UInt32, data: [UInt8]) {
            connection.sendGoAway(lastStreamID: lastStreamID, code: code, data: data)
        }
    }

    private func submit(_ id: Int32, _ response: HTTPServerResponse) {
        guard let stream = streams[id] else { return }
        sendHead(id, response, isOpen: false)
        bufferedBytes -= stream.body.count
        streams[id]?.body = []
        stream.request?.dropBody()
        // A request body that is still arriving keeps its deadline. Otherwise the peer gets a
        // deadline for reading the response.
        streams[id]?.phase = .done
        if stream.reader != nil {
            streams[id]?.reader = nil
            readOn()
        }
        if stream.deadline == nil {
            streams[id]?.deadline = .now + server.configuration.idleTimeout
        }
        if let progress = stream.request { server.record(progress, response) }
    }

    private func sendHead(_ id: Int32, _ response: HTTPServerResponse, isOpen: Bool) {
        let method = streams[id]?.request?.request.method
        var fields: [HTTP2.Field] = []
        for field in response.headers where !isFramedByServer(field.name) {
            let name = field.name.lowercased()
            guard name != "upgrade", name != "proxy-connection",
                !name.isEmpty, name.utf8.allSatisfy(isTokenByte)
            else { continue }
            fields.append(HTTP2.Field(name: name, value: cleanFieldValue(field.value)))
        }
        fields.append(HTTP2.Field(name: "date", value: server.date.now()))
        if let length = contentLength(of: response, to: method) {
            fields.append(HTTP2.Field(name: "content-length", value: String(length)))
        }
        attempt { () throws(HTTP2SessionError) in
            try session.submitResponse(
                stream: id,
                status: responseStatus(response.status),
                fields: fields,
                body: sendsBody(response, to: method) ? response.body : [],
                isOpen: isOpen
            )
        }
    }

    func startStream(_ ticket: Int, _ response: HTTPServerResponse) -> Bool {
        let id = Int32(ticket)
        guard let stream = streams[id], isOpen(id),
            sendsBody(response, to: stream.request?.request.method)
        else { return false }
        streams[id]?.phase = .streaming
        sendHead(id, response, isOpen: true)
        connection.flushSoon()
        return true
    }

    func sendPart(_ ticket: Int, _ bytes: [UInt8]) {
        attempt { () throws(HTTP2SessionError) in
            try session.append(stream: Int32(ticket), bytes)
        }
    }

    func backlog(_ ticket: Int) -> Int { session.unsentBytes(stream: Int32(ticket)) }

    func endStream(_ ticket: Int, isWhole: Bool, isLast: Bool) {
        let id = Int32(ticket)
        guard streams[id]?.phase == .streaming else { return }
        streams[id]?.phase = .done
        streams[id]?.deadline = .now + server.configuration.idleTimeout
        if isWhole {
            attempt { () throws(HTTP2SessionError) in try session.endBody(stream: id) }
        } else {
            reset(id, HTTP2.ErrorCode.internalError)
        }
        connection.flushSoon()
    }

    private func reset(_ id: Int32, _ code: UInt32) {
        attempt { () throws(HTTP2SessionError) in try session.reset(stream: id, code: code) }
    }

    func outputDrained() {}

    func fillOutput() {
        while !connection.isCongested, !hasFailed {
            let bytes = session.drain()
            if bytes.isEmpty { break }
            connection.send(bytes)
        }
        // Sending may have ended streams, which makes events.
        handleEvents()
        if !hasFailed, session.isFinished { connection.finish() }
        if !waiting.isEmpty, !isPostponed, connection.hasRoomForAnswers {
            isPostponed = true
            server.postpone(connection)
        }
    }

    func discardUnread() {
        for (id, stream) in streams where session.unsentBytes(stream: id) > 0 {
            switch stream.phase {
            case .done:
                streams[id]?.deadline = nil
                reset(id, HTTP2.ErrorCode.noError)
            case .streaming:
                connection.discardUnread(Int(id))
            case .head, .body, .receiving, .waiting, .responding, .unanswered: break
            }
        }
        connection.flushSoon()
    }

    var heldBytes: Int { session.heldBytes }
    var unsentBytes: Int { session.unsentBytes }
    var sentBytes: Int? { session.sentBodyBytes }

    /// Runs a call on the session; a failed session closes its connection after its last frames.
    private func attempt(_ body: () throws(HTTP2SessionError) -> Void) {
        do throws(HTTP2SessionError) {
            try body()
        } catch {
            fail(error)
        }
    }

    private func fail(_ error: HTTP2SessionError) {
        guard !hasFailed else { return }
        if error.errorCode == HTTP2.ErrorCode.enhanceYourCalm {
            server.instruments.floods.add(1)
            server.log.info(
                "HTTP/2 connection closed for flooding",
                [
                    .error: .string(error.description),
                    .networkPeer: .string(connection.stream.remoteAddress),
                ]
            )
        }
        hasFailed = true
        connection.send(session.finalBytes(error))
        connection.finish()
    }

    // MARK: Time and ends

    func tick(_ now: ContinuousClock.Instant) {
        for (id, stream) in streams {
            stream.reader?.tick(now)
            guard let deadline = stream.deadline else { continue }
            if stream.phase == .done, hasMoved(id, now) {
                streams[id]?.deadline = max(deadline, now + server.configuration.idleTimeout)
                continue
            }
            guard now >= deadline else { continue }
            switch stream.phase {
            case .head:
                return connection.abort()
            case .body:
                streams[id]?.deadline = now + Self.discardTime
                refuse(id, HTTPProblem(status: 408, detail: "the body took too long"))
            case .receiving, .waiting, .responding, .streaming, .unanswered:
                streams[id]?.deadline = nil
            case .done:
                streams[id]?.deadline = nil
                reset(id, HTTP2.ErrorCode.noError)
            }
        }
        if let stoppingSince, !hasSaidLast, now >= stoppingSince + Self.announcementTime {
            hasSaidLast = true
            attempt { () throws(HTTP2SessionError) in try session.goaway() }
        } else if streams.isEmpty, now >= idleSince + server.configuration.idleTimeout {
            attempt { () throws(HTTP2SessionError) in try session.goaway() }
        }
        finishIfDone()
        connection.flushSoon()
    }

    /// Whether the peer has taken some of a response since the last check; a response that waits
    /// for the connection's output counts as moving.
    private func hasMoved(_ id: Int32, _ now: ContinuousClock.Instant) -> Bool {
        let unsent = session.unsentBytes(stream: id)
        guard unsent > 0 else { return false }
        if connection.backlogBytes > 0 { return true }
        defer { streams[id]?.unsent = unsent }
        return streams[id]?.unsent.map { unsent < $0 } ?? true
    }

    func beginStop() {
        guard stoppingSince == nil else { return }
        stoppingSince = .now
        for stream in streams.values {
            stream.reader?.fail(HTTPProblem(status: 503, detail: "the service stops"))
        }
        attempt { () throws(HTTP2SessionError) in try session.announceEnd() }
        connection.flushSoon()
    }

    func connectionClosed() {
        for stream in streams.values { stream.reader?.failAsDisconnected() }
    }

    /// Finishes a stop; streams without a response do not delay it.
    private func finishIfDone() {
        guard hasSaidLast, streams.values.contains(where: { $0.phase == .unanswered }),
            streams.values.allSatisfy({ $0.phase == .unanswered })
        else { return }
        connection.finish()
    }

    func allowStreams(_ count: Int) {
        mostStreams = max(mostStreams, count)
        attempt { () throws(HTTP2SessionError) in try session.setMaxConcurrentStreams(count) }
        connection.flushSoon()
    }

    func sendGoAway(lastStreamID: Int?, code: UInt32, data: [UInt8]) {
        attempt { () throws(HTTP2SessionError) in
            try session.goaway(
                lastStreamID: lastStreamID.map { Int32(clamping: $0) },
                code: code,
                data: data
            )
        }
        connection.flushSoon()
    }
}
