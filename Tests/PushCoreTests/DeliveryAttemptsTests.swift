import PushCore
import Testing

@Suite(.timeLimit(.minutes(1)))
struct DeliveryAttemptsTests {
    private let now = Instant(milliseconds: 1_790_000_000_000)

    private func decide(
        _ attempts: inout DeliveryAttempts,
        _ outcome: ProviderOutcome,
        overwrites: Bool = true,
        expiresAt: Instant? = nil
    ) -> DeliveryDecision {
        attempts.finished(
            outcome,
            repeatOverwrites: overwrites,
            now: now,
            expiresAt: expiresAt,
            jitter: 0.5
        )
    }

    @Test("A final answer is settled at once, and only an unregistered device loses its token")
    func finalAnswers() {
        let expected: [(ProviderOutcome, DeliveryDecision)] = [
            (.accepted, .settle(.delivered)), (.rejected, .settle(.failed)),
            (.misconfigured, .settle(.failed)),
            (.unregistered(since: nil), .settleAndDisableToken(since: nil)),
            (
                .unregistered(since: 5),
                .settleAndDisableToken(since: Instant(milliseconds: 5))
            ),
        ]
        for (outcome, decision) in expected {
            var attempts = DeliveryAttempts()
            #expect(decide(&attempts, outcome) == decision)
            #expect(attempts.attempts == 1)
        }
    }

    @Test("A transient failure is retried with growing waits, up to the limit")
    func transientAnswers() {
        var attempts = DeliveryAttempts(limit: 4)
        var waits: [Int64] = []
        for _ in 0..<3 {
            guard case .retry(let time) = decide(&attempts, .unavailable(retryAfter: nil)) else {
                Issue.record("not tried again")
                return
            }
            waits.append(time.milliseconds - now.milliseconds)
        }
        #expect(waits == [750, 1500, 3000])
        #expect(decide(&attempts, .unavailable(retryAfter: nil)) == .settle(.failed))
    }

    @Test("A provider's number at any edge gives a time, and the same outcome")
    func providersNumbers() {
        for number in InstantTests.edges {
            for start in [Instant.earliest, now, .latest] {
                for outcome in [
                    ProviderOutcome.unavailable(retryAfter: .seconds(number)),
                    .throttled(retryAfter: .seconds(number)),
                ] {
                    var attempts = DeliveryAttempts()
                    let decision = attempts.finished(
                        outcome,
                        repeatOverwrites: true,
                        now: start,
                        expiresAt: nil,
                        jitter: 0.999
                    )
                    guard case .retry(let time) = decision else {
                        Issue.record("\(number) s ended \(decision)")
                        return
                    }
                    #expect(time >= start && time <= start.adding(milliseconds: 95_040_000))
                }
            }
            var attempts = DeliveryAttempts()
            let decision = decide(&attempts, .unregistered(since: number))
            guard case .settleAndDisableToken(let since?) = decision else {
                Issue.record("\(number) ms ended \(decision)")
                return
            }
            #expect(Instant(microseconds: since.microseconds) == since)
        }
    }

    @Test("Retry-After is a lower bound, and an extreme one is capped")
    func retryAfter() {
        for (asked, least, most) in [(60, 60_000, 66_000), (10_000_000, 86_400_000, 95_040_000)] {
            var attempts = DeliveryAttempts()
            let decision = decide(&attempts, .unavailable(retryAfter: .seconds(asked)))
            guard case .retry(let time) = decision else {
                Issue.record("not tried again")
                return
            }
            #expect((Int64(least)...Int64(most)).contains(time.milliseconds - now.milliseconds))
        }
    }

    @Test("Promise 6: an unanswered attempt is repeated once if the repeat overwrites the first")
    func noAnswer() {
        var attempts = DeliveryAttempts()
        guard case .retry = decide(&attempts, .noAnswer) else {
            Issue.record("not tried again")
            return
        }
        #expect(attempts.unanswered == 1)
        #expect(decide(&attempts, .noAnswer) == .settle(.inDoubt))

        var other = DeliveryAttempts()
        #expect(decide(&other, .noAnswer, overwrites: false) == .settle(.inDoubt))
        // It may have arrived, so it is in doubt and not expired.
        var late = DeliveryAttempts()
        #expect(
            decide(&late, .noAnswer, expiresAt: now.adding(milliseconds: 1)) == .settle(.inDoubt)
        )
        // A count from the row is continued.
        var resumed = DeliveryAttempts(attempts: 3, unanswered: 1)
        #expect(decide(&resumed, .noAnswer) == .settle(.inDoubt))
    }

    @Test("An unsent attempt is not counted and is repeated freely, until the delivery expires")
    func notSent() {
        var attempts = DeliveryAttempts(limit: 2)
        for _ in 0..<50 {
            guard case .retry = decide(&attempts, .notSent) else {
                Issue.record("not tried again")
                return
            }
        }
        #expect(attempts.attempts == 0)
        #expect(
            decide(&attempts, .notSent, expiresAt: now.adding(milliseconds: 1000))
                == .settle(.expired)
        )
    }

    @Test("A retry after the expiry is not made")
    func expiry() {
        var attempts = DeliveryAttempts()
        #expect(
            decide(
                &attempts,
                .unavailable(retryAfter: .seconds(60)),
                expiresAt: now.adding(milliseconds: 60_000)
            ) == .settle(.expired)
        )
        #expect(DeliveryAttempts.isExpired(at: now, expiresAt: now))
        #expect(!DeliveryAttempts.isExpired(at: now, expiresAt: now.adding(milliseconds: 1)))
        #expect(!DeliveryAttempts.isExpired(at: now, expiresAt: nil))
    }

    @Test("The wait doubles from the base up to the cap, within its jitter")
    func backoff() {
        let backoff = Backoff(baseMilliseconds: 1000, capMilliseconds: 10_000)
        let full = (1...8).map { backoff.delayMilliseconds(after: $0, jitter: 0.999_999) }
        #expect(full == [999, 1999, 3999, 7999, 9999, 9999, 9999, 9999])
        let least = (1...8).map { backoff.delayMilliseconds(after: $0, jitter: 0) }
        #expect(least == [500, 1000, 2000, 4000, 5000, 5000, 5000, 5000])
        #expect(backoff.delayMilliseconds(after: .max, jitter: 0) == 5000)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct LedgerTests {
    @Test("Promise 6: the books balance after every step")
    func balances() {
        var ledger = Ledger()
        #expect(ledger.balances)
        ledger.plan(Outcome.allCases.count)
        #expect(ledger.balances)
        for outcome in Outcome.allCases {
            #expect(!ledger.isSettled)
            ledger.settle(outcome)
            #expect(ledger.balances)
            #expect(ledger[outcome] == 1)
        }
        #expect(ledger.isSettled)
        ledger.delivered += 1
        #expect(!ledger.balances)
    }

    @Test("A row's state and an outcome correspond one to one")
    func states() {
        for outcome in Outcome.allCases {
            #expect(DeliveryState(outcome).outcome == outcome)
        }
        #expect(DeliveryState.pending.outcome == nil)
        #expect(Outcome.inDoubt.rawValue == "in_doubt")
    }
}
