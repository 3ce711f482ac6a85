internal import EventLoop
internal import Observability
internal import Synchronization

/// Tracks whether a client still waits for the response to a request. Thread-safe.
///
/// States: there, gone. When the client leaves, the handler's task is not cancelled, as a write
/// that has begun must end. Work that serves only the client checks the state.
package final class ClientPresence: Sendable {
    /// The handler's loop; nil if the client cannot leave.
    private let loop: EventLoop?
    private let gatheredBytes: ByteBudget?
    /// The bytes of the unfinished response that the handler holds.
    private let heldBytes = Atomic<Int>(0)
    private let lock = Lock()
    nonisolated(unsafe) private var hasLeft = false
    nonisolated(unsafe) private var count = 0
    /// The closures that cancel the work for this client alone.
    nonisolated(unsafe) private var cancels: [Int: @Sendable () -> Void] = [:]

    /// The presence for a request without a socket.
    package static let always = ClientPresence(on: nil, gathering: nil)

    init(on loop: EventLoop?, gathering gatheredBytes: ByteBudget?) {
        self.loop = loop
        self.gatheredBytes = gatheredBytes
    }

    deinit { releaseBytes() }

    package var isGone: Bool { lock.withLock { unsafe hasLeft } }

    /// Checks for the client before work for it begins.
    ///
    /// - Throws: `CancellationError` once the client has gone.
    package func check() throws {
        if isGone { throw CancellationError() }
    }

    /// Runs a read that only the client waits for; it is cancelled when the client leaves. It must
    /// not write.
    ///
    /// - Throws: The errors of `read`; `CancellationError` once the client has gone.
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

    /// Marks the client as gone, or its request as cancelled.
    func leave() {
        guard loop != nil else { return }
        let ends = lock.withLock {
            unsafe hasLeft = true
            defer { unsafe cancels = [:] }
            return unsafe Array(cancels.values)
        }
        for end in ends { end() }
    }

    // MARK: Unfinished responses

    /// The gate of the connection; set when the handler begins.
    nonisolated(unsafe) private var room: LargeResponseGate?
    nonisolated(unsafe) private var isInRoom = false

    func use(_ room: LargeResponseGate) { lock.withLock { unsafe self.room = room } }

    /// Waits until the connection has room for another response that may be large. Call it before
    /// building the response, on the handler's loop.
    ///
    /// - Throws: `CancellationError` once the client has gone.
    package func waitForRoom() async throws {
        let room = lock.withLock { unsafe isInRoom ? nil : self.room }
        guard let room else { return }
        try await whileThere { [self] in
            try await room.enter()
            lock.withLock { unsafe isInRoom = true }
        }
    }

    /// Leaves the gate: the connection has the whole response, or its handler gave up. On the loop.
    func leaveRoom() {
        let left = lock.withLock {
            defer { unsafe isInRoom = false }
            return unsafe isInRoom ? room : nil
        }
        left?.leave()
    }

    /// Counts a part of a response that the handler gathers before it sends anything. Counted until
    /// the response is complete. On the handler's loop.
    ///
    /// - Returns: False if the other gathered responses leave no room for the part.
    package func hold(_ bytes: Int) -> Bool {
        guard let gatheredBytes else { return true }
        let all = heldBytes.add(bytes, ordering: .relaxed).newValue
        // Gathered bytes have a separate budget, so no reader's connection is closed for them.
        let total = gatheredBytes.add(bytes)
        return total == bytes || total <= gatheredBytes.limit || all <= ByteBudget.small
    }

    /// Releases the gathered bytes: the response is complete, or its handler gave up.
    func releaseBytes() {
        let held = heldBytes.exchange(0, ordering: .relaxed)
        if held != 0 { gatheredBytes?.add(-held) }
    }
}
