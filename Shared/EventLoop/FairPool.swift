/// Runs blocking work of owners on libuv's threads, so that the loop keeps turning: at most `limit`
/// at once, the owners in turn. So one owner's long work leaves threads to others, and each owner's
/// next work waits for at most one piece of another's. Confined to its loop.
package final class FairPool: @unchecked Sendable {
    /// The share of libuv's four threads, which other code also uses.
    private static let limit = 2

    private let loop: EventLoop
    private var running = 0
    private var line = FairLine<CheckedContinuation<Void, Never>>()

    package init(on loop: EventLoop) { self.loop = loop }

    package func waitingCount(of owner: String) -> Int { line.count(of: owner) }

    /// - Parameters:
    ///   - owner: The owner of the work.
    ///   - body: Ends by itself, within a second.
    /// - Returns: The result of the body.
    /// - Throws: The errors of the body.
    package func run<Value: Sendable>(
        of owner: String,
        _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        loop.checkIsolated()
        if running < Self.limit {
            running += 1
        } else {
            await withCheckedContinuation { line.append($0, of: owner) }
        }
        defer { release() }
        return try await loop.blocking(body)
    }

    /// Gives the place to the next waiter.
    private func release() {
        if let next = line.popFirst() { next.resume() } else { running -= 1 }
    }
}
