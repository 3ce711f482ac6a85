import JSON
import PushCore
import PushStorage
import Storage
import Testing

@testable import Dispatcher

@Suite("Which credential a delivery leaves with", .timeLimit(.minutes(1)))
struct CredentialChoiceTests {
    private func credential(
        _ platform: Platform,
        _ name: String = "",
        isDefault: Bool = false
    ) -> StoredCredential {
        StoredCredential(
            app: "shop",
            platform: platform,
            name: name,
            sealed: [],
            summary: [:],
            isDefault: isDefault
        )
    }

    private func name(_ candidates: [StoredCredential], topic: String?) -> String? {
        try? CredentialCache.choose(candidates, topic: topic).get().name
    }

    @Test("APNs' is the one of the delivery's topic, else the default, or the only one there is")
    func apns() {
        let shop = credential(.apns, "com.example.shop")
        let news = credential(.apns, "com.example.news")
        #expect(name([shop, news], topic: "com.example.news") == "com.example.news")
        #expect(name([shop], topic: nil) == "com.example.shop")
        #expect(name([shop, news], topic: nil) == nil)
        let own = credential(.apns, "com.example.own", isDefault: true)
        #expect(name([news, own, shop], topic: nil) == "com.example.own")
        #expect(name([news, own, shop], topic: "com.example.shop") == "com.example.shop")
        #expect(name([news, own, shop], topic: "com.example.none") == nil)
        #expect(name([shop], topic: "com.example.other") == nil)
    }

    @Test("the others have one, whatever the topic; without one the delivery fails with a reason")
    func others() {
        #expect(name([credential(.fcm)], topic: "com.example.shop") == "")
        guard case .failure(let problem) = CredentialCache.choose([], topic: nil) else {
            Issue.record("there is none to choose")
            return
        }
        #expect(problem.reason == .noCredential)
    }
}

@Suite("Rows that are ours and in nobody's hands", .timeLimit(.minutes(1)))
struct StraySearchTests {
    private func keys(_ targets: String...) -> Set<DeliveryKey> {
        Set(targets.map { DeliveryKey(day: "2026-11-21", pushID: "p", target: $0) })
    }

    private func wantedSearch() -> StraySearch<DeliveryKey> {
        var search = StraySearch<DeliveryKey>()
        search.isWanted = true
        return search
    }

    @Test("one is handed back when two looks in a row found it idle")
    func twoLooks() {
        var search = wantedSearch()
        #expect(search.look(owned: keys("a", "b", "c"), inHand: keys("b")).isEmpty)
        #expect(search.isWanted)
        #expect(search.look(owned: keys("a", "b", "c"), inHand: keys("b", "c")) == keys("a"))
        #expect(!search.isWanted)
    }

    @Test("what is claimed between two looks is not taken for one")
    func freshClaims() {
        var search = wantedSearch()
        #expect(search.look(owned: keys("a"), inHand: keys()).isEmpty)
        #expect(search.look(owned: keys("b"), inHand: keys()).isEmpty)
        #expect(search.isWanted)
    }
}

@Suite("How patiently a delivery is tried again", .timeLimit(.minutes(1)))
struct RetryPolicyTests {
    @Test("FCM gets 10 s at least before the first repeat after a server's error")
    func fcm() {
        let backoff = RetryPolicy.backoff(for: .fcm, .unavailable(retryAfter: nil))
        #expect(backoff.delayMilliseconds(after: 1, jitter: 0) == 10_000)
    }

    @Test("15 attempts; the first wait is the provider's own, and what never left waits a second")
    func limits() {
        #expect(RetryPolicy.attemptLimit == 15)
        let bases: [Platform: Int64] = [.apns: 2000, .wns: 2000, .fcm: 20_000, .mpns: 120_000]
        for platform in Platform.allCases {
            for outcome in [
                ProviderOutcome.unavailable(retryAfter: nil), .throttled(retryAfter: nil),
            ] {
                let backoff = RetryPolicy.backoff(for: platform, outcome)
                #expect(backoff.baseMilliseconds == bases[platform])
            }
            for outcome in [ProviderOutcome.noAnswer, .notSent] {
                #expect(RetryPolicy.backoff(for: platform, outcome).baseMilliseconds == 1000)
            }
        }
    }

    @Test("waits grow and are bounded by a quarter of an hour", arguments: Platform.allCases)
    func bounded(platform: Platform) {
        let backoff = RetryPolicy.backoff(for: platform, .unavailable(retryAfter: nil))
        var last: Int64 = 0
        for attempt in 1...RetryPolicy.attemptLimit {
            let wait = backoff.delayMilliseconds(after: attempt, jitter: 0.5)
            #expect(wait >= last)
            #expect(wait <= 900_000)
            last = wait
        }
    }

    @Test("what never left is tried again soon, on every platform", arguments: Platform.allCases)
    func notSent(platform: Platform) {
        let backoff = RetryPolicy.backoff(for: platform, .notSent)
        #expect(backoff.delayMilliseconds(after: 1, jitter: 0.99) <= 1000)
    }
}
