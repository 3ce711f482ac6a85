/// The meaning of a provider's answer, or of its absence, for one delivery.
///
/// The provider modules classify answers by their own tables; the dispatcher decides by this value
/// alone. Only `unregistered` and `mismatched` may disable a token (promise 9).
package enum ProviderOutcome: Equatable, Hashable, Sendable {
    /// The provider has accepted the notification.
    case accepted
    /// The device is no longer registered. `since` is when the provider noticed it, in milliseconds
    /// since 1970: a token that was registered later is valid.
    case unregistered(since: Int64?)
    /// The token belongs to another sender. If only few tokens of an app are affected, the token is
    /// at fault; if many are, the credential or the project. The caller counts them and decides.
    case mismatched
    /// The payload or the request is at fault: another attempt would end the same way.
    case rejected
    /// The credential, the topic or the environment is at fault. Disables no token.
    case misconfigured
    /// Transient. `retryAfter` is a lower bound: the next attempt waits for this time or the
    /// backoff, whichever is longer.
    case unavailable(retryAfter: Duration?)
    /// The queue of this device is full, or closed for a while. This says nothing about the
    /// provider's health. `retryAfter` is as for `unavailable`.
    case throttled(retryAfter: Duration?)
    /// The request was sent, or may have been, and had no answer.
    case noAnswer
    /// The request was not sent, or was rejected because of the time in our token. It is not an
    /// attempt, and may be repeated freely.
    case notSent

    /// The closed set of values for metrics' labels.
    package var metricLabel: String {
        switch self {
        case .accepted: "accepted"
        case .unregistered: "unregistered"
        case .mismatched: "mismatched"
        case .rejected: "rejected"
        case .misconfigured: "misconfigured"
        case .unavailable: "unavailable"
        case .throttled: "throttled"
        case .noAnswer: "no_answer"
        case .notSent: "not_sent"
        }
    }
}
