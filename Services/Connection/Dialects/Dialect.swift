import ConnectionStorage
import HTTPServer
import JSON

/// A device's request, whatever its dialect.
enum DeviceRequest: Equatable, Sendable {
    case login(LoginRequest)
    /// The ids of acknowledged messages; `nil`: all that were sent on this connection.
    case acknowledge([String]?)
    /// The ids of messages whose notification a user opened.
    case opened([String])
    /// A sign of life, with the answer that the client waits for.
    case ping(answer: [UInt8]?)
    /// Something that is answered at once and needs nothing else: a feature that Carillon does not
    /// have, refused by name, or a logout.
    case answer([UInt8])
    case ignored
}

struct LoginRequest: Equatable, Sendable {
    var app: String
    var installationID: String
    /// `nil` in LeanCloud's dialects, whose clients send none.
    var appKey: String?
    var secret: String?
    /// Whether the client comes back only after an error of the connection: LeanCloud's Android SDK from
    /// 6.4, which is known by the system information in its login.
    var returnsAfterErrors = false
}

/// Input that is not a request of the dialect.
struct DialectError: Error, Equatable {
    let description: String
}

/// A code of LeanCloud's for an error or a close.
enum CloseCode: UInt16 {
    case goingAway = 1001
    case invalidData = 1007
    case policyViolation = 1008
    case appNotAvailable = 4100
    case invalidLogin = 4103
    case loginTimeout = 4108
    case frameTooLong = 4109
    case tooFast = 4116
}

/// The way in which a client writes and reads: pure, from frames to requests and from messages to frames.
protocol Dialect: Sendable {
    /// The name in metrics and reports.
    var name: String { get }
    /// Whether frames are binary.
    var isBinary: Bool { get }
    /// Whether it is LeanCloud's: the app key is not sent, and a silent message would be shown.
    var isLeanClouds: Bool { get }
    /// The most messages of one frame.
    var maximumBatch: Int { get }

    /// - Throws: `DialectError`.
    func request(_ message: WebSocketMessage) throws(DialectError) -> DeviceRequest
    /// Returns the answer to a login; `nil`: the client expects none.
    func ready(waiting: Int, isPushDisabled: Bool) -> [UInt8]?
    /// Returns one frame of messages.
    func push(_ messages: [WaitingMessage], to device: LoginRequest) -> [UInt8]
    /// Returns an error before a close; `nil`: the close says it.
    func refusal(_ code: CloseCode, _ reason: String) -> [UInt8]?
    /// Returns the hint that more messages wait for acknowledgements; `nil`: the client gets none.
    var windowFull: [UInt8]? { get }
    /// Returns the announcement of a drain; `nil`: the client knows none.
    func goAway(reconnectAfterMilliseconds: Int) -> [UInt8]?
}

extension Dialect {
    var maximumBatch: Int { 10 }
    var windowFull: [UInt8]? { nil }
    func refusal(_ code: CloseCode, _ reason: String) -> [UInt8]? { nil }
    func goAway(reconnectAfterMilliseconds: Int) -> [UInt8]? { nil }
}
