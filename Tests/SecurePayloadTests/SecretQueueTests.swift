import Testing

@testable import SecurePayload

@Suite("The fair queue of secrets to verify")
struct SecretQueueTests {
    private typealias Queue = SecretQueue<String>
    private let start = ContinuousClock.now

    private func caller(_ network: String, app: String = "shop") -> Queue.Caller {
        Queue.Caller(app: Array(app.utf8), network: Array(network.utf8))
    }

    private func drain(_ queue: inout Queue, at now: ContinuousClock.Instant) -> [String] {
        var jobs: [String] = []
        while let next = queue.next(now: now) { jobs.append(next.job) }
        return jobs
    }

    /// Adds jobs in order, each named by its network and number.
    private func add(_ names: [String], to queue: inout Queue, firstID: Int = 0) {
        for (offset, name) in names.enumerated() {
            let admission = queue.add(
                name,
                firstID + offset,
                of: caller(String(name.prefix(1))),
                now: start
            )
            #expect(admission == .waits, "\(name)")
        }
    }

    @Test("Networks take turns, and the jobs of each stay in order")
    func turns() {
        var queue = Queue(maximumWaiting: 100)
        add(["e1", "e2", "e3", "a1", "b1", "a2"], to: &queue)
        #expect(queue.count == 6)
        #expect(drain(&queue, at: start) == ["e1", "a1", "b1", "e2", "a2", "e3"])
        #expect(queue.count == 0)
    }

    @Test("Apps take turns, however many networks use one of them")
    func apps() {
        var queue = Queue(maximumWaiting: 100)
        for id in 0..<50 {
            _ = queue.add("e\(id)", id, of: caller("net-\(id)"), now: start)
        }
        _ = queue.add("b", 100, of: caller("bob", app: "bank"), now: start)
        #expect(queue.next(now: start)?.job == "e0")
        #expect(queue.next(now: start)?.job == "b")
        #expect(queue.next(now: start)?.job == "e1")
    }

    @Test("A network that failed waits behind those that did not, with all of its waiting jobs")
    func failed() {
        var queue = Queue(maximumWaiting: 100)
        add(["e1", "e2", "a1"], to: &queue)
        queue.noteFailure(from: Array("e".utf8), now: start)
        #expect(queue.next(now: start)?.job == "a1")
        #expect(queue.add("e3", 9, of: caller("e"), now: start) == .refused, "two at most")
        add(["b1"], to: &queue, firstID: 10)
        #expect(drain(&queue, at: start) == ["b1", "e1", "e2"])
        let later = start + FailedNetworks.lifetime * 2
        _ = queue.add("e4", 20, of: caller("e"), now: later)
        _ = queue.add("a4", 21, of: caller("a"), now: later)
        #expect(drain(&queue, at: later) == ["e4", "a4"], "for some minutes")
    }

    @Test("A network has a tenth of the queue, and failed ones give way to others")
    func shares() {
        var queue = Queue(maximumWaiting: 20)
        add(["e1", "e2"], to: &queue)
        #expect(queue.add("e3", 2, of: caller("e"), now: start) == .refused)
        for id in 3..<21 { _ = queue.add("x", id, of: caller("net-\(id)"), now: start) }
        #expect(queue.count == 20)
        queue.noteFailure(from: Array("net-5".utf8), now: start)
        #expect(queue.add("a1", 30, of: caller("a"), now: start) == .waitsInsteadOf(5))
        #expect(queue.add("b1", 31, of: caller("b"), now: start) == .waitsInsteadOf(1), "the most")
        #expect(queue.add("c1", 32, of: caller("c"), now: start) == .refused)
    }

    @Test("In a full queue the app with the most jobs gives way")
    func appsGiveWay() {
        var queue = Queue(maximumWaiting: 20)
        for id in 0..<20 { _ = queue.add("x", id, of: caller("net-\(id)"), now: start) }
        let bank = caller("bob", app: "bank")
        #expect(queue.add("b", 30, of: bank, now: start) == .waitsInsteadOf(19))
        #expect(queue.add("y", 31, of: caller("new"), now: start) == .refused)
        #expect(queue.next(now: start)?.job == "x")
        #expect(queue.next(now: start)?.job == "b")
    }

