import Testing

@testable import Kafka

@Suite("Offset tracker", .timeLimit(.minutes(1)))
struct OffsetTrackerTests {
    private let zero = TopicPartition(topic: "t", partition: 0)
    private let one = TopicPartition(topic: "t", partition: 1)

    private func records(
        _ partition: TopicPartition,
        _ offsets: some Sequence<Int64>
    ) -> [KafkaRecord] {
        offsets.map {
            KafkaRecord(
                topic: partition.topic,
                partition: partition.partition,
                offset: $0,
                key: nil,
                value: nil
            )
        }
    }

    private func tracker(_ partitions: TopicPartition...) -> OffsetTracker {
        var tracker = OffsetTracker()
        for partition in partitions { tracker.assign(partition) }
        return tracker
    }

    @Test("An offset is stored only if every record before it is finished")
    func contiguous() {
        var tracker = tracker(zero)
        let first = tracker.handOut(records(zero, 0...9), bytes: 1)
        let second = tracker.handOut(records(zero, 10...19), bytes: 1)
        let third = tracker.handOut(records(zero, 20...29), bytes: 1)
        #expect(tracker.finish(second).isEmpty)
        #expect(tracker.finish(first) == [.init(partition: zero, offset: 20)])
        #expect(!tracker.isDrained(zero))
        #expect(tracker.finish(third) == [.init(partition: zero, offset: 30)])
        #expect(tracker.isDrained(zero))
        #expect(tracker.outstandingRecords == 0)
        #expect(tracker.outstandingBytes == 0)
    }

    @Test("Partitions of one batch move independently")
    func partitions() {
        var tracker = tracker(zero, one)
        let slow = tracker.handOut(records(zero, [5]), bytes: 1)
        let mixed = tracker.handOut((records(zero, [6]) + records(one, [1, 2])), bytes: 1)
        #expect(tracker.finish(mixed) == [.init(partition: one, offset: 3)])
        #expect(tracker.finish(slow) == [.init(partition: zero, offset: 7)])
    }

    @Test("Interleaved partitions of one batch end at the highest offset of each")
    func interleaved() {
        var tracker = tracker(zero, one)
        let parts = [
            records(zero, [1]), records(one, [7]), records(zero, [2]), records(one, [9]),
        ]
        let batch = tracker.handOut(parts.flatMap { $0 }, bytes: 1)
        let positions = tracker.finish(batch).sorted {
            $0.partition.partition < $1.partition.partition
        }
        let expected: [OffsetTracker.Position] = [
            .init(partition: zero, offset: 3), .init(partition: one, offset: 10),
        ]
        #expect(positions == expected)
    }

    @Test("Finishing a batch twice changes nothing")
    func twice() {
        var tracker = tracker(zero)
        let batch = tracker.handOut(records(zero, 0...4), bytes: 1)
        #expect(tracker.finish(batch).count == 1)
        #expect(tracker.finish(batch).isEmpty)
        #expect(tracker.finish(99).isEmpty)
        #expect(tracker.outstandingRecords == 0)
        #expect(tracker.outstandingBytes == 0)
    }

    @Test("A batch from before its partition was lost stores nothing after the partition returns")
    func lostAndBack() {
        var tracker = tracker(zero)
        let old = tracker.handOut(records(zero, 0...4), bytes: 1)
        tracker.drop(zero)
        tracker.assign(zero)
        let new = tracker.handOut(records(zero, 0...4), bytes: 1)
        #expect(tracker.finish(old).isEmpty)
        #expect(!tracker.isDrained(zero))
        #expect(tracker.finish(new) == [.init(partition: zero, offset: 5)])
    }

    @Test("A slow batch delays the stored position, and nothing else")
    func longGap() {
        var tracker = tracker(zero)
        let slow = tracker.handOut(records(zero, [0]), bytes: 1)
        for offset in 1...1000 as ClosedRange<Int64> {
            let batch = tracker.handOut(records(zero, [offset]), bytes: 1)
            #expect(tracker.finish(batch).isEmpty)
        }
        #expect(tracker.finish(slow) == [.init(partition: zero, offset: 1001)])
        for offset in 1001...1600 as ClosedRange<Int64> {
            let batch = tracker.handOut(records(zero, [offset]), bytes: 1)
            #expect(tracker.finish(batch) == [.init(partition: zero, offset: offset + 1)])
        }
    }

