internal import Synchronization

/// What the body of one request takes of its loop's budget. Usable from anywhere.
final class HeldBody: Sendable {
    /// Lets whoever gave the request its body go of it. The loop's.
    nonisolated(unsafe) var whenDropped: (() -> Void)?
    /// Of the body, and of what it inflates to.
    let maximumBytes: Int
    private let budget: ByteBudget
    private let instruments: Instruments
    private let bytes = Atomic<Int>(0)

    init(maximumBytes: Int, of budget: ByteBudget, _ instruments: Instruments) {
        self.budget = budget
        self.instruments = instruments
        self.maximumBytes = maximumBytes
    }

    deinit { letGo() }

    /// Counts what there is of the body now.
    ///
    /// - Throws: 503 when there is no room for it beside those of other requests.
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

    func letGo() {
        let held = bytes.exchange(0, ordering: .relaxed)
        if held != 0 { budget.add(-held) }
    }

    func drop() {
        unsafe whenDropped?()
        unsafe whenDropped = nil
        letGo()
    }

    /// Of a body that its handler found to be no good: others' are counted by their connections.
    func refused(_ status: Int) { instruments.refused(status) }
}