    @Test("While the oldest job has waited long, the newest is served first, once for each network")
    func overload() {
        var queue = Queue(maximumWaiting: 100)
        add(["a1", "b1", "c1"], to: &queue)
        let later = start + .milliseconds(1500)
        _ = queue.add("d1", 10, of: caller("d"), now: later)
        _ = queue.add("d2", 11, of: caller("d"), now: later)
        #expect(drain(&queue, at: later) == ["d1", "c1", "b1", "a1", "d2"])
    }

    @Test("In a full queue the oldest job gives way to the newest, once it has waited long")
    func oldest() {
        var queue = Queue(maximumWaiting: 10)
        for id in 0..<10 { _ = queue.add("x", id, of: caller("net-\(id)"), now: start) }
        let soon = start + .milliseconds(900)
        #expect(queue.add("a1", 20, of: caller("a"), now: soon) == .refused)
        let later = start + .milliseconds(3000)
        #expect(queue.add("a1", 21, of: caller("a"), now: later) == .waitsInsteadOf(0))
        #expect(queue.next(now: later)?.job == "a1")
    }

    @Test("A refused network that comes back too soon waits behind the others")
    func impatient() {
        var queue = Queue(maximumWaiting: 10)
        for id in 0..<10 { _ = queue.add("x", id, of: caller("net-\(id)"), now: start) }
        #expect(queue.add("e1", 20, of: caller("e"), now: start) == .refused)
        _ = queue.next(now: start)
        #expect(queue.add("e2", 21, of: caller("e"), now: start + .seconds(1)) == .waits)
        #expect(
            queue.add("a1", 22, of: caller("a"), now: start + .seconds(1)) == .waitsInsteadOf(21)
        )
    }

    @Test("A job that waits too long is refused")
    func age() {
        var queue = Queue(maximumWaiting: 10)
        add(["a1"], to: &queue)
        _ = queue.add("b1", 1, of: caller("b"), now: start + .seconds(3))
        #expect(queue.removeOld(now: start + .milliseconds(4900)).isEmpty)
        #expect(queue.removeOld(now: start + Queue.maximumAge) == [0])
        #expect(queue.next(now: start + Queue.maximumAge)?.job == "b1")
    }

    @Test("A backend that sets secrets takes turns with its readers, and may have many waiting")
    func backend() {
        var queue = Queue(maximumWaiting: 100)
        let backend = Queue.Caller(backendOf: Array("shop".utf8))
        for id in 0..<30 { #expect(queue.add("s\(id)", id, of: backend, now: start) == .waits) }
        add(["a1", "b1"], to: &queue, firstID: 40)
        #expect(queue.next(now: start)?.job == "s0")
        #expect(queue.next(now: start)?.job == "a1")
        #expect(queue.next(now: start)?.job == "s1")
        #expect(queue.removeOld(now: start + Queue.maximumAge) == [41])
        #expect(queue.count == 28)
    }

    @Test("A job whose callers have left is not begun")
    func removal() {
        var queue = Queue(maximumWaiting: 40)
        add(["a0", "a1", "b0"], to: &queue)
        queue.remove(0)
        queue.remove(2)
        queue.remove(2)
        #expect(queue.count == 1)
        #expect(drain(&queue, at: start) == ["a1"])
        add(["b1"], to: &queue, firstID: 3)
        #expect(queue.removeAll() == [3])
        #expect(queue.next(now: start) == nil)
    }

    @Test("The number of remembered networks is bounded")
    func memory() {
        var networks = FailedNetworks(maximum: 2)
        for name in ["a", "b", "c", "d"] { networks.insert(Array(name.utf8), now: start) }
        for name in ["a", "b", "c", "d"] {
            let isKnown = networks.contains(Array(name.utf8), now: start)
            #expect(isKnown)
        }
        networks.insert(Array("e".utf8), now: start)
        let (first, third) = (
            networks.contains(Array("a".utf8), now: start),
            networks.contains(Array("c".utf8), now: start)
        )
        #expect(!first && third)
    }
}
