import JSON
import Kafka
import PushEvents

/// The lag of a service's consumer group in one topic, and its meaning.
struct GroupLag: Equatable {
    /// The age from which on waiting records show that a service is stuck: a working service
    /// commits within seconds, under any load. The age is by the records' timestamps, which writers
    /// set.
    static let maximumAgeMilliseconds: Int64 = 60_000

    /// The number of records that a dispatcher processes at full speed in some ten seconds: ten
    /// times its limit of outstanding records. If more records wait, some have waited too long,
    /// whatever their timestamps.
    static let maximumLag: Int64 = 100_000

    let reader: ConsumerRole
    let group: String
    let kafkaTopic: String
    /// The number of the topic's partitions, and (`partitionsBehind`) of those with uncommitted
    /// records.
    let partitions: Int
    private(set) var partitionsBehind = 0
    /// The existing records that the group has not committed.
    private(set) var waiting: Int64 = 0
    /// The waiting records that are older than `maximumAgeMilliseconds`.
    private(set) var overdue: Int64 = 0
    /// Whether the broker has a committed offset; it deletes offsets a week after the group's last
    /// member left.
    private(set) var hasCommitted = false

    init(
        reader: ConsumerRole,
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

    /// The finding: a warning at most, as waiting records are not lost, and a group may be stopped on purpose.
    var finding: Doctor.Finding {
        let (status, detail) = assessment
        return Doctor.Finding(name: "group \(group) \(kafkaTopic)", status: status, detail: detail)
    }

    private var assessment: (Doctor.Status, String) {
        guard waiting > 0 else { return (.ok, "has read all there is") }
        let place = "in \(partitionsBehind) of \(partitions) partition(s)"
        let some = "\(waiting) record(s) wait, \(place)"
        let service = reader.rawValue
        if !hasCommitted {
            return (
                .warning,
                "has no committed offset, and the topic has \(waiting) record(s), \(place): is a"
                    + " \(service) running, and is this its group?"
            )
        }
        if overdue > 0 {
            return (
                .warning,
                "\(some), \(overdue) of them for more than a minute: is a \(service) running,"
                    + " and fast enough?"
            )
        }
        guard waiting > Self.maximumLag else { return (.ok, some) }
        return (.warning, "\(some): more than a \(service) processes in ten seconds")
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
    /// The offset that the group reads next. It is the oldest offset if the group has committed no
    /// offset, or if the committed offset is out of range: the record expired, or the topic was
    /// created again.
    fileprivate var next: Int64 {
        guard let committed, (start...max(start, end)).contains(committed) else { return start }
        return committed
    }
}

extension Int64 {
    /// Adds two numbers that are not negative, without overflow.
    fileprivate func addingClamped(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? .max : sum
    }
}
