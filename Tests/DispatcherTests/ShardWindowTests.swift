import Testing

@testable import Dispatcher

@Suite("The members of a shard between two checkpoints", .timeLimit(.minutes(1)))
struct ShardWindowTests {
    private typealias Window = ShardWindow<Int, String>

    /// Makes a window of which all members are read, and none is sent.
    private func window(
        _ members: Int,
        every: Int = 10,
        share: Int = 6,
        isLast: Bool = true
    ) -> Window {
        let unrecorded = UnrecordedBudget(checkpointEvery: every, shards: 1)
        var window = Window(unrecorded: unrecorded, inFlightShare: share)
        window.append(Array(0..<members), isLast: isLast)
        return window
    }

    private func ids(_ checkpoint: Window.Checkpoint?) -> [Int] {
        checkpoint?.records.map(\.member) ?? []
    }

    private func isFreed(_ arrival: Window.Arrival) -> Bool {
        if case .freed = arrival { true } else { false }
    }

    private func isKept(_ arrival: Window.Arrival) -> Bool {
        if case .keepsSlot = arrival { true } else { false }
    }

    @Test("Beyond the cursor no more is sent than a checkpoint and the share of what is in flight")
    func reach() {
        var window = window(100)
        #expect(window.room == 16)
        #expect(window.take(1000) == 0..<16)
        #expect(window.room == 0)
        for position in 0..<9 { _ = window.ended(position, "ok") }
        #expect(window.room == 0, "ended is not recorded")
        #expect(ids(window.beginCheckpoint()) == Array(0..<9))
        #expect(window.room == 0, "begun is not durable")
        _ = window.written()
        #expect(window.room == 9)
        #expect(window.take(1000) == 16..<25)
    }

    @Test("A few members are not sent behind those in flight, except the last of a shard")
    func handful() {
        var window = window(100)
        #expect(window.worthSending(atMost: 8) == 8)
        _ = window.take(15)
        // One more of sixteen may be sent.
        #expect(window.worthSending(atMost: 512) == 0)
        #expect(window.worthSending(atMost: 8) == 1)
        for position in 0..<15 { _ = window.ended(position, "ok") }
        #expect(window.worthSending(atMost: 512) == 1, "nothing is in flight")
        var last = self.window(16, share: 40)
        _ = last.take(15)
        #expect(last.worthSending(atMost: 512) == 1, "there are no more")
    }

    @Test("An ended member keeps its slot beyond the members of one checkpoint")
    func slots() {
        var window = window(100)
        _ = window.take(16)
        for position in 0..<16 {
            let arrival = window.ended(position, "ok")
            #expect(position < 10 ? isFreed(arrival) : isKept(arrival))
        }
        #expect(window.heldByEnded() == Array(10..<16))
        #expect(ids(window.beginCheckpoint()) == Array(0..<16))
        #expect(window.written().freed == Array(10..<16))
        #expect(window.heldByEnded().isEmpty)
    }

    @Test(
        "A checkpoint has the ended members without a gap and in order, whatever the answers' order"
    )
    func contiguous() {
        var window = window(100)
        _ = window.take(8)
        for position in [3, 1, 0, 4, 6] { _ = window.ended(position, "e\(position)") }
        #expect(window.contiguous == 2)
        let checkpoint = window.beginCheckpoint()
        #expect(ids(checkpoint) == [0, 1])
        #expect(checkpoint?.records.map(\.end) == ["e0", "e1"])
        #expect(checkpoint?.last == 1)
        #expect(checkpoint?.isFinished == false)
        _ = window.ended(2, "e2")
        #expect(ids(window.beginCheckpoint()).isEmpty, "one at a time")
        _ = window.written()
        #expect(ids(window.beginCheckpoint()) == [2, 3, 4])
    }

    @Test("A checkpoint is due at half of its limit, and at the shard's end")
    func due() {
        var window = window(12)
        _ = window.take(12)
        for position in 0..<4 { _ = window.ended(position, "ok") }
        #expect(!window.isCheckpointDue)
        _ = window.ended(4, "ok")
        #expect(window.isCheckpointDue)
        _ = window.beginCheckpoint()
        #expect(!window.isCheckpointDue)
        _ = window.written()
        for position in 5..<9 { _ = window.ended(position, "ok") }
        #expect(!window.isCheckpointDue)
        for position in 9..<12 { _ = window.ended(position, "ok") }
        #expect(window.isCheckpointDue)
        let last = window.beginCheckpoint()
        #expect(last?.isFinished == true)
        #expect(!window.isFinished)
        _ = window.written()
        #expect(window.isFinished)
        #expect(ids(window.beginCheckpoint()).isEmpty)
    }

