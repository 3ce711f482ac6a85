import EventLoop
import HTTPServer

/// A queue of publishes, which run one at a time for each app. They wait here, so that they do not
/// occupy connections to Postgres that others need. First in, first out. Confined to its loop.
///
/// Bounded: each waiting publish holds a template, so their number and their waiting time are limited for
/// each app. A refused client repeats its request.
final class PublishQueue: @unchecked Sendable {
    struct Bounds: Sendable {
        /// The limit of waiting publishes of one app, behind the running one.
        var waiting = 32
        var timeLimit = Duration.seconds(5)
    }

    /// A waiting publish. A cancellation may come before the continuation.
    private final class Place: @unchecked Sendable {
        var continuation: CheckedContinuation<Void, any Error>?
        var timer: LoopTimer?
        var isCancelled = false
    }

    private let loop: EventLoop
    private let bounds: Bounds
    /// The waiting publishes of each app, in order; an app without an entry has no running publish.
    private var lines: [String: [Place]] = [:]

    init(on loop: EventLoop, within bounds: Bounds = Bounds()) {
        self.loop = loop
        self.bounds = bounds
    }

    /// Waits for the app's turn and runs the body. A running body continues even if its caller has gone.
    ///
    /// - Returns: The result of the body.
    /// - Throws: `ConfigUnavailable` if too many wait or it takes too long; `CancellationError` if the task
    ///   was cancelled or the caller has gone before its turn; the error of the body.
    func take<Value>(
        of app: String,
        for caller: ClientPresence,
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

    /// Returns the number of publishes that wait for the app's turn.
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
        place.timer = loop.schedule(after: bounds.timeLimit) { [self] in
            leave(place, app, ConfigUnavailable())
        }
        lines[app]?.append(place)
    }

    private func cancel(_ place: Place, _ app: String) {
        place.isCancelled = true
        leave(place, app, CancellationError())
    }

    /// Ends the wait with an error. Does nothing if the turn has come.
    private func leave(_ place: Place, _ app: String, _ reason: any Error) {
        guard let index = lines[app]?.firstIndex(where: { $0 === place }) else { return }
        lines[app]?.remove(at: index)
        place.timer?.cancel()
        place.continuation?.resume(throwing: reason)
    }

    /// Ends a turn and starts the next one.
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
