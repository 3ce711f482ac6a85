import Observability

/// The open sockets of Realm's clients, in all, by app and by address, over all loops of the process.
/// Thread-safe.
final class RealmSocketCounts: Sendable {
    private let maximum: Int
    private let maximumOfAddress: Int
    private let lock = Lock()
    nonisolated(unsafe) private var total = 0
    nonisolated(unsafe) private var byApp: [String: Int] = [:]
    nonisolated(unsafe) private var byAddress: [String: Int] = [:]

    /// - Parameters:
    ///   - maximum: Of which one app may have four fifths.
    ///   - maximumOfAddress: 0: no limit.
    init(maximum: Int, ofAddress maximumOfAddress: Int) {
        self.maximum = maximum
        self.maximumOfAddress = maximumOfAddress
    }

    /// Counts a socket, unless there are too many.
    func enter(_ app: String, _ address: String) -> Bool {
        lock.withLock {
            let ofApp = unsafe byApp[app] ?? 0
            let ofAddress = unsafe byAddress[address] ?? 0
            guard unsafe total < maximum, ofApp < max(1, maximum / 5 * 4),
                maximumOfAddress == 0 || ofAddress < maximumOfAddress
            else { return false }
            unsafe total += 1
            unsafe byApp[app] = ofApp + 1
            unsafe byAddress[address] = ofAddress + 1
            return true
        }
    }

    func leave(_ app: String, _ address: String) {
        lock.withLock {
            unsafe total -= 1
            unsafe Self.decrease(app, in: &byApp)
            unsafe Self.decrease(address, in: &byAddress)
        }
    }

    private static func decrease(_ name: String, in counts: inout [String: Int]) {
        let count = counts[name] ?? 0
        counts[name] = count > 1 ? count - 1 : nil
    }

    /// The open sockets.
    var open: Int { lock.withLock { unsafe total } }

    /// The open sockets of each app.
    var openByApp: [String: Int] { lock.withLock { unsafe byApp } }
}
