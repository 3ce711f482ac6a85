import Testing

@testable import Postgres

@Suite(.timeLimit(.minutes(1)))
struct PipelineTrackerTests {
    private let broken = PostgresError(.server, "no", sqlState: "22012")

    private func told(_ ledger: inout PipelineTracker<String>) throws -> [String: String] {
        let synced = ledger.synced()
        let verdicts = try #require(synced)
        return Dictionary(
            uniqueKeysWithValues: verdicts.map { member, verdict in
                switch verdict {
                case .answered: (member, "answered")
                case .guilty: (member, "guilty")
                case .innocent: (member, "innocent")
                }
            }
        )
    }

    private func receive(_ ledger: inout PipelineTracker<String>, failing: Set<Int>, of count: Int)
    {
        var isAborted = false
        for index in 0..<count {
            if isAborted {
                _ = ledger.received(.aborted)
            } else if failing.contains(index) {
                _ = ledger.received(.failed(broken))
                isAborted = true
            } else {
                _ = ledger.received(.done(.empty))
            }
            ledger.commandEnded()
        }
    }

    @Test("Members of a group are answered at the group's Sync")
    func answersAtSync() throws {
        var ledger = PipelineTracker<String>()
        for member in ["a", "b"] { ledger.sent(.member(member)) }
        ledger.sent(.sync)
        ledger.sent(.member("c"))
        ledger.sent(.sync)
        let early = ledger.synced()
        #expect(early == nil, "the Sync is not due before the answers")
        receive(&ledger, failing: [], of: 2)
        #expect(try told(&ledger) == ["a": "answered", "b": "answered"])
        #expect(!ledger.isEmpty)
        receive(&ledger, failing: [], of: 1)
        #expect(try told(&ledger) == ["c": "answered"])
        #expect(ledger.isEmpty)
    }

    @Test("A failed member is at fault, and the members before and after it are not")
    func oneGuilty() throws {
        var ledger = PipelineTracker<String>()
        for member in ["a", "b", "c"] { ledger.sent(.member(member)) }
        ledger.sent(.sync)
        receive(&ledger, failing: [1], of: 3)
        #expect(try told(&ledger) == ["a": "innocent", "b": "guilty", "c": "innocent"])
    }

    @Test("A failed Parse fails the member that needed it, and is not cached")
    func failedPrepare() throws {
        var ledger = PipelineTracker<String>()
        ledger.sent(.member("a"))
        ledger.sent(.prepare(sql: "selec"))
        ledger.sent(.member("b"))
        ledger.sent(.prepare(sql: "select 2"))
        ledger.sent(.member("c"))
        ledger.sent(.sync)
        _ = ledger.received(.done(.empty))
        ledger.commandEnded()
        #expect(ledger.received(.failed(broken)) == .notPrepared(sql: "selec"))
        ledger.commandEnded()
        _ = ledger.received(.aborted)
        ledger.commandEnded()
        #expect(ledger.received(.aborted) == .notPrepared(sql: "select 2"))
        ledger.commandEnded()
        _ = ledger.received(.aborted)
        ledger.commandEnded()
        #expect(try told(&ledger) == ["a": "innocent", "b": "guilty", "c": "innocent"])
    }

    @Test(
        "A commit that fails at the Sync fails the group, and blames a member only if it is alone"
    )
    func failedCommit() throws {
        for (members, expected) in [
            (["a", "b"], ["a": "innocent", "b": "innocent"]), (["a"], ["a": "guilty"]),
        ] {
            var ledger = PipelineTracker<String>()
            for member in members { ledger.sent(.member(member)) }
            ledger.sent(.sync)
            receive(&ledger, failing: [], of: members.count)
            #expect(ledger.received(.failed(broken)) == .nothing)
            ledger.commandEnded()
            #expect(try told(&ledger) == expected)
        }
    }

    @Test("A broken connection returns every unreported member, answered or not")
    func abandoned() {
        var ledger = PipelineTracker<String>()
        ledger.sent(.member("a"))
        ledger.sent(.member("b"))
        ledger.sent(.sync)
        ledger.sent(.member("c"))
        receive(&ledger, failing: [], of: 1)
        #expect(ledger.abandon() == ["a", "b", "c"])
        #expect(ledger.isEmpty)
    }

    @Test("The server may be working on the oldest group")
    func oldestGroup() {
        var ledger = PipelineTracker<String>()
        ledger.sent(.member("a"))
        ledger.sent(.member("b"))
        ledger.sent(.sync)
        ledger.sent(.member("c"))
        ledger.sent(.sync)
        receive(&ledger, failing: [], of: 1)
        #expect(ledger.isInOldestGroup { $0 == "a" })
        #expect(ledger.isInOldestGroup { $0 == "b" })
        #expect(!ledger.isInOldestGroup { $0 == "c" })
    }

    @Test("An unexpected answer is reported and does not trap")
    func outOfStep() {
        var ledger = PipelineTracker<String>()
        #expect(ledger.received(.done(.empty)) == .outOfStep)
        let nothing = ledger.synced()
        #expect(nothing == nil)
        ledger.sent(.sync)
        #expect(ledger.received(.done(.empty)) == .outOfStep)
    }

    @Test("A long pipeline drops its answered members")
    func staysSmall() throws {
        var ledger = PipelineTracker<String>()
        for round in 0..<5000 {
            ledger.sent(.member("\(round)"))
            ledger.sent(.sync)
            guard round > 0 else { continue }
            receive(&ledger, failing: [], of: 1)
            #expect(try told(&ledger) == ["\(round - 1)": "answered"])
        }
        #expect(ledger.count == 2)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct StatementCacheTests {
    @Test("A statement is prepared once, and beyond the limit the least recently used is evicted")
    func bounded() {
        var cache = StatementCache(limit: 2)
        #expect(cache.use("a") == .new(name: "s1", evicted: []))
        cache.prepared("a")
        #expect(cache.use("b") == .new(name: "s2", evicted: []))
        cache.prepared("b")
        #expect(cache.use("a") == .known(name: "s1"))
        #expect(cache.use("c") == .new(name: "s3", evicted: ["s2"]))
        #expect(cache.count == 2)
    }

    @Test(
        "An array that was null before has another type, and its statement is prepared again"
    )
    func types() {
        var cache = StatementCache(limit: 2)
        #expect(cache.use("a", [0, 0]) == .new(name: "s1", evicted: []))
        cache.prepared("a")
        #expect(cache.use("a", [0, 1016]) == .new(name: "s2", evicted: ["s1"]))
        cache.prepared("a")
        #expect(cache.use("a", [0, 0]) == .known(name: "s2"), "null is of every type")
        #expect(cache.use("a", [0, 1016]) == .known(name: "s2"))
    }

    @Test("A statement whose Parse is in flight is not evicted, as it may still fail")
    func keepsUnprepared() {
        var cache = StatementCache(limit: 1)
        _ = cache.use("a")
        #expect(cache.use("b") == .new(name: "s2", evicted: []))
        #expect(cache.forget("b") == nil)
        cache.prepared("a")
        #expect(cache.forget("a") == "s1")
        #expect(cache.use("a") == .new(name: "s3", evicted: []))
    }
}
