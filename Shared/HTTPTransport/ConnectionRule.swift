/// What a pool may do with one connection. Pure: times are passed in, milliseconds.
struct ConnectionRule: Equatable {
    struct Limits: Equatable {
        /// The peer allows one request until it has seen one with a valid token.
        var provesFirst = false
        /// How long the first request may hold up the others: what has no answer by then leaves the
        /// peer's own stream limit to decide.
        var proofMilliseconds: Int64 = 2000
        var settingsMilliseconds: Int64 = 4000
        /// It does not let through what waits for it alone, for this long.
        var stallMilliseconds: Int64 = 4000
        /// With requests out and nothing heard for this long, it is asked whether it lives …
        var pingAfterMilliseconds: Int64 = 5000
        /// … and given up when it does not answer within this.
        var pingMilliseconds: Int64 = 5000
        var idleMilliseconds: Int64 = 600_000
        var ageMilliseconds: Int64 = 6 * 3_600_000
    }

    enum Action: Equatable {
        case none
        case ping
        /// Takes nothing new; closed when its last request has ended.
        case retire
        /// Given up: what it carries is in doubt.
        case giveUp
        /// Takes nothing new, and what it has not let through is to be taken back. Said again and
        /// again while there is any.
        case stalled
    }

    /// So many answers, or so long a life, and it was worth making: nginx ends a connection after 1000
    /// requests.
    private static let lastingAnswers = 50
    private static let lastingMilliseconds: Int64 = 10_000
    private static let settledAnswers = 10

    let limits: Limits
    private(set) var isRetiring = false
    /// It has answered something, so the connection led somewhere.
    var hasAnswered: Bool { answers > 0 }
    /// By its last answer it has shown that connections to this peer are worth making.
    private(set) var hasJustLasted = false
    private var answers = 0
    private var hasBeenOld = false
    private var endIsJudged = false
    private var isProven: Bool
    private var openedAt: Int64 = 0
    private var heardAt: Int64 = 0
    private var answeredAt: Int64 = 0
    private var firstSentAt: Int64?
    private var pingedAt: Int64?
    /// Since then nothing has moved that waits for the peer.
    private var stuckSince: Int64?
    private var movedBytes = 0
    /// Since then it has nothing to do but to close.
    private var doneAt: Int64?

    init(_ limits: Limits) {
        self.limits = limits
        isProven = !limits.provesFirst
    }

    mutating func opened(at now: Int64) {
        openedAt = now
        heardAt = now
    }

    mutating func heard(at now: Int64) {
        heardAt = now
        pingedAt = nil
    }

    mutating func sent(at now: Int64) {
        if firstSentAt == nil { firstSentAt = now }
    }

    /// A refusal of our token proves nothing.
    mutating func answered(status: Int, at now: Int64) {
        answers += 1
        answeredAt = now
        stuckSince = nil
        let isOld = now - openedAt >= Self.lastingMilliseconds
        hasJustLasted = answers == Self.lastingAnswers || isOld && !hasBeenOld
        hasBeenOld = hasBeenOld || isOld
        if status != 401, status != 403 { isProven = true }
    }

    /// A request that was sent then has run out of time. Where nothing at all was answered since,
    /// the connection stands but leads nowhere.
    mutating func timedOut(sentAt: Int64) {
        if answeredAt <= sentAt { isRetiring = true }
    }

    mutating func retire() { isRetiring = true }

    /// The peer ends it. Whether that came too early is said once.
    mutating func endsEarly(at now: Int64) -> Bool {
        guard !endIsJudged else { return false }
        endIsJudged = true
        return answers < Self.lastingAnswers && now - openedAt < Self.lastingMilliseconds
    }

    /// How many requests it may be given now.
    func capacity(free: Int, open: Int) -> Int {
        guard !isRetiring else { return 0 }
        return isProven ? free : min(free, max(0, 1 - open))
    }

    /// Whether the peer's stream limit is what it will stay. APNs allows one stream at first, and
    /// says how many more only about when it answers.
    func believes(limit: Int) -> Bool {
        isProven && hasAnswered && !isRetiring && (limit > 1 || answers >= Self.settledAnswers)
    }

    /// To be asked now and then.
    ///
    /// - Parameters:
    ///   - now: When.
    ///   - hasSettings: The peer's have come.
    ///   - awaited: Requests that are out, and whose end somebody waits for.
    ///   - isCongested: Its socket does not take what is to be written.
    ///   - isStuck: Something waits for what the peer alone can give: a stream where it allows none,
    ///     a window for a body.
    ///   - movedBytes: Of bodies, so far.
    /// - Returns: `retire` again and again, until it is closed.
    mutating func check(
        at now: Int64,
        hasSettings: Bool,
        awaited: Int,
        isCongested: Bool = false,
        isStuck: Bool = false,
        movedBytes: Int = 0
    ) -> Action {
        guard hasSettings else {
            return now - openedAt >= limits.settingsMilliseconds ? .giveUp : .none
        }
        if !isStuck || movedBytes != self.movedBytes { stuckSince = nil }
        self.movedBytes = movedBytes
        if isStuck {
            let since = stuckSince ?? now
            stuckSince = since
            if now - since >= limits.stallMilliseconds { return .stalled }
        }
        if !isProven, let firstSentAt, now - firstSentAt >= limits.proofMilliseconds, awaited > 0 {
            isProven = true
        }
        if let pingedAt {
            return now - pingedAt >= limits.pingMilliseconds ? .giveUp : .none
        }
        guard awaited > 0 else {
            let isIdle = now - max(heardAt, openedAt) >= limits.idleMilliseconds
            guard isRetiring || isCongested || isIdle || isOld(at: now) else { return .none }
            // It closes once its last bytes are written, which a peer that is gone never takes.
            let since = doneAt ?? now
            doneAt = since
            return now - since >= limits.pingMilliseconds ? .giveUp : .retire
        }
        if now - heardAt >= limits.pingAfterMilliseconds {
            pingedAt = now
            return .ping
        }
        return !isRetiring && isOld(at: now) ? .retire : .none
    }

