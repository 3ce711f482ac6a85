/// The order of steps by which a consumer ends without hanging, aborting or losing records. Pure:
/// it gets the situation repeatedly, and returns the next step.
///
/// In 2.0.2 a close before the first rebalance was answered aborts the process or never returns,
/// one with an empty assignment sends no LeaveGroup (the others then wait out the session), and a
/// native event that is alive at the destruction hangs it. A client that is abandoned while it is
/// subscribed may still join, and then answers no rebalance: nobody in the group reads meanwhile.
struct ConsumerStop: Equatable, Sendable {
    /// The present situation.
    struct Situation: Equatable, Sendable {
        /// Batches that are outstanding.
        var outstandingBatches = 0
        /// Whether a rebalance was answered since the subscription.
        var hasJoined = true
        /// Whether the group has given us a member id; only checked while `isLeaving`.
        var isMember = true
        /// Whether some broker is reachable, as far as is known.
        var isBrokerUp = true
        /// Whether the group does not let us join.
        var isRejected = false
        /// Revocations that still wait for their batches.
        var openRevocations = 0
        /// Whether the client is closed, by `rd_kafka_consumer_closed`.
        var isClosed = false
        /// The time since the stop began.
        var elapsed: Duration = .zero
    }

    enum Action: Equatable, Sendable {
        /// Serve the queue and ask again.
        case wait
        case unsubscribe
        case close
        case destroy
        /// The time limit has passed: leave everything to the process' end.
        case abandon
    }

    private enum Phase: Equatable {
        case finishing, joining, leaving, closing, abandoning, over
    }

    /// The limit for outstanding batches; unfinished ones are read again by other members.
    private(set) var drainLimit: Duration
    /// The limit for the whole stop.
    private(set) var limit: Duration
    /// The limit for leaving the group, and for the close. If a broker does not answer, the group
    /// only learns of the leave later, by its session timeout.
    private(set) var leaveLimit: Duration
    /// The limit for a first rebalance while no broker is reachable, or the group rejects us.
    let absenceLimit: Duration
    private var phase = Phase.finishing
    private var leftAt: Duration?

    init(
        drainLimit: Duration = .seconds(10),
        limit: Duration = .seconds(15),
        leaveLimit: Duration = .seconds(5),
        absenceLimit: Duration = .seconds(1)
    ) {
        self.drainLimit = drainLimit
        self.limit = limit
        self.leaveLimit = leaveLimit
        self.absenceLimit = absenceLimit
    }

    /// Whether it is unsubscribed and not closing yet: the only time at which librdkafka may be
    /// asked for the member's id. Once the close has begun, the call can block for ever.
    var isLeaving: Bool { phase == .leaving }

    /// Shortens all limits in proportion if there is less time than `limit`. Before the first
    /// `next`.
    mutating func fit(to time: Duration) {
        guard time < limit else { return }
        let share = max(0, time / limit)
        drainLimit = drainLimit * share
        leaveLimit = leaveLimit * share
        limit = time
    }

    mutating func next(_ situation: Situation) -> Action {
        let isLate = leftAt.map { situation.elapsed >= $0 + leaveLimit } ?? false
        if phase != .over, isLate || situation.elapsed >= limit { return abandon() }
        switch phase {
        case .finishing:
            guard situation.outstandingBatches == 0 || situation.elapsed >= drainLimit else {
                return .wait
            }
            phase = .joining
            return next(situation)
        case .joining:
            if situation.hasJoined {
                phase = .leaving
                leftAt = situation.elapsed
                return .unsubscribe
            }
            if !situation.isBrokerUp || situation.isRejected, situation.elapsed >= absenceLimit {
                return abandon()
            }
            return .wait
        case .leaving:
            guard !situation.isMember, situation.openRevocations == 0 else { return .wait }
            phase = .closing
            return .close
        case .closing:
            guard situation.isClosed else { return .wait }
            phase = .over
            return .destroy
        case .abandoning:
            return abandon()
        case .over:
            return .wait
        }
    }

    private mutating func abandon() -> Action {
        let isSubscribed = phase == .finishing || phase == .joining
        phase = isSubscribed ? .abandoning : .over
        return isSubscribed ? .unsubscribe : .abandon
    }
}
