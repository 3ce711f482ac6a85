import EventLoop
import Glibc
import Synchronization
import Testing

/// Two of these are on one loop, or on two.
private actor Counter {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }
    private(set) var count = 0

    init(on loop: EventLoop) { self.loop = loop }

    func increment() -> Int {
        count += 1
        return count
    }

    /// Makes a hundred calls and returns the queue trips of its loop meanwhile.
    func tripsOfCalls(to other: Counter) async -> Int {
        let before = loop.queueTrips
        for _ in 0..<100 { _ = await other.increment() }
        return loop.queueTrips - before
    }
}

private func helper(_ loop: EventLoop) async -> Bool { loop.isCurrent }

private func stop(_ loops: EventLoop...) async {
    for loop in loops { await loop.stop() }
}

/// The project depends on these: how jobs run, how thousands wait, how a loop ends.
@Suite("Promises of a loop", .timeLimit(.minutes(2)))
struct PromiseTests {
    @Test("A hop within a loop costs no queue trip")
    func hopsAreFree() async throws {
        let loop = try EventLoop(name: "hops")
        let (one, other) = (Counter(on: loop), Counter(on: loop))
        let trips = await Task(executorPreference: loop) { await one.tripsOfCalls(to: other) }.value
        #expect(trips == 0)
        #expect(await other.count == 100)
        await stop(loop)
    }

    @Test(
        "A helper or an immediate task costs no queue trip, a child task does, and all stay on the loop"
    )
    func helpersAreFree() async throws {
        let loop = try EventLoop(name: "helpers")
        let (free, children, places) = await Task(executorPreference: loop) {
            let start = loop.queueTrips
            var places = [await helper(loop)]
            let immediate = Task.immediate(executorPreference: loop) { loop.isCurrent }
            let free = loop.queueTrips - start
            places.append(await immediate.value)
            let before = loop.queueTrips
            for _ in 0..<10 {
                async let child = helper(loop)
                places.append(await child)
            }
            return (free, loop.queueTrips - before, places)
        }.value
        #expect(free == 0)
        // There are five each with Swift 6.3, where an immediate task is cheaper.
        #expect(children >= 10)
        #expect(places == Array(repeating: true, count: 12))
        await stop(loop)
    }

    @Test("A hop to another loop and back costs each one trip")
    func hopsBetweenLoops() async throws {
        let (here, there) = (try EventLoop(name: "here"), try EventLoop(name: "there"))
        let (one, other) = (Counter(on: here), Counter(on: there))
        let trips = await Task(executorPreference: here) { await one.tripsOfCalls(to: other) }.value
        // This also shows that trips are counted.
        #expect(trips >= 100)
        #expect(trips < 250)
        #expect(await other.count == 100)
        await stop(here, there)
    }

    @Test("Loops of one process do not block each other")
    func loopsAreIndependent() async throws {
        let loops = try (0..<4).map { try EventLoop(name: "loop-\($0)") }
        // The first is blocked for as long as the others work.
        let gate = Gate()
        loops[0].execute { gate.wait() }
        for loop in loops.dropFirst() {
            let counter = Counter(on: loop)
            for _ in 0..<10 { _ = await counter.increment() }
            try await loop.sleep(for: .milliseconds(1))
            #expect(await counter.count == 10)
        }
        gate.open()
        for loop in loops { await loop.stop() }
        #expect(loops.allSatisfy { !$0.hasLeftovers })
    }

    @Test("Ten thousand sleepers share one timer, and each wakes at its time")
    func sleepersShareATimer() async throws {
        let loop = try EventLoop(name: "sleepers")
        let clock = ContinuousClock()
        let (handles, early) = await Task(executorPreference: loop) {
            let before = loop.openHandles
            // The later ones are due earlier, ten of them at a time.
            let tasks = (0..<10_000).map { index in
                let wait = Duration.milliseconds(100 + (9_999 - index) / 10)
                return Task.immediate(executorPreference: loop) {
                    let start = clock.now
                    try? await loop.sleep(for: wait)
                    return clock.now - start < wait
                }
            }
            let handles = loop.openHandles - before
            var early = 0
            for task in tasks { early += await task.value ? 1 : 0 }
            return (handles, early)
        }.value
        #expect(handles == 1)
        #expect(early == 0)
        await stop(loop)
    }

    @Test("Cancelled sleepers leave nothing behind, and the other sleepers still wake")
    func cancelledSleepersLeaveNothing() async throws {
        let loop = try EventLoop(name: "cancelled")
        let (kept, cancelled, left) = await Task(executorPreference: loop) {
            let keeper = Task.immediate(executorPreference: loop) {
                (try? await loop.sleep(for: .milliseconds(200))) != nil
            }
            var cancelled = 0
            for round in 0..<20 {
                let tasks = (0..<100).map { index in
                    Task.immediate(executorPreference: loop) {
                        do {
                            try await loop.sleep(for: .seconds(3600 + 100 * round + index))
                            return 0
                        } catch {
                            return 1
                        }
                    }
                }
                for task in tasks { task.cancel() }
                for task in tasks { cancelled += await task.value }
            }
            return (await keeper.value, cancelled, loop.sleeperCount)
        }.value
        #expect(kept)
        #expect(cancelled == 2000)
        #expect(left == 0)
        await stop(loop)
    }

