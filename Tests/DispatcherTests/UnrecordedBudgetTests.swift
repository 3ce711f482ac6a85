import Testing

@testable import Dispatcher

@Suite("The unrecorded members of all shards of a lane", .timeLimit(.minutes(1)))
struct UnrecordedBudgetTests {
    private typealias Window = ShardWindow<Int, String>

    /// Makes a window of which all members are read and sent, as far as it may.
    private func window(_ members: Int, _ unrecorded: UnrecordedBudget) -> Window {
        var window = Window(unrecorded: unrecorded, inFlightShare: 100)
        window.append(Array(0..<members), isLast: true)
        _ = window.take(members)
        return window
    }

    /// Answers members.
    ///
    /// - Returns: The number of members that freed their slots.
    private func end(_ positions: Range<Int>, of window: inout Window) -> Int {
        positions.count { position in
            if case .freed = window.ended(position, "ok") { true } else { false }
        }
    }

    @Test("A few shards have whole checkpoints, and many have equal parts of what a few may leave")
    func shares() {
        let unrecorded = UnrecordedBudget(checkpointEvery: 1000, shards: 4)
        var shares: [Int: Int] = [:]
        for shards in 1...5000 {
            unrecorded.open()
            shares[shards] = unrecorded.share
        }
        #expect([1, 4, 5, 8, 16, 64].map { shares[$0] } == [1000, 1000, 800, 500, 250, 62])
        #expect(shares[5000] == 1)
        for _ in 1..<5000 { unrecorded.close(unrecorded: 0) }
        #expect(unrecorded.share == 1000)
    }

    @Test("A checkpoint is due at half of a share, and a shard that opens makes it due earlier")
    func due() {
        let unrecorded = UnrecordedBudget(checkpointEvery: 40, shards: 1)
        var first = window(100, unrecorded)
        _ = end(0..<10, of: &first)
        #expect(!first.isCheckpointDue)
        var second = window(100, unrecorded)
        #expect(first.isCheckpointDue)
        second.close()
        #expect(!first.isCheckpointDue)
    }

    @Test("Promise 3: a shard that opens beside full ones frees slots only as these are recorded")
    func opensLater() {
        let unrecorded = UnrecordedBudget(checkpointEvery: 10, shards: 2)
        var (first, second) = (window(30, unrecorded), window(30, unrecorded))
        var freed = [end(0..<15, of: &first), end(0..<15, of: &second)]
        #expect(freed == [10, 10])
        var third = window(30, unrecorded)
        freed = [end(0..<4, of: &third)]
        #expect(freed == [0] && unrecorded.count == 20)

        _ = first.beginCheckpoint()
        freed = [end(4..<5, of: &third)]
        #expect(freed == [0], "begun is not durable")
        #expect(first.written().freed == Array(10..<15))
        freed = [end(5..<20, of: &third), end(15..<30, of: &first)]
        #expect(freed == [6, 4], "a third of twenty, and what is left")
        #expect(unrecorded.count == 20)
        // The session of the process is lost: others repeat the members.
        second.close()
        third.close()
        #expect(unrecorded.count == 4)
        first.close()
        #expect(unrecorded.count == 0)
    }

    /// A shard of the model.
    private final class Shard {
        var window: Window
        let size: Int
        var read = 0
        var recorded = 0
        var inFlight: Set<Int> = []
        /// The records of the checkpoint that is being written.
        var writing: Int?
        /// The members in flight that have a row.
        var rows: Set<Int> = []

        init(_ window: Window, size: Int) {
            self.window = window
            self.size = size
        }
    }

    /// Opens shards, sends, answers and checkpoints at random, and counts what a crash would repeat.
    @Test(
        "Promise 3: however many shards are open, and whenever they opened, a crash repeats at most what is promised for a lane",
        arguments: 0..<100
    )
    func anyShards(seed: Int) {
        var random = SplitMix(seed: UInt64(seed))
        let every = Int.random(in: 1...20, using: &random)
        let shards = Int.random(in: 1...4, using: &random)
        let total = Int.random(in: 1...60, using: &random)
        let unrecorded = UnrecordedBudget(checkpointEvery: every, shards: shards)
        let promised = every * shards
        var open: [Shard] = []
        var left = 16
        var slots = 0
        var most = 0

        while left > 0 || !open.isEmpty {
            if open.isEmpty || left > 0 && Int.random(in: 0..<30, using: &random) == 0 {
                left -= 1
                let window = Window(
                    unrecorded: unrecorded,
                    inFlightShare: Int.random(in: 0...20, using: &random)
                )
                open.append(Shard(window, size: Int.random(in: 0...80, using: &random)))
            }
            let number = Int.random(in: 0..<open.count, using: &random)
            let shard = open[number]
            switch Int.random(in: 0..<8, using: &random) {
            case 0:
                guard !shard.window.hasReadAll else { break }
                let end = min(shard.size, shard.read + Int.random(in: 1...40, using: &random))
                shard.window.append(Array(shard.read..<end), isLast: end == shard.size)
                shard.read = end
            case 1, 2:
                let taken = shard.window.take(
                    min(total - slots, Int.random(in: 0...20, using: &random))
                )
                slots += taken.count
                shard.inFlight.formUnion(taken)
            case 3, 4, 5:
                guard let position = shard.inFlight.randomElement(using: &random) else { break }
                shard.inFlight.remove(position)
                switch shard.window.ended(position, "ok") {
                case .freed: slots -= 1
                case .keepsSlot: break
                case .row:
                    slots -= 1
                    #expect(shard.rows.remove(position) != nil)
                case .unknown: Issue.record("\(position) is not in flight")
                }
            case 6:
                guard shard.writing == nil else { break }
                let extents: [Window.Extent] = [.ended, .ended, .ended, .answered, .sent]
                shard.writing =
                    shard.window.beginCheckpoint(extents.randomElement(using: &random) ?? .ended)?
                    .records.count
            default:
                guard let writing = shard.writing else { break }
                shard.writing = nil
                let written = shard.window.written()
                slots -= written.freed.count + written.endedRows.count
                shard.rows.formUnion(written.rows)
                shard.recorded += writing
            }
            // A crash at this point would repeat these: they were sent, and no checkpoint has them.
            let repeated = open.reduce(0) { $0 + $1.window.beyond }
            most = max(most, repeated)
            #expect(repeated <= promised + slots && slots <= total)
            #expect(unrecorded.count <= promised)
            if shard.window.isFinished, shard.inFlight.isEmpty {
                #expect(shard.recorded == shard.size && shard.rows.isEmpty)
                shard.window.close()
                open.remove(at: number)
            }
        }
        #expect(slots == 0 && unrecorded.count == 0)
        #expect(most > 0)
    }
}
