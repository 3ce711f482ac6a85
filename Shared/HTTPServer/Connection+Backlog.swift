internal import EventLoop
internal import HTTP2

/// Responses that wait for the peer: their size, and whether the peer reads them.
extension Connection {
    /// The bytes of responses in memory.
    var heldBytes: Int {
        isClosed ? 0 : stream.pendingBytes + output.heldBytes + (driver?.heldBytes ?? 0)
    }

    /// Whether another request may begin in spite of the responses that the peer has not read.
    var hasRoomForAnswers: Bool {
        heldBytes < server.configuration.maximumHeldAnswerBytesPerConnection
    }

    /// Updates the count; called after each response, and whenever output has moved.
    func countHeldBytes() {
        let held = heldBytes
        server.countHeldBytes(of: self, held, before: countedBytes)
        countedBytes = held
        answerRoom.admit()
    }

    func checkDrainRate() {
        if unreadBytes == 0 {
            pace = nil
        } else if pace == nil {
            pace = DrainRate(taken: takenBytes, at: .now)
        }
    }

    /// The unread bytes that the peer must read at the minimum rate; event streams are exempt.
    private var unreadBytes: Int {
        guard let driver else { return backlogBytes }
        let events = streams.values.filter(\.stream.endsOnStop)
        if events.isEmpty { return backlogBytes + driver.unsentBytes }
        return max(0, driver.unsentBytes - events.reduce(0) { $0 + driver.backlog($1.ticket) })
    }

    /// The bytes of responses that the peer's system has taken.
    private var takenBytes: Int {
        guard let sent = driver?.sentBytes else { return stream.takenBytes }
        return max(0, sent - output.count - stream.untakenBytes)
    }

    /// Returns the seconds until the peer has read its responses; nil if it is too early to tell.
    func secondsLeft(_ now: ContinuousClock.Instant) -> Double? {
        pace?.secondsLeft(held: heldBytes, taken: takenBytes, at: now)
    }

    func readsTooSlowly(_ now: ContinuousClock.Instant) -> Bool {
        guard pace != nil, unreadBytes > 0 else { return false }
        let taken = takenBytes
        return pace?.isTooSlow(
            taken: taken,
            at: now,
            least: server.configuration.minimumAnswerBytesPerSecond,
            over: server.configuration.idleTimeout
        ) == true
    }
}
