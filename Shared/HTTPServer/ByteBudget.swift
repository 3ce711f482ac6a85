internal import Synchronization

/// A byte count that all requests of a loop share, and its limit. Thread-safe.
final class ByteBudget: Sendable {
    /// Items up to this size are never refused: large items that fill the budget must not shut out
    /// small ones. The number of connections bounds the total of the small items.
    static let small = 16 * 1024

    let limit: Int
    private let bytes = Atomic<Int>(0)

    init(limit: Int) { self.limit = limit }

    /// Adds `count`, which may be negative; returns the new total.
    @discardableResult
    func add(_ count: Int) -> Int { bytes.add(count, ordering: .relaxed).newValue }
}
