import ConnectionStorage
import Cryptography
import EventLoop
import Observability
import PushCore
import PushEvents
import ServiceKit

/// The connections of one loop, by device.
///
/// Authority: which devices are connected here, and which messages each connection has in flight. What a
/// device gets is read from the database whenever something may have changed: at its login, when a message
/// arrived for it, when it acknowledged, when the client has read. So nothing is lost with a process, and a
/// missed hint costs at most the time of a sweep.
///
/// Four loops of work: logins, acknowledgements, arrivals and deliveries, each in batches, in which apps
/// take turns.
///
/// Shutdown: `drain` sends the clients away; then the listener stops, and `run` last.
final class DeviceHub: @unchecked Sendable {
    struct Limits: Sendable {
        var loginsPerSecond = 2000
        var loginTimeout = Duration.seconds(60)
        /// How often messages are looked up without a notification.
        var sweepEvery = Duration.seconds(2)
        /// The least length of an installation's id in our own dialects: it is a secret.
        static let leastIDLength = 16
        static let mostIDLength = 256
        static let mostLeanCloudIDLength = 64
        static let socketsOfDevice = 4
    }

    private static let batch = 256
    /// The devices of one look-up of messages: with full windows these are 2 MB.
    private static let devicesOfLookUp = 32
    private static let blockedSweepSeconds = 30
    private static let retryPause = Duration.milliseconds(500)
    /// How long acknowledgements wait for others: nobody waits for them, and Postgres and the broker pay by
    /// the batch.
    private static let ackPause = Duration.milliseconds(50)

    let loop: EventLoop
    private let store: any MessageStore
    private let topics: KafkaTopics
    private let limits: Limits
    private let meters: ConnectionMetrics
    private let log: Log
    /// Called when records of what was received are in the outbox.
    private let onReceived: @Sendable () -> Void

    /// The sockets of each device, the newest last.
    private var devices: [DeviceKey: [DeviceSocket]] = [:]
    /// Sockets without a login.
    private var strangers: [ObjectIdentifier: DeviceSocket] = [:]
    private(set) var isDraining = false

    private var logins = AppTurns<PendingLogin>()
    private var acks = AppTurns<MessageAck>()
    private var openings: [MessageAck] = []
    /// Messages that must not be shown to their device.
    private var displacements: [MessageAck] = []
    /// Devices with more messages than could be sent.
    private var blocked: Set<DeviceKey> = []
    /// The number of the last look-up of messages.
    private var look = 0
    private var dueDevices = AppTurns<DeviceKey>()
    /// The devices in `dueDevices`.
    private var isDue: Set<DeviceKey> = []
    private var seconds = 0
    private let loginWakeUp: WakeUp
    private let ackWakeUp: WakeUp
    private let arrivalWakeUp: WakeUp
    private let deliveryWakeUp: WakeUp

    private struct PendingLogin {
        let socket: DeviceSocket
        let login: LoginRequest
    }

    init(
        _ store: any MessageStore,
        topics: KafkaTopics,
        limits: Limits = Limits(),
        meters: ConnectionMetrics,
        on loop: EventLoop,
        log: Log,
        onReceived: @escaping @Sendable () -> Void
    ) {
        self.onReceived = onReceived
        self.store = store
        self.topics = topics
        self.limits = limits
        self.meters = meters
        self.loop = loop
        self.log = log
        loginWakeUp = WakeUp(on: loop)
        ackWakeUp = WakeUp(on: loop)
        arrivalWakeUp = WakeUp(on: loop)
        deliveryWakeUp = WakeUp(on: loop)
    }

    // MARK: Sockets

    func opened(_ socket: DeviceSocket) { strangers[ObjectIdentifier(socket)] = socket }

    /// Queues a login whose app and key are in order.
    func logIn(_ socket: DeviceSocket, _ login: LoginRequest) {
        guard !isDraining else {
            return refuse(socket, .goingAway, "the node stops")
        }
        guard socket.login == nil, !socket.isLoggingIn else { return }
        socket.isLoggingIn = true
        logins.append(PendingLogin(socket: socket, login: login), of: login.app)
        loginWakeUp.signal()
    }

