internal import EventLoop
internal import Observability

/// Whether anybody waits for the answer to a request. Usable from anywhere.
///
/// States: there, gone. Its task is not cancelled by it, for a write that has begun is to end; what is
/// only of use to the caller asks.
package final class CallerPresence: Sendable {
    private let loop: EventLoop?
    private let lock = Lock()
    nonisolated(unsafe) private var hasLeft = false
    nonisolated(unsafe) private var count = 0
    /// What ends what runs for the caller alone.
    nonisolated(unsafe) private var cancels: [Int: @Sendable () -> Void] = [:]

    /// Of a request that came by no socket.
    package static let always = CallerPresence(on: nil)

    /// - Parameter loop: The one that the request's handler runs on; nil where nobody can leave.
    init(on loop: EventLoop?) { self.loop = loop }

    package var isGone: Bool { lock.withLock { unsafe hasLeft } }

    /// Before something is begun for the caller.
    ///
    /// - Throws: `CancellationError` once he has gone.
    package func check() throws {
        if isGone { throw CancellationError() }
    }

    /// Reads what only the caller waits for; the reading is cancelled when he goes. It must not write.
    ///
    /// - Throws: What `read` throws; `CancellationError` once the caller has gone.
    package func whileThere<Value: Sendable>(
        _ read: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        guard let loop else { return try await read() }
        try check()
        let reading = Task.immediate(executorPreference: loop) { try await read() }
        let id = add { reading.cancel() }
        defer { remove(id) }
        return try await withTaskCancellationHandler {
            try await reading.value
        } onCancel: {
            reading.cancel()
        }
    }

    private func add(_ cancel: @escaping @Sendable () -> Void) -> Int {
        let (id, isLate) = lock.withLock {
            unsafe count += 1
            if unsafe !hasLeft { unsafe cancels[count] = cancel }
            return unsafe (count, hasLeft)
        }
        if isLate { cancel() }
        return id
    }

    private func remove(_ id: Int) {
        lock.withLock { _ = unsafe cancels.removeValue(forKey: id) }
    }

    /// The caller has gone, or called the request off.
    func leave() {
        guard loop != nil else { return }
        let ends = lock.withLock {
            unsafe hasLeft = true
            defer { unsafe cancels = [:] }
            return unsafe Array(cancels.values)
        }
        for end in ends { end() }
    }
}
