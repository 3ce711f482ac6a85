internal import HTTPTransport
internal import JSON
internal import PushCore

/// The reason why there is no access token.
struct TokenRefusal: Error, Equatable {
    /// `misconfigured`, `unavailable`, or `notSent`: the token endpoint was not reached, or
    /// rejected our clock. The notification itself was not sent.
    var outcome: ProviderOutcome
    var status: Int?
    var reason: String
    /// Whether the endpoint rejects the times in our grant, so that the clock may be wrong.
    var isOfTheClock = false

    var answer: ProviderAnswer { ProviderAnswer(outcome, status: status, reason: reason) }
}

/// The rules for fetching an OAuth token, and for the deliveries that wait for it. Pure: times are
/// passed in as milliseconds.
struct AccessTokenPolicy: Equatable {
    enum Decision: Equatable {
        case use(String)
        /// The token is still valid, but a new one is due: fetch it in the background.
        case useAndFetch(String)
        case waitAndFetch
        /// A fetch is running.
        case wait
        case refuse(TokenRefusal)
    }

    static let earlyMilliseconds: Int64 = 5 * 60_000
    /// The minimum time between two fetches of tokens that the provider calls invalid.
    static let minimumMilliseconds: Int64 = 60_000
    /// The longest delay of an endpoint that is obeyed.
    static let longestMilliseconds: Int64 = 86_400_000

    private var token: String?
    private var renewAt: Int64 = 0
    private var expiresAt: Int64 = 0
    private var isFetching = false
    private var failures = 0
    private var heldUntil: Int64 = 0
    private var refusal: TokenRefusal?
    private var discardedAt: Int64?

    mutating func decision(at now: Int64) -> Decision {
        if let token, now < expiresAt {
            guard now >= renewAt, !isFetching, now >= heldUntil else { return .use(token) }
            isFetching = true
            return .useAndFetch(token)
        }
        if isFetching { return .wait }
        if let refusal, now < heldUntil { return .refuse(refusal) }
        isFetching = true
        return .waitAndFetch
    }

    mutating func fetched(_ token: String, lifetimeSeconds: Int, at now: Int64) {
        let lifetime = Int64(min(max(lifetimeSeconds, 1), 30 * 86_400)) * 1000
        self.token = token
        expiresAt = now + lifetime
        renewAt = now + max(lifetime - Self.earlyMilliseconds, lifetime / 2)
        isFetching = false
        failures = 0
        heldUntil = 0
        refusal = nil
    }

    /// Records a failed fetch. If only an operator can resolve a refusal, the fetch is not retried
    /// within a minute. A transient failure is retried after 1, 2, 4 … 60 s, or after the
    /// endpoint's own delay.
    mutating func failed(_ refusal: TokenRefusal, at now: Int64) {
        isFetching = false
        failures = min(failures + 1, 7)
        self.refusal = refusal
        var wait = min(Int64(500) << Int64(failures), 60_000)
        switch refusal.outcome {
        case .unavailable(let retryAfter), .throttled(let retryAfter):
            let asked = min(retryAfter?.wholeMilliseconds ?? 0, Self.longestMilliseconds)
            wait = max(wait, asked)
        case .notSent: break
        case .accepted, .unregistered, .mismatched, .rejected, .misconfigured, .noAnswer:
            wait = 60_000
        }
        heldUntil = now + wait
    }

    /// Discards a token that the provider rejects although it should be valid.
    mutating func discard(_ token: String, at now: Int64) {
        guard token == self.token else { return }
        if let discardedAt, now - discardedAt < Self.minimumMilliseconds { return }
        discardedAt = now
        self.token = nil
    }
}

/// The grant of a token endpoint. Pure.
struct AccessTokenGrant: Equatable {
    var token: String
    var lifetimeSeconds: Int

    /// Reads an OAuth token endpoint's answer (RFC 6749, section 5); Microsoft's `expires_in` may
    /// be a string.
    static func read(
        _ response: HTTPResponse,
        at now: Instant
    ) -> Result<AccessTokenGrant, TokenRefusal> {
        let body = try? JSONValue.parse(response.body, maximumDepth: 8)
        func refusal(_ outcome: ProviderOutcome, _ reason: String) -> TokenRefusal {
            TokenRefusal(
                outcome: outcome,
                status: response.status,
                reason: ProviderAnswer.bounded(
                    "\(LocalFailure.tokenEndpoint.rawValue): \(reason)",
                    200
                )
            )
        }
        let word = body?["error"]?.string ?? "status \(response.status)"
        switch response.status {
        case 200:
            let lifetime =
                body?["expires_in"]?.integer
                ?? body?["expires_in"]?.string.flatMap { Int($0) }
            guard let token = body?["access_token"]?.string, !token.isEmpty, isPrintable(token),
                token.utf8.count <= 16_384
            else {
                return .failure(
                    refusal(.unavailable(retryAfter: nil), "an answer without access_token")
                )
            }
            return .success(AccessTokenGrant(token: token, lifetimeSeconds: lifetime ?? 3600))
        case 400 where word == "invalid_grant" && isOfTheClock(body?["error_description"]?.string):
            var refused = refusal(.notSent, "\(word): iat or exp, by our clock")
            refused.isOfTheClock = true
            return .failure(refused)
        case 408, 429, 500...:
            return .failure(refusal(.unavailable(retryAfter: response.retryAfter(at: now)), word))
        default:
            return .failure(refusal(.misconfigured, word))
        }
    }

    /// Whether the times in our grant were rejected. Google uses one error for a wrong signature
    /// and a wrong time. Only its description says which: "Invalid JWT: Token must be a short-lived
    /// token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT
    /// claim."
    private static func isOfTheClock(_ description: String?) -> Bool {
        guard let description else { return false }
        return description.contains("reasonable timeframe")
            || description.contains("iat and exp values")
    }
}
