import JSON
import Kafka
import PushEvents

/// How far a service's consumer group is behind in one topic, and what that means.
struct GroupLag: Equatable {
    /// A service that works commits within seconds, however much comes. So it is by their age that
    /// records show to have been left lying. It is that of their timestamps, which writers set.
    static let patienceMilliseconds: Int64 = 60_000

    /// What a dispatcher at its full pace works off in some ten seconds: ten times as much as it
    /// takes in hand. So many wait for too long, whatever their timestamps say.
    static let mostWaiting: Int64 = 100_000

    let reader: KafkaTopicReader
    let group: String
    let kafkaTopic: String
    /// How many partitions the topic has, and how many of them have records that are not committed.
    let partitions: Int
    private(set) var partitionsBehind = 0
    /// Records that are there, and not committed by the group.
    private(set) var waiting: Int64 = 0
    /// Those among them that are older than `patienceMilliseconds`.
    private(set) var overdue: Int64 = 0
    /// False too where the broker has forgotten it: a week after the group's last member left.
    private(set) var hasCommitted = false

    init(
        reader: KafkaTopicReader,
        group: String,
        kafkaTopic: String,
        _ positions: [KafkaGroupPosition]
    ) {
        self.reader = reader
        self.group = group
        self.kafkaTopic = kafkaTopic
        partitions = positions.count
        for position in positions {
            hasCommitted = hasCommitted || position.committed != nil
            let next = position.next
            let waiting = max(0, position.end - next)
            if waiting > 0 { partitionsBehind += 1 }
            self.waiting = self.waiting.addingClamped(waiting)
            overdue = overdue.addingClamped(max(0, min(position.recent, position.end) - next))
        }
    }

    /// A warning at most: records that wait are not lost, and a group may be stopped on purpose.
    var finding: Doctor.Finding {
        var status = Doctor.Status.ok
        var detail = "has read all there is"
        if waiting > 0 {
            let place = "in \(partitionsBehind) of \(partitions) partition(s)"
            if !hasCommitted {
                status = .warning
                detail =
                    "has committed nothing, and \(waiting) record(s) are there, \(place): does a"
                    + " \(reader.rawValue) run, and is this its group?"
            } else if overdue > 0 {
                status = .warning
                detail =
                    "\(waiting) record(s) wait, \(place), \(overdue) of them for more than a minute:"
                    + " does a \(reader.rawValue) run, and keep up?"
            } else if waiting > Self.mostWaiting {
                status = .warning
                detail =
                    "\(waiting) record(s) wait, \(place): more than a \(reader.rawValue) works off in"
                    + " ten seconds"
            } else {
                detail = "\(waiting) record(s) wait, \(place)"
            }
        }
        return Doctor.Finding(name: "group \(group) \(kafkaTopic)", status: status, detail: detail)
    }

    var json: JSONValue {
        [
            "service": .string(reader.rawValue),
            "group": .string(group),
            "kafkaTopic": .string(kafkaTopic),
            "partitions": .integer(Int64(partitions)),
            "partitionsBehind": .integer(Int64(partitionsBehind)),
            "lag": .integer(waiting),
            "lagOverAMinute": .integer(overdue),
            "hasCommitted": .bool(hasCommitted),
        ]
    }
}

extension KafkaGroupPosition {
    /// The record that the group reads next. It begins at the oldest where it has committed nothing,
    /// and where what it has committed is not there: too old by now, or of a topic that was deleted
    /// and made anew.
    fileprivate var next: Int64 {
        guard let committed, (start...max(start, end)).contains(committed) else { return start }
        return committed
    }
}

extension Int64 {
    /// The sum of two that are not negative.
    fileprivate func addingClamped(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? .max : sum
    }
}
