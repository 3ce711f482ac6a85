import InstallationStorage
import JSON
package import PushCore
import Storage

/// How a delivery ended, or when it is retried. The same value is used from the provider's answer
/// to the row.
package struct DeliveryEnd: Sendable, Equatable {
    package enum Decision: Sendable, Equatable {
        case settle(Outcome)
        /// It failed because its device is gone. The token is disabled, unless it was registered
        /// after `since`.
        case settleAndDisable(since: Instant?)
        /// It gets another attempt. The last attempt is counted.
        case retry(at: Instant)
        /// It gets another attempt. No attempt was made, or none that counts.
        case release(at: Instant)

        /// `nil` if it is retried.
        package var outcome: Outcome? {
            switch self {
            case .settle(let outcome): outcome
            case .settleAndDisable: .failed
            case .retry, .release: nil
            }
        }

        /// The time of the next attempt; `nil` if the delivery has its outcome.
        package var dueAt: Instant? {
            switch self {
            case .settle, .settleAndDisable: nil
            case .retry(let time), .release(let time): time
            }
        }
    }

    package let decision: Decision
    /// The HTTP status, if the provider answered.
    package let status: Int?
    package let reason: String?
    /// The id that the provider assigned.
    package let messageID: String?
    /// The number of attempts, including the last one.
    package let attempts: Int
    /// The number of `attempts` that had no answer.
    package let unanswered: Int
    package let at: Instant

    /// Creates an end; the provider's strings are made printable.
    package init(
        _ decision: Decision,
        status: Int? = nil,
        reason: String? = nil,
        messageID: String? = nil,
        attempts: Int,
        unanswered: Int,
        at time: Instant
    ) {
        self.decision = decision
        self.status = status
        self.reason = reason.map(Self.printable)
        self.messageID = messageID.map(Self.printable)
        self.attempts = attempts
        self.unanswered = unanswered
        at = time
    }

    package var outcome: Outcome? { decision.outcome }

    /// The time of a token's death; `nil` if no token is dead. A token that was registered later
    /// stays valid.
    package var tokenDiedAt: Instant? {
        if case .settleAndDisable(let since) = decision { since ?? at } else { nil }
    }

    /// Returns a provider's string, shortened and without control characters, which Postgres or a
    /// terminal cannot handle.
    private static func printable(_ text: String) -> String {
        // The usual case: nearly every string is an id.
        if text.utf8.count <= 200, text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7f }) { return text }
        return String(
            String.UnicodeScalarView(
                text.unicodeScalars.prefix(200)
                    .map { $0.value < 0x20 || $0.value == 0x7f ? " " : $0 }
            )
        )
    }
}

/// A delivery as it is recorded.
package struct DeliveryRecord: Sendable {
    package let member: ShardMember
    /// `nil` if it is in flight, so that the session owns its row.
    package let end: DeliveryEnd?

    package init(_ member: ShardMember, _ end: DeliveryEnd?) {
        self.member = member
        self.end = end
    }

    package init(_ delivery: Delivery, _ end: DeliveryEnd?) {
        self.init(ShardMember(delivery), end)
    }

    package var delivery: Delivery { member.delivery }

    /// The number of attempts, including this one if it was made.
    var attempts: Int { end?.attempts ?? delivery.attempts }
    var unanswered: Int { end?.unanswered ?? delivery.unanswered }
    var state: DeliveryState { end?.outcome.map { DeliveryState($0) } ?? .pending }

    /// The provider's answer to an attempt after which there is another, as a list of one for the
    /// row's `answers`; `nil` if the delivery has ended, or no attempt was made.
    var answers: JSONValue? {
        guard let end, case .retry = end.decision, end.attempts > delivery.attempts else {
            return nil
        }
        var answer: JSONObject = [
            "n": JSONValue(end.attempts), "t": .integer(end.at.milliseconds),
        ]
        answer["c"] = end.status.map { JSONValue($0) }
        answer["r"] = end.reason.map { .string($0) }
        return [.object(answer)]
    }

    /// The dead token; `nil` if the token stays valid.
    var deadToken: DeadToken? {
        guard let end, let diedAt = end.tokenDiedAt else { return nil }
        return DeadToken(
            app: delivery.app,
            device: delivery.device,
            diedAt: diedAt,
            reason: end.reason
        )
    }
}
