import Testing

@testable import SecurePayload

@Suite("Secrets wait their turn, whoever sends the most")
struct SecretQueueTests {
    private let ann = Array("ann".utf8)
    private let bob = Array("bob".utf8)
    private let eve = Array("eve".utf8)

    private func drain(_ queue: inout SecretQueue<String>) -> [String] {
        var jobs: [String] = []
        while let next = queue.next() { jobs.append(next.job) }
        return jobs
    }

    @Test("Owners take turns, and each one's own come in their order")
    func turns() {
        var queue = SecretQueue<String>(maximumWaiting: 10)
        for (id, job) in ["e1", "e2", "e3"].enumerated() {
            #expect(queue.add(job, id, of: eve) == .waits)
        }
        #expect(queue.add("a1", 10, of: ann) == .waits)
        #expect(queue.add("b1", 11, of: bob) == .waits)
        #expect(queue.add("a2", 12, of: ann) == .waits)
        #expect(queue.count == 6)
        #expect(drain(&queue) == ["e1", "a1", "b1", "e2", "a2", "e3"])
        #expect(queue.count == 0)
    }

    @Test("Where there is no room, who has the most gives way to who has less")
    func room() {
        var queue = SecretQueue<String>(maximumWaiting: 4)
        for id in 0..<4 { #expect(queue.add("e\(id)", id, of: eve) == .waits) }
        #expect(queue.add("e4", 4, of: eve) == .refused)
        #expect(queue.add("a0", 10, of: ann) == .waitsInsteadOf(3))
        #expect(queue.add("b0", 11, of: bob) == .waitsInsteadOf(2))
        // Nobody has more than one above what she would have then.
        #expect(queue.add("a1", 12, of: ann) == .refused)
        #expect(queue.add("e5", 5, of: eve) == .refused)
        #expect(queue.count == 4)
        #expect(drain(&queue) == ["e0", "a0", "b0", "e1"])
    }

    @Test("What nobody waits for is not begun")
    func removal() {
        var queue = SecretQueue<String>(maximumWaiting: 4)
        #expect(queue.add("a0", 0, of: ann) == .waits)
        #expect(queue.add("a1", 1, of: ann) == .waits)
        #expect(queue.add("b0", 2, of: bob) == .waits)
        queue.remove(0, of: ann)
        queue.remove(2, of: bob)
        queue.remove(2, of: bob)
        queue.remove(1, of: eve)
        #expect(queue.count == 1)
        #expect(drain(&queue) == ["a1"])
        #expect(queue.add("b1", 3, of: bob) == .waits)
        #expect(queue.removeAll() == [3])
        #expect(queue.next() == nil)
    }
}
