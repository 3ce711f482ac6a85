import Synchronization
import Testing

@testable import EventLoop

/// Events in their order. Confined to the loop.
private final class Diary: @unchecked Sendable {
    private(set) var lines: [String] = []

    func note(_ line: String) { lines.append(line) }
}

@Suite("Fair turns of owners on a loop", .timeLimit(.minutes(1)))
struct FairTurnsTests {
    @Test("Owners take turns one after the other, each in its own order")
    func line() {
        var line = FairLine<Int>()
        for number in 1...3 { line.append(number, of: "a") }
        line.append(4, of: "b")
        line.append(5, of: "c")
        line.append(6, of: "b")
        line.remove(of: "c") { $0 == 5 }
        line.remove(of: "a") { $0 == 2 }
        #expect(line.count(of: "a") == 2 && line.count(of: "c") == 0)
        var order: [Int] = []
        while let next = line.popFirst() { order.append(next) }
        #expect(order == [1, 4, 3, 6])
        #expect(line.isEmpty)
    }

    @Test("An owner that may not go next is passed over, and keeps its place and its order")
    func passedOver() {
        var line = FairLine<Int>()
        line.append(1, of: "a")
        line.append(2, of: "a")
        line.append(3, of: "b")
        let next = line.first { owner, element in owner != "a" && element == 3 }
        #expect(next?.owner == "b" && next?.element == 3)
        #expect(line.popFirst(of: "b") == 3 && line.popFirst(of: "b") == nil)
        #expect(line.first { owner, _ in owner != "a" } == nil)
        #expect(line.popFirst() == 1 && line.popFirst() == 2 && line.isEmpty)
    }

    @Test("The work of one owner waits for its own, and that of another owner for only one slice")
    func turns() async throws {
        let loop = try EventLoop(name: "turns")
        let diary = Diary()
        let turns = FairTurns(on: loop)
        await withTaskGroup(of: Void.self) { group in
            for owner in ["a", "a", "a", "b"] {
                group.addTask(executorPreference: loop) {
                    for _ in 0..<2 {
                        try? await turns.next(owner)
                        diary.note(owner)
                    }
                }
            }
        }
        #expect(diary.lines.count == 8)
        // Whenever b waits, it has the first turn or the one after it.
        #expect(diary.lines.prefix(4).count { $0 == "b" } == 2, "\(diary.lines)")
        await loop.stop()
    }

    @Test("New work begins at once, or waits within bounds if its owner has work waiting")
    func begin() async throws {
        let loop = try EventLoop(name: "turns")
        var bounds = FairTurns.Bounds()
        bounds.pause = .seconds(3600)
        bounds.waiting = 1
        let turns = FairTurns(on: loop, within: bounds)
        let task = Task(executorPreference: loop) {
            try await turns.begin("a")
            #expect(!turns.isBusy("a"))
            let waiting = Task.immediate(executorPreference: loop) { try await turns.next("a") }
            #expect(turns.isBusy("a") && !turns.isBusy("b"))
            try await turns.begin("b")
            await #expect(throws: FairTurnsFull.self) { try await turns.begin("a") }
            waiting.cancel()
            await #expect(throws: CancellationError.self) { try await waiting.value }
            #expect(!turns.isBusy("a"))
            try await turns.begin("a")
        }
        try await task.value
        await loop.stop()
    }

    @Test("Work that waits too long to begin is refused, to be retried")
    func patience() async throws {
        let loop = try EventLoop(name: "turns")
        var bounds = FairTurns.Bounds()
        bounds.pause = .seconds(3600)
        bounds.timeLimit = .milliseconds(1)
        let turns = FairTurns(on: loop, within: bounds)
        let task = Task(executorPreference: loop) {
            let waiting = Task.immediate(executorPreference: loop) { try await turns.next("a") }
            await #expect(throws: FairTurnsFull.self) { try await turns.begin("a") }
            #expect(turns.waitingCount(of: "a") == 1)
            waiting.cancel()
            _ = try? await waiting.value
        }
        await task.value
        await loop.stop()
    }

    @Test("Blocking work runs two at a time, and one owner's queue does not delay another")
    func pool() async throws {
        let loop = try EventLoop(name: "pool")
        let pool = FairPool(on: loop)
        let all = Gate()
        let others = Gate()
        let task = Task(executorPreference: loop) {
            await withTaskGroup(of: Void.self) { group in
                for number in 0..<6 {
                    group.addImmediateTask(executorPreference: loop) {
                        try? await pool.run(of: "a") { (number < 2 ? all : others).pass() }
                    }
                }
                group.addImmediateTask(executorPreference: loop) {
                    try? await pool.run(of: "b") { others.open() }
                }
                #expect(pool.waitingCount(of: "a") == 4 && pool.waitingCount(of: "b") == 1)
                all.open()
                // b has one of the two places that become free. If both were given to a's work, it
                // would block them for b, so the gate ends that.
                while !others.isOpen && others.waitingCount < 2 { await Task.yield() }
                let isFair = others.isOpen
                others.open()
                #expect(isFair, "b waits for two pieces of a's work")
            }
        }
        await task.value
        await loop.stop()
    }
}

/// Blocks threads until it is open.
private final class Gate: Sendable {
    private let opened = Atomic<Bool>(false)
    private let waiting = Atomic<Int>(0)

    var isOpen: Bool { opened.load(ordering: .acquiring) }

    /// The threads that wait or have waited.
    var waitingCount: Int { waiting.load(ordering: .acquiring) }

    func open() { opened.store(true, ordering: .releasing) }

    func pass() {
        waiting.add(1, ordering: .acquiringAndReleasing)
        while !isOpen {}
    }
}
