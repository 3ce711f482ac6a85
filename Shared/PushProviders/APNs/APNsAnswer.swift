internal import HTTPTransport
internal import JSON
internal import PushCore

/// What an answer of APNs means. Pure: status, headers and body in, meaning out.
///
/// - SeeAlso: Apple, "Handling notification responses from APNs".
struct APNsAnswer: Equatable {
    /// What the client does beside reporting the answer.
    enum Reaction: Equatable {
        case none
        /// The token is too old: sign a new one, leave the connection (it stays wedged), send again.
        case renewToken
        /// Another key was first on this connection: send again on a new one.
        case changeConnectionAndRepeat
        /// Nothing to repeat, but this connection is over.
        case changeConnection
        /// Tokens changed too often here: keep the one we have.
        case keepToken
    }

    var answer: ProviderAnswer
    var reaction = Reaction.none

    /// Whether APNs refuses the time in our token: an answer to each push, and the fault of none.
    var isOfTheClock: Bool { answer.status == 403 && answer.outcome == .notSent }

    /// Classifies an answer. APNs has one word for a token from the future and for one of another's key: it is
    /// the clock's fault where `clockIsInDoubt`, as this host's and Postgres' disagree.
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

    /// When a token died, in milliseconds since 1970. Apple documents milliseconds, and its answers
    /// have had seconds, too: which it is shows in the number, as no token died before September 2001
    /// or after the year 33658. A number that cannot be a time past must neither kill a token that is
    /// registered later nor spare one for ever: then it is dead since this answer.
    private static func diedAt(_ value: JSONValue?, _ now: Instant) -> Int64? {
        guard let number = value?.integer.map(Int64.init), number > 0 else { return nil }
        let time =
            number < leastMilliseconds
            ? Instant(seconds: number) : Instant(milliseconds: number)
        return time <= now ? time.milliseconds : nil
    }

    /// What is less is in seconds.
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
            // Without a stated environment it may as well be our sandbox and production mixed up.
            (environmentIsExplicit ? .unregistered(since: nil) : .rejected, .none)
        case (400, "DeviceTokenNotForTopic"):
            // Likewise: a push that names the wrong one must not cost an app its devices.
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
        // Too many to this one device: the others get theirs.
        case (429, "TooManyRequests"): (.throttled(retryAfter: retryAfter), .none)
        case (429, _): (.unavailable(retryAfter: retryAfter), .none)
        case (503, _): (.unavailable(retryAfter: retryAfter), .changeConnection)
        case (500..., _): (.unavailable(retryAfter: retryAfter), .none)
        case (400..<500, _): (.rejected, .none)
        // Not an answer of APNs': whatever stands at the origin, no device is to blame.
        default: (.misconfigured, .none)
        }
    }
}
