import EventLoop
import Testing

@Suite("Stop clock", .timeLimit(.minutes(1)))
struct StopClockTests {
    @Test("A drain has its usual time, and a share of the remaining time once the process stops")
    func limits() {
        let (clock, now) = (StopClock(), ContinuousClock.now)
        #expect(clock.limit(.seconds(10), share: 0.5, at: now) == .seconds(10))
        #expect(!clock.hasPassed(share: 0, at: now))
        clock.begin(within: .seconds(12), at: now)
        #expect(clock.limit(.seconds(10), share: 0.5, at: now) == .seconds(6))
        #expect(clock.limit(.seconds(2), share: 0.5, at: now) == .seconds(2))
        #expect(clock.limit(.seconds(10), share: 0.5, at: now + .seconds(10)) == .seconds(1))
        #expect(clock.limit(.seconds(10), share: 0.5, at: now + .seconds(13)) == .zero)
        #expect(!clock.hasPassed(share: 0.25, at: now + .seconds(2)))
        #expect(clock.hasPassed(share: 0.25, at: now + .seconds(3)))
    }

    @Test("The first stop sets the clock")
    func first() {
        let (clock, now) = (StopClock(), ContinuousClock.now)
        clock.begin(within: .seconds(4), at: now)
        clock.begin(within: .seconds(400), at: now)
        #expect(clock.limit(.seconds(10), share: 1, at: now) == .seconds(4))
    }
}
