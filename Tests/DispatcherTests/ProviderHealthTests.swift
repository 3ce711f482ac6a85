import PushCore
import Testing

@testable import Dispatcher

@Suite("A sick provider does not delay the others", .timeLimit(.minutes(1)))
struct ProviderBreakerTests {
    private let start = MonotonicInstant(milliseconds: 1_000_000)

    private func opened() -> ProviderBreaker {
        var breaker = ProviderBreaker()
        for _ in 0..<ProviderBreaker.openingFailures {
            breaker.finished(.unavailable(retryAfter: nil), now: start)
        }
        return breaker
    }

    @Test("it opens after a run of failures, and says when to come back")
    func opens() {
        var breaker = opened()
        #expect(breaker.isOpen)
        #expect(breaker.admit(now: start) == .later(start.adding(milliseconds: 1000)))
    }

    @Test("an answer of any kind that shows the provider at work ends the run")
    func answersEndTheRun() {
        for outcome in [
            ProviderOutcome.accepted, .rejected, .misconfigured, .unregistered(since: nil),
        ] {
            var breaker = ProviderBreaker()
            for _ in 1..<ProviderBreaker.openingFailures {
                breaker.finished(.noAnswer, now: start)
            }
            breaker.finished(outcome, now: start)
            breaker.finished(.notSent, now: start)
            #expect(!breaker.isOpen)
        }
    }

    @Test("when its time is over a few try, and a success closes it")
    func probes() {
        var breaker = opened()
        let later = start.adding(milliseconds: 1000)
        for _ in 0..<ProviderBreaker.probes { #expect(breaker.admit(now: later) == .send) }
        #expect(breaker.admit(now: later) == .later(later.adding(milliseconds: 1000)))
        breaker.finished(.accepted, now: later)
        #expect(!breaker.isOpen)
        #expect(breaker.admit(now: later) == .send)
    }

    @Test("what could not even be sent waits longer each time, whoever it was, and not for ever")
    func unsent() {
        var breaker = ProviderBreaker()
        var now = start
        var waits: [Int64] = []
        for _ in 0..<10 {
            let before = breaker.unsentInARow
            // Those that fail together count once.
            for _ in 0..<3 { breaker.finished(.notSent, now: now) }
            let wait = RetryPolicy.unsent.delayMilliseconds(after: before + 1, jitter: 0)
            waits.append(wait)
            now = now.adding(milliseconds: wait)
        }
        #expect(waits == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000])
        breaker.finished(.unavailable(retryAfter: nil), now: now)
        #expect(breaker.unsentInARow == 0)
    }

    @Test("the sandbox's outage says nothing about production")
    func environments() {
        var breakers = ProviderBreakers()
        for _ in 0..<ProviderBreaker.openingFailures {
            breakers[.sandbox].finished(.unavailable(retryAfter: nil), now: start)
        }
        #expect(breakers[.sandbox].isOpen)
        #expect(!breakers[.production].isOpen && !breakers[.none].isOpen)
        breakers[.production].finished(.accepted, now: start)
        #expect(breakers[.sandbox].isOpen)
    }

    @Test("one device's own limit is no sickness of the provider")
    func throttled() {
        var breaker = ProviderBreaker()
        for _ in 0..<1000 { breaker.finished(.throttled(retryAfter: .seconds(60)), now: start) }
        #expect(!breaker.isOpen)
    }

    @Test("a failed try doubles the wait, stragglers from before do not, and the wait is bounded")
    func doubles() {
        var breaker = opened()
        for _ in 0..<5000 { breaker.finished(.noAnswer, now: start) }
        #expect(breaker.admit(now: start) == .later(start.adding(milliseconds: 1000)))
        var now = start
        var waits: [Int64] = []
        for _ in 0..<8 {
            guard case .later(let time) = breaker.admit(now: now) else {
                Issue.record("it let one through early")
                return
            }
            waits.append(time.milliseconds - now.milliseconds)
            now = time
            #expect(breaker.admit(now: now) == .send)
            breaker.finished(.notSent, now: now)
            breaker.finished(.notSent, now: now)
        }
        #expect(waits == [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000])
    }
}

@Suite("What an ill provider gives back comes due by and by", .timeLimit(.minutes(1)))
struct DueSpreadTests {
    @Test("300,000 rows that go back together are due at a pace, and none before its time")
    func pace() {
        var spread = DueSpread()
        var random = FastRandom()
        var due = Array(repeating: 0, count: 400)
        for _ in 0..<300_000 {
            let delay = spread.delay(
                atLeast: 30_000,
                at: 5000,
                pace: 0,
                jitter: Double.random(in: 0..<1, using: &random)
            )
            #expect(delay >= 30_000 && delay <= 30_000 + DueSpread.longest)
            due[Int(delay / 1000)] += 1
        }
        // They were all due within the same second.
        #expect((due.max() ?? 0) < 2000)
        #expect(due.prefix(30).allSatisfy { $0 == 0 })
    }

