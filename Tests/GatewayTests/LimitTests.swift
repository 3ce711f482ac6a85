import Gateway
import Testing

@Suite(.timeLimit(.minutes(1)))
struct TokenBucketTests {
    @Test("A bucket grants its burst at once, then its rate, and says how long to wait")
    func bucketsFill() {
        var buckets = TokenBuckets<String>(perSecond: 2, burst: 4)
        let start = ContinuousClock.now
        for _ in 0..<4 { #expect(buckets.take("a", now: start) == nil) }
        #expect(buckets.take("a", now: start) == 1)
        #expect(buckets.look("a", now: start) == 1)
        #expect(buckets.take("b", now: start) == nil, "another key has a bucket of its own")
        let later = start + .milliseconds(500)
        #expect(buckets.look("a", now: later) == nil)
        #expect(buckets.take("a", now: later) == nil)
        #expect(buckets.take("a", now: later) == 1)
        let muchLater = start + .seconds(3600)
        for _ in 0..<4 { #expect(buckets.take("a", now: muchLater) == nil) }
        #expect(buckets.take("a", now: muchLater) == 1)
        // A clock that is read late grants nothing twice.
        #expect(buckets.take("a", now: start) == 1)
    }

    @Test("A returned token counts as unused, and no bucket has more than its burst")
    func givingBack() {
        var buckets = TokenBuckets<String>(perSecond: 0.1, burst: 2)
        let now = ContinuousClock.now
        buckets.giveBack("a", now: now)
        #expect(buckets.count == 0)
        for _ in 0..<2 { #expect(buckets.take("a", now: now) == nil) }
        #expect(buckets.take("a", now: now) == 10)
        buckets.giveBack("a", now: now)
        #expect(buckets.take("a", now: now) == nil)
        for _ in 0..<9 { buckets.giveBack("a", now: now) }
        for _ in 0..<2 { #expect(buckets.take("a", now: now) == nil) }
        #expect(buckets.take("a", now: now) == 10)
    }

    @Test("A slow rate reports the seconds to wait")
    func waitsAreWhole() {
        var buckets = TokenBuckets<String>(perSecond: 0.1, burst: 1)
        let now = ContinuousClock.now
        #expect(buckets.take("a", now: now) == nil)
        #expect(buckets.take("a", now: now) == 10)
        #expect(buckets.take("a", now: now + .seconds(4)) == 6)
    }

    @Test("A million invented keys use no more memory than the bound, and busy keys stay")
    func memoryIsBounded() {
        var buckets = TokenBuckets<Int>(perSecond: 0.001, burst: 2, maximumKeys: 1000)
        let now = ContinuousClock.now
        #expect(buckets.take(-1, now: now) == nil)
        #expect(buckets.take(-1, now: now) == nil)
        for key in 0..<100_000 {
            _ = buckets.take(key, now: now)
            if key % 300 == 0 { #expect(buckets.take(-1, now: now) != nil) }
        }
        #expect(buckets.count <= 1000)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct FailureLimitTests {
    @Test(
        "An address with too many failures can cause only a few database look-ups of unknown apps"
    )
    func searchesAreBounded() throws {
        let stranger = try #require(NetworkAddress("192.0.2.1"))
        let other = try #require(NetworkAddress("192.0.2.2"))
        var limit = FailureLimit(perSecond: 1, burst: 5)
        let start = ContinuousClock.now
        for _ in 0..<5 {
            #expect(limit.look(stranger, now: start) == nil)
            #expect(limit.maySearch(stranger, now: start) == true)
            limit.failed(stranger, now: start)
        }
        #expect(limit.look(stranger, now: start) == 1)
        // Look-ups from before the limit do not count.
        let found = (0..<1000).filter { _ in limit.maySearch(stranger, now: start) }
        #expect(found.count == FailureLimit.searchesAtOnce)
        #expect(limit.look(other, now: start) == nil)
        #expect(limit.maySearch(other, now: start) == true)
        // The limit is as before when the failures end.
        let later = start + .seconds(3600)
        #expect(limit.look(stranger, now: later) == nil)
        for _ in 0..<1000 { #expect(limit.maySearch(stranger, now: later) == true) }
    }

    @Test("Beyond the limit, look-ups become free again at an even rate")
    func searchesComeBack() throws {
        let stranger = try #require(NetworkAddress("192.0.2.1"))
        var limit = FailureLimit(perSecond: 0.001, burst: 1)
        let start = ContinuousClock.now
        limit.failed(stranger, now: start)
        while limit.maySearch(stranger, now: start) {}
        #expect(limit.maySearch(stranger, now: start + .milliseconds(500)) == false)
        #expect(limit.maySearch(stranger, now: start + .seconds(2)) == true)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct NetworkAddressTests {
    @Test(
        "Addresses are parsed in all of their forms",
        arguments: [
            ("127.0.0.1", "127.0.0.1"), ("::ffff:10.1.2.3", "10.1.2.3"),
            ("2001:db8::1", "2001:db8:0:0:0:0:0:1"), ("::", "0:0:0:0:0:0:0:0"),
            ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"), ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
        ]
    )
    func addressesAreRead(text: String, shown: String) {
        #expect(NetworkAddress(text)?.description == shown)
    }

    @Test(
        "An invalid address is rejected",
        arguments: [
            "", "1.2.3", "1.2.3.256", "1.2.3.4.5", "a.b.c.d", ":", ":::", "1::2::3", "12345::",
            "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "+1.2.3.4", "::+1", "unknown", "1.2.3.4:80",
        ]
    )
    func othersAreNot(text: String) {
        #expect(NetworkAddress(text) == nil)
    }

    @Test("A subscriber is an IPv4 address, or the first half of an IPv6 one")
    func subscribersAreNetworks() {
        #expect(
            NetworkAddress("2001:db8:0:1::1")?.subscriber
                == NetworkAddress("2001:db8:0:1:ffff::2")?.subscriber
        )
        #expect(
            NetworkAddress("2001:db8:0:1::1")?.subscriber
                != NetworkAddress("2001:db8:0:2::1")?.subscriber
        )
        #expect(NetworkAddress("10.0.0.1")?.subscriber != NetworkAddress("10.0.0.2")?.subscriber)
    }

    @Test(
        "A range contains the addresses with its prefix",
        arguments: [
            ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/12", "10.15.0.1", true), ("10.0.0.0/12", "10.16.0.1", false),
            ("192.0.2.7", "192.0.2.7", true), ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "1.2.3.4", true), ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fdff::1", true), ("::/0", "1.2.3.4", true),
        ]
    )
    func rangesHold(range: String, address: String, isInside: Bool) throws {
        let range = try #require(AddressRange(range))
        #expect(range.contains(try #require(NetworkAddress(address))) == isInside)
    }

    @Test("Only a trusted proxy reports the caller's address, and only the one that it saw")
    func proxiesAreTrustedByName() {
        var limits = RateLimits()
        func caller(_ peer: String, _ header: String?) -> String? {
            limits.caller(peer: peer, forwardedFor: header)?.description
        }
        #expect(caller("10.0.0.1", "1.2.3.4") == "10.0.0.1")
        limits.trustedProxies = [AddressRange("10.0.0.0/8")].compactMap { $0 }
        #expect(caller("10.0.0.1", "1.2.3.4") == "1.2.3.4")
        #expect(caller("10.0.0.1", nil) == "10.0.0.1")
        #expect(caller("9.9.9.9", "1.2.3.4") == "9.9.9.9")
        // A caller's own entry comes before those that the proxies added.
        #expect(caller("10.0.0.1", "5.5.5.5, 1.2.3.4, 10.0.0.2") == "1.2.3.4")
        #expect(caller("10.0.0.1", "5.5.5.5, nonsense") == "10.0.0.1")
    }
}
