/// The decisions of a pool about one connection. Pure: times are passed in, milliseconds.
struct ConnectionPolicy: Equatable {
    struct Limits: Equatable {
        /// Whether the peer allows only one request until it has accepted a token.
        var provesFirst = false
        /// How long the first request may block the others. After that only the peer's stream limit
        /// decides, even without an answer.
        var proofMilliseconds: Int64 = 2000
        var settingsMilliseconds: Int64 = 4000
        /// How long requests that wait only for the peer may make no progress.
        var stallMilliseconds: Int64 = 4000
        /// How long the peer may be silent, with requests in flight, before it gets a PING.
        var pingAfterMilliseconds: Int64 = 5000
        /// How long the peer may take to answer the PING before the connection is given up.
        var pingMilliseconds: Int64 = 5000
        var idleMilliseconds: Int64 = 600_000
        var ageMilliseconds: Int64 = 6 * 3_600_000
    }

    enum Action: Equatable {
        case none
        case ping
        /// The connection takes no new request, and closes when its last request has ended.
        case retire
        /// The connection is given up; its requests are in doubt.
        case giveUp
        /// The connection takes no new request, and the requests that the peer has not let through
        /// return to the queue. Returned repeatedly while any request is stuck.
        case stalled
    }

    /// The answers, or the lifetime, that make a connection worth its cost: nginx ends a connection
    /// after 1000 requests.
    private static let minimumUsefulResponses = 50
    private static let lastingMilliseconds: Int64 = 10_000
    private static let settledAnswers = 10

    let limits: Limits
    private(set) var isRetiring = false
    /// Whether the peer has answered a request, so that the connection is known to work.
    var hasAnswered: Bool { answers > 0 }
    /// Whether the last answer was the one that made the connection worth its cost.
    private(set) var hasJustLasted = false
    private var answers = 0
    private var hasBeenOld = false
    private var isEndCounted = false
    private var isProven: Bool
    private var openedAt: Int64 = 0
    private var lastReceivedAt: Int64 = 0
    private var answeredAt: Int64 = 0
    private var firstSentAt: Int64?
    private var pingedAt: Int64?
    /// The time since which nothing that waits for the peer has moved.
    private var stuckSince: Int64?
    private var movedBytes = 0
    /// The time since which the connection has only to close.
    private var doneAt: Int64?

    init(_ limits: Limits) {
        self.limits = limits
        isProven = !limits.provesFirst
    }

    mutating func opened(at now: Int64) {
        openedAt = now
        lastReceivedAt = now
    }

    mutating func heard(at now: Int64) {
        lastReceivedAt = now
        pingedAt = nil
    }

    mutating func sent(at now: Int64) {
        if firstSentAt == nil { firstSentAt = now }
    }

    /// Notes an answer. A refusal of our token proves nothing.
    mutating func answered(status: Int, at now: Int64) {
        answers += 1
        answeredAt = now
        stuckSince = nil
        let isOld = now - openedAt >= Self.lastingMilliseconds
        hasJustLasted = answers == Self.minimumUsefulResponses || isOld && !hasBeenOld
        hasBeenOld = hasBeenOld || isOld
        if status != 401, status != 403 { isProven = true }
    }

    /// Notes that a request sent at `sentAt` has timed out. If no request was answered since then,
    /// the connection is up but useless, and retires.
    mutating func timedOut(sentAt: Int64) {
        if answeredAt <= sentAt { isRetiring = true }
    }

    mutating func retire() { isRetiring = true }

    /// Notes that the peer ends the connection. Returns whether that is too early; true at most
    /// once.
    mutating func endsEarly(at now: Int64) -> Bool {
        guard !isEndCounted else { return false }
        isEndCounted = true
        return answers < Self.minimumUsefulResponses && now - openedAt < Self.lastingMilliseconds
    }

    /// Returns how many more requests the connection may take now.
    func capacity(free: Int, open: Int) -> Int {
        guard !isRetiring else { return 0 }
        return isProven ? free : min(free, max(0, 1 - open))
    }

    /// Whether the peer's stream limit is final. APNs allows one stream at first, and raises the
    /// limit only around its first answer.
    func accepts(limit: Int) -> Bool {
        isProven && hasAnswered && !isRetiring && (limit > 1 || answers >= Self.settledAnswers)
    }

