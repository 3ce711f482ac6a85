/// Lets one call go alone on each new connection, and the others once it has been answered.
///
/// Until then libcurl does not know the peer's settings and would take 100 streams for granted;
/// APNs grants one until it has seen a valid token. What is refused so costs the connection. A first
/// call that is not answered within a second holds nobody up any longer: by then the settings are
/// there. Confined to its client's loop.
struct ConnectionGate {
    private struct First {
        var call: UInt
        var since: ContinuousClock.Instant
    }

    /// Local port → the call that goes ahead on it.
    private var proving: [Int: First] = [:]
    /// Ports of connections that have answered. One that is given out again by the kernel counts
    /// as proven, which costs no more than having no gate.
    private var proven: Set<Int> = []

    private static let maximumProven = 4096
    private static let patience = Duration.seconds(1)

    /// Whether this call may be sent on the connection now.
    mutating func admits(_ call: UInt, onPort port: Int) -> Bool {
        if proven.contains(port) { return true }
        if let first = proving[port] { return first.call == call }
        proving[port] = First(call: call, since: .now)
        return true
    }

    /// Says whether others may have been waiting for this call's end.
    mutating func finished(_ call: UInt, wasAnswered: Bool, port: Int?) -> Bool {
        if !wasAnswered, let port { proven.remove(port) }
        let ports = proving.filter { $0.value.call == call }.map(\.key)
        guard !ports.isEmpty else { return false }
        for port in ports { proving[port] = nil }
        if wasAnswered, let port { prove(port) }
        return true
    }

    /// Says whether a first call has been waited for long enough.
    mutating func runsOutOfPatience(at now: ContinuousClock.Instant) -> Bool {
        let ports = proving.filter { now - $0.value.since >= Self.patience }.map(\.key)
        for port in ports {
            proving[port] = nil
            prove(port)
        }
        return !ports.isEmpty
    }

    private mutating func prove(_ port: Int) {
        if proven.count >= Self.maximumProven { proven.removeAll() }
        proven.insert(port)
    }
}
