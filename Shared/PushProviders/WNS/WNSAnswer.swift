internal import HTTPTransport
internal import PushCore

/// The classification of a WNS answer. Pure. The reasons are in headers, and the body is usually
/// empty.
///
/// - SeeAlso: Microsoft, "Push notification service request and response headers".
struct WNSAnswer: Equatable {
    var answer: ProviderAnswer
    /// Whether the access token was rejected: renew it and send again, once.
    var wantsRenewal = false

    private static let channelWait = Duration.seconds(600)
    private static let senderWait = Duration.seconds(3600)

    static func classify(_ response: HTTPResponse, at now: Instant) -> WNSAnswer {
        let state =
            (response.header("x-wns-status") ?? response.header("x-wns-notificationstatus"))?
            .lowercased()
        let description = response.header("x-wns-error-description")
        let outcome = outcome(
            response.status,
            state: state,
            description: description?.lowercased() ?? "",
            retryAfter: response.retryAfter(at: now)
        )
        let reason = response.status == 200 ? (outcome == .accepted ? nil : state) : description
        return WNSAnswer(
            answer: ProviderAnswer(
                outcome,
                status: response.status,
                reason: reason,
                providerMessageID: response.header("x-wns-msg-id")
            ),
            wantsRenewal: response.status == 401
        )
    }

    private static func outcome(
        _ status: Int,
        state: String?,
        description: String,
        retryAfter: Duration?
    ) -> ProviderOutcome {
        switch (status, state) {
        case (200, "dropped"): .rejected
        case (200, "channelthrottled"): .throttled(retryAfter: retryAfter ?? channelWait)
        case (200, _): .accepted
        case (401, _), (403, _): .misconfigured
        case (404, _): .unregistered(since: nil)
        // Usually the channel has expired. With "domain blocked", WNS has blocked Carillon for abuse,
        // and the device is not at fault.
        case (410, _):
            description.contains("domain blocked") ? .misconfigured : .unregistered(since: nil)
        case (406, _), (412, _): .unavailable(retryAfter: retryAfter ?? senderWait)
        case (429, _): .unavailable(retryAfter: retryAfter ?? channelWait)
        case (500..., _): .unavailable(retryAfter: retryAfter)
        case (400..<500, _): .rejected
        // Redirects are not followed, as they would send the bearer token elsewhere. WNS does not
        // send other answers.
        default: .misconfigured
        }
    }
}
