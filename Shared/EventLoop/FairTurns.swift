/// Too much work of this owner waits for its turn: retry later.
package struct FairTurnsFull: Error, Equatable {
    package static let retryAfterSeconds = 2

    package init() {}
}

/// Shares a loop's time between owners whose work takes long. Confined to its loop.
///
/// Long work is done in slices, and waits for its turn before each slice except the first. One
/// slice runs at a time, the owners take turns, and the loop turns between two slices. So work that
/// fits into a slice waits for at most one slice, however much another owner requests. New work of
/// an owner that already waits does not start at once.
///
/// Bounded: the waiting work of an owner is limited in number and in time. Work that has begun
/// continues until it is done.
package final class FairTurns: @unchecked Sendable {
    package struct Bounds: Sendable {
        /// How long work may run before it waits again.
        package var slice = Duration.milliseconds(2)
        /// The delay between two slices. A turn of the loop must pass: a task that only yields runs
        /// again before any descriptor.
        package var pause = Duration.milliseconds(1)
        /// How much work of one owner may wait.
        package var waiting = 256
        /// How long work may wait to begin.
        package var timeLimit = Duration.seconds(5)

        package init() {}
    }

    /// A waiting piece of work. A cancellation may come before the continuation.
    private final class Place: @unchecked Sendable {
        var continuation: CheckedContinuation<Void, any Error>?
        var timer: LoopTimer?
        var isCancelled = false
    }

    package let bounds: Bounds
    private let loop: EventLoop
    private var line = FairLine<Place>()
    private var timer: LoopTimer?

    package init(on loop: EventLoop, within bounds: Bounds = Bounds()) {
        self.loop = loop
        self.bounds = bounds
    }

    /// Whether work of the owner waits, so that its new work must wait, too.
    package func isBusy(_ owner: String) -> Bool { line.count(of: owner) > 0 }

    package func waitingCount(of owner: String) -> Int { line.count(of: owner) }

    /// Returns at once if no work of the owner waits, else at its turn.
    ///
    /// - Throws: `FairTurnsFull` if too much waits or it takes too long; `CancellationError`.
    package func begin(_ owner: String) async throws {
        loop.checkIsolated()
        guard isBusy(owner) else { return }
        guard line.count(of: owner) < bounds.waiting else { throw FairTurnsFull() }
        try await wait(owner, timeLimit: bounds.timeLimit)
    }

    /// Waits for the next slice of work that has begun.
    ///
    /// - Throws: `CancellationError`.
    package func next(_ owner: String) async throws {
        loop.checkIsolated()
        try await wait(owner, timeLimit: nil)
    }

    private func wait(_ owner: String, timeLimit: Duration?) async throws {
        let (place, loop) = (Place(), loop)
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                queue(place, owner, timeLimit, continuation)
            }
        } onCancel: {
            loop.execute {
                place.isCancelled = true
                self.leave(place, owner, CancellationError())
            }
        }
    }

    private func queue(
        _ place: Place,
        _ owner: String,
        _ timeLimit: Duration?,
        _ continuation: CheckedContinuation<Void, any Error>
    ) {
        if place.isCancelled { return continuation.resume(throwing: CancellationError()) }
        place.continuation = continuation
        if let timeLimit {
            place.timer = loop.schedule(after: timeLimit) { [self] in
                leave(place, owner, FairTurnsFull())
            }
        }
        line.append(place, of: owner)
        if timer == nil { scheduleTurn() }
    }

    private func leave(_ place: Place, _ owner: String, _ reason: any Error) {
        guard let continuation = place.continuation else { return }
        line.remove(of: owner) { $0 === place }
        place.continuation = nil
        place.timer?.cancel()
        continuation.resume(throwing: reason)
    }

    private func scheduleTurn() {
        timer = loop.schedule(after: bounds.pause) { [self] in
            timer = nil
            guard let place = line.popFirst() else { return }
            place.timer?.cancel()
            let continuation = place.continuation
            place.continuation = nil
            if !line.isEmpty { scheduleTurn() }
            continuation?.resume()
        }
    }
}

/// Long work of one owner, which waits for its turn after each slice.
package struct FairWork {
    private let owner: String
    private let turns: FairTurns
    private var since = ContinuousClock.now

    package init(of owner: String, in turns: FairTurns) {
        self.owner = owner
        self.turns = turns
    }

    /// - Throws: `CancellationError`.
    package mutating func yieldIfDue() async throws {
        guard ContinuousClock.now - since > turns.bounds.slice else { return }
        try await turns.next(owner)
        since = .now
    }
}
