internal import EventLoop

/// The body of a request whose handler runs while it arrives (`Router.on(streamsBody:)`). Confined to its
/// loop.
///
/// At most 256 KiB, and what the socket had at once, wait for the handler; then the connection stops
/// reading, and the peer has to wait. The wait ends the body if the peer sends too little while the
/// handler would read.
package final class HTTPBodyReader: @unchecked Sendable {
    /// The unread bytes from which on the connection stops reading.
    static let fullBytes = 256 * 1024
    /// The rate at which a peer must send a body, over each `bodyTimeout`.
    static let minimumBytesPerSecond = 8 * 1024

    private let loop: EventLoop
    private let maximumBytes: Int
    private let bodyTimeout: Duration
    private var unread: [UInt8] = []
    private var received = 0
    private var hasEnded = false
    private var failure: HTTPProblem?
    private var waiter: CheckedContinuation<Void, Never>?
    private var windowEnd: ContinuousClock.Instant
    private var receivedBefore = 0
    /// Called when a full body has room again.
    var onRoom: () -> Void = {}

    init(maximumBytes: Int, bodyTimeout: Duration, on loop: EventLoop) {
        (self.maximumBytes, self.bodyTimeout, self.loop) = (maximumBytes, bodyTimeout, loop)
        windowEnd = .now + bodyTimeout
    }

    /// Returns the next bytes; empty at the end. One caller at a time, on the loop.
    ///
    /// - Throws: `HTTPProblem` if the body is too large (413), broken (400) or too slow (408), if the
    ///   peer has gone (408), or if the server stops (503).
    package func next() async throws(HTTPProblem) -> [UInt8] {
        loop.checkIsolated()
        while unread.isEmpty, failure == nil, !hasEnded {
            await withCheckedContinuation { waiter = $0 }
        }
        if let failure { throw failure }
        let (bytes, wasFull) = (unread, isFull)
        unread = []
        if wasFull {
            // The peer could not send while the handler was busy.
            restartWindow(at: .now)
            onRoom()
        }
        return bytes
    }

    // MARK: The connection's side

    /// Whether the connection has to stop reading.
    var isFull: Bool { unread.count >= Self.fullBytes }

    /// Whether the whole body has arrived, or no more of it is wanted.
    var isOver: Bool { hasEnded || failure != nil }

    func append(_ bytes: [UInt8]) {
        guard !isOver, !bytes.isEmpty else { return }
        received += bytes.count
        guard received <= maximumBytes else {
            return fail(
                HTTPProblem(
                    status: 413,
                    detail: "the body is larger than \(maximumBytes) bytes"
                )
            )
        }
        unread += bytes
        resume()
    }

    func end() {
        guard !isOver else { return }
        hasEnded = true
        resume()
    }

    func fail(_ problem: HTTPProblem) {
        guard !isOver else { return }
        failure = problem
        unread = []
        resume()
    }

    func failAsDisconnected() {
        fail(HTTPProblem(status: 408, detail: "the client closed the request"))
    }

    /// Fails a body that arrives too slowly.
    func tick(_ now: ContinuousClock.Instant) {
        guard now >= windowEnd, !isOver else { return }
        let least = Int(bodyTimeout / .seconds(1) * Double(Self.minimumBytesPerSecond))
        guard isFull || received - receivedBefore >= least else {
            return fail(HTTPProblem(status: 408, detail: "the body took too long"))
        }
        restartWindow(at: now)
    }

    private func restartWindow(at now: ContinuousClock.Instant) {
        windowEnd = now + bodyTimeout
        receivedBefore = received
    }

    private func resume() {
        waiter?.resume()
        waiter = nil
    }
}
