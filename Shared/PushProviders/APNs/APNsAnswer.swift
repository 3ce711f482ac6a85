internal import HTTPTransport
internal import JSON
internal import PushCore

/// The classification of an APNs answer. Pure: status, headers and body in, meaning out.
///
/// - SeeAlso: Apple, "Handling notification responses from APNs".
struct APNsAnswer: Equatable {
    /// The client's action, besides reporting the answer.
    enum Reaction: Equatable {
        case none
        /// The token is too old: sign a new one, leave the connection (it stays wedged), send again.
        case renewToken
        /// The connection was used with another key first: send again on a new one.
        case changeConnectionAndRepeat
        /// Nothing to repeat, but this connection must be closed.
        case changeConnection
        /// The token changed too often: keep the current one.
        case keepToken
    }

    var answer: ProviderAnswer
    var reaction = Reaction.none

    /// Whether APNs rejects the time in our token: every push gets this answer, and none is at fault.
    var isOfTheClock: Bool { answer.status == 403 && answer.outcome == .notSent }

    /// Classifies an answer. APNs has one reason for a token from the future and for one of another's key: the
    /// clock is at fault if `clockIsInDoubt`, as this host's and Postgres' disagree.
    static func classify(
        _ response: HTTPResponse,
        environmentIsExplicit: Bool,
        topicIsExplicit: Bool,
        clockIsInDoubt: Bool = false,
        at now: Instant
    ) -> APNsAnswer {
        if response.status == 200 {
            return APNsAnswer(
                answer: ProviderAnswer(
                    .accepted,
                    status: 200,
                    providerMessageID: response.header("apns-id")
                )
            )
        }
        let body = try? JSONValue.parse(response.body, maximumDepth: 8)
        let reason = body?["reason"]?.string
        let (outcome, reaction) = outcome(
            response.status,
            reason ?? "",
            timestamp: diedAt(body?["timestamp"], now),
            retryAfter: response.retryAfter(at: now),
            environmentIsExplicit: environmentIsExplicit,
            topicIsExplicit: topicIsExplicit,
            clockIsInDoubt: clockIsInDoubt
        )
        return APNsAnswer(
            answer: ProviderAnswer(
                outcome,
                status: response.status,
                reason: reason,
                providerMessageID: response.header("apns-id")
            ),
            reaction: reaction
        )
    }

    /// Returns when a token became invalid, in milliseconds since 1970. Apple documents milliseconds, and its answers
    /// have also had seconds: the size of the number shows which, as no token died before September 2001 or after the
    /// year 33658. A number that cannot be a past time must neither disable a token that is registered later nor
    /// spare one for ever: then the time is that of this answer.
    private static func diedAt(_ value: JSONValue?, _ now: Instant) -> Int64? {
        guard let number = value?.integer.map(Int64.init), number > 0 else { return nil }
        let time =
            number < leastMilliseconds
            ? Instant(seconds: number) : Instant(milliseconds: number)
        return time <= now ? time.milliseconds : nil
    }

    /// Smaller numbers are in seconds.
    private static let leastMilliseconds: Int64 = 1_000_000_000_000

    private static func outcome(
        _ status: Int,
        _ reason: String,
        timestamp: Int64?,
        retryAfter: Duration?,
        environmentIsExplicit: Bool,
        topicIsExplicit: Bool,
        clockIsInDoubt: Bool
    ) -> (ProviderOutcome, Reaction) {
        switch (status, reason) {
        case (400, "BadDeviceToken"):
            // Without a stated environment our sandbox and production may be mixed up.
            (environmentIsExplicit ? .unregistered(since: nil) : .rejected, .none)
        case (400, "DeviceTokenNotForTopic"):
            // Likewise: a push with a wrong topic must not cost an app its devices.
            (topicIsExplicit ? .unregistered(since: nil) : .rejected, .none)
        case (400, "BadTopic"), (400, "MissingTopic"), (400, "TopicDisallowed"):
            (.misconfigured, .none)
        case (400, "IdleTimeout"): (.unavailable(retryAfter: retryAfter), .changeConnection)
        case (403, "ExpiredProviderToken"): (.notSent, .renewToken)
        case (403, "InvalidProviderToken") where clockIsInDoubt: (.notSent, .changeConnection)
        case (403, "UnrelatedKeyIdInToken"): (.misconfigured, .changeConnectionAndRepeat)
        case (401, _), (403, _): (.misconfigured, .none)
        case (410, _): (.unregistered(since: timestamp), .none)
        case (429, "TooManyProviderTokenUpdates"):
            (.unavailable(retryAfter: retryAfter), .keepToken)
        // Too many to this one device: others are not affected.
        case (429, "TooManyRequests"): (.throttled(retryAfter: retryAfter), .none)
        case (429, _): (.unavailable(retryAfter: retryAfter), .none)
        case (503, _): (.unavailable(retryAfter: retryAfter), .changeConnection)
        case (500..., _): (.unavailable(retryAfter: retryAfter), .none)
        case (400..<500, _): (.rejected, .none)
        // Not an answer of APNs': the server at the origin is wrong, no device is to blame.
        default: (.misconfigured, .none)
        }
    }
}
