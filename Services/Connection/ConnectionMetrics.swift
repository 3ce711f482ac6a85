import ConnectionStorage
import Observability
import PushCore

/// The instruments of connections, looked up once.
struct ConnectionMetrics: Sendable {
    private let open: [String: Gauge]
    private let logins: [String: Counter]
    private let refusals: [CloseCode: Counter]
    private let sentMessages: Counter
    private let acknowledgedMessages: Counter
    private let lag: Histogram

    init(_ metrics: Metrics) {
        open = Dictionary(
            uniqueKeysWithValues: Dialects.names.map {
                ($0, metrics.gauge(.connectionsOpen, ["dialect": $0]))
            }
        )
        logins = Dictionary(
            uniqueKeysWithValues: Dialects.names.map {
                ($0, metrics.counter(.connectionLogins, ["dialect": $0]))
            }
        )
        let codes: [CloseCode] = [
            .goingAway, .invalidData, .policyViolation, .appNotAvailable, .invalidLogin,
            .loginTimeout, .frameTooLong, .tooFast,
        ]
        refusals = Dictionary(
            uniqueKeysWithValues: codes.map {
                ($0, metrics.counter(.connectionRefusals, ["code": String($0.rawValue)]))
            }
        )
        sentMessages = metrics.counter(.connectionMessagesSent)
        acknowledgedMessages = metrics.counter(.connectionMessagesAcknowledged)
        lag = metrics.histogram(.connectionLag)
    }

    func opened(_ dialect: String) { open[dialect]?.add(1) }
    func closed(_ dialect: String) { open[dialect]?.add(-1) }
    func loggedIn(_ dialect: String) { logins[dialect]?.add() }
    func refused(_ code: CloseCode) { refusals[code]?.add() }
    func acknowledged(_ count: Int) { if count > 0 { acknowledgedMessages.add(count) } }

    func sent(_ messages: [WaitingMessage], at now: Instant) {
        sentMessages.add(messages.count)
        for message in messages {
            lag.observe(.milliseconds(max(0, now.milliseconds - message.storedAt.milliseconds)))
        }
    }
}