    /// Refuses a client: an error in its dialect, then a close.
    func refuse(_ socket: DeviceSocket, _ code: CloseCode, _ reason: String) {
        meters.refused(code)
        if let frame = socket.dialect.refusal(code, reason) { socket.transport?.send(frame) }
        socket.transport?.close(code.rawValue, reason)
    }

    func acknowledge(_ socket: DeviceSocket, _ ids: [String]?) {
        let known = socket.acknowledged(ids)
        guard !known.isEmpty else { return }
        for ack in known { acks.append(ack, of: ack.app) }
        ackWakeUp.signal()
    }

    func opened(_ socket: DeviceSocket, _ ids: [String]) {
        let known = socket.opened(ids)
        guard !known.isEmpty, openings.count < 10_000 else { return }
        openings += known
        ackWakeUp.signal()
    }

    func closed(_ socket: DeviceSocket) {
        socket.isClosed = true
        strangers[ObjectIdentifier(socket)] = nil
        guard let key = socket.key, var sockets = devices[key] else { return }
        let before = sockets.count
        sockets.removeAll { $0 === socket }
        guard sockets.count < before else { return }
        meters.closed(socket.dialect.name)
        devices[key] = sockets.isEmpty ? nil : sockets
    }

    /// The open connections by app and dialect.
    var open: [String: [String: Int]] {
        var open: [String: [String: Int]] = [:]
        for socket in devices.values.joined() {
            guard let app = socket.login?.app else { continue }
            open[app, default: [:]][socket.dialect.name, default: 0] += 1
        }
        return open
    }

    /// Closes the connections of apps that were deleted or want none any more.
    func close(_ apps: Set<String>) {
        for socket in Array(devices.values.joined()) {
            guard let app = socket.login?.app, apps.contains(app) else { continue }
            refuse(socket, .appNotAvailable, "the app has no connections")
        }
    }

    private func bind(_ socket: DeviceSocket, _ login: LoginRequest) {
        strangers[ObjectIdentifier(socket)] = nil
        socket.bind(login)
        guard let key = socket.key else { return }
        meters.opened(socket.dialect.name)
        devices[key, default: []].append(socket)
        while let sockets = devices[key], sockets.count > Limits.socketsOfDevice {
            sockets[0].transport?.close(CloseCode.policyViolation.rawValue, "too many connections")
            closed(sockets[0])
        }
    }

    // MARK: Work

