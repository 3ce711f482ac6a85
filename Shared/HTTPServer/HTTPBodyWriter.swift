internal import EventLoop

/// A body that is produced while it is sent: server-sent events, or a body that is too large for
/// memory.
package struct HTTPBodyStream: Sendable {
    /// The time after which the server ends the response as complete; nil: only the handler ends
    /// it.
    package var maximumDuration: Duration?
    /// Whether a stop of the server ends the body as complete; a stop waits for all other bodies.
    package var endsOnStop: Bool
    let source: Source

    enum Source: Sendable {
        /// Produced in the task of the request's handler.
        case task(@Sendable (HTTPBodyWriter) async throws -> Void)
        case feed(any HTTPStreamFeed)
    }

    /// - Parameters:
    ///   - maximumDuration: See the property.
    ///   - endsOnStop: See the property.
    ///   - body: Writes the body; its return ends the response. An error cuts the response off, so
    ///     that the peer notices.
    package init(
        maximumDuration: Duration? = nil,
        endsOnStop: Bool = false,
        body: @escaping @Sendable (HTTPBodyWriter) async throws -> Void
    ) {
        self.maximumDuration = maximumDuration
        self.endsOnStop = endsOnStop
        source = .task(body)
    }

    /// Makes an endless body that a feed writes, which may write many bodies. The body has no task,
    /// and its request is not held in memory.
    package init(fedBy feed: any HTTPStreamFeed) {
        endsOnStop = true
        source = .feed(feed)
    }
}

/// A source that writes a streamed body from time to time. Called on the loop of its connection.
package protocol HTTPStreamFeed: AnyObject, Sendable {
    /// Notes that the head is being sent; from now on `HTTPBodyWriter.post` reaches the peer.
    func began(_ writer: HTTPBodyWriter)

    /// Returns the last bytes for the peer, before the response is ended by the server's stop or by
    /// `HTTPBodyWriter.finish`.
    func finalBytes() -> [UInt8]

    /// Notes that the response takes no more bytes. Not called without an earlier `began`.
    func ended(_ writer: HTTPBodyWriter)
}

/// The reason why a streamed response takes no more bytes; its task is cancelled, too.
package enum HTTPStreamEnded: Error, Equatable {
    /// The peer has gone, or cancelled the request.
    case disconnected
    /// The peer took nothing for the server's idle time.
    case stalled
    /// The stream's maximum duration has passed.
    case deadline
    case serverStops
    /// The feed has nothing more to send.
    case finished
}

/// Writes a streamed body for a handler. Thread-safe; its state belongs to the loop.
///
/// The bytes written and not taken by the peer are bounded: 64 KiB and one write.
package final class HTTPBodyWriter: @unchecked Sendable {
    /// The most bytes that wait for the peer before a writer has to wait.
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
    /// When the peer last took bytes, or had none to take.
    private var lastTaken = ContinuousClock.now
    private var lastBacklog = 0

    /// Makes a writer; nil for a response that is not streamed.
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
    /// - Returns: False if nothing is sent: the response has ended, or its peer has not taken the
    ///   earlier bytes.
    @discardableResult
    package func post(_ bytes: [UInt8]) -> Bool {
        loop.checkIsolated()
        guard ended == nil, hasRoom else { return false }
        submit(bytes)
        return true
    }

    /// Ends a fed response as complete, after the feed's `finalBytes`. Does nothing if the response
    /// has ended. On the loop only.
    package func finish() {
        loop.checkIsolated()
        connection?.endStream(ticket, .finished)
    }

    /// A call that waits for room; confined to the loop. A cancellation may precede the wait.
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
        // Since the write began, the response may have ended and its task been cancelled for that.
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

    /// Whether the peer has taken enough of the earlier bytes for `post`. On the loop only.
    package var hasRoom: Bool { backlog <= Self.backlogBytes }

    /// Notes that output has gone to the kernel, perhaps some of this stream's.
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

    /// Restarts the idle timer: other output of the connection goes first, and the peer takes it.
    func restartIdleTimer(_ now: ContinuousClock.Instant) { lastTaken = now }

    /// Returns the reason if a timeout ends the response now.
    func due(_ now: ContinuousClock.Instant, idleTimeout: Duration) -> HTTPStreamEnded? {
        if let deadline, now >= deadline { return .deadline }
        return backlog > 0 && now >= lastTaken + idleTimeout ? .stalled : nil
    }
}

/// One event of `text/event-stream` (WHATWG's HTML standard, section 9.2).
package struct ServerSentEvent: Sendable, Equatable {
    /// The ID that a reconnecting client reports as its last. A line end or a NUL in it is dropped.
    package var id: String?
    /// The event type; nil is `message`.
    package var event: String?
    package var data: String
    /// The delay before the client reconnects.
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
        // CR, LF and CRLF all end a line, so each line of the data gets a `data` field.
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

    /// Sends a comment, which clients skip: it keeps intermediaries from timing out, and detects a
    /// peer that has gone.
    package func sendHeartbeat() async throws { try await write(Array(":\n\n".utf8)) }
}

extension HTTPServerResponse {
    /// Responds 200 with server-sent events until `body` returns, the peer leaves,
    /// `maximumDuration` has passed or the server stops.
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
