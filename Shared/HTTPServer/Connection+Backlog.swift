internal import EventLoop
internal import HTTP2

/// Answers that wait for the peer: how much they are, and whether it reads them.
extension Connection {
    /// In memory.
    var heldBytes: Int {
        isClosed ? 0 : stream.pendingBytes + output.heldBytes + (driver?.heldBytes ?? 0)
    }

    /// Whether another request may be begun beside the answers that the peer has not read.
    var hasRoomForAnswers: Bool {
        heldBytes < server.configuration.maximumHeldAnswerBytesPerConnection
    }

    /// After each answer, and whenever output has moved.
    func countHeldBytes() {
        let held = heldBytes
        server.countHeldBytes(of: self, held, before: countedBytes)
        countedBytes = held
        answerRoom.admit()
    }

    func lookAtPace() {
        if unreadBytes == 0 {
            pace = nil
        } else if pace == nil {
            pace = AnswerPace(taken: takenBytes, at: .now)
        }
    }

    /// Of its answers what a peer has to read at a pace, which are not the events of a stream.
    private var unreadBytes: Int {
        guard let driver else { return backlogBytes }
        let events = streams.values.filter(\.stream.endsOnStop)
        if events.isEmpty { return backlogBytes + driver.unsentBytes }
        return max(0, driver.unsentBytes - events.reduce(0) { $0 + driver.backlog($1.ticket) })
    }

    /// Of its answers, what the peer's system has.
    private var takenBytes: Int {
        guard let sent = driver?.sentBytes else { return stream.takenBytes }
        return max(0, sent - output.count - stream.untakenBytes)
    }

    /// In how many seconds it will have read its answers; nil where it is too early to tell.
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
