import PushCore
import PushEvents
import PushProviders
import PushStorage

/// What is written down about a delivery when it leaves this process.
enum RecordedDecision: Equatable {
    case settle(Outcome)
    /// It failed because its device is gone.
    case settleAndDisable(since: Instant?)
    /// Another attempt, counted.
    case retry(at: Instant)
    /// No attempt was made, or none that counts.
    case handBack(at: Instant)

    var outcome: Outcome? {
        switch self {
        case .settle(let outcome): outcome
        case .settleAndDisable: .failed
        case .retry, .handBack: nil
        }
    }
}

/// How a delivery ended here, be it a row or a member of a shard. A reference, as it is handed on
/// from turn to turn.
final class DeliveryEnd: Sendable {
    let decision: RecordedDecision
    let answer: ProviderAnswer?
    let at: Instant
    let attempts: Int
    let unanswered: Int

    init(
        decision: RecordedDecision,
        answer: ProviderAnswer?,
        at: Instant,
        attempts: Int,
        unanswered: Int
    ) {
        self.decision = decision
        self.answer = answer
        self.at = at
        self.attempts = attempts
        self.unanswered = unanswered
    }

    /// What the rest of the company hears; `nil` for what is not over.
    func outcome(of delivery: Delivery) -> OutcomeRecord? {
        guard let outcome = decision.outcome else { return nil }
        return OutcomeRecord(
            installationID: delivery.installationID,
            target: delivery.target,
            platform: delivery.device.provider,
            environment: delivery.device.environment,
            outcome: outcome,
            reason: reason,
            status: answer?.status,
            providerMessageID: answer?.providerMessageID.map(printable),
            attempt: attempts,
            at: at
        )
    }

    /// What the ledger hears of one that is over.
    var settlement: Settlement? {
        guard let outcome = decision.outcome else { return nil }
        var tokenDiedAt: Instant?
        if case .settleAndDisable(let since) = decision { tokenDiedAt = since ?? at }
        return Settlement(
            outcome: outcome,
            attempts: attempts,
            unanswered: unanswered,
            status: answer?.status,
            reason: reason,
            providerMessageID: answer?.providerMessageID.map(printable),
            tokenDiedAt: tokenDiedAt
        )
    }

    /// What the ledger hears of one that is not.
    func postponed(_ delivery: Delivery) -> PostponedDelivery? {
        let dueAt: Instant
        switch decision {
        case .settle, .settleAndDisable: return nil
        case .retry(let time), .handBack(let time): dueAt = time
        }
        return PostponedDelivery(
            key: delivery.key,
            attempts: attempts,
            unanswered: unanswered,
            dueAt: dueAt,
            status: answer?.status,
            reason: reason
        )
    }

    private var reason: String? { answer?.reason.map(printable) }
}

/// A provider's text as it may be kept: bounded, and without what Postgres or a terminal minds.
private func printable(_ text: String) -> String {
    // Nearly every text is an id.
    if text.utf8.count <= 200, text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7f }) { return text }
    return String(
        String.UnicodeScalarView(
            text.unicodeScalars.prefix(200).map { $0.value < 0x20 || $0.value == 0x7f ? " " : $0 }
        )
    )
}
