import EventLoop
import Glibc
import Testing

/// An actor on the loop that reports where its code runs.
private actor Resident {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }
    private var calls: [String] = []

    init(on loop: EventLoop) { self.loop = loop }

    func call(_ name: String) -> Bool {
        calls.append(name)
        return loop.isCurrent
    }

    func seen() -> [String] { calls }

    /// Writes to a pipe in one callback and reads from it in another.
    func roundTripThroughPipe() async -> UInt8 {
        var ends: [Int32] = [0, 0]
        unsafe pipe(&ends)
        let (reader, writer) = (ends[0], ends[1])
        let byte: UInt8 = await withCheckedContinuation { continuation in
            let watch = loop.watch(reader) { _ in
                var byte: UInt8 = 0
                unsafe read(reader, &byte, 1)
                continuation.resume(returning: byte)
            }
            watch.interest = .readable
            loop.schedule(after: .milliseconds(1)) {
                var byte: UInt8 = 42
                unsafe write(writer, &byte, 1)
                // The watch is closed before its descriptor, from outside its callback.
                self.loop.schedule(after: .milliseconds(20)) {
                    watch.close()
                    close(reader)
                    close(writer)
                }
            }
        }
        return byte
    }

    func endOfTurnOrder() async -> [String] {
        await withCheckedContinuation { continuation in
            loop.atEndOfTurn {
                self.calls.append("flush")
                continuation.resume(returning: self.calls)
            }
            loop.execute { self.assumeIsolated { $0.calls.append("job") } }
        }
    }
}

private func withLoop<Value: Sendable>(
    _ body: @Sendable (EventLoop) async throws -> Value
) async throws -> Value {
    let loop = try EventLoop(name: "test")
    do {
        let value = try await body(loop)
        await loop.stop()
        return value
    } catch {
        await loop.stop()
        throw error
    }
}

@Suite(.timeLimit(.minutes(1)))
struct EventLoopTests {
    @Test("An actor of the loop runs on the loop's thread")
    func actorsRunOnTheirLoop() async throws {
        try await withLoop { loop in
            let resident = Resident(on: loop)
            #expect(!loop.isCurrent)
            #expect(await resident.call("a"))
            #expect(EventLoop.current == nil)
        }
    }

    @Test("A task that prefers the loop stays on it, also across a sleep")
    func preferringTasksStay() async throws {
        try await withLoop { loop in
            let places = await Task(executorPreference: loop) {
                var places = [loop.isCurrent]
                try? await loop.sleep(for: .milliseconds(5))
                places.append(loop.isCurrent)
                let ranElsewhere = try? await loop.blocking { !loop.isCurrent }
                places.append(ranElsewhere == true)
                places.append(loop.isCurrent)
                return places
            }.value
            #expect(places == [true, true, true, true])
        }
    }

    @Test("A readable descriptor wakes its watch")
    func descriptorsWake() async throws {
        try await withLoop { loop in
            #expect(await Resident(on: loop).roundTripThroughPipe() == 42)
        }
    }

    @Test("End-of-turn callbacks run after the jobs of the turn")
    func endOfTurnComesLast() async throws {
        try await withLoop { loop in
            #expect(await Resident(on: loop).endOfTurnOrder() == ["job", "flush"])
        }
    }

    @Test("A cancelled sleep ends at once")
    func sleepIsCancelled() async throws {
        try await withLoop { loop in
            let sleeper = Task { try await loop.sleep(for: .seconds(3600)) }
            sleeper.cancel()
            await #expect(throws: CancellationError.self) { try await sleeper.value }
        }
    }

    @Test("A stop ends the sleep of a task that was not cancelled, and later sleeps end at once")
    func stopEndsSleep() async throws {
        let errors = try await withLoop { loop in
            await withCheckedContinuation {
                (asleep: CheckedContinuation<Task<Int, Never>, Never>) in
                loop.execute {
                    let sleeper = Task.immediate(executorPreference: loop) {
                        var errors = 0
                        for _ in 0..<2 {
                            do { try await loop.sleep(for: .seconds(3600)) } catch { errors += 1 }
                        }
                        return errors
                    }
                    asleep.resume(returning: sleeper)
                }
            }
        }
        #expect(await errors.value == 2)
    }