    private func isOld(at now: Int64) -> Bool { now - openedAt >= limits.ageMilliseconds }
}

/// When a pool may open a connection again. Pure: times are passed in, milliseconds.
struct ReconnectRule: Equatable {
    static let firstMilliseconds: Int64 = 250
    static let longestMilliseconds: Int64 = 10_000

    /// Connections in a row that led nowhere.
    private(set) var failures = 0
    /// Connections that answered and were ended early, beyond those forgiven, since one has lasted.
    private(set) var earlyEnds = 0
    private var notBefore: Int64 = 0
    private var forgiveness: TokenBucket

    /// - Parameter forgives: Early ends at once that slow nothing down; after those one each 10 s.
    init(forgives: Int = 8) {
        forgiveness = TokenBucket(burst: forgives, everyMilliseconds: 10_000)
    }

    /// - Parameters:
    ///   - now: Of the failure.
    ///   - jitter: 0 to 1, so that those who lost a peer together do not come back together.
    mutating func failed(at now: Int64, jitter: Double) {
        back(off: failures, from: now, jitter)
        failures += 1
    }

    /// A connection has answered, but the peer has ended it early. A provider that recycles its
    /// servers does that now and then; one that does nothing else is not helped by haste.
    mutating func endedEarly(at now: Int64, jitter: Double) {
        guard !forgiveness.take(at: now) else { return }
        back(off: earlyEnds, from: now, jitter)
        earlyEnds += 1
    }

    private mutating func back(off count: Int, from now: Int64, _ jitter: Double) {
        let delay = min(
            Self.firstMilliseconds << Int64(min(count, 10)),
            Self.longestMilliseconds
        )
        notBefore = max(notBefore, now + Int64(Double(delay) * (0.75 + jitter / 2)))
    }

    /// A connection has its first answer.
    mutating func succeeded() {
        failures = 0
        if earlyEnds == 0 { notBefore = 0 }
    }

    /// A connection has carried enough to be worth making.
    mutating func lasted() {
        earlyEnds = 0
        succeeded()
    }

    /// 0 when it may be now.
    func wait(at now: Int64) -> Int64 { max(0, notBefore - now) }

    /// How many connections to open now.
    ///
    /// - Parameters:
    ///   - requests: Waiting and out.
    ///   - waiting: Of these, those that found no stream.
    ///   - streams: What a connection is thought to carry.
    ///   - usable: Connections that take requests, or soon will.
    ///   - isConnecting: Whether one of those is being made.
    ///   - limit: At most so many of those.
    /// - Returns: 0 where enough are there or on their way.
    func toOpen(
        requests: Int,
        waiting: Int,
        streams: Int,
        usable: Int,
        isConnecting: Bool,
        limit: Int
    ) -> Int {
        guard waiting > 0 else { return 0 }
        let wanted = min(limit, (requests + max(1, streams) - 1) / max(1, streams))
        let missing = max(0, max(1, wanted) - usable)
        // A peer that is away is tried by one, not by all.
        return failures + earlyEnds > 0 ? min(missing, isConnecting ? 0 : 1) : missing
    }
}

/// How often connections may be replaced because of what was answered on them: providers take those
/// that come and go rapidly for an attack. Pure: times are passed in, milliseconds.
struct ReplacementRule: Equatable {
    private var bucket: TokenBucket

    /// - Parameter burst: How many at once; after that one a second.
    init(burst: Int) { bucket = TokenBucket(burst: burst, everyMilliseconds: 1000) }

    mutating func admits(at now: Int64) -> Bool { bucket.take(at: now) }
}

/// So many at once, and then one each so often. Pure: times are passed in, milliseconds.
struct TokenBucket: Equatable {
    private let burst: Double
    private let interval: Double
    private var tokens: Double
    private var filledAt: Int64 = 0

    init(burst: Int, everyMilliseconds interval: Int64) {
        self.burst = Double(burst)
        self.interval = Double(interval)
        tokens = Double(burst)
    }

    mutating func take(at now: Int64) -> Bool {
        tokens = min(burst, tokens + Double(now - filledAt) / interval)
        filledAt = now
        guard tokens >= 1 else { return false }
        tokens -= 1
        return true
    }
}
