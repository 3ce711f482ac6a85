/// Runs what blocks for owners on libuv's threads, so that the loop turns on: at most `limit` at once,
/// the owners one after the other. So one owner's long work leaves threads to others, and each owner's
/// next work waits for one piece of another's at most. Confined to its loop.
package final class FairPool: @unchecked Sendable {
    /// Of libuv's four threads, which others use as well.
    private static let limit = 2

    private let loop: EventLoop
    private var running = 0
    private var line = FairLine<CheckedContinuation<Void, Never>>()

    package init(on loop: EventLoop) { self.loop = loop }

    package func waitingCount(of owner: String) -> Int { line.count(of: owner) }

    /// - Parameters:
    ///   - owner: Whose work it is.
    ///   - body: Ends by itself, within a second.
    /// - Returns: What the body gives.
    /// - Throws: What the body throws.
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

    /// Its place goes to the next.
    private func release() {
        if let next = line.popFirst() { next.resume() } else { running -= 1 }
    }
}
