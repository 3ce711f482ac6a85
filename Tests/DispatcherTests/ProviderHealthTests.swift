import PushCore
import Testing

@testable import Dispatcher

@Suite("A sick provider does not delay the others", .timeLimit(.minutes(1)))
struct ProviderBreakerTests {
    private let start = SteadyInstant(milliseconds: 1_000_000)

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

@Suite("A wave of dead tokens stops the clean-up", .timeLimit(.minutes(1)))
struct DeadTokenWaveTests {
    private let start = SteadyInstant(milliseconds: 1_000_000)

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
    private let start = SteadyInstant(milliseconds: 1_000_000)

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