    @Test("A member that a whole checkpoint of others overtook becomes a row")
    func straggler() {
        var window = window(100)
        _ = window.take(16)
        for position in 1..<10 { _ = window.ended(position, "ok") }
        #expect(!window.isCheckpointDue)
        #expect(ids(window.beginCheckpoint()).isEmpty)
        _ = window.ended(11, "ok")
        #expect(window.isCheckpointDue)
        let checkpoint = window.beginCheckpoint()
        // Only one member has overtaken 10.
        #expect(ids(checkpoint) == Array(0..<10))
        #expect(checkpoint?.records.first?.end == nil)
        #expect(checkpoint?.records.dropFirst().allSatisfy { $0.end == "ok" } == true)
        #expect(window.written().rows == [0])
        guard case .row(0) = window.ended(0, "late") else {
            Issue.record("its end is a row's")
            return
        }
        guard case .unknown = window.ended(0, "twice") else {
            Issue.record("it ended once")
            return
        }
    }

    @Test("A member that is answered while its row is written ends as a row afterwards")
    func answeredWhileWritten() {
        var window = window(100)
        _ = window.take(16)
        for position in 1..<11 { _ = window.ended(position, "ok") }
        _ = window.beginCheckpoint()
        let arrival = window.ended(0, "late")
        #expect(isKept(arrival))
        let written = window.written()
        #expect(written.rows.isEmpty)
        #expect(written.endedRows.map(\.member) == [0])
        #expect(written.endedRows.map(\.end) == ["late"])
        #expect(window.inFlight == 5)
    }

    @Test("A released shard is recorded as far as it was sent, with members in flight as rows")
    func sentExtent() {
        var window = window(100)
        _ = window.take(6)
        _ = window.ended(1, "ok")
        _ = window.ended(3, "ok")
        #expect(ids(window.beginCheckpoint(.answered)) == [0, 1, 2, 3])
        #expect(window.written().rows == [0, 2])
        #expect(ids(window.beginCheckpoint(.sent)) == [4, 5])
        #expect(window.written().rows == [4, 5])
        #expect(window.beyond == 0)
        #expect(window.inFlight == 0)
        #expect(!window.isFinished, "most of it is unsent")
    }

    @Test("A member that could not be sent counts as not taken")
    func putBack() {
        var window = window(10)
        _ = window.take(6)
        _ = window.ended(0, "ok")
        window.putBack(from: 2)
        #expect(window.inFlight == 1)
        #expect(window.unsent == 8)
        #expect(window.take(3) == 2..<5)
    }

    @Test("An empty shard, and one whose last page is empty, end with an empty checkpoint")
    func empty() {
        var window = window(0)
        #expect(window.isCheckpointDue)
        let checkpoint = window.beginCheckpoint()
        #expect(checkpoint?.records.isEmpty == true)
        #expect(checkpoint?.last == nil)
        #expect(checkpoint?.isFinished == true)
        _ = window.written()
        #expect(window.isFinished)

        var later = self.window(2, isLast: false)
        _ = later.take(2)
        _ = later.ended(0, "ok")
        _ = later.ended(1, "ok")
        #expect(!later.isCheckpointDue)
        let first = later.beginCheckpoint()
        #expect(first?.isFinished == false)
        // This comes too late for the checkpoint that is in flight.
        later.append([], isLast: true)
        _ = later.written()
        #expect(!later.isFinished)
        #expect(later.isCheckpointDue)
        #expect(later.beginCheckpoint()?.isFinished == true)
        _ = later.written()
        #expect(later.isFinished)
    }