    @Test("a provider that takes more gets more, and a few come at once")
    func few() {
        var spread = DueSpread()
        let delays = (0..<1000).map { _ in
            spread.delay(atLeast: 1000, at: 0, pace: 10_000, jitter: 0.5)
        }
        #expect(delays[0] == 1000 && delays == delays.sorted())
        #expect((1095...1105).contains(delays[999]))
        #expect(spread.delay(atLeast: 1000, at: 60_000, pace: 10_000, jitter: 0.5) == 1000)
    }
}

@Suite("A wave of dead tokens stops the clean-up", .timeLimit(.minutes(1)))
struct DeadTokenWaveTests {
    private let start = MonotonicInstant(milliseconds: 1_000_000)

    @Test("single dead tokens are cleaned up, however long it goes on")
    func single() {
        var wave = DeadTokenWave()
        var now = start
        for _ in 0..<5000 {
            now = now.adding(milliseconds: 1000)
            wave.alive(now: now)
            #expect(wave.dead(now: now) == .disable)
        }
    }

    @Test("a few dead tokens are no wave, though nothing else is answered")
    func few() {
        var wave = DeadTokenWave()
        for _ in 0..<DeadTokenWave.minimum { #expect(wave.dead(now: start) == .disable) }
    }

    @Test("a wave alarms once and keeps every further token")
    func alarmsOnce() {
        var wave = DeadTokenWave()
        for _ in 0..<DeadTokenWave.minimum { _ = wave.dead(now: start) }
        #expect(wave.dead(now: start) == .keepAndAlarm(dead: 101, answers: 101))
        for _ in 0..<1000 { #expect(wave.dead(now: start) == .keep) }
    }

    @Test("among many living devices the same number is no wave")
    func amongMany() {
        var wave = DeadTokenWave()
        for _ in 0..<10_000 { wave.alive(now: start) }
        for _ in 0..<5000 { #expect(wave.dead(now: start) == .disable) }
    }

    @Test("it goes on stopped while the wave lasts, and ends with a quiet window")
    func ends() {
        var wave = DeadTokenWave()
        for _ in 0...DeadTokenWave.minimum { _ = wave.dead(now: start) }
        #expect(wave.isStopped)
        var now = start.adding(milliseconds: DeadTokenWave.windowMilliseconds)
        #expect(wave.dead(now: now) == .keep)
        for _ in 0..<500 { #expect(wave.dead(now: now) == .keep) }
        now = now.adding(milliseconds: DeadTokenWave.windowMilliseconds)
        wave.alive(now: now)
        #expect(wave.dead(now: now) == .keep)
        now = now.adding(milliseconds: DeadTokenWave.windowMilliseconds)
        #expect(wave.dead(now: now) == .disable)
    }
}

@Suite("A session's lease ends here before it ends in the table", .timeLimit(.minutes(1)))
struct SessionLeaseTests {
    private let start = MonotonicInstant(milliseconds: 1_000_000)

    @Test("it is held while renewals come in time")
    func held() {
        var lease = SessionLease(leaseMilliseconds: 10_000)
        #expect(lease.event(.opened(id: 7, asked: start)) == .begin(id: 7))
        var now = start
        for _ in 0..<100 {
            now = now.adding(milliseconds: 2000)
            #expect(lease.event(.renewed(id: 7, isHeld: true, asked: now)) == .nothing)
            #expect(lease.event(.tick(now: now.adding(milliseconds: 9999))) == .nothing)
        }
    }

    @Test("without a renewal it ends, counted from when the last one was asked for")
    func runsOut() {
        var lease = SessionLease(leaseMilliseconds: 10_000)
        _ = lease.event(.opened(id: 7, asked: start))
        #expect(lease.event(.tick(now: start.adding(milliseconds: 9999))) == .nothing)
        #expect(lease.event(.tick(now: start.adding(milliseconds: 10_000))) == .abandon(id: 7))
        #expect(lease.id == nil)
        #expect(lease.event(.tick(now: start.adding(milliseconds: 20_000))) == .nothing)
    }

    @Test("a row that is gone ends it at once; a late answer of an old session says nothing")
    func lost() {
        var lease = SessionLease(leaseMilliseconds: 10_000)
        _ = lease.event(.opened(id: 7, asked: start))
        #expect(lease.event(.renewed(id: 7, isHeld: false, asked: start)) == .abandon(id: 7))
        #expect(lease.event(.opened(id: 8, asked: start)) == .begin(id: 8))
        #expect(lease.event(.renewed(id: 7, isHeld: false, asked: start)) == .nothing)
        #expect(lease.id == 8)
    }

    @Test("an answer that was under way does not shorten it")
    func outOfOrder() {
        var lease = SessionLease(leaseMilliseconds: 10_000)
        _ = lease.event(.opened(id: 7, asked: start))
        let second = start.adding(milliseconds: 4000)
        _ = lease.event(.renewed(id: 7, isHeld: true, asked: second))
        _ = lease.event(.renewed(id: 7, isHeld: true, asked: start))
        #expect(lease.event(.tick(now: start.adding(milliseconds: 13_999))) == .nothing)
        #expect(lease.event(.tick(now: start.adding(milliseconds: 14_000))) == .abandon(id: 7))
    }
}
