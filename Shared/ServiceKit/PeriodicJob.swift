internal import EventLoop
internal import Observability

/// A job that runs in rounds beside the service's main work: it keeps tables small or measures a
/// metric. Every replica runs it; each leaves the rows that another has claimed.
///
/// While rounds fail, each logs a warning, and `/readyz` has one in its detail: the service
/// continues. The next try follows after a backoff (`ExponentialBackoff`).
///
/// Shutdown: between two rounds.
package struct PeriodicJob<State: Sendable>: ServicePart {
    /// A round. `State` passes from one round to the next.
    ///
    /// - Returns: The time until the next; zero: at once.
    package typealias Round = @Sendable (inout State) async throws -> Duration

    package let name: String
    private let cannot: StaticString
    private let loop: EventLoop
    private let log: Log
    private let state: State
    private let begin: @Sendable () async throws -> Void
    private let round: Round
    private let warnings = NotReadyReasons()

    /// - Parameters:
    ///   - name: The part's name.
    ///   - cannot: The consequence while rounds fail, for people: "old versions are not deleted".
    ///   - runtime: The service's; rounds run on its main loop.
    ///   - state: The state for the first round.
    ///   - begin: Awaited before the first round. If it throws, no round begins.
    ///   - round: One round.
    package init(
        _ name: String,
        cannot: StaticString,
        in runtime: ServiceRuntime,
        state: State,
        begin: @escaping @Sendable () async throws -> Void = {},
        round: @escaping Round
    ) {
        self.name = name
        self.cannot = cannot
        self.state = state
        self.begin = begin
        self.round = round
        (loop, log) = (runtime.mainLoop, runtime.log)
    }

    package func warning() -> String? { warnings.reason }

    package func run() async throws {
        guard (try? await begin()) != nil else { return await loop.untilCancelled() }
        var (state, pause) = (state, ExponentialBackoff())
        while !Task.isCancelled {
            do {
                let wait = try await round(&state)
                warnings.clear("\(cannot)")
                pause = ExponentialBackoff()
                if wait > .zero { try? await loop.sleep(for: wait) }
            } catch {
                if Task.isCancelled { return }
                warnings.set("\(cannot)")
                log.warning(cannot, [.error: .string("\(error)")])
                await pause.wait(on: loop)
            }
        }
    }
}

extension PeriodicJob<Void> {
    /// Makes a job whose rounds share no state.
    package init(
        _ name: String,
        cannot: StaticString,
        in runtime: ServiceRuntime,
        begin: @escaping @Sendable () async throws -> Void = {},
        round: @escaping @Sendable () async throws -> Duration
    ) {
        self.init(name, cannot: cannot, in: runtime, state: (), begin: begin) { _ in
            try await round()
        }
    }
}
