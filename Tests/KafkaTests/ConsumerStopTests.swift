import Testing

@testable import Kafka

@Suite("Stopping a consumer", .timeLimit(.minutes(1)))
struct ConsumerStopTests {
    private typealias Situation = ConsumerStop.Situation

    @Test("A stop finishes batches, then leaves the group, then closes, then destroys the client")
    func order() {
        var stop = ConsumerStop()
        #expect(stop.next(Situation(outstandingBatches: 2)) == .wait)
        #expect(stop.next(Situation()) == .unsubscribe)
        #expect(stop.next(Situation(openRevocations: 1)) == .wait)
        #expect(stop.next(Situation(isMember: false, openRevocations: 1)) == .wait)
        #expect(stop.next(Situation(isMember: false)) == .close)
        #expect(stop.next(Situation(isMember: false)) == .wait)
        #expect(stop.next(Situation(isMember: false, isClosed: true)) == .destroy)
        #expect(stop.next(Situation(elapsed: .seconds(60))) == .wait)
    }

    @Test("A stop waits only a bounded time for unfinished batches")
    func drain() {
        var stop = ConsumerStop()
        #expect(stop.next(Situation(outstandingBatches: 1, elapsed: .seconds(9))) == .wait)
        #expect(stop.next(Situation(outstandingBatches: 1, elapsed: .seconds(10))) == .unsubscribe)
    }

    @Test("Nothing is closed before the first rebalance has been answered")
    func joining() {
        var stop = ConsumerStop()
        #expect(stop.next(Situation(hasJoined: false, elapsed: .seconds(5))) == .wait)
        #expect(stop.next(Situation(hasJoined: true, elapsed: .seconds(6))) == .unsubscribe)
    }

    @Test(
        "Without a broker a consumer that never joined is unsubscribed and abandoned after a second"
    )
    func absent() {
        var stop = ConsumerStop()
        #expect(stop.next(Situation(hasJoined: false, isBrokerUp: false)) == .wait)
        let late = Situation(hasJoined: false, isBrokerUp: false, elapsed: .seconds(1))
        #expect(stop.next(late) == .unsubscribe)
        #expect(stop.next(late) == .abandon)
    }

    @Test(
        "A broker that does not answer is given five seconds for the leave and five for the close"
    )
    func leaving() {
        var stop = ConsumerStop()
        #expect(stop.next(Situation(elapsed: .seconds(2))) == .unsubscribe)
        #expect(stop.next(Situation(elapsed: .seconds(6))) == .wait)
        #expect(stop.next(Situation(elapsed: .seconds(7))) == .abandon)
        var closing = ConsumerStop()
        #expect(closing.next(Situation()) == .unsubscribe)
        #expect(closing.next(Situation(isMember: false, elapsed: .seconds(4))) == .close)
        #expect(closing.next(Situation(isMember: false, elapsed: .seconds(5))) == .abandon)
    }

    @Test("Every wait is shorter if the process has less time, and no longer if it has more")
    func fitting() {
        var stop = ConsumerStop()
        stop.fit(to: .seconds(3))
        #expect(stop.limit == .seconds(3))
        #expect(stop.drainLimit == .seconds(2))
        #expect(stop.leaveLimit == .seconds(1))
        stop.fit(to: .seconds(60))
        #expect(stop.limit == .seconds(3))
    }

    @Test(
        "A consumer that the group rejects is unsubscribed and abandoned after a second, unless it joins by then"
    )
    func rejected() {
        let waiting = Situation(hasJoined: false, isRejected: true)
        let late = Situation(hasJoined: false, isRejected: true, elapsed: .seconds(1))
        var stop = ConsumerStop()
        #expect(stop.next(waiting) == .wait)
        #expect(stop.next(late) == .unsubscribe)
        #expect(stop.next(late) == .abandon)
        var joined = ConsumerStop()
        #expect(joined.next(waiting) == .wait)
        #expect(joined.next(Situation(elapsed: .seconds(1))) == .unsubscribe)
    }

    @Test("The stop ends at the limit, whatever hangs")
    func limit() {
        let late = Situation(outstandingBatches: 1, elapsed: .seconds(15))
        var stop = ConsumerStop()
        #expect(stop.next(late) == .unsubscribe)
        #expect(stop.next(late) == .abandon)
        #expect(stop.next(late) == .wait)
        var leaving = ConsumerStop()
        #expect(leaving.next(Situation()) == .unsubscribe)
        #expect(leaving.next(late) == .abandon)
        #expect(leaving.next(late) == .wait)
    }
}
