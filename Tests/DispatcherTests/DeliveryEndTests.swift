import PushCore
import PushEvents
import PushProviders
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("What is written down of a delivery that ended here", .timeLimit(.minutes(1)))
struct DeliveryEndTests {
    private let now = Instant(seconds: 1_800_000_000)
    private var delivery: Delivery {
        Delivery(
            key: DeliveryKey(day: "2027-01-15", pushID: "p", target: "t"),
            app: "shop",
            installationID: "t",
            device: DeviceTarget(provider: .apns, token: "aa", environment: .production),
            lane: 0,
            attempts: 0,
            unanswered: 0,
            createdAt: now
        )
    }

    private func end(_ decision: RecordedDecision, _ answer: ProviderAnswer? = nil) -> DeliveryEnd {
        DeliveryEnd(decision: decision, answer: answer, at: now, attempts: 2, unanswered: 1)
    }

    @Test("an outcome is settled and announced; what is tried again is neither")
    func settledOrNot() throws {
        for outcome in Outcome.allCases {
            let end = end(.settle(outcome))
            #expect(end.settlement?.outcome == outcome)
            #expect(end.outcome(of: delivery)?.outcome == outcome)
            #expect(end.postponed(delivery) == nil)
        }
        let later = now.adding(milliseconds: 5000)
        for decision in [RecordedDecision.retry(at: later), .handBack(at: later)] {
            let end = end(decision)
            #expect(end.settlement == nil)
            #expect(end.outcome(of: delivery) == nil)
            let postponed = try #require(end.postponed(delivery))
            #expect(postponed.key == delivery.key && postponed.dueAt == later)
            #expect(postponed.attempts == 2 && postponed.unanswered == 1)
        }
    }

    @Test("a token dies when its provider says it did, else when its answer came")
    func deadTokens() {
        let before = now.adding(milliseconds: -60_000)
        for (since, died) in [(before, before), (nil, now)] as [(Instant?, Instant)] {
            let settlement = end(.settleAndDisable(since: since)).settlement
            #expect(settlement?.outcome == .failed)
            #expect(settlement?.tokenDiedAt == died)
        }
        #expect(end(.settle(.failed)).settlement?.tokenDiedAt == nil)
    }

    @Test("a provider's words are kept bounded, and without what a terminal minds")
    func words() {
        let hostile = "Bad\u{0}\u{1b}[31mToken\n" + String(repeating: "é", count: 300)
        let answer = ProviderAnswer(.rejected, status: 400, reason: hostile)
        let reason = end(.settle(.failed), answer).settlement?.reason ?? ""
        #expect(reason.hasPrefix("Bad  [31mToken é"))
        #expect((150...200).contains(reason.utf8.count))
        #expect(end(.settle(.failed), answer).outcome(of: delivery)?.reason == reason)
        let short = ProviderAnswer(.rejected, reason: "BadTopic")
        #expect(end(.settle(.failed), short).settlement?.reason == "BadTopic")
    }
}
