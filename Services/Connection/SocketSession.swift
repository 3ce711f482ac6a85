import ConnectionStorage
import EventLoop
import Gateway
import HTTPServer
import PushCore

/// One WebSocket of a client: reads its requests, and is the transport of its messages. On its loop.
final class SocketSession: WebSocketHandler, DeviceTransport, @unchecked Sendable {
    private let hub: DeviceHub
    private let counts: SocketCounts
    private let dialect: any Dialect
    private weak var socket: WebSocket?
    private var device: DeviceSocket?
    private var hasOpened = false
    /// The context of the handshake's request, until the login.
    private var context: RequestContext?
    let remoteAddress: String

    /// The backlog beyond which nothing more is sent until the client has read.
    private static let maximumQueued = 128 << 10

    init(
        _ dialect: any Dialect,
        _ context: RequestContext,
        hub: DeviceHub,
        counts: SocketCounts
    ) {
        self.dialect = dialect
        self.context = context
        self.hub = hub
        self.counts = counts
        remoteAddress = context.address
    }

    /// A client that leaves before its handshake is answered is counted, and never opens a socket.
    deinit { if !hasOpened { counts.left(remoteAddress) } }

    // MARK: Transport

    var hasRoom: Bool { (socket?.queuedBytes ?? .max) < Self.maximumQueued }

    func send(_ frame: [UInt8]) { socket?.send(dialect.isBinary ? .binary(frame) : .text(frame)) }

    func close(_ code: UInt16, _ reason: String) { socket?.close(code, reason) }

    /// Sends a frame with a reserved bit set, which every client takes as an error.
    func fail() { socket?.end(sending: [0xC1, 0x00]) }

    func abort() { socket?.abort() }

    // MARK: Socket

    func opened(_ socket: WebSocket) {
        self.socket = socket
        hasOpened = true
        let device = DeviceSocket(self, dialect)
        self.device = device
        hub.opened(device)
    }

    func closed(_ socket: WebSocket, code: Int) {
        counts.left(remoteAddress)
        context = nil
        guard let device else { return }
        self.device = nil
        hub.closed(device)
    }

    func pinged(_ socket: WebSocket, count: Int) { _ = admits(count) }

    func received(_ message: WebSocketMessage, on socket: WebSocket) {
        guard let device, admits(1) else { return }
        do throws(DialectError) {
            switch try dialect.request(message) {
            case .login(let login): logIn(device, login)
            case .acknowledge(let ids): hub.acknowledge(device, ids)
            case .opened(let ids): hub.opened(device, ids)
            case .ping(let answer):
                if let answer { send(answer) }
            case .answer(let frame): send(frame)
            case .ignored: break
            }
        } catch {
            guard device.isFaultyAgain() else {
                if !dialect.isLeanClouds, device.login == nil {
                    hub.refuse(device, .invalidLogin, "the message \(error.description)")
                }
                return
            }
            hub.refuse(device, .invalidData, "the message \(error.description)")
        }
    }

    private func admits(_ count: Int) -> Bool {
        guard let device else { return false }
        if device.admits(count, at: .now) { return true }
        hub.refuse(device, .tooFast, "too many messages")
        return false
    }

    // MARK: Login

    private func logIn(_ device: DeviceSocket, _ login: LoginRequest) {
        guard let context, device.login == nil, !device.isLoggingIn else { return }
        guard Self.isWellFormed(login) else {
            return hub.refuse(device, .invalidLogin, "the installation's id is invalid")
        }
        device.isLoggingIn = true
        Task(executorPreference: hub.loop) { [self] in
            let refusal = await refusal(of: login, context)
            guard self.device === device else { return }
            device.isLoggingIn = false
            self.context = nil
            switch refusal {
            case nil: hub.logIn(device, login)
            case .some(let (code, reason)): hub.refuse(device, code, reason)
            }
        }
    }

    private static func isWellFormed(_ login: LoginRequest) -> Bool {
        let length = login.installationID.utf8.count
        let allowed =
            login.appKey == nil
            ? 1...DeviceHub.Limits.mostLeanCloudIDLength
            : DeviceHub.Limits.leastIDLength...DeviceHub.Limits.mostIDLength
        return allowed.contains(length)
            && !login.installationID.utf8.contains(0)
    }

    /// Returns why the app does not take the login; `nil` if it does. Waits while the database cannot
    /// answer: some clients do not come back after a close.
    private func refusal(
        of login: LoginRequest,
        _ context: RequestContext
    ) async -> (CloseCode, String)? {
        while device != nil {
            do {
                guard let settings = try await settings(for: login, context) else {
                    return (.appNotAvailable, "the app does not exist, or the key is wrong")
                }
                return settings.sendsToConnections
                    ? nil : (.appNotAvailable, "the app has no connections")
            } catch Refusal.tooManyRequests {
                return (.tooFast, "too many requests")
            } catch is Refusal {
                return (.appNotAvailable, "the app does not exist, or the key is wrong")
            } catch {
                try? await hub.loop.sleep(for: .milliseconds(500))
            }
        }
        return nil
    }

    private func settings(
        for login: LoginRequest,
        _ context: RequestContext
    ) async throws -> AppSettings? {
        guard let key = login.appKey else {
            return try await context.publicSettings(ofApp: login.app)
        }
        try context.countArrival()
        guard let caller = try await context.caller(by: .appKey(key, of: login.app)) else {
            throw context.refusal()
        }
        return caller.settings
    }
}
