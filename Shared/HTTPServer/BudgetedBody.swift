internal import Synchronization

/// The bytes that one request body takes of its loop's byte budget. Thread-safe.
final class BudgetedBody: Sendable {
    /// Makes the owner of the request drop the body. Called on the loop.
    nonisolated(unsafe) var whenDropped: (() -> Void)?
    /// The limit of the body, and of its inflated size.
    let maximumBytes: Int
    private let budget: ByteBudget
    private let instruments: ServerMetrics
    private let bytes = Atomic<Int>(0)

    init(maximumBytes: Int, of budget: ByteBudget, _ instruments: ServerMetrics) {
        self.budget = budget
        self.instruments = instruments
        self.maximumBytes = maximumBytes
    }

    deinit { releaseBytes() }

    /// Counts the present size of the body.
    ///
    /// - Throws: 503 if the bodies of other requests leave no room for it in the budget.
    func hold(_ count: Int) throws(HTTPProblem) {
        let more = count - bytes.exchange(count, ordering: .relaxed)
        if more == 0 { return }
        let all = budget.add(more)
        guard more > 0, count > ByteBudget.small, all > budget.limit else { return }
        throw HTTPProblem(
            status: 503,
            detail: "too many bodies are being handled",
            headers: ["Retry-After": "1"]
        )
    }

    func releaseBytes() {
        let held = bytes.exchange(0, ordering: .relaxed)
        if held != 0 { budget.add(-held) }
    }

    func drop() {
        unsafe whenDropped?()
        unsafe whenDropped = nil
        releaseBytes()
    }

    /// Counts a body that its handler refused; connections count all other refusals.
    func refused(_ status: Int) { instruments.refused(status) }
}
