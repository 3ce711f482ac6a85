import Observability
import PushCore
import PushProviders
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("The outcome of a delivery, before it is sent and by its answer", .timeLimit(.minutes(1)))
struct OutcomePolicyTests {
    private static let now = Instant(seconds: 1_800_000_000)
    private static let day: Int64 = 86_400_000
    private let now = Self.now
    private let policy = OutcomePolicy(maximumAge: 3 * Self.day)

    private static func delivery(
        _ provider: Platform = .apns,
        topic: String? = nil,
        attempts: Int = 0,
        unanswered: Int = 0,
        expiresAt: Instant? = nil,
        suppression: String? = nil
    ) -> Delivery {
        Delivery(
            key: DeliveryKey(
                day: now.day,
                pushID: "p",
                target: topic.map { "topic:" + $0 } ?? "device"
            ),
            app: "shop",
            installationID: topic == nil ? "device" : nil,
            device: DeviceTarget(provider: provider, token: "t", environment: .production),
            lane: 0,
            attempts: attempts,
            unanswered: unanswered,
            expiresAt: expiresAt,
            createdAt: now,
            suppression: suppression
        )
    }

    private func expiry(_ delivery: Delivery, spread: Int? = nil) -> Int64 {
        policy.expiry(of: delivery, spread: spread).milliseconds - now.milliseconds
    }

    @Test(
        "A delivery is pending no longer than its row is stored, and at MPNS for six hours at most"
    )
    func expiry() {
        let day = Self.day
        #expect(expiry(Self.delivery()) == 3 * day)
        #expect(expiry(Self.delivery(.mpns)) == day / 4)
        #expect(expiry(Self.delivery(), spread: 5000) == 3 * day + 5000)
        let soon = now.adding(milliseconds: 1000)
        #expect(expiry(Self.delivery(expiresAt: soon)) == 1000)
        let late = now.adding(milliseconds: 9 * day)
        #expect(expiry(Self.delivery(expiresAt: late)) == 3 * day)
    }

    @Test(
        "Suppressed comes before switched off, then expired, whose reason names the limit"
    )
    func unsendable() {
        func end(_ expiresAt: Instant, _ delivery: Delivery, off: String? = nil) -> DeliveryEnd? {
            policy.unsendable(delivery, switchedOff: off, expiresAt: expiresAt, now)
        }
        let later = now.adding(milliseconds: 1)
        let (plain, cancelled) = (Self.delivery(), Self.delivery(suppression: "cancelled"))
        #expect(end(later, plain) == nil)
        #expect(end(now, cancelled, off: "off")?.decision == .settle(.suppressed))
        #expect(end(now, cancelled, off: "off")?.reason == "cancelled")
        #expect(end(now, plain, off: "off")?.reason == "off")
        #expect(end(now, plain)?.decision == .settle(.expired))
        let wanted = { Self.delivery(expiresAt: $0) }
        #expect(end(now, wanted(now))?.reason == "expired before it was sent")
        #expect(end(now, wanted(later))?.reason?.contains("DELIVERY_RETENTION") == true)
        // No attempt was made.
        #expect(end(now, Self.delivery(attempts: 3, unanswered: 1))?.attempts == 3)
    }

