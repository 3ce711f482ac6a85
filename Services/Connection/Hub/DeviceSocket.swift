import ConnectionStorage
import HTTPServer
import PushCore

/// The way to one client: a WebSocket or an event stream. On the loop.
protocol DeviceTransport: AnyObject {
    var remoteAddress: String { get }
    /// Whether another frame may be sent now: the client reads what it was sent.
    var hasRoom: Bool { get }
    /// Sends one frame of the dialect.
    func send(_ frame: [UInt8])
    func close(_ code: UInt16, _ reason: String)
    /// Ends so that the client sees an error: for clients that come back only after one.
    func fail()
    func abort()
}

/// One connection of a device. Confined to its loop.
final class DeviceSocket: @unchecked Sendable {
    /// The most messages that a client may leave unacknowledged.
    static let window = 50
    /// The bytes of unacknowledged messages from which no more are sent.
    static let windowBytes = ConnectionStore.pageBytes
    /// The most that a client may send in a second. Our own dialects acknowledge each message by
    /// itself, and a window of them at once.
    private var requestsPerSecond: Int { dialect.isLeanClouds ? 20 : 4 * Self.window }
    private static let maximumFaults = 3
    private static let rememberedMessages = 100

    private(set) weak var transport: (any DeviceTransport)?
    let dialect: any Dialect
    let openedAt: ContinuousClock.Instant
    /// Set by the login.
    private(set) var login: LoginRequest?
    private(set) var key: DeviceKey?
    private struct SentMessage {
        let ack: MessageAck
        let bytes: Int
        var isAcknowledged = false
    }

    /// The messages that were sent and are not known to be settled, by id.
    private var inFlight: [String: SentMessage] = [:]
    private var bytesInFlight = 0
    /// Whether the client knows that it must acknowledge messages before it gets more.
    private var hasAskedForAcks = false
    var isClosed = false
    /// Those of the last messages whose opening may be reported: our own dialects.
    private var remembered: [MessageAck] = []
    /// Whether more waits in the database than could be sent.
    var hasMore = false
    /// Whether its login is being looked up.
    var isLoggingIn = false
    /// Whether another channel of its vendor's serves the device.
    var isPushDisabled = false
    private var isReady = false
    /// Messages that were settled, with the number of the look-up that had begun by then: it may show them
    /// still.
    private var settled: [String: Int] = [:]

    private var second = ContinuousClock.now
    private var requests = 0
    private var faults = 0

    init(
        _ transport: any DeviceTransport,
        _ dialect: any Dialect,
        at now: ContinuousClock.Instant = .now
    ) {
        self.transport = transport
        self.dialect = dialect
        openedAt = now
    }

    func bind(_ login: LoginRequest) {
        self.login = login
        key = DeviceKey(app: login.app, installationID: login.installationID)
    }

    /// Counts requests.
    ///
    /// - Returns: Whether they are within the rate.
    func admits(_ count: Int, at now: ContinuousClock.Instant) -> Bool {
        if now >= second + .seconds(1) { (second, requests) = (now, 0) }
        requests += count
        return requests <= requestsPerSecond
    }

    /// Counts a request that could not be read.
    ///
    /// - Returns: Whether there were too many.
    func isFaultyAgain() -> Bool {
        faults += 1
        return faults >= Self.maximumFaults
    }

    /// Whether the window and the client's backlog allow another message.
    var canSend: Bool { !isWindowFull && transport?.hasRoom == true }

    private var isWindowFull: Bool {
        inFlight.count >= Self.window || bytesInFlight >= Self.windowBytes
    }

    /// Sends those of a device's messages that are not in flight, as far as the window and the client's
    /// backlog allow.
    ///
    /// - Parameters:
    ///   - messages: The oldest first.
    ///   - isAll: Whether no others wait.
    ///   - look: The number of the look-up that found them.
    ///   - sent: Called with the messages of each frame.
    func send(
        _ messages: [WaitingMessage],
        isAll: Bool,
        look: Int,
        sent: ([WaitingMessage]) -> Void
    ) {
        guard let login, let transport else { return }
        if !isReady {
            isReady = true
            let frame = dialect.ready(waiting: messages.count, isPushDisabled: isPushDisabled)
            if let frame { transport.send(frame) }
        }
        forgetSettled(messages, look: look)
        hasMore = !isAll
        var frame: [WaitingMessage] = []
        var bytes = 0
        func flush() {
            guard !frame.isEmpty else { return }
            transport.send(dialect.push(frame, to: login))
            sent(frame)
            (frame, bytes) = ([], 0)
        }
        for message in messages where inFlight[message.id] == nil && settled[message.id] == nil {
            guard !isWindowFull, transport.hasRoom else {
                hasMore = true
                break
            }
            let size = message.content.text.count
            inFlight[message.id] = SentMessage(ack: MessageAck(message), bytes: size)
            bytesInFlight += size
            if !dialect.isLeanClouds { remember(MessageAck(message)) }
            frame.append(message)
            bytes += size
            if frame.count >= dialect.maximumBatch || bytes >= Self.frameBytes { flush() }
        }
        flush()
        guard hasMore, isWindowFull, !hasAskedForAcks else { return }
        hasAskedForAcks = true
        if let frame = dialect.windowFull { transport.send(frame) }
    }

    /// Forgets what was settled before this look-up, and what is in flight and was settled elsewhere: the
    /// look-up shows the oldest messages, and those in flight are the oldest.
    private func forgetSettled(_ messages: [WaitingMessage], look: Int) {
        if !settled.isEmpty { settled = settled.filter { $0.value >= look } }
        guard !inFlight.isEmpty else { return }
        let waiting = Set(messages.map(\.id))
        for id in inFlight.keys where !waiting.contains(id) { forget(id) }
    }

    /// The size from which a frame of messages is complete.
    private static let frameBytes = 16 << 10

    private func remember(_ message: MessageAck) {
        if remembered.count >= Self.rememberedMessages { remembered.removeFirst() }
        remembered.append(message)
    }

    /// Returns the messages of an acknowledgement that are not acknowledged yet; unknown ids are ignored.
    /// They stay in flight until they are settled.
    func acknowledged(_ ids: [String]?) -> [MessageAck] {
        (ids ?? Array(inFlight.keys)).compactMap { id in
            guard let message = inFlight[id], !message.isAcknowledged else { return nil }
            inFlight[id]?.isAcknowledged = true
            return message.ack
        }
    }

    /// Returns the messages that were opened, each once.
    func opened(_ ids: [String]) -> [MessageAck] {
        let ids = Set(ids)
        let found = remembered.filter { ids.contains($0.id) }
        if !found.isEmpty { remembered.removeAll { ids.contains($0.id) } }
        return found
    }

    @discardableResult
    private func forget(_ id: String) -> Bool {
        guard let message = inFlight.removeValue(forKey: id) else { return false }
        bytesInFlight -= message.bytes
        if !isWindowFull { hasAskedForAcks = false }
        return true
    }

    /// Notes that a message need not be acknowledged any more; look-ups up to this one may show it.
    func settle(_ id: String, look: Int) {
        guard forget(id) else { return }
        settled[id] = look
    }
}
