import Testing

@testable import Kafka

@Suite("Consumer backpressure", .timeLimit(.minutes(1)))
struct ConsumerBackpressureTests {
    private let start = ContinuousClock.now

    private func after(_ milliseconds: Int) -> ContinuousClock.Instant {
        start + .milliseconds(milliseconds)
    }

    @Test(
        "Reading pauses after a second with a full queue, and resumes at half of records and bytes"
    )
    func bounds() {
        for (records, bytes) in [(10, 0), (1, 1000)] {
            var holdBack = ConsumerBackpressure(maximumRecords: 10, maximumBytes: 1000)
            #expect(holdBack.inHand(records: 9, bytes: 999, at: after(0)) == .none)
            #expect(holdBack.inHand(records: records, bytes: bytes, at: after(0)) == .none)
            #expect(holdBack.inHand(records: records, bytes: bytes, at: after(999)) == .none)
            #expect(holdBack.inHand(records: records, bytes: bytes, at: after(1000)) == .pause)
            #expect(holdBack.isHeldBack)
            #expect(holdBack.inHand(records: records, bytes: bytes, at: after(9000)) == .none)
            #expect(holdBack.inHand(records: 6, bytes: 500, at: after(9000)) == .none)
            #expect(holdBack.inHand(records: 5, bytes: 501, at: after(9000)) == .none)
            #expect(holdBack.inHand(records: 5, bytes: 500, at: after(9000)) == .readOn)
            #expect(!holdBack.isHeldBack)
            #expect(holdBack.inHand(records: 5, bytes: 500, at: after(9000)) == .none)
        }
    }

    @Test("A queue that is full again after a decrease waits a new second before it pauses")
    func partialDrain() {
        var holdBack = ConsumerBackpressure(maximumRecords: 10, maximumBytes: 1000)
        #expect(holdBack.inHand(records: 10, bytes: 0, at: after(0)) == .none)
        #expect(holdBack.inHand(records: 8, bytes: 0, at: after(500)) == .none)
        #expect(holdBack.inHand(records: 10, bytes: 0, at: after(60_000)) == .none)
        #expect(holdBack.inHand(records: 10, bytes: 0, at: after(60_999)) == .none)
        #expect(holdBack.inHand(records: 10, bytes: 0, at: after(61_000)) == .pause)
    }

    @Test(
        "A full queue that was never paused also resumes at half, as records may wait without a signal"
    )
    func notPaused() {
        var holdBack = ConsumerBackpressure(maximumRecords: 10, maximumBytes: 1000)
        #expect(holdBack.inHand(records: 10, bytes: 0, at: after(0)) == .none)
        #expect(holdBack.inHand(records: 8, bytes: 0, at: after(1)) == .none)
        #expect(holdBack.inHand(records: 5, bytes: 0, at: after(2)) == .readOn)
        #expect(holdBack.inHand(records: 4, bytes: 0, at: after(3)) == .none)
    }

    @Test(
        "librdkafka is asked to look after each quarter of its queue, here four records of 4 MiB"
    )
    func largeRecords() {
        var prompt = FetchPrompt(limitRecords: 100_000, limitBytes: 64 << 20)
        let asked = (1...16).filter { _ in prompt.took(records: 1, bytes: 4 << 20) }
        #expect(asked == [4, 8, 12, 16])
    }

    @Test("Small records count by their number, and an empty poll asks for nothing")
    func smallRecords() {
        var prompt = FetchPrompt(limitRecords: 100_000, limitBytes: 64 << 20)
        let asked = (1...100).filter { _ in prompt.took(records: 1000, bytes: 300_000) }
        #expect(asked == [25, 50, 75, 100])
        #expect(prompt.took(records: 0, bytes: 0) == false)
        var least = FetchPrompt(limitRecords: 1, limitBytes: 1)
        #expect(least.took(records: 0, bytes: 0) == false)
        #expect(least.took(records: 1, bytes: 0) == true)
    }
}
