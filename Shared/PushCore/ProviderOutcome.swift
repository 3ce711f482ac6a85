/// The meaning of a provider's answer, or of its absence, for one delivery.
///
/// The provider modules classify answers by their own tables; the dispatcher decides by this alone.
/// Only `unregistered` and `mismatched` may ever disable a token (promise 9).
package enum ProviderOutcome: Equatable, Hashable, Sendable {
    /// The provider has accepted the notification.
    case accepted
    /// The device is no longer registered. `since` is when the provider found out, in milliseconds
    /// since 1970: a token registered later is alive.
    case unregistered(since: Int64?)
    /// The token belongs to another sender. The token is at fault if only few tokens of an app are
    /// affected, the credential or the project if many are: the caller counts them and decides.
    case mismatched
    /// The payload or the request is at fault: another attempt would end the same way.
    case rejected
    /// The credential, the topic or the environment is at fault. Disables no token.
    case misconfigured
    /// Transient. `retryAfter` is a lower bound: the next attempt waits for the longer of it and
    /// the backoff.
    case unavailable(retryAfter: Duration?)
    /// This device's own queue is full, or closed for a while; it says nothing about the provider's
    /// health. `retryAfter` as for `unavailable`.
    case throttled(retryAfter: Duration?)
    /// The request was sent, or may have been, and was never answered.
    case noAnswer
    /// The request never left this process, or was rejected for the time in our token: it may be repeated
    /// freely and is not an attempt.
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
