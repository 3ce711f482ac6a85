package import EventLoop
package import Observability

/// The rounds of one who works on what it claims in Postgres: the next at once while there may be
/// more; else asleep until its bell rings or it is time to look by itself; and after growing pauses
/// while a round fails, which `/readyz` tells.
package struct ClaimWorker: Sendable {
    /// What comes after a round.
    package enum Next: Sendable {
        case again
        /// Nothing more is to be claimed now.
        case sleep(atMost: Duration)
    }

    /// Sets up who is told of something new, and calls `ring` from anywhere.
    package typealias Listen =
        @Sendable (_ ring: @escaping @Sendable () -> Void) async throws -> Void

    private let cannot: StaticString
    private let bell: Bell
    private let listen: Listen
    private let loop: EventLoop
    private let log: Log
    private let trouble = Trouble()

    /// - Parameters:
    ///   - cannot: What does not happen while rounds fail, for people: "shards cannot be claimed".
    ///   - bell: Rung where there is something new.
    ///   - listen: Called before the first round; where it throws, that round has failed, and the next
    ///     begins with it again. Not needed by who has his bell rung otherwise.
    ///   - loop: Where the rounds run.
    ///   - log: Told of each round that failed.
    package init(
        _ cannot: StaticString,
        wokenBy bell: Bell,
        listening listen: @escaping Listen = { _ in },
        on loop: EventLoop,
        log: Log
    ) {
        self.cannot = cannot
        self.bell = bell
        self.listen = listen
        self.loop = loop
        self.log = log
    }

    /// That the last round failed.
    package func notReadyReason() -> String? { trouble.reason }

    /// Round after round, until the task is cancelled. What a round throws then, or a
    /// `CancellationError`, is no failure.
    package func run(
        isolation: isolated (any Actor)? = #isolation,
        _ round: () async throws -> Next
    ) async {
        var pause = Pause()
        var isListening = false
        while !Task.isCancelled {
            do {
                if !isListening {
                    try await listen { [loop, bell] in loop.execute { bell.ring() } }
                    isListening = true
                }
                let next = try await round()
                trouble.clear("\(cannot)")
                pause = Pause()
                if case .sleep(let limit) = next { await bell.wait(atMost: limit) }
            } catch {
                if Task.isCancelled || error is CancellationError { return }
                trouble.set("\(cannot)")
                log.warning(cannot, [.error: .string("\(error)")])
                await pause.wait(on: loop)
            }
        }
    }
}
