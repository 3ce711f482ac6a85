import Observability

/// The open connections of the process, in all and by address. Thread-safe.
final class SocketCounts: Sendable {
    enum Refusal {
        case isFull, addressIsFull
    }

    private let maximum: Int
    private let maximumOfAddress: Int
    private let lock = Lock()
    nonisolated(unsafe) private var total = 0
    nonisolated(unsafe) private var byAddress: [String: Int] = [:]

    /// - Parameters:
    ///   - maximum: 0: no limit.
    ///   - maximumOfAddress: 0: no limit.
    init(maximum: Int, ofAddress maximumOfAddress: Int) {
        self.maximum = maximum
        self.maximumOfAddress = maximumOfAddress
    }

    /// Counts a connection, unless there are too many.
    func entered(_ address: String) -> Refusal? {
        lock.withLock {
            if maximum > 0, unsafe total >= maximum { return .isFull }
            let count = unsafe byAddress[address] ?? 0
            if maximumOfAddress > 0, count >= maximumOfAddress { return .addressIsFull }
            unsafe total += 1
            unsafe byAddress[address] = count + 1
            return nil
        }
    }

    func left(_ address: String) {
        lock.withLock {
            guard let count = unsafe byAddress[address] else { return }
            unsafe total -= 1
            unsafe byAddress[address] = count > 1 ? count - 1 : nil
        }
    }
}
