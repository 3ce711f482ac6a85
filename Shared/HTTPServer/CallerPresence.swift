internal import EventLoop
internal import Observability
internal import Synchronization

/// Whether anybody waits for the answer to a request. Usable from anywhere.
///
/// States: there, gone. Its task is not cancelled by it, for a write that has begun is to end; what is
/// only of use to the caller asks.
package final class CallerPresence: Sendable {
    /// Its handler's; nil where nobody can leave.
    private let loop: EventLoop?
    private let gatheredBytes: ByteBudget?
    /// What the handler holds of an answer that it is still making.
    private let heldBytes = Atomic<Int>(0)
    private let lock = Lock()
    nonisolated(unsafe) private var hasLeft = false
    nonisolated(unsafe) private var count = 0
    /// What ends what runs for the caller alone.
    nonisolated(unsafe) private var cancels: [Int: @Sendable () -> Void] = [:]

    /// Of a request that came by no socket.
    package static let always = CallerPresence(on: nil, gathering: nil)

    init(on loop: EventLoop?, gathering gatheredBytes: ByteBudget?) {
        self.loop = loop
        self.gatheredBytes = gatheredBytes
    }

    deinit { letGo() }

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

    // MARK: Answers in the making

    /// Its connection's, from when its handler begins.
    nonisolated(unsafe) private var room: AnswerRoom?
    nonisolated(unsafe) private var isInRoom = false

    func use(_ room: AnswerRoom) { lock.withLock { unsafe self.room = room } }

    /// Before an answer is made that may be large: waits until its connection has room for another. On
    /// the handler's loop.
    ///
    /// - Throws: `CancellationError` once the caller has gone.
    package func waitForRoom() async throws {
        let room = lock.withLock { unsafe isInRoom ? nil : self.room }
        guard let room else { return }
        try await whileThere { [self] in
            try await room.enter()
            lock.withLock { unsafe isInRoom = true }
        }
    }

    /// The answer is its connection's, whole, or nobody makes it any more. On the loop.
    func leaveRoom() {
        let left = lock.withLock {
            defer { unsafe isInRoom = false }
            return unsafe isInRoom ? room : nil
        }
        left?.leave()
    }

    /// Counts a part of an answer that is gathered before it is sent, until it is. On the handler's
    /// loop.
    ///
    /// - Returns: False where there is no room for it beside what others gather.
    package func hold(_ bytes: Int) -> Bool {
        guard let gatheredBytes else { return true }
        let all = heldBytes.add(bytes, ordering: .relaxed).newValue
        // Nobody who reads is closed for it: what is gathered has a budget of its own.
        let total = gatheredBytes.add(bytes)
        return total == bytes || total <= gatheredBytes.limit || all <= ByteBudget.small
    }

    /// The answer is made, or nobody makes it any more.
    func letGo() {
        let held = heldBytes.exchange(0, ordering: .relaxed)
        if held != 0 { gatheredBytes?.add(-held) }
    }
}
