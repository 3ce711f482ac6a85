import PushCore
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("When outcomes are produced and ledger entries written", .timeLimit(.minutes(1)))
struct RecorderQueueTests {
    private typealias Queue = RecorderQueue<Int>

    private func at(_ milliseconds: Int64) -> MonotonicInstant {
        MonotonicInstant(milliseconds: milliseconds)
    }

    /// Makes a queue of `count` entries with an outcome each.
    private func queue(
        _ count: Int,
        _ kind: LedgerEntry.Kind = .pushes,
        outcomes: Int = 1,
        at time: Int64 = 0
    ) -> Queue {
        var queue = Queue()
        for item in 0..<count { queue.add(item, kind, outcomes: outcomes, at: at(time)) }
        return queue
    }

    // MARK: Producing

    @Test("An outcome leaves at once if no other is expected soon")
    func single() {
        var queue = queue(1)
        #expect(queue.nextBlock(at: at(0), isMoreComing: false)?.map(\.item) == [0])
        #expect(queue.nextBlock(at: at(50), isMoreComing: false) == nil && queue.nextLook == nil)
        #expect(!queue.isIdle, "its block is under way")
    }

    @Test("1,000 outcomes leave at once, in the order in which they ended")
    func full() {
        var queue = queue(999)
        #expect(queue.nextBlock(at: at(0), isMoreComing: true) == nil)
        for item in 999..<1500 { queue.add(item, .pushes, outcomes: 1, at: at(0)) }
        #expect(queue.nextBlock(at: at(0), isMoreComing: true)?.map(\.item) == Array(0..<1000))
        #expect(queue.nextBlock(at: at(0), isMoreComing: true) == nil, "what is left is no block")
    }

    @Test("Outcomes wait for each other while more are coming, 60 ms at most")
    func busy() {
        var queue = queue(1)
        for time in 1...59 as ClosedRange<Int64> {
            queue.add(1, .pushes, outcomes: 1, at: at(time))
            #expect(queue.nextBlock(at: at(time), isMoreComing: true) == nil)
            #expect(queue.nextLook == at(60))
        }
        #expect(queue.nextBlock(at: at(60), isMoreComing: true)?.count == 60)
        #expect(queue.nextLook == nil)
    }

    @Test("Under load a block has at least 60 outcomes for each of 12 partitions")
    func blocksAreLarge() {
        var queue = Queue()
        var blocks: [Int] = []
        // 20,000 a second, with a block acknowledged 3 ms after it left.
        var underWay: [Int64] = []
        for time in 0..<2000 as Range<Int64> {
            while underWay.first.map({ $0 <= time }) ?? false {
                underWay.removeFirst()
                queue.produced()
            }
            for _ in 0..<20 { queue.add(1, .pushes, outcomes: 1, at: at(time)) }
            while let block = queue.nextBlock(at: at(time), isMoreComing: true) {
                blocks.append(block.count)
                underWay.append(time + 3)
            }
        }
        #expect(blocks.min() ?? 0 >= 60 * 12)
    }

    @Test("Four blocks are in flight at most, and a fifth leaves when one has returned")
    func bounded() {
        var queue = queue(6000)
        for _ in 0..<4 { #expect(queue.nextBlock(at: at(0), isMoreComing: true)?.count == 1000) }
        #expect(queue.nextBlock(at: at(0), isMoreComing: true) == nil)
        #expect(queue.nextLook == nil)
        queue.produced()
        #expect(queue.nextBlock(at: at(0), isMoreComing: true)?.count == 1000)
    }

    @Test("A shard's checkpoint is never divided")
    func checkpoints() {
        var queue = queue(2, .members, outcomes: 3000)
        #expect(queue.nextBlock(at: at(0), isMoreComing: true)?.count == 1)
        #expect(queue.nextBlock(at: at(0), isMoreComing: true)?.count == 1)
    }

    // MARK: Writing

    @Test("An entry without an outcome is written without an acknowledgement")
    func withoutOutcomes() {
        var queue = queue(1, .rows, outcomes: 0)
        #expect(queue.nextBlock(at: at(100), isMoreComing: true) == nil)
        #expect(queue.nextBatch()?.map(\.item) == [0])
        queue.written(.rows)
        #expect(queue.isIdle)
    }

    @Test("Promise 4: no entry is written before Kafka has its outcomes")
    func order() {
        var queue = queue(1000)
        let block = queue.nextBlock(at: at(0), isMoreComing: true) ?? []
        #expect(queue.nextBatch() == nil)
        queue.acknowledged(Array(block.prefix(3)))
        #expect(queue.nextBatch()?.map(\.item) == [0, 1, 2])
    }

    @Test("Acknowledged entries are written at once, or after the write that is in flight")
    func groupCommit() {
        var queue = queue(1000)
        let block = queue.nextBlock(at: at(0), isMoreComing: true) ?? []
        queue.acknowledged(Array(block[0..<1]))
        #expect(queue.nextBatch()?.count == 1)
        queue.acknowledged(Array(block[1..<400]))
        #expect(queue.nextBatch() == nil)
        queue.written(.pushes)
        #expect(queue.nextBatch()?.count == 399)
    }

    @Test("A second batch is written beside the first if it is full, but never a third")
    func secondBatch() {
        var queue = Queue()
        for item in 0..<1500 { queue.add(item, .pushes, outcomes: 0, at: at(0)) }
        #expect(queue.nextBatch()?.map(\.item) == Array(0..<500))
        #expect(queue.nextBatch()?.map(\.item) == Array(500..<1000))
        #expect(queue.nextBatch() == nil)
        queue.written(.pushes)
        #expect(queue.nextBatch()?.count == 500)
    }

    @Test("A batch has entries of one kind, and kinds do not wait for each other")
    func kinds() {
        var queue = Queue()
        for kind in [LedgerEntry.Kind.pushes, .rows, .members, .pushes] {
            queue.add(kind.rawValue, kind, outcomes: 0, at: at(0))
        }
        let batches = [queue.nextBatch(), queue.nextBatch(), queue.nextBatch()]
        #expect(batches.map { $0?.map(\.kind) } == [[.members], [.rows], [.pushes, .pushes]])
        #expect(queue.nextBatch() == nil)
    }

    @Test("Checkpoints of many members are divided over several transactions")
    func largeCheckpoints() {
        var queue = queue(4, .members, outcomes: 2000)
        for _ in 0..<4 { queue.acknowledged(queue.nextBlock(at: at(0), isMoreComing: true) ?? []) }
        #expect(queue.nextBatch()?.count == 2)
        #expect(queue.nextBatch() == nil, "two more are no full batch")
        queue.written(.members)
        #expect(queue.nextBatch()?.count == 2)
    }

    @Test("A lost session removes all waiting entries, and those in flight return")
    func lost() {
        var queue = queue(1500)
        let block = queue.nextBlock(at: at(0), isMoreComing: true) ?? []
        queue.acknowledged(Array(block.prefix(10)))
        #expect(queue.removeAll().count == 510)
        #expect(!queue.isIdle)
        queue.produced()
        #expect(queue.isIdle && queue.nextBatch() == nil)
        #expect(queue.nextBlock(at: at(99), isMoreComing: true) == nil)
    }
}
