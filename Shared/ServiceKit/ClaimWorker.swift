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

    private let cannot: StaticString
    private let bell: Bell
    private let loop: EventLoop
    private let log: Log
    private let trouble = Trouble()

    /// - Parameters:
    ///   - cannot: What does not happen while rounds fail, for people: "shards cannot be claimed".
    ///   - bell: Rung where there is something new.
    ///   - loop: Where the rounds run.
    ///   - log: Told of each round that failed.
    package init(_ cannot: StaticString, wokenBy bell: Bell, on loop: EventLoop, log: Log) {
        self.cannot = cannot
        self.bell = bell
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
        while !Task.isCancelled {
            do {
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
