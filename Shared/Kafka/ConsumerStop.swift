/// The order in which a consumer's end can go without hanging, aborting or losing. Pure: it is asked
/// again and again with what is the case, and says what to do next.
///
/// In 2.0.2 a close before the first rebalance was answered aborts the process or never returns, one
/// with an empty assignment sends no LeaveGroup (the others then wait out the session), and a native
/// event that is alive at the destroying hangs it.
struct ConsumerStop: Equatable, Sendable {
    /// What is the case.
    struct Situation: Equatable, Sendable {
        /// Batches in somebody's hands.
        var outstandingBatches = 0
        /// A rebalance was answered since the subscription.
        var hasJoined = true
        /// The group knows us by a name; only looked at while `isLeaving`.
        var isMember = true
        /// Some broker can be talked to, as far as is known.
        var isBrokerUp = true
        /// The group does not let us join.
        var isRejected = false
        /// Revocations that still wait for their batches.
        var openRevocations = 0
        /// `rd_kafka_consumer_closed`.
        var isClosed = false
        /// Since the stop began.
        var elapsed: Duration = .zero
    }

    enum Action: Equatable, Sendable {
        /// Serve the queue and ask again.
        case wait
        case unsubscribe
        case close
        case destroy
        /// The time is over: leave everything to the process' end.
        case abandon
    }

    private enum Phase: Equatable {
        case finishing, joining, leaving, closing, over
    }

    /// For batches that are outstanding; what is not finished by then is read again by others.
    private(set) var drainLimit: Duration
    /// For all of it.
    private(set) var limit: Duration
    /// For the group to let it go, and for the close. A broker that does not answer only delays what
    /// the group learns by its session's timeout.
    private(set) var leaveLimit: Duration
    /// For a first rebalance that no broker is there to bring, or that the group does not grant.
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

    /// Unsubscribed and not closing yet: the only time at which librdkafka may be asked for the
    /// member's id. Once the close is under way, the question can wait for ever.
    var isLeaving: Bool { phase == .leaving }

    /// Shortens all its limits alike where there is less time than `limit`. Before the first `next`.
    mutating func fit(to time: Duration) {
        guard time < limit else { return }
        let share = max(0, time / limit)
        drainLimit = drainLimit * share
        leaveLimit = leaveLimit * share
        limit = time
    }

    mutating func next(_ situation: Situation) -> Action {
        let isLate = leftAt.map { situation.elapsed >= $0 + leaveLimit } ?? false
        if phase != .over, isLate || situation.elapsed >= limit {
            phase = .over
            return .abandon
        }
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
                phase = .over
                return .abandon
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
        case .over:
            return .wait
        }
    }
}
