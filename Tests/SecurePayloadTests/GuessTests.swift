import Observability
import SecureStorage
import Testing

@testable import SecurePayload

@Suite("Limits of failed attempts")
struct GuessTests {
    private let now = ContinuousClock.now
    private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    @Test("A number of wrong secrets a minute is allowed, and the next attempt must wait")
    func wrong() {
        var guesses = FailedAttempts(perMinute: 10)
        for number in 0..<10 {
            #expect(guesses.begin(bytes("ann"), bytes("\(number)"), now: now) == nil)
            guesses.end(bytes("ann"), bytes("\(number)"), hasFailed: true, now: now)
        }
        #expect(guesses.begin(bytes("ann"), bytes("x"), now: now) == 6)
        #expect(guesses.begin(bytes("bob"), bytes("x"), now: now) == nil)
        guesses.end(bytes("bob"), bytes("x"), hasFailed: true, now: now)
        #expect(guesses.begin(bytes("ann"), bytes("y"), now: now + .seconds(7)) == nil)
        guesses.end(bytes("ann"), bytes("y"), hasFailed: true, now: now + .seconds(7))
        #expect(guesses.count == 0)
    }

    @Test("Concurrent attempts count at once, before any of them is known to be wrong")
    func atOnce() {
        var guesses = FailedAttempts(perMinute: 10)
        let waits = (0..<100).map { guesses.begin(bytes("ann"), bytes("\($0)"), now: now) }
        #expect(waits.count { $0 == nil } == 10)
        for number in 0..<10 {
            guesses.end(bytes("ann"), bytes("\(number)"), hasFailed: true, now: now)
        }
        #expect(guesses.count == 0)
    }

    @Test("The same secret from many connections is one attempt, and a right one is not counted")
    func right() {
        var guesses = FailedAttempts(perMinute: 2)
        for _ in 0..<3 {
            for _ in 0..<50 {
                #expect(guesses.begin(bytes("ann"), bytes("right"), now: now) == nil)
            }
            for _ in 0..<50 {
                guesses.end(bytes("ann"), bytes("right"), hasFailed: false, now: now)
            }
        }
        for wrong in ["a", "b"] {
            #expect(guesses.begin(bytes("ann"), bytes(wrong), now: now) == nil)
            guesses.end(bytes("ann"), bytes(wrong), hasFailed: true, now: now)
        }
        #expect(guesses.begin(bytes("ann"), bytes("right"), now: now) != nil)
    }

    @Test("0 means no limit")
    func none() {
        var guesses = FailedAttempts(perMinute: 0)
        for number in 0..<1000 {
            #expect(guesses.begin(bytes("ann"), bytes("\(number)"), now: now) == nil)
            guesses.end(bytes("ann"), bytes("\(number)"), hasFailed: true, now: now)
        }
        let limits = ReaderLimits(failuresPerIdentity: 0)
        let ann = limits.key(ofReader: ["shop", "ann", ""])
        for _ in 0..<1000 { limits.countNotFound(ann) }
        #expect(limits.waitAfterMisses(ann) == nil)
    }

    @Test("A reader may try ten times as many wrong ids")
    func misses() {
        let limits = ReaderLimits(failuresPerIdentity: 2)
        let ann = limits.key(ofReader: ["shop", "ann", ""])
        for _ in 0..<20 {
            #expect(limits.waitAfterMisses(ann) == nil)
            limits.countNotFound(ann)
        }
        #expect(limits.waitAfterMisses(ann) != nil)
        #expect(limits.waitAfterMisses(limits.key(ofReader: ["shop", "ann", "phone"])) == nil)
        #expect(limits.waitAfterMisses(limits.key(ofReader: ["other", "ann", ""])) == nil)
        #expect(limits.waitAfterMisses(limits.key(ofReader: ["shop", "bob", ""])) == nil)
    }

    @Test("Wrong secrets are counted by identity, app and address")
    func trials() {
        let limits = ReaderLimits(failuresPerIdentity: 1)
        func fail(_ app: String, _ identity: String, _ address: String) -> Bool {
            let (trial, wait) = limits.begin(app, identity, from: address, secret: bytes("guess"))
            guard let trial else {
                #expect(wait > 0)
                return false
            }
            limits.end(trial, hasFailed: true)
            return true
        }
        #expect(fail("shop", "ann", "192.0.2.1"))
        #expect(!fail("shop", "ann", "192.0.2.1"))
        #expect(fail("shop", "bob", "192.0.2.1"))
        #expect(fail("other", "ann", "192.0.2.1"))
        #expect(fail("shop", "ann", "192.0.2.2"))
        // These names would be equal if they were only concatenated.
        #expect(fail("shop", "ann1", "92.0.2.1"))
    }

    @Test("A verified secret is cached for its app, identity and hash, for a limited time")
    func remembered() {
        let remembered = VerifiedSecretCache(lifetime: .seconds(60), maximum: 10)
        let mark = remembered.mark("shop", "ann", bytes("password"))
        #expect(!remembered.holds(mark, now: now))
        remembered.remember(mark, for: "hash 1", now: now)
        #expect(remembered.holds(mark, now: now))
        #expect(remembered.isRight(mark, for: "hash 1", now: now))
        #expect(!remembered.isRight(mark, for: "hash 2", now: now), "the secret has changed")
        #expect(!remembered.holds(mark, now: now + .seconds(61)))
        for (app, identity, secret) in [
            ("other", "ann", "password"), ("shop", "bob", "password"), ("shop", "ann", "Password"),
            ("shop", "annp", "assword"),
        ] {
            let other = remembered.mark(app, identity, bytes(secret))
            #expect(!remembered.holds(other, now: now))
        }
        #expect(VerifiedSecretCache().mark("shop", "ann", bytes("password")) != mark)
    }

    @Test("The cache of verified secrets is bounded, and recently used ones stay")
    func bounded() {
        let remembered = VerifiedSecretCache(maximum: 10)
        let marks = (0..<100).map { remembered.mark("shop", "\($0)", bytes("password")) }
        for mark in marks {
            remembered.remember(mark, for: "hash", now: now)
            remembered.remember(marks[0], for: "hash", now: now)
        }
        #expect(marks.count { remembered.holds($0, now: now) } <= 10)
        #expect(remembered.holds(marks[0], now: now))
    }
}
