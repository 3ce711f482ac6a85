/// Lets one call go alone on each new connection, and the others once it has been answered.
///
/// Until then libcurl does not know the peer's settings and would take 100 streams for granted;
/// APNs grants one until it has seen a valid token. What is refused so costs the connection. A first
/// call that is not answered within a second holds nobody up any longer: by then the settings are
/// there.
///
/// It also keeps what GOAWAY said of each connection, as libcurl only tells in its verbose words.
/// Confined to its client's loop.
final class ConnectionGate {
    private struct First {
        var call: UInt
        var since: ContinuousClock.Instant
    }

    /// Local port → the call that goes ahead on it.
    private var proving: [Int: First] = [:]
    /// Ports of connections that have answered. One that is given out again by the kernel counts
    /// as proven, which costs no more than having no gate.
    private var proven: Set<Int> = []

    /// The last stream that a connection's peer has taken, where it said so.
    private var lastStreams: [Int: Int] = [:]

    private static let maximumProven = 4096
    private static let patience = Duration.seconds(1)

    /// Whether this call may be sent on the connection now.
    func admits(_ call: UInt, onPort port: Int) -> Bool {
        if proven.contains(port) { return true }
        if let first = proving[port] { return first.call == call }
        proving[port] = First(call: call, since: .now)
        // A port that comes again is another connection.
        lastStreams[port] = nil
        return true
    }

    /// Says whether others may have been waiting for this call's end.
    func finished(_ call: UInt, wasAnswered: Bool, port: Int?) -> Bool {
        if !wasAnswered, let port { proven.remove(port) }
        let ports = proving.filter { $0.value.call == call }.map(\.key)
        guard !ports.isEmpty else { return false }
        for port in ports { proving[port] = nil }
        if wasAnswered, let port { prove(port) }
        return true
    }

    /// Says whether a first call has been waited for long enough.
    func runsOutOfPatience(at now: ContinuousClock.Instant) -> Bool {
        let ports = proving.filter { now - $0.value.since >= Self.patience }.map(\.key)
        for port in ports {
            proving[port] = nil
            prove(port)
        }
        return !ports.isEmpty
    }

    func heardGoaway(onPort port: Int, lastStream: Int) {
        proven.remove(port)
        if lastStreams.count >= Self.maximumProven { lastStreams.removeAll() }
        lastStreams[port] = lastStream
    }

    /// Whether the peer has said that it did not process this stream.
    func isDisowned(stream: Int, onPort port: Int) -> Bool {
        lastStreams[port].map { stream > $0 } ?? false
    }

    private func prove(_ port: Int) {
        if proven.count >= Self.maximumProven { proven.removeAll() }
        proven.insert(port)
    }
}
