import ConnectionStorage
import HTTPServer
import JSON

/// One client that listens to server-sent events. On its loop.
final class EventStream: HTTPStreamFeed, DeviceTransport, @unchecked Sendable {
    static let beat = Duration.seconds(30)

    private let hub: DeviceHub
    private let counts: SocketCounts
    private let login: LoginRequest
    private var writer: HTTPBodyWriter?
    private var device: DeviceSocket?
    private var heartbeat: HeartbeatList?
    /// Whether it counts as a connection of its address.
    private var isCounted = true
    let remoteAddress: String

    init(
        _ login: LoginRequest,
        from remoteAddress: String,
        hub: DeviceHub,
        counts: SocketCounts,
        heartbeat: HeartbeatList
    ) {
        self.login = login
        self.remoteAddress = remoteAddress
        self.hub = hub
        self.counts = counts
        self.heartbeat = heartbeat
    }

    // MARK: Feed

    func began(_ writer: HTTPBodyWriter) {
        self.writer = writer
        heartbeat?.add(self)
        let device = DeviceSocket(self, EventDialect())
        self.device = device
        hub.opened(device)
        hub.logIn(device, login)
    }

    func finalBytes() -> [UInt8] { [] }

    func ended(_ writer: HTTPBodyWriter) {
        self.writer = nil
        leave()
        heartbeat?.remove(self)
        heartbeat = nil
        guard let device else { return }
        self.device = nil
        hub.closed(device)
    }

    /// A client may be gone before its stream begins.
    deinit { leave() }

    private func leave() {
        guard isCounted else { return }
        isCounted = false
        counts.left(remoteAddress)
    }

    func beat() { writer?.post(Array(":\n\n".utf8)) }

    // MARK: Transport

    var hasRoom: Bool { writer?.hasRoom ?? false }

    func send(_ frame: [UInt8]) { writer?.post(frame) }

    func close(_ code: UInt16, _ reason: String) { writer?.finish() }

    func fail() { writer?.finish() }

    func abort() { writer?.finish() }
}

/// The streams of a loop that get heartbeats. On the loop.
final class HeartbeatList: @unchecked Sendable {
    private var streams: [ObjectIdentifier: EventStream] = [:]

    func add(_ stream: EventStream) { streams[ObjectIdentifier(stream)] = stream }
    func remove(_ stream: EventStream) { streams[ObjectIdentifier(stream)] = nil }
    func beat() { for stream in streams.values { stream.beat() } }
}

/// Server-sent events: clients only read.
struct EventDialect: Dialect {
    var name: String { "events" }
    var isBinary: Bool { false }
    var isLeanClouds: Bool { false }
    var maximumBatch: Int { 1 }

    func request(_ message: WebSocketMessage) throws(DialectError) -> DeviceRequest { .ignored }

    func ready(waiting: Int, isPushDisabled: Bool) -> [UInt8]? {
        let data: JSONObject = ["waiting": JSONValue(waiting)]
        return ServerSentEvent(JSONValue.object(data).text, event: "ready").bytes
    }

    func push(_ messages: [WaitingMessage], to device: LoginRequest) -> [UInt8] {
        messages.flatMap { message in
            ServerSentEvent(
                JSONValue.object(message.nativeObject).text,
                event: "push",
                id: message.id
            ).bytes
        }
    }

    func refusal(_ code: CloseCode, _ reason: String) -> [UInt8]? {
        let data: JSONObject = ["error": .string(reason)]
        return ServerSentEvent(JSONValue.object(data).text, event: "refused").bytes
    }

    /// A comment: readers of events ignore it, people see it.
    var windowFull: [UInt8]? {
        Array(": more messages wait until some of these are acknowledged\n\n".utf8)
    }

    func goAway(reconnectAfterMilliseconds: Int) -> [UInt8]? {
        let data: JSONObject = ["reconnectAfterMs": JSONValue(reconnectAfterMilliseconds)]
        return ServerSentEvent(
            JSONValue.object(data).text,
            event: "goaway",
            retry: .milliseconds(reconnectAfterMilliseconds)
        ).bytes
    }
}
