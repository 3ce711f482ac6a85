internal import HTTPTransport

/// The connections that several clients share. It limits each client, and waiting clients take
/// turns. No client gets all connections (`FairShare`), so that a client whose provider does not
/// answer leaves some for the others. Confined to one loop.
final class ConnectionShare {
    private let total: Int
    private var inUse = 0
    /// The clients that got no connection. They may still have waiting deliveries.
    private var waiting: [NotificationQueue] = []
    private var turn = 0
    private var isServing = false

    /// - Parameter total: 1 or more.
    init(_ total: Int) { self.total = max(1, total) }

    /// Takes a connection for a client that already uses this many.
    func take(using count: Int) -> Bool {
        guard FairShare.admits(holding: count, free: total - inUse) else { return false }
        inUse += 1
        return true
    }

    func wait(_ queue: NotificationQueue) {
        guard !waiting.contains(where: { $0 === queue }) else { return }
        waiting.append(queue)
    }

    /// Returns a connection.
    func giveBack() {
        inUse -= 1
        serve()
    }

    /// Serves waiting clients. It is a loop, not a recursion, as a started delivery may end at
    /// once.
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
