import EventLoop
import Synchronization

/// The isolation of all that the dispatcher's deliveries share, whose executor is the process' main
/// loop: the compiler checks that only this loop touches it.
///
/// An `async` method that another module's protocol requires repeats the attribute, as it inherits
/// the requirement's isolation otherwise (`ServicePart.run`).
///
/// `adopt` sets the loop before the first use. A process without a dispatcher, such as a unit test,
/// gets a loop of its own.
@globalActor
actor DispatchLoop {
    static let shared = DispatchLoop()
    private static let adopted = Mutex<EventLoop?>(nil)

    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private init() {
        do {
            loop = try Self.adopted.withLock { $0 } ?? EventLoop(name: "dispatch")
        } catch {
            preconditionFailure("\(error)")
        }
    }

    static var loop: EventLoop { shared.loop }

    /// Sets the loop. Traps if another loop is in use already: two loops would break the isolation.
    static func adopt(_ loop: EventLoop) {
        adopted.withLock { $0 = loop }
        precondition(shared.loop === loop, "the dispatcher's loop was used before it was set")
    }

    /// Starts a task on the loop. It also prefers the loop as its task executor: without that, each
    /// call of another actor of the loop would be queued once more.
    @discardableResult
    static func task<Value: Sendable>(
        _ body: @escaping @DispatchLoop () async -> Value
    ) -> Task<Value, Never> {
        Task(executorPreference: loop, operation: body)
    }

    /// Makes a callback for another module, which must call it on the loop: it traps elsewhere. A call
    /// allocates nothing, unlike one of `assumeIsolated`.
    static func callback<First, Second>(
        _ body: @escaping @DispatchLoop (First, Second) -> Void
    ) -> @Sendable (First, Second) -> Void {
        let body = unsafe unsafeBitCast(body, to: (@Sendable (First, Second) -> Void).self)
        return { first, second in
            loop.checkIsolated()
            body(first, second)
        }
    }

    /// Runs `body` at once, in a callback that another module calls on the loop. Traps elsewhere.
    static func assumeIsolated<Value: Sendable>(_ body: @DispatchLoop () -> Value) -> Value {
        loop.checkIsolated()
        return withoutActuallyEscaping(body) { body in
            unsafe unsafeBitCast(body, to: (() -> Value).self)()
        }
    }
}
