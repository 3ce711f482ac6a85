import JSON
import PushCore
import PushStorage
import Storage
import Testing

@testable import Dispatcher

@Suite("The credential of a delivery", .timeLimit(.minutes(1)))
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

    @Test("APNs uses the credential of the delivery's topic, else the default, or the only one")
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

    @Test("Other providers have one credential, and without one the delivery fails with a reason")
    func others() {
        #expect(name([credential(.fcm)], topic: "com.example.shop") == "")
        guard case .failure(let problem) = CredentialCache.choose([], topic: nil) else {
            Issue.record("there is none to choose")
            return
        }
        #expect(problem.reason == .noCredential)
    }
}

@Suite("Strays: claimed rows that no task works on", .timeLimit(.minutes(1)))
struct StraySearchTests {
    private func keys(_ targets: String...) -> Set<DeliveryKey> {
        Set(targets.map { DeliveryKey(day: "2026-11-21", pushID: "p", target: $0) })
    }

    private func wantedSearch() -> StraySearch<DeliveryKey> {
        var search = StraySearch<DeliveryKey>()
        search.isWanted = true
        return search
    }

    @Test("A stray is released when two looks in a row found it idle")
    func twoLooks() {
        var search = wantedSearch()
        #expect(search.look(owned: keys("a", "b", "c"), inHand: keys("b")).isEmpty)
        #expect(search.isWanted)
        #expect(search.look(owned: keys("a", "b", "c"), inHand: keys("b", "c")) == keys("a"))
        #expect(!search.isWanted)
    }

    @Test("A row that is claimed between two looks is not a stray")
    func freshClaims() {
        var search = wantedSearch()
        #expect(search.look(owned: keys("a"), inHand: keys()).isEmpty)
        #expect(search.look(owned: keys("b"), inHand: keys()).isEmpty)
        #expect(search.isWanted)
    }
}

@Suite("Retry limits and backoff", .timeLimit(.minutes(1)))
struct RetryPolicyTests {
    @Test("FCM gets at least 10 s before the first retry after a server error")
    func fcm() {
        let backoff = RetryPolicy.backoff(for: .fcm, .unavailable(retryAfter: nil))
        #expect(backoff.delayMilliseconds(after: 1, jitter: 0) == 10_000)
    }

    @Test("A delivery has 15 attempts, waits as its provider says, and for a second if never sent")
    func limits() {
        #expect(RetryPolicy.attemptLimit == 15)
        let bases: [Platform: Int64] = [
            .apns: 2000, .wns: 2000, .fcm: 20_000, .mpns: 120_000, .connection: 1000,
        ]
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

    @Test("Waits grow up to a quarter of an hour", arguments: Platform.allCases)
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

    @Test(
        "A notification that was never sent is retried soon, on every platform",
        arguments: Platform.allCases
    )
    func notSent(platform: Platform) {
        let backoff = RetryPolicy.backoff(for: platform, .notSent)
        #expect(backoff.delayMilliseconds(after: 1, jitter: 0.99) <= 1000)
    }
}
