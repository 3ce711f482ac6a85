package import EventLoop
package import Observability

/// Runs rounds that claim rows in Postgres: the next at once while there may be more, else after a
/// wake-up or the poll interval. Retries a failed round with backoff and reports it to `/readyz`.
package struct ClaimWorker: Sendable {
    /// The time of the next round.
    package enum Next: Sendable {
        case again
        /// Nothing more can be claimed now.
        case sleep(atMost: Duration)
    }

    /// Subscribes to changes, and calls `wake` from any thread.
    package typealias Listen =
        @Sendable (_ wake: @escaping @Sendable () -> Void) async throws -> Void

    private let cannot: StaticString
    private let wakeUp: WakeUp
    private let listen: Listen
    private let loop: EventLoop
    private let log: Log
    private let notReady = NotReadyReasons()

    /// - Parameters:
    ///   - cannot: The consequence while rounds fail, for people: "shards cannot be claimed".
    ///   - wakeUp: Signalled when there are new rows.
    ///   - listen: Called before the first round; if it throws, that round has failed, and the next
    ///     begins with it again. Not needed if the wakeUp is signalled otherwise.
    ///   - loop: The loop of the rounds.
    ///   - log: Gets each failed round.
    package init(
        _ cannot: StaticString,
        wokenBy wakeUp: WakeUp,
        listening listen: @escaping Listen = { _ in },
        on loop: EventLoop,
        log: Log
    ) {
        self.cannot = cannot
        self.wakeUp = wakeUp
        self.listen = listen
        self.loop = loop
        self.log = log
    }

    /// Returns the failure of the last round.
    package func notReadyReason() -> String? { notReady.reason }

    /// Runs rounds until the task is cancelled. An error of a round after that, or a
    /// `CancellationError`, is not a failure.
    package func run(
        isolation: isolated (any Actor)? = #isolation,
        _ round: () async throws -> Next
    ) async {
        var pause = ExponentialBackoff()
        var isListening = false
        while !Task.isCancelled {
            do {
                if !isListening {
                    try await listen { [loop, wakeUp] in loop.execute { wakeUp.signal() } }
                    isListening = true
                }
                let next = try await round()
                notReady.clear("\(cannot)")
                pause = ExponentialBackoff()
                if case .sleep(let limit) = next { await wakeUp.wait(atMost: limit) }
            } catch {
                if Task.isCancelled || error is CancellationError { return }
                notReady.set("\(cannot)")
                log.warning(cannot, [.error: .string("\(error)")])
                await pause.wait(on: loop)
            }
        }
    }
}
