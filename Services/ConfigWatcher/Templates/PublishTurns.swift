import EventLoop
import HTTPServer

/// Publishes of one app, one after the other: they wait here for each other, and not on connections to
/// Postgres that others need. Who came first goes first. Confined to its loop.
///
/// Bounded: each who waits holds a template, so only so many of an app do, and none for long. Who is
/// refused repeats it.
final class PublishTurns: @unchecked Sendable {
    struct Bounds: Sendable {
        /// Of one app, behind the one who publishes.
        var waiting = 32
        var patience = Duration.seconds(5)
    }

    /// One who waits. A cancellation may come before the continuation.
    private final class Place: @unchecked Sendable {
        var continuation: CheckedContinuation<Void, any Error>?
        var timer: LoopTimer?
        var isCancelled = false
    }

    private let loop: EventLoop
    private let bounds: Bounds
    /// Those who wait, in their order; an app that is not here has nobody who publishes.
    private var lines: [String: [Place]] = [:]

    init(on loop: EventLoop, within bounds: Bounds = Bounds()) {
        self.loop = loop
        self.bounds = bounds
    }

    /// Waits for the app's turn. What has its turn then goes on, whether or not its caller stays.
    ///
    /// - Returns: What the body gives.
    /// - Throws: `ConfigUnavailable` where too many wait or it takes too long; `CancellationError`
    ///   where the task was cancelled or the caller has gone before its turn; what the body throws.
    func take<Value>(
        of app: String,
        for caller: CallerPresence,
        _ body: () async throws -> Value
    ) async throws -> Value {
        loop.checkIsolated()
        if lines[app] == nil {
            lines[app] = []
        } else {
            try await caller.whileThere { try await self.wait(app) }
        }
        defer { pass(app) }
        return try await body()
    }

    /// How many wait for the app's turn.
    func waitingCount(of app: String) -> Int { lines[app]?.count ?? 0 }

    private func wait(_ app: String) async throws {
        loop.checkIsolated()
        let (place, loop) = (Place(), loop)
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                queue(place, for: app, continuation)
            }
        } onCancel: {
            loop.execute { self.cancel(place, app) }
        }
    }

    private func queue(
        _ place: Place,
        for app: String,
        _ continuation: CheckedContinuation<Void, any Error>
    ) {
        if place.isCancelled { return continuation.resume(throwing: CancellationError()) }
        guard let line = lines[app] else {
            lines[app] = []
            return continuation.resume()
        }
        guard line.count < bounds.waiting else {
            return continuation.resume(throwing: ConfigUnavailable())
        }
        place.continuation = continuation
        place.timer = loop.schedule(after: bounds.patience) { [self] in
            leave(place, app, ConfigUnavailable())
        }
        lines[app]?.append(place)
    }

    private func cancel(_ place: Place, _ app: String) {
        place.isCancelled = true
        leave(place, app, CancellationError())
    }

    /// Nothing where it has had its turn.
    private func leave(_ place: Place, _ app: String, _ reason: any Error) {
        guard let index = lines[app]?.firstIndex(where: { $0 === place }) else { return }
        lines[app]?.remove(at: index)
        place.timer?.cancel()
        place.continuation?.resume(throwing: reason)
    }

    /// The turn is over: the next has it.
    private func pass(_ app: String) {
        guard let next = lines[app]?.first else {
            lines[app] = nil
            return
        }
        lines[app]?.removeFirst()
        next.timer?.cancel()
        next.continuation?.resume()
    }
}
