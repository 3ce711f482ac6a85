import JSON
import Kafka
import PushEvents
import ServiceKit
import Testing

@testable import CLI

@Suite("Lag of a consumer group", .timeLimit(.minutes(1)))
struct GroupLagTests {
    /// Makes a position. `recent` is the offset where the last minute's records begin; without it,
    /// all are older.
    private func position(
        _ committed: Int64?,
        of range: (start: Int64, end: Int64),
        recent: Int64? = nil
    ) -> KafkaGroupPosition {
        KafkaGroupPosition(
            kafkaTopic: "t.push.requests",
            partition: 0,
            committed: committed,
            start: range.start,
            recent: recent ?? range.end,
            end: range.end
        )
    }

    private func lag(_ positions: KafkaGroupPosition...) -> GroupLag {
        GroupLag(reader: .dispatcher, group: "g", kafkaTopic: "t.push.requests", positions)
    }

    @Test("The lag is the sum over partitions, with the number of those that have more to read")
    func sums() {
        let lag = lag(
            position(7, of: (0, 10), recent: 9),
            position(20, of: (5, 20)),
            position(nil, of: (3, 8), recent: 3)
        )
        #expect(lag.waiting == 8)
        #expect(lag.overdue == 2)
        #expect(lag.partitions == 3)
        #expect(lag.partitionsBehind == 2)
        #expect(lag.hasCommitted)
        #expect(lag.finding.name == "group g t.push.requests")
        #expect(lag.finding.status == .warning)
        #expect(
            lag.finding.detail.hasPrefix(
                "8 record(s) wait, in 2 of 3 partition(s), 2 of them for more than a minute"
            )
        )
        #expect(
            lag.json == [
                "service": "dispatcher", "group": "g", "kafkaTopic": "t.push.requests",
                "partitions": 3, "partitionsBehind": 2, "lag": 8, "lagOverAMinute": 2,
                "hasCommitted": true,
            ]
        )
    }

    @Test("Records of the last minute are normal work, unless they are too many")
    func young() {
        #expect(lag(position(0, of: (0, 100_000), recent: 0)).finding.status == .ok)
        #expect(lag(position(0, of: (0, 100_001), recent: 0)).finding.status == .warning)
        #expect(lag(position(0, of: (0, 2), recent: 0)).finding.status == .ok)
        #expect(lag(position(0, of: (0, 2), recent: 1)).finding.status == .warning)
    }

    @Test("A group without a commit is reported once there is something to read")
    func silent() {
        let idle = lag(position(nil, of: (0, 0)), position(nil, of: (9, 9)))
        #expect(!idle.hasCommitted)
        #expect(idle.finding.status == .ok)
        let deaf = lag(position(nil, of: (0, 0)), position(nil, of: (5, 9), recent: 5))
        #expect(deaf.waiting == 4)
        #expect(deaf.finding.status == .warning)
        #expect(
            deaf.finding.detail.hasPrefix("has no committed offset, and the topic has 4 record(s)")
        )
    }

    @Test("A commit of a deleted offset counts as the consumer treats it: from the start")
    func outside() {
        let expired = lag(position(3, of: (10, 15), recent: 12))
        #expect((expired.waiting, expired.overdue) == (5, 2))
        let madeAnew = lag(position(100, of: (0, 4)))
        #expect((madeAnew.waiting, madeAnew.overdue) == (4, 4))
        #expect(madeAnew.hasCommitted)
    }

    @Test("No offset that a broker reports can trap")
    func hostile() {
        let much = lag(position(nil, of: (0, .max)), position(0, of: (0, .max)))
        #expect(much.waiting == .max)
        let turned = lag(position(5, of: (9, 2)), position(nil, of: (.max, 0), recent: .max))
        #expect((turned.waiting, turned.overdue) == (0, 0))
    }

    @Test("A group's name comes from the service, else the environment, else the option")
    func names() throws {
        #expect(try Command.groups([], everywhere: nil) == [:])
        #expect(
            try Command.groups([], everywhere: "a") == [
                .dispatcher: "a", .configWatcher: "a", .pushConfig: "a-config",
                .pushSync: "a-sync", .ingest: "a-ingest",
            ]
        )
        #expect(
            try Command.groups(["config-watcher=b=c"], everywhere: "a")
                == [
                    .dispatcher: "a", .configWatcher: "b=c", .pushConfig: "a-config",
                    .pushSync: "a-sync", .ingest: "a-ingest",
                ]
        )
        #expect(
            try Command.groups(["dispatcher=d"], everywhere: nil)
                == [.dispatcher: "d", .pushConfig: "d-config", .pushSync: "d-sync"]
        )
        for options in [["dispatcher"], ["simulator=x"], ["dispatcher="], ["=x"], [""]] {
            #expect(throws: ArgumentsError.self) {
                try Command.groups(options, everywhere: nil)
            }
        }
        #expect(throws: ArgumentsError("--group is given twice for dispatcher")) {
            try Command.groups(["dispatcher=a", "dispatcher=a"], everywhere: nil)
        }
    }
}
