import Observability
import PushCore
import Storage
import Testing

@testable import Dispatcher

@Suite("The circuit breaker of a provider", .timeLimit(.minutes(1)))
struct ProviderBreakerTests {
    private let start = MonotonicInstant(milliseconds: 1_000_000)

    private func opened() -> ProviderBreaker {
        var breaker = ProviderBreaker()
        for _ in 0..<ProviderBreaker.openingFailures {
            breaker.finished(.unavailable(retryAfter: nil), now: start)
        }
        return breaker
    }

    @Test("The breaker opens after consecutive failures, and says when to retry")
    func opens() {
        var breaker = opened()
        #expect(breaker.isOpen)
        #expect(breaker.admit(now: start) == .later(start.adding(milliseconds: 1000)))
    }

    @DispatchLoop
    @Test("An open breaker is reported with its first failure, until nothing probes it any more")
    func reported() {
        let healths = ProviderHealths(
            backlogLimit: 1,
            share: 1,
            meters: DeliveryMetrics(Metrics()),
            log: .disabled
        )
        let health = healths.health(of: "shop", at: .fcm)
        _ = healths.health(of: "shop", at: .apns)
        let now = Instant(milliseconds: 5_000_000)
        #expect(healths.openBreakers(now, start).isEmpty)
        for failure in 0..<ProviderBreaker.openingFailures {
            health.breakers[.none].finished(
                .noAnswer,
                now: start.adding(milliseconds: Int64(failure))
            )
        }
        // It opened with the last failure, 49 ms after the first, for one second.
        let later = start.adding(milliseconds: 549)
        let open = OpenBreaker(
            app: "shop",
            provider: .fcm,
            since: now.adding(milliseconds: -549),
            retryAt: now.adding(milliseconds: 500)
        )
        #expect(healths.openBreakers(now, later) == [open])
        #expect(healths.openBreakers(now, later.adding(milliseconds: 60_000)).count == 1)
        #expect(healths.openBreakers(now, later.adding(milliseconds: 61_000)).isEmpty)
        health.breakers[.none].finished(.accepted, now: later)
        #expect(healths.openBreakers(now, later).isEmpty)
    }

    @Test("Any answer that shows a working provider ends the series of failures")
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

    @Test("A few deliveries probe the provider after the wait, and a success closes the breaker")
    func probes() {
        var breaker = opened()
        let later = start.adding(milliseconds: 1000)
        for _ in 0..<ProviderBreaker.probes { #expect(breaker.admit(now: later) == .send) }
        #expect(breaker.admit(now: later) == .later(later.adding(milliseconds: 1000)))
        breaker.finished(.accepted, now: later)
        #expect(!breaker.isOpen)
        #expect(breaker.admit(now: later) == .send)
    }

    @Test("Failed connections wait longer each time, for any delivery, up to a bound")
    func unsent() {
        var breaker = ProviderBreaker()
        var now = start
        var waits: [Int64] = []
        for _ in 0..<10 {
            let before = breaker.unsentInARow
            // Failures at the same time count once.
            for _ in 0..<3 { breaker.finished(.notSent, now: now) }
            let wait = RetryPolicy.unsent.delayMilliseconds(after: before + 1, jitter: 0)
            waits.append(wait)
            now = now.adding(milliseconds: wait)
        }
        #expect(waits == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000])
        breaker.finished(.unavailable(retryAfter: nil), now: now)
        #expect(breaker.unsentInARow == 0)
    }

    @Test("An outage of the sandbox does not affect production")
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

    @Test("The rate limit of one device is not a failure of the provider")
    func throttled() {
        var breaker = ProviderBreaker()
        for _ in 0..<1000 { breaker.finished(.throttled(retryAfter: .seconds(60)), now: start) }
        #expect(!breaker.isOpen)
    }

    @Test("A failed probe doubles the wait up to a bound, and older answers do not")
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

@Suite("Released rows of a failing provider come due gradually", .timeLimit(.minutes(1)))
struct DueSpreadTests {
    @Test("300,000 rows that are released together come due at a rate, and no row before its time")
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
        // Before, they were all due within the same second.
        #expect((due.max() ?? 0) < 2000)
        #expect(due.prefix(30).allSatisfy { $0 == 0 })
    }

    @Test("A faster provider gets more rows, and a few rows are due at once")
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

@Suite("A wave of dead tokens pauses their removal", .timeLimit(.minutes(1)))
struct DeadTokenWaveTests {
    private let start = MonotonicInstant(milliseconds: 1_000_000)

    @Test("Single dead tokens are removed, for any length of time")
    func single() {
        var wave = DeadTokenWave()
        var now = start
        for _ in 0..<5000 {
            now = now.adding(milliseconds: 1000)
            wave.alive(now: now)
            #expect(wave.dead(now: now) == .disable)
        }
    }

    @Test("A few dead tokens are not a wave, even if there are no other answers")
    func few() {
        var wave = DeadTokenWave()
        for _ in 0..<DeadTokenWave.minimum { #expect(wave.dead(now: start) == .disable) }
    }

    @Test("A wave raises one alarm, and every further token stays")
    func alarmsOnce() {
        var wave = DeadTokenWave()
        for _ in 0..<DeadTokenWave.minimum { _ = wave.dead(now: start) }
        #expect(wave.dead(now: start) == .keepAndAlarm(dead: 101, answers: 101))
        for _ in 0..<1000 { #expect(wave.dead(now: start) == .keep) }
    }

    @Test("The same number among many living devices is not a wave")
    func amongMany() {
        var wave = DeadTokenWave()
        for _ in 0..<10_000 { wave.alive(now: start) }
        for _ in 0..<5000 { #expect(wave.dead(now: start) == .disable) }
    }

    @Test("The removal stays paused during the wave, and resumes after a quiet window")
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

    @Test("The lease is held while renewals come in time")
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

    @Test("The lease ends without a renewal, counted from the last request for one")
    func runsOut() {
        var lease = SessionLease(leaseMilliseconds: 10_000)
        _ = lease.event(.opened(id: 7, asked: start))
        #expect(lease.event(.tick(now: start.adding(milliseconds: 9999))) == .nothing)
        #expect(lease.event(.tick(now: start.adding(milliseconds: 10_000))) == .abandon(id: 7))
        #expect(lease.id == nil)
        #expect(lease.event(.tick(now: start.adding(milliseconds: 20_000))) == .nothing)
    }

    @Test(
        "A deleted row ends the lease at once, and a late answer for an old session has no effect"
    )
    func lost() {
        var lease = SessionLease(leaseMilliseconds: 10_000)
        _ = lease.event(.opened(id: 7, asked: start))
        #expect(lease.event(.renewed(id: 7, isHeld: false, asked: start)) == .abandon(id: 7))
        #expect(lease.event(.opened(id: 8, asked: start)) == .begin(id: 8))
        #expect(lease.event(.renewed(id: 7, isHeld: false, asked: start)) == .nothing)
        #expect(lease.id == 8)
    }

    @Test("An answer that was in flight does not shorten the lease")
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