    /// An answer, and the result for a delivery with so many earlier attempts.
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let answer: ProviderOutcome
        var delivery = OutcomePolicyTests.delivery()
        var expiresIn: Int64 = 3 * OutcomePolicyTests.day
        var isOnce = false
        var overwrites = true
        var unsent = 0
        var keepsToken = false
        let decision: DeliveryEnd.Decision
        var attempts = 1
        var unanswered = 0
    }

    private static func `in`(_ milliseconds: Int64) -> DeliveryEnd.Decision {
        .retry(at: now.adding(milliseconds: milliseconds))
    }

    private static let last = RetryPolicy.attemptLimit - 1

    static let cases = [
        Case(testDescription: "accepted", answer: .accepted, decision: .settle(.delivered)),
        Case(
            testDescription: "accepted at the second attempt",
            answer: .accepted,
            delivery: delivery(attempts: 1, unanswered: 1),
            decision: .settle(.delivered),
            attempts: 2,
            unanswered: 1
        ),
        Case(testDescription: "rejected", answer: .rejected, decision: .settle(.failed)),
        Case(
            testDescription: "misconfigured fails, and disables nothing (rule 34)",
            answer: .misconfigured,
            decision: .settle(.failed)
        ),
        Case(
            testDescription: "APNs is busy: 2 s, of which half is certain (rule 51)",
            answer: .unavailable(retryAfter: nil),
            decision: `in`(1000)
        ),
        Case(
            testDescription: "FCM is busy: 20 s",
            answer: .unavailable(retryAfter: nil),
            delivery: delivery(.fcm),
            decision: `in`(10_000)
        ),
        Case(
            testDescription: "MPNS is busy: 2 minutes",
            answer: .unavailable(retryAfter: nil),
            delivery: delivery(.mpns),
            decision: `in`(60_000)
        ),
        Case(
            testDescription: "Retry-After is a lower bound",
            answer: .throttled(retryAfter: .seconds(60)),
            decision: `in`(60_000)
        ),
        Case(
            testDescription: "Retry-After is capped at a day",
            answer: .throttled(retryAfter: .seconds(200_000)),
            decision: `in`(86_400_000)
        ),
        Case(
            testDescription: "Busy at the last attempt",
            answer: .unavailable(retryAfter: nil),
            delivery: delivery(attempts: last),
            decision: .settle(.failed),
            attempts: last + 1
        ),
        Case(
            testDescription: "A retry that would come due after expiry settles now (rule 33)",
            answer: .unavailable(retryAfter: nil),
            expiresIn: 1000,
            decision: .settle(.expired)
        ),
        Case(
            testDescription: "No answer is tried once more where a repeat overwrites (rule 50)",
            answer: .noAnswer,
            decision: `in`(500),
            unanswered: 1
        ),
        Case(
            testDescription: "No answer where a repeat would ring twice is in doubt",
            answer: .noAnswer,
            overwrites: false,
            decision: .settle(.inDoubt),
            unanswered: 1
        ),
        Case(
            testDescription: "No answer twice is in doubt",
            answer: .noAnswer,
            delivery: delivery(attempts: 1, unanswered: 1),
            decision: .settle(.inDoubt),
            attempts: 2,
            unanswered: 2
        ),
        Case(
            testDescription: "Never expired if it may have arrived",
            answer: .noAnswer,
            expiresIn: 100,
            decision: .settle(.inDoubt),
            unanswered: 1
        ),
        Case(
            testDescription: "A try that never left is no attempt (rule 52)",
            answer: .notSent,
            unsent: 2,
            decision: `in`(2000),
            attempts: 0
        ),
        Case(
            testDescription: "The device is gone (rule 53)",
            answer: .unregistered(since: 1000),
            decision: .settleAndDisable(since: Instant(milliseconds: 1000))
        ),
        Case(
            testDescription: "Another sender's token",
            answer: .mismatched,
            delivery: delivery(.fcm),
            decision: .settleAndDisable(since: nil)
        ),
        Case(
            testDescription: "In a wave the token is kept (rule 54)",
            answer: .unregistered(since: nil),
            keepsToken: true,
            decision: .settle(.failed)
        ),
        Case(
            testDescription: "A topic's answer disables no token (rule 23)",
            answer: .unregistered(since: nil),
            delivery: delivery(.fcm, topic: "news"),
            decision: .settle(.failed)
        ),
        Case(
            testDescription: "Now or never: busy is expired",
            answer: .unavailable(retryAfter: nil),
            isOnce: true,
            decision: .settle(.expired)
        ),
        Case(
            testDescription: "Now or never: no answer is in doubt",
            answer: .noAnswer,
            isOnce: true,
            decision: .settle(.inDoubt),
            unanswered: 1
        ),
        Case(
            testDescription: "Now or never: what never left is sent again",
            answer: .notSent,
            isOnce: true,
            decision: `in`(500),
            attempts: 0
        ),
    ]

    @Test("Each answer has its outcome", arguments: cases)
    func answered(_ item: Case) {
        let end = policy.answered(
            ProviderAnswer(item.answer, status: 299, reason: "why", providerMessageID: "m"),
            item.delivery,
            expiresAt: now.adding(milliseconds: item.expiresIn),
            isOnce: item.isOnce,
            repeatOverwrites: item.overwrites,
            unsent: item.unsent,
            keepsToken: item.keepsToken,
            jitter: 0,
            now
        )
        #expect(end.decision == item.decision)
        #expect(end.attempts == item.attempts)
        #expect(end.unanswered == item.unanswered)
        #expect(end.status == 299 && end.reason == "why" && end.messageID == "m")
        #expect(end.at == now)
    }
}

/// The effect of an answer on its provider's health.
@DispatchLoop
extension OutcomePolicyTests {
    private func health() -> ClientHealth {
        ClientHealth(
            SendBudget.Client(1),
            backlog: ProviderBacklog(limit: 10, share: 10)
        )
    }

    /// Returns how many of these answers disable their token.
    private func disabled(
        _ outcome: ProviderOutcome,
        _ count: Int,
        _ health: ClientHealth,
        _ delivery: Delivery = delivery(.fcm)
    ) -> Int {
        (0..<count).count { _ in
            !health.recordAnswer(outcome, about: delivery, isOurs: true, .now()).keepsToken
        }
    }

    @Test("Promise 9: a token of another sender is at fault only if such tokens are few")
    func mismatched() {
        let health = health()
        // The app has the credential of another project: only the first tokens are lost, however
        // long it lasts.
        #expect(disabled(.mismatched, 500, health) == DeadTokenWave.minimumMismatched)
        // A few among many that are reached are at fault.
        _ = disabled(.accepted, 10_000, health)
        #expect(disabled(.mismatched, 1, health) == 1)
        _ = disabled(.accepted, 1, health)
        #expect(disabled(.mismatched, 3, health) == 3)
    }

    @Test("Promise 9: a dead token is disabled, except during a sudden wave of dead tokens")
    func wave() {
        let health = health()
        var alarms: [Int] = []
        health.onWave = { isForeign, dead, _ in
            #expect(!isForeign)
            alarms.append(dead)
        }
        // A topic's answer is not about any device.
        _ = disabled(.unregistered(since: nil), 300, health, Self.delivery(.fcm, topic: "news"))
        #expect(
            disabled(.unregistered(since: nil), 300, health) == DeadTokenWave.minimum
        )
        #expect(alarms == [DeadTokenWave.minimum + 1], "once")
    }

    @Test("An answer counts for the circuit breaker only while its session is current (rule 49)")
    func breaker() {
        let health = health()
        func hear(_ count: Int, isOurs: Bool) -> Int {
            (0..<count).map { _ in
                health.recordAnswer(.notSent, about: Self.delivery(), isOurs: isOurs, .now()).unsent
            }.last ?? 0
        }
        #expect(hear(100, isOurs: false) == 0)
        #expect(!health.breakers[.production].isOpen)
        _ = hear(100, isOurs: true)
        #expect(health.breakers[.production].isOpen)
        #expect(!health.breakers[.sandbox].isOpen, "sandbox is apart from production")
    }
}
