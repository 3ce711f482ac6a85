internal import HTTPTransport

/// The connections that several clients share: who may use one more, and whose turn it is when one
/// is free. No client gets all (`FairShare`), so that one whose provider does not answer it leaves
/// room for the others; those who wait take turns. Confined to one loop.
final class ConnectionShare {
    private let total: Int
    private var inUse = 0
    /// Those who found none, and may still have deliveries that wait.
    private var waiting: [DeliveryQueue] = []
    private var turn = 0
    private var isServing = false

    /// - Parameter total: 1 or more.
    init(_ total: Int) { self.total = max(1, total) }

    /// Takes a connection for a client that uses so many.
    func take(using count: Int) -> Bool {
        guard FairShare.admits(holding: count, free: total - inUse) else { return false }
        inUse += 1
        return true
    }

    func wait(_ queue: DeliveryQueue) {
        guard !waiting.contains(where: { $0 === queue }) else { return }
        waiting.append(queue)
    }

    /// One that was taken is free.
    func giveBack() {
        inUse -= 1
        serve()
    }

    /// A loop instead of recursion: what is started may end at once.
    private func serve() {
        guard !isServing else { return }
        isServing = true
        defer { isServing = false }
        var refused = 0
        while refused < waiting.count {
            if turn >= waiting.count { turn = 0 }
            let queue = waiting[turn]
            if !queue.hasWaiting {
                waiting.remove(at: turn)
            } else {
                refused = queue.startNext() ? 0 : refused + 1
                turn += 1
            }
        }
    }
}
