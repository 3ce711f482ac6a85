internal import EventLoop

/// A body that is made while it is sent: server-sent events, or what is too large to hold.
package struct HTTPBodyStream: Sendable {
    /// The answer is ended, whole, after this long; nil leaves that to the handler.
    package var maximumDuration: Duration?
    /// An endless body is ended, whole, when the server stops; one with an end is waited for.
    package var endsOnStop: Bool
    let source: Source

    enum Source: Sendable {
        /// In the task of its request's handler.
        case task(@Sendable (HTTPBodyWriter) async throws -> Void)
        case feed(any HTTPStreamFeed)
    }

    /// - Parameters:
    ///   - maximumDuration: See there.
    ///   - endsOnStop: See there.
    ///   - body: Ends the answer by returning. What it throws cuts the answer off, so that the peer can
    ///     tell.
    package init(
        maximumDuration: Duration? = nil,
        endsOnStop: Bool = false,
        body: @escaping @Sendable (HTTPBodyWriter) async throws -> Void
    ) {
        self.maximumDuration = maximumDuration
        self.endsOnStop = endsOnStop
        source = .task(body)
    }

    /// An endless body that somebody writes who has many of them: it has no task of its own, and
    /// nothing is kept of its request.
    package init(fedBy feed: any HTTPStreamFeed) {
        endsOnStop = true
        source = .feed(feed)
    }
}

/// Who writes a streamed body now and then. Called on the loop of its connection.
package protocol HTTPStreamFeed: AnyObject, Sendable {
    /// The head is on its way; from now on `HTTPBodyWriter.post` reaches the peer.
    func began(_ writer: HTTPBodyWriter)

    /// What the peer hears before the answer is ended, because the server stops or by
    /// `HTTPBodyWriter.finish`.
    func lastWords() -> [UInt8]

    /// The answer takes no more. Not called where it never began.
    func ended(_ writer: HTTPBodyWriter)
}

/// Why a streamed answer takes no more; its task is cancelled too.
package enum HTTPStreamEnded: Error, Equatable {
    /// The peer has gone, or called the answer off.
    case disconnected
    /// The peer took nothing for the server's idle time.
    case stalled
    /// The stream's longest time is over.
    case deadline
    case serverStops
    /// Who feeds it has no more to say.
    case finished
}

/// Where a handler writes a streamed body to. Usable from anywhere; its state is its loop's.
///
/// What is written and not taken by the peer is bounded: 64 KiB and one write.
package final class HTTPBodyWriter: @unchecked Sendable {
    /// How much may wait for the peer before a writer has to.
    static let backlogBytes = 64 * 1024

    let ticket: Int
    let response: HTTPServerResponse
    let stream: HTTPBodyStream
    let progress: RequestInProgress
    private weak var connection: Connection?
    private let loop: EventLoop
    private let deadline: ContinuousClock.Instant?
    private(set) var ended: HTTPStreamEnded?
    private var waiters: [Waiter] = []
    /// When the peer last took something, or had nothing to take.
    private var lastTaken = ContinuousClock.now
    private var lastBacklog = 0

    /// Nil for an answer that is whole.
    init?(
        _ response: HTTPServerResponse,
        _ progress: RequestInProgress,
        _ ticket: Int,
        _ at: Connection
    ) {
        guard let stream = response.stream else { return nil }
        self.response = response
        self.stream = stream
        self.progress = progress
        self.ticket = ticket
        connection = at
        loop = at.server.loop
        deadline = stream.maximumDuration.map { .now + $0 }
    }

    /// Sends `bytes` at the end of this turn, and returns once the peer has taken all but 64 KiB.
    ///
    /// - Throws: `HTTPStreamEnded`; the bytes of that call may be lost. `CancellationError` when
    ///   its task is cancelled while it waits.
    package func write(_ bytes: [UInt8]) async throws {
        if loop.isCurrent {
            if let ended { throw ended }
            submit(bytes)
            if hasRoom { return }
        }
        let isSubmitted = loop.isCurrent
        let waiter = Waiter()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation {
                (continuation: CheckedContinuation<Void, any Error>) in
                if isSubmitted {
                    wait(waiter, continuation)
                } else {
                    loop.execute { self.submitFromElsewhere(bytes, waiter, continuation) }
                }
            }
        } onCancel: {
            loop.execute { self.cancel(waiter) }
        }
    }

    /// Sends `bytes` at the end of this turn. On the loop only.
    ///
    /// - Returns: False where nothing is sent: the answer has ended, or its peer has not taken what was
    ///   sent before.
    @discardableResult
    package func post(_ bytes: [UInt8]) -> Bool {
        loop.checkIsolated()
        guard ended == nil, hasRoom else { return false }
        submit(bytes)
        return true
    }

    /// Ends a fed answer, whole, after its feed's last words; nothing where it has ended. On the loop
    /// only.
    package func finish() {
        loop.checkIsolated()
        connection?.endStream(ticket, .finished)
    }

    /// One call that waits for room; confined to the loop. A cancellation may come first.
    private final class Waiter: @unchecked Sendable {
        var continuation: CheckedContinuation<Void, any Error>?
        var isCancelled = false
    }

    private func submitFromElsewhere(
        _ bytes: [UInt8],
        _ waiter: Waiter,
        _ continuation: CheckedContinuation<Void, any Error>
    ) {
        if let ended { return continuation.resume(throwing: ended) }
        submit(bytes)
        if hasRoom { continuation.resume() } else { wait(waiter, continuation) }
    }

    private func wait(_ waiter: Waiter, _ continuation: CheckedContinuation<Void, any Error>) {
        // It may have ended, and its task been cancelled for that, since the write began.
        if let ended { return continuation.resume(throwing: ended) }
        if waiter.isCancelled { return continuation.resume(throwing: CancellationError()) }
        waiter.continuation = continuation
        waiters.append(waiter)
    }

    private func cancel(_ waiter: Waiter) {
        waiter.isCancelled = true
        guard let index = waiters.firstIndex(where: { $0 === waiter }) else { return }
        let reason: any Error = ended ?? CancellationError()
        waiters.remove(at: index).continuation?.resume(throwing: reason)
    }

    private func submit(_ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        if backlog == 0 { lastTaken = .now }
        connection?.driver?.sendPart(ticket, bytes)
        lastBacklog = backlog
        connection?.flushSoon()
    }

    private var backlog: Int { connection?.driver?.backlog(ticket) ?? 0 }

    private var hasRoom: Bool { backlog <= Self.backlogBytes }

    /// Output has gone to the kernel; perhaps some of this stream's.
    func outputMoved() {
        if backlog == 0 || backlog < lastBacklog { lastTaken = .now }
        lastBacklog = backlog
        guard !waiters.isEmpty, hasRoom else { return }
        let ready = waiters
        waiters = []
        for waiter in ready { waiter.continuation?.resume() }
    }

    func end(_ reason: HTTPStreamEnded) {
        guard ended == nil else { return }
        ended = reason
        resumeWaiters(throwing: reason)
    }

    private func resumeWaiters(throwing error: any Error) {
        let failed = waiters
        waiters = []
        for waiter in failed { waiter.continuation?.resume(throwing: error) }
    }

    /// The connection's other output goes first, and moves.
    func isHeldUp(_ now: ContinuousClock.Instant) { lastTaken = now }

    /// What time alone ends.
    func due(_ now: ContinuousClock.Instant, idleTimeout: Duration) -> HTTPStreamEnded? {
        if let deadline, now >= deadline { return .deadline }
        return backlog > 0 && now >= lastTaken + idleTimeout ? .stalled : nil
    }
}

