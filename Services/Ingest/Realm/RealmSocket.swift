import EventLoop
import Gateway
import HTTPServer
import Observability
import RealmSync

/// One WebSocket of a Realm client: passes its messages to `RealmConnection`, and its uploads to
/// `RealmIntake`. On its loop.
///
/// It ends by the end of TCP only. While its uploads wait, it does not read, so that its client
/// waits, too.
final class RealmSocket: WebSocketHandler, @unchecked Sendable {
    private let app: String
    private let address: String
    private let apps: KnownApps
    private let intake: RealmIntake
    private var connection: RealmConnection
    private weak var socket: WebSocket?
    private var hasOpened = false
    private var complaints = 0

    /// The uploads that are received and not stored, in their order.
    private var queue: [RealmUpload] = []
    private var queuedBytes = 0
    /// Those that are being stored.
    private var storedBytes = 0
    private var isStoring = false
    /// The part of the budget that the uploads hold.
    private let share: HeldShare
    /// The part that a message holds which is arriving.
    private let arriving: HeldShare

    private static let maximumQueued = 256 << 10
    /// The uploads that are stored together.
    private static let batchBytes = 1 << 20
    private static let batchCount = 64
    /// The bytes of answers beyond which nothing more is stored. A batch's answers are at most some
    /// 20 KiB for each session.
    private static let maximumUnread = 64 << 10
    private static let readingTime = Duration.seconds(60)
    /// The clients of a stopping replica that come back in one second.
    private static let returnsPerSecond = 250

    init(
        _ dialect: RealmDialect,
        of app: String,
        from address: String,
        in apps: KnownApps,
        _ intake: RealmIntake
    ) {
        self.app = app
        self.address = address
        self.apps = apps
        self.intake = intake
        connection = RealmConnection(dialect, limits: RealmIntake.limits) {
            UInt64.random(in: .min ... .max)
        }
        share = HeldShare(of: intake.held, for: app, intake.metrics.held)
        arriving = HeldShare(of: intake.held, for: app, intake.metrics.held)
    }

    /// A client that leaves before its handshake is answered is counted, and never opens a socket.
    deinit { if !hasOpened { intake.counts.leave(app, address) } }

    var limits: WebSocketLimits {
        var limits = WebSocketLimits()
        limits.messageBytes = RealmIntake.limits.messageBytes
        limits.endsWithoutClose = true
        limits.queuedBytes = 2 << 20
        let (arriving, refused) = (arriving, intake.metrics.refusedMemory)
        limits.hold = { count in
            do throws(IntakeRefusal) {
                // The array grows in steps, and is copied by each.
                try arriving.hold(count * 2)
                return true
            } catch {
                refused.add()
                return false
            }
        }
        return limits
    }

    // MARK: Socket

    func opened(_ socket: WebSocket) {
        self.socket = socket
        hasOpened = true
        intake.metrics.sockets.add(1)
    }

    func closed(_ socket: WebSocket, code: Int) {
        intake.counts.leave(app, address)
        intake.metrics.sockets.add(-1)
        self.socket = nil
        (queue, queuedBytes) = ([], 0)
        updateShare()
    }

    func pinged(_ socket: WebSocket, count: Int) {}

    /// Each socket is one fewer for those after it, so the clients come back one by one and not in
    /// the same second, which the replicas that remain would not survive.
    func serverStops(_ socket: WebSocket) {
        let place = Int64(intake.counts.open / Self.returnsPerSecond)
        send(connection.drain(pause: RealmConnection.shortestPause + place))
        socket.finish()
    }

    /// A message is too large, or not a valid frame: the client should not repeat it each second.
    func unreadable(_ socket: WebSocket) { send(connection.drain()) }

    func received(_ message: WebSocketMessage, on socket: WebSocket) {
        // The message has arrived. What its upload holds is counted by `share`.
        arriving.releaseBytes()
        switch message {
        case .binary(let bytes): send(connection.receive(bytes))
        case .text:
            intake.metrics.ended(.unexpected("text"))
            socket.finish()
        }
    }

    private func send(_ output: RealmOutput) {
        guard let socket else { return }
        for message in output.messages { socket.send(.binary(message)) }
        if let complaint = output.complaint { note(complaint) }
        if let upload = output.upload { add(upload) }
        if let fault = output.end {
            intake.metrics.ended(fault)
            intake.intake.log.info(
                "a Realm client is disconnected",
                [.app: .string(app), .reason: .string("\(fault)")]
            )
            socket.finish()
        }
    }

    private func note(_ complaint: RealmComplaint) {
        intake.metrics.complaints.add()
        intake.status.complained(app, code: complaint.code)
        complaints += 1
        // A session of a real client reports one, and ends.
        guard complaints <= RealmIntake.limits.sessions else {
            socket?.finish()
            return
        }
        intake.intake.log.error(
            "a Realm client reports an error of this server",
            [.app: .string(app), .status: .integer(Int(complaint.code))]
        )
    }

    // MARK: Uploads

    private func add(_ upload: RealmUpload) {
        queue.append(upload)
        queuedBytes += upload.byteCount
        guard updateShare() else {
            intake.metrics.refusedMemory.add()
            send(connection.drain())
            socket?.finish()
            return
        }
        updateReading()
        guard !isStoring else { return }
        isStoring = true
        Task(executorPreference: intake.intake.loop) { await self.storeAll() }
    }

    /// - Returns: False if there is no memory for the uploads.
    @discardableResult
    private func updateShare() -> Bool {
        do throws(IntakeRefusal) {
            try share.hold(queuedBytes + storedBytes)
            return true
        } catch {
            return false
        }
    }

    private func updateReading() {
        let isFull =
            connection.isFull || queuedBytes + storedBytes > Self.maximumQueued
            || !queue.isEmpty && intake.held.count * 2 > intake.held.limit
        if isFull { socket?.pauseReading() } else { socket?.resumeReading() }
    }

    private func storeAll() async {
        while socket != nil, !queue.isEmpty {
            let batch = takeBatch()
            let outcome = await intake.store(batch, of: app, in: apps) { self.socket != nil }
            storedBytes = 0
            updateShare()
            send(connection.stored(outcome.stored))
            switch outcome.end {
            case nil: break
            case .unavailable: pause(batch.dropFirst(outcome.stored.count))
            case .fault(let fault): send(connection.failed(fault))
            case .closed: socket?.finish()
            }
            updateReading()
            await answersRead()
        }
        isStoring = false
    }

    /// Waits for a client that reads its answers slowly, and drops one that does not read them.
    private func answersRead() async {
        let end = ContinuousClock.now + Self.readingTime
        while let socket, socket.queuedBytes > Self.maximumUnread {
            guard .now < end else { return socket.abort() }
            try? await Task.sleep(for: .milliseconds(20))
        }
    }

    private func takeBatch() -> [RealmUpload] {
        var (count, bytes) = (0, 0)
        for upload in queue.prefix(Self.batchCount) {
            guard count == 0 || bytes + upload.byteCount <= Self.batchBytes else { break }
            count += 1
            bytes += upload.byteCount
        }
        defer { queue.removeFirst(count) }
        queuedBytes -= bytes
        storedBytes = bytes
        return Array(queue.prefix(count))
    }

    /// Asks the client to come again with these uploads and all that wait.
    private func pause(_ uploads: ArraySlice<RealmUpload>) {
        let waiting = queue
        (queue, queuedBytes) = ([], 0)
        updateShare()
        intake.metrics.paused.add()
        for upload in uploads + waiting { send(connection.unavailable(upload.ticket)) }
    }
}
