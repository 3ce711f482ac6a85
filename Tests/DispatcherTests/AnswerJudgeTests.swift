import Observability
import PushCore
import PushProviders
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("What becomes of a delivery by its provider's answer", .timeLimit(.minutes(1)))
struct AnswerJudgeTests {
    private let now = Instant(seconds: 1_800_000_000)
    private let day: Int64 = 86_400_000

    private func judge() -> AnswerJudge {
        AnswerJudge(maximumAge: 3 * day, meters: DeliveryMeters(Metrics()), log: .disabled)
    }

    private func health() -> OwnedDelivery.Health {
        OwnedDelivery.Health(
            FlightBudget.Client(app: "shop", provider: "apns"),
            backlog: ProviderBacklog(limit: 10, share: 10)
        )
    }

    private func delivery(
        _ provider: Platform = .apns,
        attempts: Int = 0,
        expiresAt: Instant? = nil
    ) -> Delivery {
        Delivery(
            key: DeliveryKey(day: now.day, pushID: "p", target: "device"),
            app: "shop",
            installationID: "device",
            device: DeviceTarget(provider: provider, token: "t", environment: .production),
            lane: 0,
            attempts: attempts,
            unanswered: 0,
            expiresAt: expiresAt,
            createdAt: now
        )
    }

    private let context = PushContext(pushID: "p", eventID: "e", source: "s", request: nil)

    private func end(
        _ answer: ProviderAnswer,
        _ delivery: Delivery,
        _ health: OwnedDelivery.Health,
        by judge: AnswerJudge
    ) -> DeliveryEnd {
        judge.judge(
            answer,
            Tries(delivery, expiresAt: judge.expiry(of: delivery, context)),
            health,
            repeatOverwrites: true,
            isOurs: true,
            now
        )
    }

    @Test("nothing is pending for longer than its row is kept, nor at MPNS for more than six hours")
    func expiry() {
        let judge = judge()
        #expect(judge.expiry(of: delivery(), context) == now.adding(milliseconds: 3 * day))
        #expect(judge.expiry(of: delivery(.mpns), context) == now.adding(milliseconds: day / 4))
        let soon = now.adding(milliseconds: 1000)
        #expect(judge.expiry(of: delivery(expiresAt: soon), context) == soon)
        let late = now.adding(milliseconds: 9 * day)
        #expect(
            judge.expiry(of: delivery(expiresAt: late), context)
                == now.adding(milliseconds: 3 * day)
        )
    }

    @Test("what is not to be sent ends by its own reason: cancelled, switched off, or too late")
    func unsendable() {
        let judge = judge()
        func verdict(
            _ expiresAt: Instant,
            _ suppression: String? = nil,
            _ switchedOff: String? = nil,
            wanted: Instant? = nil
        ) -> (RecordedDecision, ProviderAnswer)? {
            judge.unsendable(
                suppression: suppression,
                switchedOff: switchedOff,
                expiresAt: expiresAt,
                wantedUntil: wanted,
                now
            )
        }
        let later = now.adding(milliseconds: 1)
        #expect(verdict(later) == nil)
        #expect(verdict(now, "cancelled", "off")?.1.reason == "cancelled")
        #expect(verdict(now, nil, "off")?.0 == .settle(.suppressed))
        #expect(verdict(now)?.0 == .settle(.expired))
        #expect(verdict(now, wanted: now)?.1.reason == "expired before it was sent")
        #expect(verdict(now, wanted: later)?.1.reason?.contains("DELIVERY_RETENTION") == true)
    }

    @Test("an accepted one is delivered; one that may be tried again is, until it may not")
    func answers() {
        let (judge, health) = (judge(), health())
        let delivered = end(
            ProviderAnswer(.accepted, status: 200),
            delivery(attempts: 1),
            health,
            by: judge
        )
        #expect(delivered.decision == .settle(.delivered))
        #expect(delivered.attempts == 2)
        let busy = ProviderAnswer(.unavailable(retryAfter: nil), status: 503)
        guard case .retry(let time) = end(busy, delivery(), health, by: judge).decision else {
            Issue.record("a busy provider's delivery is not tried again")
            return
        }
        #expect(time > now)
        let last = end(busy, delivery(attempts: RetryPolicy.attemptLimit), health, by: judge)
        #expect(last.decision.outcome != nil && last.decision != .settle(.delivered))
    }

    @Test("Promise 9: a token of another sender's is at fault where it is one of few")
    func mismatched() {
        let (judge, health) = (judge(), health())
        let foreign = ProviderAnswer(.mismatched, status: 403, reason: "SENDER_ID_MISMATCH")
        let good = ProviderAnswer(.accepted, status: 200)
        func disabled(_ count: Int) -> Int {
            var disabled = 0
            for _ in 0..<count {
                let decision = end(foreign, delivery(.fcm), health, by: judge).decision
                if case .settleAndDisable = decision { disabled += 1 }
            }
            return disabled
        }
        // The credential of another project: only the first are lost to it, however long it lasts.
        #expect(disabled(500) == DeadTokenWave.minimumMismatched)
        // Few among many that are reached are each at fault.
        for _ in 0..<10_000 { _ = end(good, delivery(.fcm), health, by: judge) }
        #expect(disabled(1) == 1)
        _ = end(good, delivery(.fcm), health, by: judge)
        #expect(disabled(3) == 3)
    }

    @Test("Now or never: what a provider was asked for once is not tried again")
    func once() {
        let (judge, health) = (judge(), health())
        func decision(_ answer: ProviderAnswer) -> RecordedDecision {
            judge.judge(
                answer,
                Tries(
                    delivery(),
                    expiresAt: judge.expiry(of: delivery(), context),
                    isOnce: true
                ),
                health,
                repeatOverwrites: true,
                isOurs: true,
                now
            ).decision
        }
        #expect(decision(ProviderAnswer(.accepted, status: 200)) == .settle(.delivered))
        let busy = ProviderAnswer(.unavailable(retryAfter: nil), status: 503)
        #expect(decision(busy) == .settle(.expired))
        #expect(decision(ProviderAnswer(.noAnswer)) == .settle(.inDoubt))
        // It never left this process.
        guard case .retry = decision(ProviderAnswer(.notSent)) else {
            Issue.record("what was not sent is given up")
            return
        }
    }

    @Test("Promise 9: a dead token is put out of use, in a sudden wave of them none is any more")
    func wave() {
        let (judge, health) = (judge(), health())
        let gone = ProviderAnswer(.unregistered(since: nil), status: 410, reason: "Unregistered")
        var disabled = 0
        var kept = 0
        for _ in 0..<300 {
            switch end(gone, delivery(), health, by: judge).decision {
            case .settleAndDisable: disabled += 1
            case .settle(.failed): kept += 1
            default: Issue.record("neither")
            }
        }
        #expect(disabled == DeadTokenWave.minimum)
        #expect(kept == 300 - DeadTokenWave.minimum)
    }
}
