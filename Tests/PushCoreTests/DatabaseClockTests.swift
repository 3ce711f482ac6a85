import PushCore
import Synchronization
import Testing

@Suite("The clock follows Postgres, whatever the host's clock shows", .timeLimit(.minutes(1)))
struct DatabaseClockTests {
    /// A host whose wall clock the test sets.
    private final class Host: Sendable {
        let wall = Atomic<Int64>(1_700_000_000_000)
        let steady = Atomic<Int64>(5000)

        func clock() -> DatabaseClock {
            DatabaseClock(
                wall: { Instant(milliseconds: self.wall.load(ordering: .relaxed)) },
                steady: { MonotonicInstant(milliseconds: self.steady.load(ordering: .relaxed)) }
            )
        }
    }

    private let hour: Int64 = 3_600_000

    private func measure(
        _ clock: DatabaseClock,
        _ time: Int64,
        between asked: Int64,
        and answered: Int64
    ) {
        clock.measured(
            Instant(milliseconds: time),
            asked: MonotonicInstant(milliseconds: asked),
            answered: MonotonicInstant(milliseconds: answered)
        )
    }

    @Test("Before the first measurement the wall clock is used, and no skew is reported")
    func unmeasured() {
        let clock = Host().clock()
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_000))
        #expect(clock.hostIsAhead == .zero && !clock.isInDoubt && clock.warning == nil)
    }

    @Test("A host an hour ahead uses Postgres' time and reports the difference")
    func ahead() {
        let host = Host()
        let clock = host.clock()
        measure(clock, 1_700_000_000_000 - hour, between: 4980, and: 5020)
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_000 - hour))
        #expect(clock.hostIsAhead == .seconds(3600) && clock.isInDoubt)
        #expect(clock.warning == "this host's clock is 3600 s ahead of Postgres'")
    }

    @Test("A wall clock that is set, or jumps, does not move the time")
    func jump() {
        let host = Host()
        let clock = host.clock()
        measure(clock, 1_700_000_000_000, between: 5000, and: 5000)
        host.wall.store(1_700_000_000_000 - hour, ordering: .relaxed)
        host.steady.store(5250, ordering: .relaxed)
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_250))
        #expect(clock.warning == "this host's clock is 3600 s behind Postgres'")
    }

    @Test("A slow measurement keeps the precision, and one that contradicts the clock moves it")
    func slow() {
        let host = Host()
        let clock = host.clock()
        measure(clock, 1_700_000_000_000, between: 4999, and: 5001)
        // The measurement was made at any time in these two seconds, so the known time may be
        // right.
        measure(clock, 1_700_000_000_900, between: 5000, and: 7000)
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_000))
        // Postgres' clock was set, or another server took over.
        measure(clock, 1_700_000_060_000, between: 6990, and: 7010)
        host.steady.store(7000, ordering: .relaxed)
        let error = clock.now().milliseconds - 1_700_000_060_000
        #expect(abs(error) <= 10)
    }

    @Test("A provider's complaint is reported for ten minutes if the clocks agree")
    func complaint() {
        let host = Host()
        let clock = host.clock()
        clock.refused(by: .apns)
        #expect(clock.warning == "apns refuses tokens for their time: check Postgres' clock")
        host.steady.store(5000 + 600_000, ordering: .relaxed)
        #expect(clock.warning == nil)
    }
}
