package import PushCore

/// Sums of outcomes since a time.
package struct PushRates: Sendable, Equatable {
    package struct Line: Sendable, Equatable {
        package let app: String
        package let provider: Platform
        package let counts: OutcomeCounts
    }

    /// The beginning, at a full minute, and the time of the reading: rates are counts by the seconds
    /// between them.
    package let from: Instant
    package let to: Instant
    /// Sorted by app, then by provider. Apps without outcomes are missing.
    package let lines: [Line]

    package var seconds: Double { Double(max(1, to.milliseconds - from.milliseconds)) / 1000 }
}

/// Sums of outcomes and of devices' reports by buckets of time.
package struct FigureSeries: Sendable, Equatable {
    package struct Point: Sendable, Equatable {
        package fileprivate(set) var providers: [Platform: OutcomeCounts] = [:]
        /// The reports of devices.
        package fileprivate(set) var receipts = ReceiptCounts()
        /// Whether a dispatcher counted. If none did, the bucket is a gap, not a zero.
        package fileprivate(set) var isCounted = false

        /// The sums of all providers.
        package var counts: OutcomeCounts {
            providers.values.reduce(into: OutcomeCounts()) { $0.add($1) }
        }
    }

    package let buckets: FigureBuckets
    /// A point for each bucket.
    package private(set) var points: [Point]

    package init(_ buckets: FigureBuckets) {
        self.buckets = buckets
        points = Array(repeating: Point(), count: buckets.count)
    }

    package mutating func add(_ counts: OutcomeCounts, of provider: Platform, in bucket: Int) {
        guard points.indices.contains(bucket) else { return }
        points[bucket].isCounted = true
        points[bucket].providers[provider, default: OutcomeCounts()].add(counts)
    }

    package mutating func add(_ receipts: ReceiptCounts, in bucket: Int) {
        guard points.indices.contains(bucket) else { return }
        points[bucket].receipts += receipts
    }

    /// Notes that a dispatcher counted in a bucket.
    package mutating func hadDispatcher(_ bucket: Int) {
        guard points.indices.contains(bucket) else { return }
        points[bucket].isCounted = true
    }

    /// The sums of all buckets.
    package var total: OutcomeCounts {
        points.reduce(into: OutcomeCounts()) { $0.add($1.counts) }
    }

    /// The reports in all buckets.
    package var receipts: ReceiptCounts {
        points.reduce(into: ReceiptCounts()) { $0 += $1.receipts }
    }

    /// The sums of all buckets of each provider that has some.
    package var providers: [(provider: Platform, counts: OutcomeCounts)] {
        Platform.allCases.compactMap { provider in
            let counts = points.reduce(into: OutcomeCounts()) { sum, point in
                if let counts = point.providers[provider] { sum.add(counts) }
            }
            return counts.total > 0 ? (provider, counts) : nil
        }
    }
}

/// The figures of one push to many devices over time.
package struct PushSeries: Sendable, Equatable {
    /// From the first outcome to the last; `nil` without any.
    package let outcomes: FigureSeries?
    /// From the first outcome, or report, to the last report; `nil` without reports.
    package let receipts: FigureSeries?
}