/// One event of `text/event-stream`, as WHATWG's HTML standard section 9.2 has it.
package struct ServerSentEvent: Sendable, Equatable {
    /// What a client that reconnects says it saw last. A line end or a NUL in it is dropped.
    package var id: String?
    /// Its kind; nil is `message`.
    package var event: String?
    package var data: String
    /// How long the client waits before it reconnects.
    package var retry: Duration?

    package init(
        _ data: String,
        event: String? = nil,
        id: String? = nil,
        retry: Duration? = nil
    ) {
        self.data = data
        self.event = event
        self.id = id
        self.retry = retry
    }

    package var bytes: [UInt8] {
        var text: [UInt8] = []
        if let id { add("id: ", id, to: &text) }
        if let event { add("event: ", event, to: &text) }
        if let retry { add("retry: ", String(Int(retry / .milliseconds(1))), to: &text) }
        // CR, LF and CRLF all end a line, and none may end it early.
        let data = Array(data.utf8)
        var line: [UInt8] = []
        var index = 0
        while index < data.count {
            switch data[index] {
            case UInt8(ascii: "\r"):
                if index + 1 < data.count, data[index + 1] == UInt8(ascii: "\n") { index += 1 }
                text += Array("data: ".utf8) + line + [UInt8(ascii: "\n")]
                line = []
            case UInt8(ascii: "\n"):
                text += Array("data: ".utf8) + line + [UInt8(ascii: "\n")]
                line = []
            case let byte:
                line.append(byte)
            }
            index += 1
        }
        text += Array("data: ".utf8) + line + Array("\n\n".utf8)
        return text
    }

    private func add(_ name: String, _ value: String, to text: inout [UInt8]) {
        text += Array(name.utf8)
        text += value.utf8.filter {
            $0 != 0 && $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r")
        }
        text.append(UInt8(ascii: "\n"))
    }
}

extension HTTPBodyWriter {
    package func send(_ event: ServerSentEvent) async throws { try await write(event.bytes) }

    /// A line that clients skip: it keeps what is between awake, and finds a peer that has gone.
    package func sendHeartbeat() async throws { try await write(Array(":\n\n".utf8)) }
}

extension HTTPServerResponse {
    /// Answers 200 with server-sent events until `body` returns, the peer goes, `maximumDuration`
    /// is over or the server stops.
    package static func events(
        headers: HTTPHeaders = [:],
        maximumDuration: Duration? = nil,
        body: @escaping @Sendable (HTTPBodyWriter) async throws -> Void
    ) -> HTTPServerResponse {
        var response = HTTPServerResponse(status: 200, headers: headers)
        response.headers["Content-Type"] = "text/event-stream"
        response.headers["Cache-Control"] = "no-store"
        response.stream = HTTPBodyStream(
            maximumDuration: maximumDuration,
            endsOnStop: true,
            body: body
        )
        return response
    }
}