    /// Decides about the connection; call it periodically.
    ///
    /// - Parameters:
    ///   - now: The time.
    ///   - hasSettings: Whether the peer's SETTINGS have arrived.
    ///   - awaited: The requests in flight whose end is awaited.
    ///   - isCongested: Whether the socket takes no output now.
    ///   - isStuck: Whether something waits only for the peer: a request for a stream, or a body
    ///     for a window.
    ///   - movedBytes: The bytes of request bodies sent so far.
    /// - Returns: The action; `retire` repeatedly, until the connection is closed.
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
            let isIdle = now - max(lastReceivedAt, openedAt) >= limits.idleMilliseconds
            guard isRetiring || isCongested || isIdle || isOld(at: now) else { return .none }
            // The connection closes once its last bytes are written. A vanished peer never takes
            // them, so the time for that is limited.
            let since = doneAt ?? now
            doneAt = since
            return now - since >= limits.pingMilliseconds ? .giveUp : .retire
        }
        if now - lastReceivedAt >= limits.pingAfterMilliseconds {
            pingedAt = now
            return .ping
        }
        return !isRetiring && isOld(at: now) ? .retire : .none
    }

    private func isOld(at now: Int64) -> Bool { now - openedAt >= limits.ageMilliseconds }
}

/// Decides when a pool may open a connection again. Pure: times are passed in, milliseconds.
struct ReconnectPolicy: Equatable {
    static let firstMilliseconds: Int64 = 250
    static let longestMilliseconds: Int64 = 10_000

    /// Consecutive connections that failed.
    private(set) var failures = 0
    /// The connections that answered but were ended early, beyond the tolerated number, since the
    /// last connection that was worth its cost.
    private(set) var earlyEnds = 0
    private var notBefore: Int64 = 0
    private var forgiveness: TokenBucket

    /// - Parameter forgives: The early ends in a row that cause no delay; after that one each 10 s.
    init(forgives: Int = 8) {
        forgiveness = TokenBucket(burst: forgives, everyMilliseconds: 10_000)
    }

    /// - Parameters:
    ///   - now: The time of the failure.
    ///   - jitter: 0 to 1, so that clients that lost a peer together do not reconnect together.
    mutating func failed(at now: Int64, jitter: Double) {
        back(off: failures, from: now, jitter)
        failures += 1
    }

    /// Notes that a connection has answered, but the peer has ended it early. A provider that
    /// recycles its servers does so now and then. If a provider always does so, fast reconnects do
    /// not help.
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

    /// Notes the first answer of a connection.
    mutating func succeeded() {
        failures = 0
        if earlyEnds == 0 { notBefore = 0 }
    }

    /// Notes that a connection has proved worth its cost.
    mutating func lasted() {
        earlyEnds = 0
        succeeded()
    }

    /// Returns how long to wait; 0: a connection may be opened now.
    func wait(at now: Int64) -> Int64 { max(0, notBefore - now) }

    /// Returns how many connections to open now.
    ///
    /// - Parameters:
    ///   - requests: The requests that wait or are in flight.
    ///   - waiting: The requests that wait for a stream.
    ///   - streams: The estimated streams of a connection.
    ///   - usable: The connections that take requests, or soon will.
    ///   - isConnecting: Whether one of the usable connections is still connecting.
    ///   - limit: The maximum number of usable connections.
    /// - Returns: 0 if there are enough, connecting ones included.
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
        // An unavailable peer is tried by one connection, not by all.
        return failures + earlyEnds > 0 ? min(missing, isConnecting ? 0 : 1) : missing
    }
}

/// Limits how often connections are replaced because of their answers: providers treat rapid
/// reconnects as an attack. Pure: times are passed in, milliseconds.
struct ReplacementPolicy: Equatable {
    private var bucket: TokenBucket

    /// - Parameter burst: How many replacements at once; after that one a second.
    init(burst: Int) { bucket = TokenBucket(burst: burst, everyMilliseconds: 1000) }

    mutating func admits(at now: Int64) -> Bool { bucket.take(at: now) }
}

/// A token bucket: a burst, and then one token each interval. Pure: times are passed in,
/// milliseconds.
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
