import PushCore

/// Rows that wait in memory for their provider's share of the flight budget, in the order in which
/// they came. Pure: no clock, no I/O.
///
/// A provider that answers takes them within milliseconds, so it would be a waste to write them down
/// as due later and claim them again, at three times the cost of sending them. One that does not
/// answer must not hold up the others (promises 7 and 8): what has waited too long is handed back,
/// and until it has had time to recover nothing more waits for it here.
struct ProviderBacklog<Element> {
    /// How long one waits before its provider counts as slow.
    static var patience: Int64 { 500 }
    /// A provider that has answered so recently takes what is given to it.
    private static var answersWithin: Int64 { 100 }
    /// What is handed back comes due at the pace at which the provider answers, but no slower.
    private static var slowestPace: Double { 200 }
    private static var shortestWait: Int64 { 1000 }
    private static var longestWait: Int64 { 60_000 }

    /// So many wait before those who bring more are told to.
    let limit: Int
    private var rows: ContiguousArray<(element: Element, since: Instant)> = []
    private var head = 0
    private(set) var unanswered = 0
    private var lastAnswer = Instant.earliest
    /// Answers since `countedSince`, whose rate is how fast the provider is.
    private var answers = 0
    private var countedSince = Instant.earliest
    private var closedUntil = Instant.earliest
    /// When the next that is handed back comes due, in milliseconds since 1970.
    private var nextDue = -Double.infinity

    init(limit: Int) { self.limit = max(1, limit) }

    var count: Int { rows.count - head }
    var isEmpty: Bool { count == 0 }

    // MARK: The provider

    mutating func sent(_ count: Int, now: Instant) {
        if unanswered == 0 {
            lastAnswer = now
            answers = 0
            countedSince = now
        }
        unanswered += count
    }

    mutating func answered(now: Instant) {
        unanswered = max(0, unanswered - 1)
        lastAnswer = now
        answers += 1
    }

    /// Whether those before are on their way: answered and waiting to be written down, or being
    /// answered.
    private func isMoving(_ now: Instant) -> Bool {
        unanswered == 0 || now.milliseconds - lastAnswer.milliseconds <= Self.answersWithin
    }

    // MARK: Those that wait

    /// Whether one more may wait here.
    func admits(now: Instant) -> Bool {
        now >= closedUntil && (count < limit || isMoving(now))
    }

    /// Whether those who bring more should wait for it: it is full, and will not be for long.
    func isPressing(now: Instant) -> Bool { count >= limit && isMoving(now) }

    mutating func add(_ element: Element, now: Instant) { rows.append((element, now)) }

    mutating func take(_ count: Int) -> [Element] {
        let end = head + min(max(0, count), self.count)
        let taken = rows[head..<end].map(\.element)
        head = end
        if head == rows.count || head > 4096 {
            rows.removeFirst(head)
            head = 0
        }
        return taken
    }

    /// Everything, where the first has waited too long for a provider that owes answers; from then
    /// on nothing may wait until it should have answered what it has.
    mutating func takeOverdue(now: Instant) -> [Element] {
        guard !isEmpty, unanswered > 0,
            now.milliseconds - rows[head].since.milliseconds > Self.patience
        else { return [] }
        let wait = Int64(Double(unanswered) / pace(now) * 1000)
        closedUntil = now.adding(
            milliseconds: min(max(wait, Self.shortestWait), Self.longestWait)
        )
        return take(count)
    }

    /// When one that finds no room comes due: one after the other, as fast as the provider answers.
    mutating func dueTime(now: Instant) -> Instant {
        let soonest = max(now.adding(milliseconds: Self.shortestWait), closedUntil)
        let earliest = Double(soonest.milliseconds)
        let latest = Double(now.milliseconds + Self.longestWait)
        nextDue = max(nextDue + 1000 / pace(now), earliest)
        if nextDue > latest { nextDue = earliest }
        return Instant(milliseconds: Int64(nextDue))
    }

    /// Answers a second.
    private func pace(_ now: Instant) -> Double {
        let elapsed = Double(max(1, now.milliseconds - countedSince.milliseconds))
        return max(Double(answers) * 1000 / elapsed, Self.slowestPace)
    }
}