    /// Reads, sends, answers, checkpoints and crashes at random, and compares with a simple model.
    @Test(
        "Every member is recorded once, and a crash repeats no more than the promised number",
        arguments: 0..<200
    )
    func anyOrder(seed: Int) {
        var random = SplitMix(seed: UInt64(seed))
        let every = Int.random(in: 1...12, using: &random)
        let share = Int.random(in: 0...12, using: &random)
        let total = Int.random(in: 0...120, using: &random)
        /// The durable state: members with an end, members as rows, and the cursor.
        var settled: Set<Int> = []
        var rows: Set<Int> = []
        var cursor = 0
        var sends = 0
        var crashes = 0
        var isOver = false

        while !isOver {
            let unrecorded = UnrecordedBudget(checkpointEvery: every, shards: 1)
            var window = Window(unrecorded: unrecorded, inFlightShare: share)
            let start = cursor
            var read = cursor
            var inFlight: Set<Int> = []
            /// Members sent since the claim that are not durable, except as rows.
            var exposed: Set<Int> = []
            var slots = 0
            var checkpoint: Window.Checkpoint?

            func arrive(_ position: Int) {
                switch window.ended(position, "ok") {
                case .freed: slots -= 1
                case .keepsSlot: break
                case .row(let member):
                    slots -= 1
                    #expect(rows.remove(member) != nil)
                    #expect(settled.insert(member).inserted)
                case .unknown: Issue.record("\(position) is not in flight")
                }
            }

            var isCrashed = false
            while !window.isFinished, !isCrashed {
                switch Int.random(in: 0..<12, using: &random) {
                case 0, 1:
                    guard !window.hasReadAll else { continue }
                    let page = Array(
                        read..<min(total, read + Int.random(in: 1...30, using: &random))
                    )
                    read += page.count
                    window.append(page, isLast: read == total && Bool.random(using: &random))
                case 2, 3, 4:
                    let taken = window.take(Int.random(in: 1...8, using: &random))
                    slots += taken.count
                    sends += taken.count
                    for position in taken {
                        #expect(window[position] == start + position)
                        inFlight.insert(position)
                        exposed.insert(start + position)
                    }
                    if let half = taken.randomElement(using: &random),
                        Int.random(in: 0..<8, using: &random) == 0
                    {
                        for position in half..<taken.upperBound {
                            inFlight.remove(position)
                            exposed.remove(start + position)
                            slots -= 1
                            sends -= 1
                        }
                        window.putBack(from: half)
                    }
                case 5, 6, 7, 8:
                    guard let position = inFlight.randomElement(using: &random) else { continue }
                    inFlight.remove(position)
                    arrive(position)
                case 9:
                    guard checkpoint == nil else { continue }
                    let extents: [Window.Extent] = [.ended, .ended, .answered, .sent]
                    let extent = extents.randomElement(using: &random) ?? .ended
                    let isDue = window.isCheckpointDue
                    checkpoint = window.beginCheckpoint(extent)
                    #expect(!isDue || checkpoint != nil)
                case 10:
                    guard let writes = checkpoint else { continue }
                    checkpoint = nil
                    #expect(
                        writes.records.map(\.member)
                            == Array(cursor..<(cursor + writes.records.count))
                    )
                    for record in writes.records {
                        exposed.remove(record.member)
                        if record.end != nil {
                            #expect(settled.insert(record.member).inserted)
                        } else {
                            #expect(rows.insert(record.member).inserted)
                        }
                    }
                    cursor += writes.records.count
                    let written = window.written()
                    slots -= written.freed.count
                    for (member, _) in written.endedRows {
                        slots -= 1
                        #expect(rows.remove(member) != nil)
                        #expect(settled.insert(member).inserted)
                    }
                    #expect(window.isFinished == writes.isFinished)
                default:
                    guard crashes < 3, Int.random(in: 0..<40, using: &random) == 0 else { continue }
                    crashes += 1
                    isCrashed = true
                    // The next owner of the rows settles them.
                    settled.formUnion(rows)
                    rows = []
                }
                // A crash at this point would repeat these.
                #expect(exposed.count <= every + share)
                #expect(isCrashed || exposed.count + rows.count <= every + slots)
                #expect(window.inFlight <= slots)
                #expect(window.beyond == exposed.count)
            }
            isOver = window.isFinished
            if isOver {
                for position in inFlight { arrive(position) }
                #expect(slots == 0)
                #expect(window.heldByEnded().isEmpty)
            }
        }
        #expect(settled == Set(0..<total))
        #expect(rows.isEmpty)
        #expect(cursor == total)
        #expect(sends >= total)
        #expect(sends <= total + crashes * (every + share))
    }
}

/// A generator with a seed, so that a failure can be reproduced.
struct SplitMix: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
