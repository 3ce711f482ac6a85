import Testing

@testable import PushCore

@Suite("Histograms of latencies", .timeLimit(.minutes(1)))
struct LatencyHistogramTests {
    private func histogram(_ latencies: [Int64]) -> LatencyHistogram {
        var histogram = LatencyHistogram()
        for latency in latencies { histogram.add(milliseconds: latency) }
        return histogram
    }

    @Test("A bucket has the latencies between two powers of two")
    func buckets() {
        #expect(histogram([0]).counts == [1])
        #expect(histogram([1]).counts == [0, 1])
        #expect(histogram([2, 3]).counts == [0, 0, 2])
        #expect(histogram([4, 7, 8]).counts == [0, 0, 0, 2, 1])
    }

    @Test("Every number has a bucket, also of a clock that was set back")
    func edges() {
        for latency in InstantTests.edges {
            let counts = histogram([latency]).counts
            #expect(counts.count <= LatencyHistogram.size && counts.last == 1)
        }
        #expect(histogram([-5]).counts == [1])
        #expect(histogram([.max]).counts.count == LatencyHistogram.size)
    }

    @Test("A percentile is within its bucket, and so within a factor of two")
    func percentiles() throws {
        let latencies = (1...1000).map { Int64($0) }
        let histogram = histogram(latencies)
        for (share, exact) in [(0.5, 500.0), (0.9, 900), (0.99, 990), (1, 1000)] {
            let found = try #require(histogram.percentile(share))
            #expect(found >= exact / 2 && found <= exact * 2, "\(share): \(found)")
        }
        #expect(histogram.percentile(0) ?? 9 <= 1)
        #expect(LatencyHistogram().percentile(0.5) == nil)
    }

    @Test("The percentiles of a sum are those of all latencies, not an average of percentiles")
    func sums() {
        // 99 fast ones in one minute, one slow one in another.
        var sum = histogram(Array(repeating: 3, count: 99))
        sum.add(histogram([5000]))
        #expect(sum == histogram(Array(repeating: 3, count: 99) + [5000]))
        #expect(sum.percentile(0.5) ?? 0 < 4)
        #expect(sum.percentile(0.999) ?? 0 > 4096)
        #expect(sum.total == 100)
    }

    @Test("A stored histogram is read without the zeros at its end")
    func stored() {
        #expect(LatencyHistogram([0, 2, 0, 0]) == histogram([1, 1]))
        #expect(LatencyHistogram([0, 0]) == LatencyHistogram())
        #expect(LatencyHistogram(Array(repeating: 1, count: 99)).counts.count == 24)
    }
}
