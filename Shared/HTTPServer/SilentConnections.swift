/// The connections of one loop that have not sent the head of a request yet, oldest first. When a
/// server has reached its limit of connections, the oldest silent one is closed for a new one: so a
/// client that only opens connections does not shut out others.
struct SilentConnections {
    private var ids: [Int] = []
    /// The index of the oldest connection; earlier entries are no longer needed.
    private var first = 0

    /// The time within which an honest client sends the head of its request after its TLS
    /// handshake.
    static let protectedFor: Duration = .seconds(1)

    mutating func opened(_ id: Int) { ids.append(id) }

    /// Drops entries at the front that are closed or have sent a head.
    ///
    /// - Returns: The oldest that is silent, if it is older than `protectedFor`.
    mutating func oldest(
        at now: ContinuousClock.Instant,
        among connections: [Int: Connection]
    ) -> Connection? {
        while first < ids.count {
            if let connection = connections[ids[first]], !connection.hasSentHead {
                return now >= connection.openedAt + Self.protectedFor ? connection : nil
            }
            first += 1
        }
        ids.removeAll(keepingCapacity: true)
        first = 0
        return nil
    }

    /// Frees the memory of entries that are no longer needed.
    mutating func compact(at now: ContinuousClock.Instant, among connections: [Int: Connection]) {
        _ = oldest(at: now, among: connections)
        guard first > 1024, first > ids.count / 2 else { return }
        ids.removeFirst(first)
        first = 0
    }
}