    /// Works until its task is cancelled.
    func run() async {
        loop.checkIsolated()
        let timer = loop.schedule(after: .seconds(1), every: .seconds(1)) { [self] in
            expireStrangers(.now)
            retryBlocked()
        }
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.runLogins() }
            group.addTask { await self.runAcks() }
            group.addTask { await self.runArrivals() }
            group.addTask { await self.runDeliveries() }
        }
        timer.cancel()
    }

    /// Notes that messages arrived, for whatever devices.
    func messagesArrived() { arrivalWakeUp.signal() }

    /// Notes that messages of a device were settled elsewhere.
    func changed(_ key: DeviceKey) {
        if devices[key] != nil { deliver(to: key) }
    }

    /// Lets the messages of blocked devices be looked up if their clients have read. Those that wait for
    /// acknowledgements are looked up seldom: an acknowledgement at this node wakes them.
    private func retryBlocked() {
        seconds += 1
        let isSweep = seconds % Self.blockedSweepSeconds == 0
        for key in blocked {
            guard let sockets = devices[key] else {
                blocked.remove(key)
                continue
            }
            guard isSweep || sockets.contains(where: { $0.hasMore && $0.canSend }) else { continue }
            blocked.remove(key)
            deliver(to: key)
        }
    }

    private func expireStrangers(_ now: ContinuousClock.Instant) {
        for socket in Array(strangers.values) where now >= socket.openedAt + limits.loginTimeout {
            refuse(socket, .loginTimeout, "no login in time")
        }
    }

    // MARK: Logins

    private func runLogins() async {
        while !Task.isCancelled {
            guard !logins.isEmpty else {
                await loginWakeUp.wait(atMost: .seconds(60))
                continue
            }
            let started = ContinuousClock.now
            // Sockets that have gone meanwhile cost nothing.
            let portion = logins.take(atMost: Self.batch).filter { !$0.socket.isClosed }
            guard !portion.isEmpty else { continue }
            await admit(portion)
            // Not more a second than is configured.
            let pace = Duration.seconds(1) * portion.count / max(1, limits.loginsPerSecond)
            let elapsed = ContinuousClock.now - started
            if elapsed < pace { try? await loop.sleep(for: pace - elapsed) }
        }
    }

    private func admit(_ portion: [PendingLogin]) async {
        // Before the database is read: what arrives from here on is noticed.
        do {
            let known = try await store.logIn(
                portion.map {
                    DeviceLogin(app: $0.login.app, installationID: $0.login.installationID)
                }
            )
            for (pending, device) in zip(portion, known) { admit(pending, device) }
        } catch {
            if Task.isCancelled { return }
            log.warning("logins wait for the database", [.error: .string("\(error)")])
            for pending in portion { logins.append(pending, of: pending.login.app) }
            try? await loop.sleep(for: Self.retryPause)
        }
    }

    private func admit(_ pending: PendingLogin, _ device: KnownDevice?) {
        let (socket, login) = (pending.socket, pending.login)
        socket.isLoggingIn = false
        // It may have gone meanwhile.
        guard strangers[ObjectIdentifier(socket)] != nil else { return }
        guard !isDraining else { return refuse(socket, .goingAway, "the node stops") }
        if !socket.dialect.isLeanClouds, let digest = device?.secretDigest {
            guard let secret = login.secret,
                constantTimeEqual(sha256(Array(secret.utf8)), digest)
            else {
                return refuse(
                    socket,
                    .invalidLogin,
                    "the installation's secret is wrong or missing"
                )
            }
        }
        socket.isPushDisabled = device?.hasVendor ?? false
        bind(socket, login)
        meters.loggedIn(socket.dialect.name)
        if let key = socket.key { deliver(to: key) }
    }

    // MARK: Arrivals

    private func runArrivals() async {
        var cursor: ArrivalCursor?
        var sweptAt = ContinuousClock.now
        while !Task.isCancelled {
            do {
                if cursor == nil { cursor = try await store.arrivalStart() }
                guard var current = cursor else { continue }
                let (arrived, isComplete) = try await store.arrived(&current)
                notice(arrived)
                if ContinuousClock.now >= sweptAt + limits.sweepEvery {
                    notice(try await store.missed(&current))
                    sweptAt = .now
                }
                cursor = current
                if isComplete { await arrivalWakeUp.wait(atMost: limits.sweepEvery) }
            } catch {
                if Task.isCancelled { return }
                log.info("arrivals cannot be read", [.error: .string("\(error)")])
                try? await loop.sleep(for: Self.retryPause)
            }
        }
    }

    private func notice(_ arrived: [DeviceKey]) {
        for key in arrived where devices[key] != nil { deliver(to: key) }
    }

    // MARK: Deliveries

    /// Lets a device's messages be looked up.
    private func deliver(to key: DeviceKey) {
        guard let app = devices[key]?.first?.login?.app, isDue.insert(key).inserted else { return }
        dueDevices.append(key, of: app)
        deliveryWakeUp.signal()
    }

    private func runDeliveries() async {
        while !Task.isCancelled {
            guard !dueDevices.isEmpty else {
                await deliveryWakeUp.wait(atMost: .seconds(60))
                continue
            }
            let keys = dueDevices.take(atMost: Self.devicesOfLookUp)
            isDue.subtract(keys)
            look += 1
            do {
                let limit = DeviceSocket.window + 1
                let messages = try await store.waiting(of: keys, limit: limit)
                let byDevice = Dictionary(grouping: messages, by: \.device)
                for key in keys { send(byDevice[key] ?? [], to: key, limit: limit) }
            } catch {
                if Task.isCancelled { return }
                log.info("messages cannot be read", [.error: .string("\(error)")])
                for key in keys { deliver(to: key) }
                try? await loop.sleep(for: Self.retryPause)
            }
        }
    }

    private func send(_ messages: [WaitingMessage], to key: DeviceKey, limit: Int) {
        let now = Instant.now()
        for socket in devices[key] ?? [] {
            var wanted = messages
            if socket.dialect.isLeanClouds, wanted.contains(where: \.isSilentForLeanCloud) {
                // Its SDKs would show them.
                displacements += wanted.filter(\.isSilentForLeanCloud).map { MessageAck($0) }
                wanted.removeAll(where: \.isSilentForLeanCloud)
                ackWakeUp.signal()
            }
            let isAll = messages.count < limit && messages.last?.isCut != true
            socket.send(wanted, isAll: isAll, look: look) { sent in
                meters.sent(sent, at: now)
            }
            if socket.hasMore { blocked.insert(key) }
        }
    }

    // MARK: Acknowledgements

    private func runAcks() async {
        while !Task.isCancelled {
            guard !acks.isEmpty || !openings.isEmpty || !displacements.isEmpty else {
                await ackWakeUp.wait(atMost: .seconds(60))
                continue
            }
            if acks.count < Self.batch { try? await loop.sleep(for: Self.ackPause) }
            let portion = acks.take(atMost: Self.batch)
            let (opened, displaced) = (openings, displacements)
            (openings, displacements) = ([], [])
            do {
                let count = try await store.acknowledge(portion, topics: topics, at: .now())
                meters.acknowledged(count)
                if count > 0 { onReceived() }
                settle(portion)
                try await store.displace(displaced)
                try await store.opened(opened)
            } catch {
                if Task.isCancelled { return }
                log.info("acknowledgements wait for the database", [.error: .string("\(error)")])
                for ack in portion { acks.append(ack, of: ack.app) }
                openings.insert(contentsOf: opened, at: 0)
                displacements.insert(contentsOf: displaced, at: 0)
                try? await loop.sleep(for: Self.retryPause)
            }
        }
    }

    /// Frees the windows of all connections that have the messages in flight.
    private func settle(_ portion: [MessageAck]) {
        for ack in portion {
            for socket in devices[ack.device] ?? [] {
                socket.settle(ack.id, look: look)
                if socket.hasMore { deliver(to: ack.device) }
            }
        }
    }

    // MARK: Drain

    /// Sends all clients away, spread over this time: each comes back to another node.
    func drain(over duration: Duration) async {
        loop.checkIsolated()
        isDraining = true
        for socket in Array(strangers.values) { refuse(socket, .goingAway, "the node stops") }
        let sockets = devices.values.joined().shuffled()
        guard !sockets.isEmpty else { return }
        let most = Int(clamping: duration.wholeMilliseconds)
        for socket in sockets {
            let wait = Int.random(in: 0...max(1, most))
            if let frame = socket.dialect.goAway(reconnectAfterMilliseconds: wait) {
                socket.transport?.send(frame)
            }
        }
        let step = Duration.milliseconds(100)
        let steps = max(1, Int(duration / step))
        let portion = max(1, (sockets.count + steps - 1) / steps)
        for start in stride(from: 0, to: sockets.count, by: portion) {
            for socket in sockets[start..<min(sockets.count, start + portion)] {
                if socket.login?.returnsAfterErrors == true {
                    socket.transport?.fail()
                } else {
                    socket.transport?.close(CloseCode.goingAway.rawValue, "the node stops")
                }
            }
            if start + portion < sockets.count { try? await loop.sleep(for: step) }
        }
    }
}
