/// A header of a Kafka record.
package struct RecordHeader: Sendable, Equatable {
    package var name: String
    package var value: [UInt8]

    package init(_ name: String, _ value: [UInt8]) {
        self.name = name
        self.value = value
    }

    package init(_ name: String, _ text: String) {
        self.init(name, Array(text.utf8))
    }

    /// The header that marks a record that Carillon produced.
    package static let origin = "carillon-origin"
}

/// The names of the outbox's queues, which take turns. Each app has two, so that its pushes do not wait for
/// reports of what its devices received and read.
package enum OutboxQueue {
    /// Follows the app's id, which has no slash.
    package static let reportsSuffix = "/reports"

    /// The queue of an app's pushes and changes.
    package static func requests(of app: String) -> String { app }

    /// The queue of the reports of an app's devices.
    package static func reports(of app: String) -> String { app + reportsSuffix }
}

/// A record to be written to Kafka: at once, or through the outbox.
package struct OutgoingRecord: Sendable, Equatable {
    package var topic: String
    package var key: [UInt8]?
    package var value: [UInt8]?
    package var headers: [RecordHeader]
    /// The key of the outbox order: records with the same key are produced one after the other, in
    /// the order in which they were written. `nil` for any order.
    package var orderKey: String?
    /// The queue in the outbox, see `OutboxQueue`; empty for the queue that belongs to no app. Records with
    /// the same order key are in one queue.
    package var queue: String

    package init(
        topic: String,
        key: [UInt8]?,
        value: [UInt8]?,
        headers: [RecordHeader] = [],
        orderKey: String? = nil,
        queue: String = ""
    ) {
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.orderKey = orderKey
        self.queue = queue
    }
}
