import Observability

/// The budget of bytes that all requests hold, from their authentication to their response. Thread-safe.
///
/// An app may hold at most four times the bytes that are free. So a single app leaves a fifth of
/// the budget to the others, and the next app always finds free bytes, however many apps hold their
/// share.
final class HeldBytes: Sendable {
    /// The bytes of a record beside its key and value: librdkafka's message and headers.
    private static let perRecord = 768
    /// The multiple of the free bytes that an app may hold.
    private static let share = 4

    let limit: Int
    private let lock = Lock()
    nonisolated(unsafe) private var all = 0
    nonisolated(unsafe) private var byApp: [String: Int] = [:]

    init(limit: Int) { self.limit = limit }

    var isFull: Bool { count >= limit }
    var count: Int { lock.withLock { unsafe all } }

    static func cost(recordBytes: Int, records: Int) -> Int {
        recordBytes + perRecord * records
    }

    /// Makes a request of an app hold `count` bytes instead of `held`. A request is always admitted if
    /// nothing else is held.
    ///
    /// - Returns: False if there is no capacity. Then the request still holds `held`.
    func change(_ app: String, from held: Int, to count: Int) -> Bool {
        lock.withLock {
            let (others, own) = unsafe (all - held, (byApp[app] ?? 0) - held)
            if count > held, others > 0 {
                let free = limit - others - count
                guard free >= 0, own == 0 || own + count <= Self.share * free else { return false }
            }
            unsafe all = others + count
            unsafe byApp[app] = own + count > 0 ? own + count : nil
            return true
        }
    }
}

/// The share of the budget that one request holds, and releases at its end. Confined to its loop.
final class HeldShare: @unchecked Sendable {
    private let held: HeldBytes
    private let app: String
    private let gauge: Gauge?
    private var bytes = 0

    init(of held: HeldBytes, for app: String, _ gauge: Gauge? = nil) {
        (self.held, self.app, self.gauge) = (held, app, gauge)
    }

    deinit { releaseBytes() }

    /// Holds so many bytes from now on, in place of those that the request held before.
    ///
    /// - Throws: `IntakeRefusal.unavailable` if there is no capacity.
    func hold(_ count: Int) throws(IntakeRefusal) {
        guard held.change(app, from: bytes, to: count) else { throw .unavailable }
        bytes = count
        gauge?.set(held.count)
    }

    func releaseBytes() {
        guard bytes > 0 else { return }
        _ = held.change(app, from: bytes, to: 0)
        bytes = 0
        gauge?.set(held.count)
    }
}
