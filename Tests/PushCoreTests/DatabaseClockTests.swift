import PushCore
import Synchronization
import Testing

@Suite("Time is Postgres', whatever this host's clock says", .timeLimit(.minutes(1)))
struct DatabaseClockTests {
    /// A host whose wall clock is set by the test.
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

    @Test("Before it was measured it is the wall clock, and nothing is wrong")
    func unmeasured() {
        let clock = Host().clock()
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_000))
        #expect(clock.hostIsAhead == .zero && !clock.isInDoubt && clock.warning == nil)
    }

    @Test("A host an hour ahead acts by Postgres' time and says how far it is ahead")
    func ahead() {
        let host = Host()
        let clock = host.clock()
        measure(clock, 1_700_000_000_000 - hour, between: 4980, and: 5020)
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_000 - hour))
        #expect(clock.hostIsAhead == .seconds(3600) && clock.isInDoubt)
        #expect(clock.warning == "this host's clock is 3600 s ahead of Postgres'")
    }

    @Test("A wall clock that is set, or jumps, moves nothing")
    func jump() {
        let host = Host()
        let clock = host.clock()
        measure(clock, 1_700_000_000_000, between: 5000, and: 5000)
        host.wall.store(1_700_000_000_000 - hour, ordering: .relaxed)
        host.steady.store(5250, ordering: .relaxed)
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_250))
        #expect(clock.warning == "this host's clock is 3600 s behind Postgres'")
    }

    @Test("A slow answer costs no precision; one that contradicts what is known moves it")
    func slow() {
        let host = Host()
        let clock = host.clock()
        measure(clock, 1_700_000_000_000, between: 4999, and: 5001)
        // It was made at any time in these two seconds: what is known may well be true.
        measure(clock, 1_700_000_000_900, between: 5000, and: 7000)
        #expect(clock.now() == Instant(milliseconds: 1_700_000_000_000))
        // Postgres' clock was set, or another server took over.
        measure(clock, 1_700_000_060_000, between: 6990, and: 7010)
        host.steady.store(7000, ordering: .relaxed)
        let error = clock.now().milliseconds - 1_700_000_060_000
        #expect(abs(error) <= 10)
    }

    @Test("A provider's complaint is told for ten minutes, where the clocks agree")
    func complaint() {
        let host = Host()
        let clock = host.clock()
        clock.refused(by: .apns)
        #expect(clock.warning == "apns refuses tokens for their time: check Postgres' clock")
        host.steady.store(5000 + 600_000, ordering: .relaxed)
        #expect(clock.warning == nil)
    }
}
