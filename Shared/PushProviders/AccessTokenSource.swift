internal import HTTPTransport
internal import Observability
internal import PushCore

/// An OAuth access token. It is fetched when it is first needed, and again before it expires. One
/// call serves all waiters. Confined to one loop.
final class AccessTokenSource {
    private let slot: ConnectionSlot
    private let makeRequest: () throws -> HTTPRequest
    private let provider: Platform
    private let clock: DatabaseClock
    private let log: Log
    private var rule = AccessTokenPolicy()
    private var waiting: [(Result<String, TokenRefusal>) -> Void] = []
    /// The number of fetches, for tests.
    private(set) var fetches = 0

    init(
        of provider: Platform,
        through slot: ConnectionSlot,
        clock: DatabaseClock,
        log: Log,
        makeRequest: @escaping () throws -> HTTPRequest
    ) {
        self.slot = slot
        self.provider = provider
        self.clock = clock
        self.log = log
        self.makeRequest = makeRequest
    }

    /// Runs `body` at once if there is a token, else when the fetch has ended. The deliveries that
    /// clients have in flight bound the number of waiters.
    func withToken(_ body: @escaping (Result<String, TokenRefusal>) -> Void) {
        switch rule.decision(at: clock.now().milliseconds) {
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

    func discard(_ token: String) { rule.discard(token, at: clock.now().milliseconds) }

    private func fetch() {
        let request: HTTPRequest
        do {
            request = try makeRequest()
        } catch {
            return finish(
                .failure(
                    TokenRefusal(
                        outcome: .misconfigured,
                        reason: LocalFailure.keyDoesNotSign.rawValue
                    )
                )
            )
        }
        fetches += 1
        let generation = slot.generation
        slot.client.send(request) { [self] result in
            switch result {
            case .success(let response): finish(AccessTokenGrant.read(response, at: clock.now()))
            case .failure(let error):
                // The request may not have been sent: a peer may allow no stream, or accept no byte
                // of a body.
                if error.kind == .timeout {
                    slot.replace(
                        generation,
                        because: "\(LocalFailure.tokenEndpoint.rawValue): \(error.metricLabel)"
                    )
                }
                let outcome: ProviderOutcome =
                    error.isRetryable ? .notSent : .misconfigured
                let reason = "\(LocalFailure.tokenEndpoint.rawValue): \(error.metricLabel)"
                finish(.failure(TokenRefusal(outcome: outcome, reason: reason)))
            }
        }
    }

    private func finish(_ result: Result<AccessTokenGrant, TokenRefusal>) {
        let now = clock.now().milliseconds
        switch result {
        case .success(let grant):
            rule.fetched(grant.token, lifetimeSeconds: grant.lifetimeSeconds, at: now)
        case .failure(let refusal):
            log.info("access token refused", [.reason: .string(refusal.reason)])
            if refusal.isOfTheClock { clock.refused(by: provider) }
            rule.failed(refusal, at: now)
        }
        let bodies = waiting
        waiting = []
        for body in bodies { body(result.map(\.token)) }
    }
}

/// Encodes an `application/x-www-form-urlencoded` body.
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