    @Test("Jobs from many threads all run, and a stop leaves no job behind")
    func nothingIsLost() async throws {
        let resident = try await withLoop { loop in
            let resident = Resident(on: loop)
            await withTaskGroup { group in
                for number in 0..<64 {
                    group.addTask {
                        for turn in 0..<100 { _ = await resident.call("\(number)/\(turn)") }
                    }
                }
            }
            #expect(await resident.seen().count == 6400)
            return resident
        }
        #expect(!resident.loop.isCurrent)
    }

    @Test("A stop closes open watches and timers")
    func stopClosesHandles() async throws {
        var ends: [Int32] = [0, 0]
        #expect(unsafe pipe(&ends) == 0)
        defer { for end in ends { close(end) } }
        let end = ends[0]
        try await withLoop { loop in
            await withCheckedContinuation { continuation in
                loop.execute {
                    loop.schedule(after: .seconds(3600), every: .seconds(1)) {}
                    loop.watch(end) { _ in }.close()
                    continuation.resume()
                }
            }
        }
    }

    @Test("An error of the body is thrown from a blocking call")
    func blockingThrows() async throws {
        try await withLoop { loop in
            _ = await #expect(throws: CancellationError.self) {
                try await loop.blocking { throw CancellationError() }
            }
        }
    }

    @Test func aTurnThatIsTooLongIsTold() async throws {
        let loop = try EventLoop(name: "test")
        let (turns, told) = AsyncStream.makeStream(of: Duration.self)
        loop.watchTurns(longerThan: .milliseconds(50)) { told.yield($0) }
        // Many short turns come first, then one that blocks.
        for _ in 0..<20 { try await loop.sleep(for: .milliseconds(1)) }
        loop.execute { usleep(120_000) }
        var first: Duration?
        for await turn in turns {
            first = turn
            break
        }
        let turn = try #require(first)
        #expect(turn >= .milliseconds(115))
        await loop.stop()
    }

    /// Starting a timer updates the clock of libuv.
    @Test func aTurnThatStartsATimerIsTimedFromItsBeginning() async throws {
        try await expectTurn(of: .milliseconds(115), descriptors: 1) { loop in
            usleep(120_000)
            loop.schedule(after: .seconds(3600)) {}
        }
    }

    /// libuv polls again and updates its clock after it has returned 1024 descriptors.
    @Test func aTurnOfMoreDescriptorsThanLibuvTakesAtOnceIsTimedFromItsBeginning() async throws {
        var limit = rlimit()
        let number = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        #expect(unsafe getrlimit(number, &limit) == 0)
        let before = limit
        limit.rlim_cur = max(limit.rlim_cur, min(limit.rlim_max, 16_384))
        unsafe setrlimit(number, &limit)
        defer {
            var before = before
            unsafe setrlimit(number, &before)
        }
        try await expectTurn(of: .milliseconds(190), descriptors: 1040) { _ in usleep(200) }
    }

    /// Makes each of the descriptors ready in the same turn; its callback runs `body` once.
    private func expectTurn(
        of least: Duration,
        descriptors: Int,
        _ body: @escaping @Sendable (EventLoop) -> Void
    ) async throws {
        let loop = try EventLoop(name: "test")
        let (turns, told) = AsyncStream.makeStream(of: Duration.self)
        // They have a byte in them, so they are readable from the start.
        let pipes = (0..<descriptors).map { _ in
            var ends: [Int32] = [0, 0]
            var byte: UInt8 = 1
            #expect(unsafe pipe(&ends) == 0 && write(ends[1], &byte, 1) == 1)
            return (ends[0], ends[1])
        }
        loop.watchTurns(longerThan: .milliseconds(50)) { told.yield($0) }
        loop.execute {
            for (reader, _) in pipes {
                var watch: DescriptorWatch?
                watch = loop.watch(reader) { _ in
                    watch?.close()
                    watch = nil
                    body(loop)
                }
                watch?.interest = .readable
            }
        }
        // The turn that made the watches may be reported, too.
        for await turn in turns where turn >= least { break }
        await loop.stop()
        for (reader, writer) in pipes {
            close(reader)
            close(writer)
        }
    }
}
