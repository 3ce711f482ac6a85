import Testing

@testable import EventLoop

/// A store, its clock and a cache of it. Confined to the loop.
private final class Shelf: @unchecked Sendable {
    struct Away: Error {}

    private(set) lazy var cache = Cache<Int>(
        .init(fresh: .seconds(5), stale: stale),
        of: .init(
            isAway: { [unowned self] in isAway },
            isTransient: { $0 is Away },
            tooLate: Away()
        ),
        on: loop
    ) { [unowned self] in start + .seconds(seconds) }
    var value: Int? = 1
    var isAway = false
    var isFailing = false
    private(set) var reads = 0
    private let start = ContinuousClock.now
    private var seconds = 0
    private var held: [CheckedContinuation<Void, Never>]?

    private let loop: EventLoop
    private let stale: Duration

    init(_ loop: EventLoop, stale: Duration) {
        self.loop = loop
        self.stale = stale
    }

    func wait(seconds: Int) { self.seconds += seconds }

    /// Makes reads wait until `release`.
    func hold() { held = [] }

    func release() {
        let waiting = held ?? []
        held = nil
        for reading in waiting { reading.resume() }
    }

    nonisolated(nonsending) func find() async throws -> Int? {
        try await cache.value("key") { [self] _ in
            reads += 1
            let value = value
            if held != nil { await withCheckedContinuation { held?.append($0) } }
            if isFailing { throw Away() }
            return value
        }
    }
}

@Suite("Cache of values from a store", .timeLimit(.minutes(1)))
struct CacheTests {
    private func onLoop(
        stale: Duration = .zero,
        _ body: @escaping @Sendable (Shelf) async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "cache")
        let work = Task(executorPreference: loop) { try await body(Shelf(loop, stale: stale)) }
        let result = await work.result
        await loop.stop()
        try result.get()
    }

    private func expect(
        _ value: Int?,
        of shelf: Shelf,
        _ place: SourceLocation = #_sourceLocation
    ) async throws {
        let found = try await shelf.find()
        #expect(found == value, sourceLocation: place)
    }

    @Test("A value is used while it is fresh, and is read again after that")
    func freshness() async throws {
        try await onLoop { shelf in
            #expect(shelf.cache.remembered("key") == nil)
            try await expect(1, of: shelf)
            shelf.value = 2
            shelf.wait(seconds: 4)
            try await expect(1, of: shelf)
            #expect(shelf.cache.remembered("key") == 1)
            shelf.wait(seconds: 1)
            #expect(shelf.cache.remembered("key") == nil)
            try await expect(2, of: shelf)
            #expect(shelf.reads == 2)
        }
    }

    @Test("A missing value is cached for a moment, and until a change")
    func absence() async throws {
        try await onLoop { shelf in
            shelf.value = nil
            try await expect(nil, of: shelf)
            #expect(shelf.cache.isMissing("key"))
            shelf.value = 3
            try await expect(nil, of: shelf)
            shelf.cache.changed(["key"])
            try await expect(3, of: shelf)
            #expect(shelf.reads == 2)
        }
    }

    @Test("Concurrent callers share a read, unless it began before a change")
    func sharing() async throws {
        try await onLoop { shelf in
            shelf.hold()
            async let first = shelf.find()
            async let second = shelf.find()
            while shelf.reads < 1 { await Task.yield() }
            shelf.value = 2
            shelf.cache.changed(nil)
            async let third = shelf.find()
            while shelf.reads < 2 { await Task.yield() }
            shelf.release()
            let answers = try await [first, second, third]
            #expect(answers == [1, 1, 2])
            // A value that was read before the change is not cached after it.
            #expect(shelf.cache.remembered("key") == 2)
            #expect(shelf.reads == 2)
        }
    }

    @Test("While the store is unavailable a stale value is used, up to its bound")
    func staleness() async throws {
        try await onLoop(stale: .seconds(60)) { shelf in
            try await expect(1, of: shelf)
            shelf.isFailing = true
            shelf.wait(seconds: 10)
            try await expect(1, of: shelf)
            // The store is known to be unavailable: it is not asked for each call.
            try await expect(1, of: shelf)
            #expect(shelf.reads == 2)
            shelf.isAway = true
            shelf.wait(seconds: 40)
            #expect(shelf.cache.remembered("key") == 1)
            shelf.wait(seconds: 10)
            #expect(shelf.cache.remembered("key") == nil)
            await #expect(throws: Shelf.Away.self) { try await shelf.find() }
            shelf.isFailing = false
            shelf.value = 4
            try await expect(4, of: shelf)
        }
    }

    @Test("A value that must not be stale is never used when its read fails")
    func noStaleness() async throws {
        try await onLoop { shelf in
            try await expect(1, of: shelf)
            shelf.wait(seconds: 6)
            shelf.isFailing = true
            shelf.isAway = true
            await #expect(throws: Shelf.Away.self) { try await shelf.find() }
        }
    }
}
