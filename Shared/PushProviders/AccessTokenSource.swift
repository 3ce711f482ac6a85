internal import HTTPTransport
internal import JSON
internal import Observability
internal import PushCore

/// Why there is no access token.
struct TokenRefusal: Error, Equatable {
    /// `misconfigured`; `unavailable`; or `notSent` where the token endpoint was not reached: the
    /// notification itself never left.
    var outcome: ProviderOutcome
    var status: Int?
    var reason: String

    var answer: ProviderAnswer { ProviderAnswer(outcome, status: status, reason: reason) }
}

/// When an OAuth token is fetched, and who waits for it. Pure: times are passed in, milliseconds.
struct AccessTokenRule: Equatable {
    enum Decision: Equatable {
        case use(String)
        /// Still good, but a new one is due: fetch it beside.
        case useAndFetch(String)
        case waitAndFetch
        /// Somebody is fetching.
        case wait
        case refuse(TokenRefusal)
    }

    static let earlyMilliseconds: Int64 = 5 * 60_000
    /// What is called invalid is not fetched again more often than this.
    static let minimumMilliseconds: Int64 = 60_000
    /// What an endpoint may ask us to wait, at most.
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

    /// A refusal that only an operator can lift is not asked for again within a minute; a transient
    /// one after 1, 2, 4 … 60 s, or what the endpoint said.
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
        case .accepted, .unregistered, .rejected, .misconfigured, .noAnswer:
            wait = 60_000
        }
        heldUntil = now + wait
    }

    /// The provider does not take this token, though it should still be good.
    mutating func discard(_ token: String, at now: Int64) {
        guard token == self.token else { return }
        if let discardedAt, now - discardedAt < Self.minimumMilliseconds { return }
        discardedAt = now
        self.token = nil
    }
}

/// One OAuth access token, fetched when it is first wanted, ahead of its end, and by one call at a
/// time whoever waits. Confined to one loop.
final class AccessTokenSource {
    private let slot: ConnectionSlot
    private let makeRequest: () throws -> HTTPRequest
    private let clock: () -> Instant
    private let log: Log
    private var rule = AccessTokenRule()
    private var waiting: [(Result<String, TokenRefusal>) -> Void] = []
    /// How many were fetched, for tests.
    private(set) var fetches = 0

    init(
        through slot: ConnectionSlot,
        clock: @escaping () -> Instant,
        log: Log,
        makeRequest: @escaping () throws -> HTTPRequest
    ) {
        self.slot = slot
        self.clock = clock
        self.log = log
        self.makeRequest = makeRequest
    }

    /// `body` runs now where there is a token, else when it has come or was refused. Those who wait
    /// are as many as their clients have in flight.
    func withToken(_ body: @escaping (Result<String, TokenRefusal>) -> Void) {
        switch rule.decision(at: clock().milliseconds) {
        case .use(let token): body(.success(token))
        case .useAndFetch(let token):
            fetch()
            body(.success(token))
        case .waitAndFetch:
            waiting.append(body)
            fetch()
        case .wait: waiting.append(body)
        case .refuse(let refusal): body(.failure(refusal))
        }
    }

    func discard(_ token: String) { rule.discard(token, at: clock().milliseconds) }

    private func fetch() {
        let request: HTTPRequest
        do {
            request = try makeRequest()
        } catch {
            return finish(
                .failure(TokenRefusal(outcome: .misconfigured, reason: "the key does not sign"))
            )
        }
        fetches += 1
        slot.client.send(request) { [self] result in
            switch result {
            case .success(let response): finish(Self.read(response, at: clock()))
            case .failure(let error):
                let outcome: ProviderOutcome =
                    error.isRetryable ? .notSent : .misconfigured
                let reason = "token endpoint: \(error.metricLabel)"
                finish(.failure(TokenRefusal(outcome: outcome, reason: reason)))
            }
        }
    }

    private func finish(_ result: Result<Grant, TokenRefusal>) {
        let now = clock().milliseconds
        switch result {
        case .success(let grant):
            rule.fetched(grant.token, lifetimeSeconds: grant.lifetimeSeconds, at: now)
        case .failure(let refusal):
            log.info("access token refused", [.reason: .string(refusal.reason)])
            rule.failed(refusal, at: now)
        }
        let bodies = waiting
        waiting = []
        for body in bodies { body(result.map(\.token)) }
    }

    struct Grant: Equatable {
        var token: String
        var lifetimeSeconds: Int
    }

    /// An OAuth token endpoint's answer (RFC 6749, section 5); Microsoft's `expires_in` may be a
    /// string.
    static func read(_ response: HTTPResponse, at now: Instant) -> Result<Grant, TokenRefusal> {
        let body = try? JSONValue.parse(response.body, maximumDepth: 8)
        func refusal(_ outcome: ProviderOutcome, _ reason: String) -> TokenRefusal {
            TokenRefusal(
                outcome: outcome,
                status: response.status,
                reason: "token endpoint: \(reason)"
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
            return .success(Grant(token: token, lifetimeSeconds: lifetime ?? 3600))
        case 408, 429, 500...:
            return .failure(refusal(.unavailable(retryAfter: response.retryAfter(at: now)), word))
        default:
            return .failure(refusal(.misconfigured, word))
        }
    }
}

/// An `application/x-www-form-urlencoded` body.
func formBody(_ fields: [(String, String)]) -> [UInt8] {
    var bytes: [UInt8] = []
    for (name, value) in fields {
        if !bytes.isEmpty { bytes.append(UInt8(ascii: "&")) }
        appendEscaped(name, to: &bytes)
        bytes.append(UInt8(ascii: "="))
        appendEscaped(value, to: &bytes)
    }
    return bytes
}

private func appendEscaped(_ text: String, to bytes: inout [UInt8]) {
    let digits = Array("0123456789ABCDEF".utf8)
    for byte in text.utf8 {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
            UInt8(ascii: "_"), UInt8(ascii: "~"):
            bytes.append(byte)
        default:
            bytes.append(UInt8(ascii: "%"))
            bytes.append(digits[Int(byte >> 4)])
            bytes.append(digits[Int(byte & 15)])
        }
    }
}
