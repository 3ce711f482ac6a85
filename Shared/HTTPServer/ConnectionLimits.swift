internal import Observability

/// Counts and limits the open connections of all loops of a server.
final class ConnectionLimits: @unchecked Sendable {
    enum Admission { case admitted, isFull, addressIsFull }

    private let maximum: Int
    private let maximumPerAddress: Int?
    private let lock = Lock()
    private var count = 0
    private var countByAddress: [String: Int] = [:]

    init(_ configuration: HTTPServerConfiguration) {
        maximum = configuration.maximumConnections
        maximumPerAddress = configuration.maximumConnectionsPerAddress
    }

    func admit(_ address: String) -> Admission {
        lock.withLock {
            if let maximumPerAddress, countByAddress[address, default: 0] >= maximumPerAddress {
                return .addressIsFull
            }
            guard count < maximum else { return .isFull }
            if maximumPerAddress != nil { countByAddress[address, default: 0] += 1 }
            count += 1
            return .admitted
        }
    }

    func release(_ address: String) {
        lock.withLock {
            count -= 1
            guard let open = countByAddress[address] else { return }
            countByAddress[address] = open > 1 ? open - 1 : nil
        }
    }
}
