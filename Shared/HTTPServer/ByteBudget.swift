internal import Synchronization

/// Bytes that the requests of a loop share, and how many of them there may be. Usable from anywhere.
final class ByteBudget: Sendable {
    /// Never refused: who fills a budget with what is large must not shut out what is small, which the
    /// number of connections bounds.
    static let small = 16 * 1024

    let limit: Int
    private let bytes = Atomic<Int>(0)

    init(limit: Int) { self.limit = limit }

    /// Counts `count` more, or fewer where it is negative; returns how many there are with them.
    @discardableResult
    func add(_ count: Int) -> Int { bytes.add(count, ordering: .relaxed).newValue }
}
