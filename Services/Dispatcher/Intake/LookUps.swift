import EventLoop
import PushCore
import PushStorage
import Storage

/// Decides how many waiting pushes are looked up now. Pure: no clock, no I/O.
///
/// An idle process looks up at once. A busy one looks up what has arrived when its last look-up
/// returns, and a moment after that began: the higher the load, the larger the look-up, and the less
/// each push costs.
enum IntakePace {
    /// The weight of one look-up: its reply is read in one turn of the loop.
    static let limit = 500
    /// The least milliseconds from one look-up's beginning to the next one's. At 2,000 pushes a second
    /// this takes a fourth of Postgres' time off, and an eighth of the dispatcher's.
    static let spacing: Int64 = 3
    /// The number of devices that weigh as much as one push.
    private static let devicesOfOne = 8

    /// - Parameter devices: The number of devices that a push names.
    /// - Returns: The weight of the push in a look-up.
    static func weight(devices: Int) -> Int {
        max(1, (devices + devicesOfOne - 1) / devicesOfOne)
    }

    /// - Parameters:
    ///   - waiting: The weight of the pushes that wait.
    ///   - underWay: The number of look-ups in flight.
    ///   - age: The milliseconds since the last look-up began.
    /// - Returns: The maximum weight of a look-up that begins now; 0 if the pushes must wait.
    static func take(of waiting: Int, underWay: Int, age: Int64) -> Int {
        switch underWay {
        case 0 where age >= spacing || waiting >= limit: min(waiting, limit)
        case 1 where waiting >= limit: limit
        default: 0
        }
    }
}

/// Looks up the pushes of many batches together. A batch with a push that names its devices by a
/// field is looked up by itself: it may take up to the statement timeout, and the others do not
/// wait for it.
@DispatchLoop
final class LookUps {
    typealias LookUp = @DispatchLoop ([NewPush]) async throws -> [LookedUpPush]

    private struct Entry {
        let pushes: [NewPush]
        let weight: Int
        let waiter: CheckedContinuation<[LookedUpPush], any Error>
    }

    private let clock: @DispatchLoop () -> MonotonicInstant
    private let lookUp: LookUp
    private var entries: [Entry] = []
    /// The weight of `entries`.
    private var waiting = 0
    private var underWay = 0
    private var begunAt = MonotonicInstant.earliest
    private var timer: LoopTimer?

    /// - Parameters:
    ///   - clock: Returns the time.
    ///   - lookUp: Looks up pushes; its argument has no push twice.
    init(
        clock: @escaping @DispatchLoop () -> MonotonicInstant = { .now() },
        _ lookUp: @escaping LookUp
    ) {
        self.clock = clock
        self.lookUp = lookUp
    }

    /// - Parameter pushes: The pushes; none of them is being looked up already.
    /// - Returns: The results, in the order of the pushes.
    /// - Throws: The errors of `lookUp`. An error of the values is thrown only if it is caused by
    ///   this batch.
    func callAsFunction(_ pushes: [NewPush]) async throws -> [LookedUpPush] {
        if pushes.contains(where: \.namesByField) { return try await lookUp(pushes) }
        let weight = pushes.reduce(0) { $0 + IntakePace.weight(devices: $1.namedCount) }
        return try await withCheckedThrowingContinuation { waiter in
            entries.append(Entry(pushes: pushes, weight: weight, waiter: waiter))
            waiting += weight
            begin()
        }
    }

    /// Begins a look-up, if it is time for one.
    private func begin() {
        let now = clock()
        let age = now.milliseconds(since: begunAt)
        let limit = IntakePace.take(of: waiting, underWay: underWay, age: age)
        guard limit > 0 else {
            if waiting > 0, underWay == 0 { beginLater(age) }
            return
        }
        begunAt = now
        var (taken, weight) = (0, 0)
        for entry in entries {
            guard taken == 0 || weight + entry.weight <= limit else { break }
            taken += 1
            weight += entry.weight
        }
        let batches = Array(entries.prefix(taken))
        entries.removeFirst(taken)
        waiting -= weight
        underWay += 1
        DispatchLoop.task {
            await self.perform(batches)
            self.underWay -= 1
            self.begin()
        }
    }

    private func beginLater(_ age: Int64) {
        guard timer == nil else { return }
        let wait = Duration.milliseconds(max(1, IntakePace.spacing - age))
        timer = DispatchLoop.loop.schedule(after: wait) { [weak self] in
            self?.timer = nil
            self?.begin()
        }
    }

    private func perform(_ entries: [Entry]) async {
        do {
            var found = try await lookUp(entries.flatMap(\.pushes))[...]
            for entry in entries {
                entry.waiter.resume(returning: Array(found.prefix(entry.pushes.count)))
                found = found.dropFirst(entry.pushes.count)
            }
        } catch let error as StorageError where error.isOfTheValues && entries.count > 1 {
            // The values of one batch must not fail the others.
            for entry in entries { await perform([entry]) }
        } catch {
            for entry in entries { entry.waiter.resume(throwing: error) }
        }
    }
}
