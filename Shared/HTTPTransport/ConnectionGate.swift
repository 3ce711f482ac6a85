/// Admits one call on each new connection, and the other calls once the first is answered.
///
/// Before the first answer libcurl does not know the peer's settings and would assume 100 streams.
/// APNs allows one stream until it has seen a valid token, and a stream refused for that costs the
/// connection. After a second without an answer the first call no longer blocks the others: by then
/// the settings have arrived.
///
/// It also stores the GOAWAY of each connection, as libcurl only reports it in its verbose output.
/// Confined to its client's loop.
final class ConnectionGate {
    private struct First {
        var call: UInt
        var since: ContinuousClock.Instant
    }

    /// Local port → the first call on it.
    private var proving: [Int: First] = [:]
    /// Ports of connections that have answered. A port that the kernel reuses still counts as
    /// proven, which is no worse than having no gate.
    private var proven: Set<Int> = []

    /// The last stream that a connection's peer has accepted, if it reported one.
    private var lastStreams: [Int: Int] = [:]

    private static let maximumProven = 4096
    private static let timeLimit = Duration.seconds(1)

    /// Whether this call may be sent on the connection now.
    func admits(_ call: UInt, onPort port: Int) -> Bool {
        if proven.contains(port) { return true }
        if let first = proving[port] { return first.call == call }
        proving[port] = First(call: call, since: .now)
        // A reused port is another connection, which has no GOAWAY.
        lastStreams[port] = nil
        return true
    }

    /// Notes the end of a call; returns whether others may have waited for it.
    func finished(_ call: UInt, wasAnswered: Bool, port: Int?) -> Bool {
        if !wasAnswered, let port { proven.remove(port) }
        let ports = proving.filter { $0.value.call == call }.map(\.key)
        guard !ports.isEmpty else { return false }
        for port in ports { proving[port] = nil }
        if wasAnswered, let port { prove(port) }
        return true
    }

    /// Whether a first call has blocked the others for long enough.
    func isTimedOut(at now: ContinuousClock.Instant) -> Bool {
        let ports = proving.filter { now - $0.value.since >= Self.timeLimit }.map(\.key)
        for port in ports {
            proving[port] = nil
            prove(port)
        }
        return !ports.isEmpty
    }

    func didReceiveGoAway(onPort port: Int, lastStream: Int) {
        proven.remove(port)
        if lastStreams.count >= Self.maximumProven { lastStreams.removeAll() }
        lastStreams[port] = lastStream
    }

    /// Whether the peer has reported that it did not process this stream.
    func isUnprocessed(stream: Int, onPort port: Int) -> Bool {
        lastStreams[port].map { stream > $0 } ?? false
    }

    private func prove(_ port: Int) {
        if proven.count >= Self.maximumProven { proven.removeAll() }
        proven.insert(port)
    }
}
