/// What one answer of a provider, or its absence, means for one delivery.
///
/// The providers' rooms classify by their providers' tables; the dispatcher decides by this
/// alone. Only `unregistered` and `mismatched` may ever disable a token (promise 9).
package enum ProviderOutcome: Equatable, Hashable, Sendable {
    /// The provider has taken the notification over.
    case accepted
    /// The device is gone, by its own fault. `since` is when the provider found out, in
    /// milliseconds since 1970: a token registered after it is alive.
    case unregistered(since: Int64?)
    /// The token belongs to another sender. It is the token's fault where it is one of few, and the
    /// credential's or the project's where it is many of an app: who counts them decides.
    case mismatched
    /// The payload or the request is at fault: another attempt would end the same way.
    case rejected
    /// The credential, the topic or the environment is at fault. Disables nobody.
    case misconfigured
    /// Transient. `retryAfter` is a lower bound: the next attempt waits for the longer of it and
    /// the back-off.
    case unavailable(retryAfter: Duration?)
    /// This device's own way is full, or closed for a while; it says nothing about the provider's
    /// health. `retryAfter` as for `unavailable`.
    case throttled(retryAfter: Duration?)
    /// It was sent, or may have been, and never answered.
    case noAnswer
    /// It never left this process, or was refused for the time in our token: it may be repeated freely and
    /// is not an attempt.
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