    @Test("A stop unregisters everything")
    func stopLeavesNothing() async throws {
        var ends: [Int32] = [0, 0]
        #expect(unsafe pipe(&ends) == 0)
        defer { for end in ends { close(end) } }
        let (reader, writer) = (ends[0], ends[1])
        let loop = try EventLoop(name: "leftovers")
        let told = Tally()
        let handles = await withCheckedContinuation { continuation in
            loop.execute {
                let before = loop.openHandles
                _ = loop.watch(reader) { _ in }
                loop.watch(writer) { _ in }.interest = .disconnected
                loop.schedule(after: .seconds(3600)) {}
                loop.schedule(after: .seconds(3600), every: .seconds(1)) {}
                _ = loop.onSignal(SIGWINCH) {}
                _ = try? TCPListener(host: "127.0.0.1", port: 0, on: loop) { $0.close() }
                for _ in 0..<100 {
                    _ = Task.immediate(executorPreference: loop) {
                        do {
                            try await loop.sleep(for: .seconds(3600))
                        } catch {
                            told.increment()
                        }
                    }
                }
                continuation.resume(returning: loop.openHandles - before)
            }
        }
        // All the sleepers share one.
        #expect(handles == 7)
        await stop(loop)
        #expect(!loop.hasLeftovers)
        #expect(told.value == 100)
    }

    @Test("A task that keeps hopping during a stop gets to its end, and the stop ends")
    func stopLetsHopsEnd() async throws {
        let loop = try EventLoop(name: "hopper")
        let ended = Tally()
        let task = Task(executorPreference: loop) {
            try? await loop.sleep(for: .seconds(3600))
            // These are more than the rounds of one drain.
            for _ in 0..<100 { await Task.yield() }
            ended.increment()
        }
        await untilSomebodySleeps(on: loop)
        await stop(loop)
        await task.value
        #expect(ended.value == 1)
        #expect(!loop.hasLeftovers)
    }

    @Test("A task that opens handles, blocks or sleeps during a stop still ends")
    func stopEndsWhatBeginsDuringIt() async throws {
        let loop = try EventLoop(name: "beginner")
        let told = Tally()
        let task = Task(executorPreference: loop) {
            while !Task.isCancelled { try? await loop.sleep(for: .seconds(3600)) }
            loop.schedule(after: .zero, every: .milliseconds(1)) {}
            for _ in 0..<100 { await Task.yield() }
            loop.schedule(after: .zero, every: .milliseconds(1)) {}
            for _ in 0..<3 {
                if (try? await loop.blocking { usleep(1000) }) != nil { told.increment() }
            }
        }
        await untilSomebodySleeps(on: loop)
        await stop(loop)
        await task.value
        #expect(told.value == 3)
        #expect(!loop.hasLeftovers)
    }

    private func untilSomebodySleeps(on loop: EventLoop) async {
        while await Task(executorPreference: loop, operation: { loop.sleeperCount }).value == 0 {
            await Task.yield()
        }
    }

    @Test("A timer beyond the range of time never fires")
    func timersWithoutAnEnd() async throws {
        let loop = try EventLoop(name: "for-ever")
        let told = Tally()
        await Task(executorPreference: loop) {
            _ = loop.schedule(after: .seconds(Int64.max), every: .seconds(Int64.max)) {
                told.increment()
            }
        }.value
        try await loop.sleep(for: .milliseconds(5))
        await stop(loop)
        #expect(told.value == 0)
    }

    @Test("Short turns are not reported, however many there are")
    func shortTurnsAreNotTold() async throws {
        let loop = try EventLoop(name: "short")
        let told = Tally()
        // The bound is generous, as the machine may be busy: the turns take microseconds.
        loop.watchTurns(longerThan: .seconds(20)) { _ in told.increment() }
        for _ in 0..<50 { try await loop.sleep(for: .milliseconds(1)) }
        await stop(loop)
        #expect(told.value == 0)
    }
}

/// Blocks a thread until it is opened.
private final class Gate: Sendable {
    private let isOpen = Atomic<Bool>(false)

    func wait() { while !isOpen.load(ordering: .acquiring) { usleep(1000) } }

    func open() { isOpen.store(true, ordering: .releasing) }
}

private final class Tally: Sendable {
    private let count = Atomic<Int>(0)

    var value: Int { count.load(ordering: .relaxed) }

    func increment() { count.add(1, ordering: .relaxed) }
}
