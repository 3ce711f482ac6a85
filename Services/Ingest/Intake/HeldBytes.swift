import Observability

/// What all requests hold, in bytes, from when it is known whose they are until they are answered, and
/// how much they may. Usable from anywhere.
///
/// An app that holds something may hold four times what is free with it. So one app alone leaves a fifth
/// to the others, and however many apps hold what they may, the next finds some left.
final class HeldBytes: Sendable {
    /// What a record takes beside its key and value: librdkafka's message and headers.
    private static let perRecord = 768
    /// How many times what is free an app may hold.
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

    /// Has a request of an app hold `count` bytes instead of `held`. One is always let in where nothing
    /// else is held.
    ///
    /// - Returns: False where there is no room for as much; then it holds what it held.
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

/// What one request holds of it; it lets go of it at its end. Confined to its loop.
final class HeldShare: @unchecked Sendable {
    private let held: HeldBytes
    private let app: String
    private let gauge: Gauge?
    private var bytes = 0

    init(of held: HeldBytes, for app: String, _ gauge: Gauge? = nil) {
        (self.held, self.app, self.gauge) = (held, app, gauge)
    }

    deinit { letGo() }

    /// Holds so much from now on, instead of what it held.
    ///
    /// - Throws: `IntakeRefusal.unavailable` where there is no room for it.
    func hold(_ count: Int) throws(IntakeRefusal) {
        guard held.change(app, from: bytes, to: count) else { throw .unavailable }
        bytes = count
        gauge?.set(held.count)
    }

    func letGo() {
        guard bytes > 0 else { return }
        _ = held.change(app, from: bytes, to: 0)
        bytes = 0
        gauge?.set(held.count)
    }
}
