import InstallationStorage
import PushCore
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("The record of a delivery that ended in this process", .timeLimit(.minutes(1)))
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

    private func end(_ decision: DeliveryEnd.Decision, reason: String? = nil) -> DeliveryEnd {
        DeliveryEnd(decision, reason: reason, attempts: 2, unanswered: 1, at: now)
    }

    @Test("An outcome is settled, and a retry is due at its time")
    func settledOrNot() {
        for outcome in Outcome.allCases {
            #expect(end(.settle(outcome)).outcome == outcome)
            #expect(end(.settle(outcome)).decision.dueAt == nil)
            #expect(DeliveryRecord(delivery, end(.settle(outcome))).state.outcome == outcome)
        }
        let later = now.adding(milliseconds: 5000)
        for decision in [DeliveryEnd.Decision.retry(at: later), .release(at: later)] {
            #expect(end(decision).outcome == nil)
            #expect(end(decision).decision.dueAt == later)
            #expect(DeliveryRecord(delivery, end(decision)).state == .pending)
        }
    }

    @Test("A delivery in flight is a row with its earlier attempts")
    func inFlight() {
        var delivery = delivery
        delivery.attempts = 3
        delivery.unanswered = 1
        let record = DeliveryRecord(delivery, nil)
        #expect(record.state == .pending && record.attempts == 3 && record.unanswered == 1)
        #expect(DeliveryRecord(delivery, end(.settle(.failed))).attempts == 2)
    }

    @Test("A token expires at the time that its provider states, else at that of the answer")
    func deadTokens() {
        let before = now.adding(milliseconds: -60_000)
        for (since, died) in [(before, before), (nil, now)] as [(Instant?, Instant)] {
            let end = end(.settleAndDisable(since: since))
            #expect(end.outcome == .failed)
            #expect(end.tokenDiedAt == died)
            #expect(DeliveryRecord(delivery, end).deadToken?.diedAt == died)
        }
        #expect(end(.settle(.failed)).tokenDiedAt == nil)
        #expect(DeliveryRecord(delivery, end(.settle(.failed))).deadToken == nil)
    }

    @Test("A provider's text is stored bounded and without control characters (rule 57)")
    func words() {
        let hostile = "Bad\u{0}\u{1b}[31mToken\n" + String(repeating: "é", count: 300)
        let reason = end(.settle(.failed), reason: hostile).reason ?? ""
        #expect(reason.hasPrefix("Bad  [31mToken é"))
        #expect(reason.unicodeScalars.count == 200)
        let id = DeliveryEnd(
            .settle(.delivered),
            messageID: hostile,
            attempts: 1,
            unanswered: 0,
            at: now
        ).messageID
        #expect(id == reason)
        #expect(end(.settle(.failed), reason: "BadTopic").reason == "BadTopic")
    }
}