    @Test("The lag counts unfinished records of the assigned partitions, with or without a commit")
    func lags() {
        var tracker = tracker(zero, one)
        let two = TopicPartition(topic: "t", partition: 2)
        let ends: [TopicPartition: KafkaStatistics.Partition] = [
            zero: .init(end: 100, committed: 5), one: .init(end: 40, committed: 30),
            two: .init(end: 1000, committed: 0),
        ]
        #expect(tracker.lags([:]) == ["t": 0])
        #expect(tracker.lags(ends) == ["t": 105])
        let batch = tracker.handOut(records(zero, 20...29), bytes: 1)
        #expect(tracker.lags(ends) == ["t": 90])
        _ = tracker.finish(batch)
        #expect(tracker.lags(ends) == ["t": 80])
        tracker.drop(zero)
        #expect(tracker.lags(ends) == ["t": 10])
        tracker.drop(one)
        #expect(tracker.lags(ends) == [:])
    }
}

@Suite("Records that are ready", .timeLimit(.minutes(1)))
struct ReadyRecordsTests {
    private func records(_ offsets: some Sequence<Int64>, _ partition: Int32) -> [KafkaRecord] {
        offsets.map {
            KafkaRecord(topic: "t", partition: partition, offset: $0, key: nil, value: nil)
        }
    }

    @Test(
        "Records come out complete and in order, in batches no larger than allowed",
        arguments: 1...7
    )
    func batches(maximumBatch: Int) {
        var ready = ReadyRecords(maximumBatch: maximumBatch)
        var taken: [Int64] = []
        var next: Int64 = 0
        for round in 0..<2000 as Range<Int64> {
            var arrived = records(next..<next + round % 12, 0)
            next += round % 12
            ready.append(&arrived)
            #expect(arrived.isEmpty)
            if round % 3 == 0, let (batch, _) = ready.take() {
                #expect(batch.count <= maximumBatch)
                taken += batch.map(\.offset)
            }
            #expect(ready.count == Int(next) - taken.count)
        }
        while let (batch, _) = ready.take() {
            #expect(!batch.isEmpty && batch.count <= maximumBatch)
            taken += batch.map(\.offset)
        }
        #expect(taken == Array(0..<next))
        #expect(ready.count == 0)
    }

    @Test("Records of a revoked partition are dropped, and the others keep their order")
    func removal() {
        var ready = ReadyRecords(maximumBatch: 4)
        for offset in 0..<10 as Range<Int64> {
            var both = records([offset], 0) + records([offset], 1)
            ready.append(&both)
        }
        ready.removeAll(of: [TopicPartition(topic: "t", partition: 0)])
        #expect(ready.count == 10)
        var taken: [KafkaRecord] = []
        while let (batch, _) = ready.take() { taken += batch }
        #expect(taken == records(0..<10, 1))
        ready.removeAll()
        let nothing = ready.take()
        #expect(nothing?.records == nil)
    }

    @Test("The size of the ready records stays exact as records are added, taken and dropped")
    func bytes() {
        let header = KafkaHeader(name: "abc", value: "de")
        var ready = ReadyRecords(maximumBatch: 3)
        for partition in 0..<2 as Range<Int32> {
            var arrived = (0..<5).map { offset in
                KafkaRecord(
                    topic: "t",
                    partition: partition,
                    offset: offset,
                    key: [1],
                    value: [UInt8](repeating: 0, count: 94),
                    headers: [header]
                )
            }
            ready.append(&arrived)
        }
        #expect(ready.bytes == 1000)
        let first = ready.take()
        #expect(first?.bytes == 300)
        #expect(ready.bytes == 700)
        ready.removeAll(of: [TopicPartition(topic: "t", partition: 0)])
        #expect(ready.bytes == 500)
        let rest = [ready.take(), ready.take()]
        #expect(rest.map { $0?.bytes } == [300, 200])
        #expect(ready.bytes == 0)
    }
}
