/// Counts latencies in buckets by powers of two, so that histograms of processes and minutes can be
/// added. Bucket 0 has latencies below 1 ms, bucket `n` those from 2ⁿ⁻¹ to below 2ⁿ ms.
package struct LatencyHistogram: Sendable, Equatable {
    /// The number of buckets. The last one begins at 2²² ms, 70 minutes.
    package static let size = 24

    /// The counts without the zeros at the end; at most `size`.
    package private(set) var counts: [Int] = []

    package init() {}

    /// Makes a histogram of stored counts.
    package init(_ counts: [Int]) {
        self.counts = Array(counts.prefix(Self.size))
        while self.counts.last == 0 { self.counts.removeLast() }
    }

    package var total: Int { counts.reduce(0, +) }

    package mutating func add(milliseconds: Int64) {
        let bits = Int64.bitWidth - max(0, milliseconds).leadingZeroBitCount
        let bucket = min(bits, Self.size - 1)
        if counts.count <= bucket {
            counts += repeatElement(0, count: bucket + 1 - counts.count)
        }
        counts[bucket] += 1
    }

    package mutating func add(_ other: Self) {
        if counts.count < other.counts.count {
            counts += repeatElement(0, count: other.counts.count - counts.count)
        }
        for (bucket, count) in other.counts.enumerated() { counts[bucket] += count }
    }

    /// Estimates a percentile. Within a bucket, latencies count as spread evenly, so the estimate is
    /// off by less than a factor of two.
    ///
    /// - Parameter share: 0...1: 0.99 for p99.
    /// - Returns: Milliseconds; `nil` if nothing was counted.
    package func percentile(_ share: Double) -> Double? {
        let total = total
        guard total > 0 else { return nil }
        let rank = min(max(share, 0), 1) * Double(total)
        var before = 0.0
        for (bucket, count) in counts.enumerated() where count > 0 {
            if before + Double(count) >= rank {
                let (lower, upper) = Self.bounds(of: bucket)
                return lower + (upper - lower) * max(0, rank - before) / Double(count)
            }
            before += Double(count)
        }
        return Self.bounds(of: counts.count - 1).upper
    }

    /// Returns the bounds of a bucket in milliseconds.
    private static func bounds(of bucket: Int) -> (lower: Double, upper: Double) {
        guard bucket > 0 else { return (0, 1) }
        return (Double(1 << (bucket - 1)), Double(1 << bucket))
    }
}
