internal import HTTPTransport
internal import PushCore

/// The classification of an MPNS answer, from its status and three headers; the body is empty.
/// Pure.
///
/// - SeeAlso: MSDN ff941100, "Push notification service response codes".
struct MPNSAnswer: Equatable {
    var answer: ProviderAnswer
    /// How long no push may be sent to this channel. Senders that ignore this may be blocked.
    var holdsChannel: Duration?

    /// MPNS allows a retry once an hour at most.
    private static let hour = Duration.seconds(3600)
    private static let queueWait = Duration.seconds(600)

    static func classify(_ response: HTTPResponse, at now: Instant) -> MPNSAnswer {
        let states = [
            "x-notificationstatus", "x-deviceconnectionstatus", "x-subscriptionstatus",
        ].map { response.header($0) }
        let notification = normal(states[0])
        let retryAfter = response.retryAfter(at: now)
        let outcome = outcome(
            response.status,
            notification: notification,
            subscription: normal(states[2]),
            retryAfter: retryAfter
        )
        var holds: Duration?
        if response.status == 406 || response.status == 412 {
            holds = max(hour, retryAfter ?? .zero)
        }
        return MPNSAnswer(
            answer: ProviderAnswer(
                outcome,
                status: response.status,
                reason: reason(states, isPlainSuccess: outcome == .accepted),
                providerMessageID: response.header("x-messageid")
            ),
            holdsChannel: holds
        )
    }

    /// Normalizes a state, which has several spellings: `TempDisconnected`, `Temp Disconnected`.
    private static func normal(_ state: String?) -> String {
        (state ?? "").filter { $0 != " " && $0 != "\t" }.lowercased()
    }

    /// Returns the three states, the only diagnostics of MPNS.
    private static func reason(_ states: [String?], isPlainSuccess: Bool) -> String? {
        let known = states.compactMap { $0 }
        if isPlainSuccess { return known.isEmpty ? "no notification status" : nil }
        return known.isEmpty ? nil : known.joined(separator: ", ")
    }

    private static func outcome(
        _ status: Int,
        notification: String,
        subscription: String,
        retryAfter: Duration?
    ) -> ProviderOutcome {
        switch (status, notification) {
        case (200, "queuefull"): .throttled(retryAfter: retryAfter ?? queueWait)
        // The app does not accept this kind of notification, or is not running. The device is
        // valid.
        case (200, "suppressed"), (200, "dropped"): .rejected
        case (200, _): .accepted
        case (401, _): .misconfigured
        case (404, _) where subscription.isEmpty || subscription == "expired":
            .unregistered(since: nil)
        case (406, _), (412, _): .throttled(retryAfter: max(hour, retryAfter ?? .zero))
        case (429, _): .unavailable(retryAfter: retryAfter ?? queueWait)
        case (500..., _): .unavailable(retryAfter: retryAfter)
        case (400..<500, _): .rejected
        // MPNS does not send other answers: the device is not at fault.
        default: .misconfigured
        }
    }
}
