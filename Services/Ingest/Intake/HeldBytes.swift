internal import Synchronization

/// What of all requests waits for Kafka, in bytes, and how much may. Usable from anywhere.
///
/// Who has been let in is counted until he is answered. His body is gone by then: what is held is what
/// librdkafka has of it.
final class HeldBytes: Sendable {
    /// What a record takes beside its key and value: librdkafka's message and headers.
    private static let perRecord = 768

    let limit: Int
    private let bytes = Atomic<Int>(0)

    init(limit: Int) { self.limit = limit }

    var isFull: Bool { bytes.load(ordering: .relaxed) >= limit }
    var count: Int { bytes.load(ordering: .relaxed) }

    static func cost(recordBytes: Int, records: Int) -> Int {
        recordBytes + perRecord * records
    }

    /// - Returns: Whether there is room for as much; it is let go of with `letGo` then. One is always
    ///   let in where nothing else is held.
    func hold(_ count: Int) -> Bool {
        let all = bytes.add(count, ordering: .relaxed).newValue
        if all <= limit || all == count { return true }
        bytes.subtract(count, ordering: .relaxed)
        return false
    }

    func letGo(_ count: Int) { bytes.subtract(count, ordering: .relaxed) }
}
