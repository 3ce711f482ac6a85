internal import HTTPTransport
internal import JSON
internal import PushCore

/// The classification of an APNs answer, from its status, headers and body. Pure.
///
/// - SeeAlso: Apple, "Handling notification responses from APNs".
struct APNsAnswer: Equatable {
    /// The action of the client, in addition to reporting the answer.
    enum Reaction: Equatable {
        case none
        /// The token is too old. Sign a new one, leave the connection, which keeps rejecting, and
        /// send again.
        case renewToken
        /// The connection was used with another key before. Send again on a new connection.
        case changeConnectionAndRepeat
        /// Send nothing again, but close this connection.
        case changeConnection
        /// The token changed too often: keep the current one.
        case keepToken
    }

    var answer: ProviderAnswer
    var reaction = Reaction.none

    /// Whether APNs rejects the time in our token. Then every push gets this answer, and no push is
    /// at fault.
    var isOfTheClock: Bool { answer.status == 403 && answer.outcome == .notSent }

    /// Classifies an answer. APNs has the same reason for a token from the future and for a token
    /// signed by a wrong key. The clock is at fault if `clockIsInDoubt`: this host's clock and
    /// Postgres' clock differ.
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

    /// Returns when a token became invalid, in milliseconds since 1970. Apple documents
    /// milliseconds, and its answers have also had seconds. The size of the number shows which, as
    /// no token became invalid before September 2001 or after the year 33658. Returns `nil` if the
    /// number is not a past time, so that the time of this answer counts. Otherwise a token that is
    /// registered later could be disabled, or a dead token kept for ever.
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
            // If no environment is stated, the push may have gone to the wrong one by our mistake.
            (environmentIsExplicit ? .unregistered(since: nil) : .rejected, .none)
        case (400, "DeviceTokenNotForTopic"):
            // Likewise, a push with a wrong topic must not disable an app's devices.
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
        // Too many requests for this one device: others are not affected.
        case (429, "TooManyRequests"): (.throttled(retryAfter: retryAfter), .none)
        case (429, _): (.unavailable(retryAfter: retryAfter), .none)
        case (503, _): (.unavailable(retryAfter: retryAfter), .changeConnection)
        case (500..., _): (.unavailable(retryAfter: retryAfter), .none)
        case (400..<500, _): (.rejected, .none)
        // APNs does not send such an answer: the server at this address is wrong, not the device.
        default: (.misconfigured, .none)
        }
    }
}
