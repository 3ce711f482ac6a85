/// A queue of rows that wait in memory for their provider's share of the flight budget, in order of
/// arrival. Pure: no clock, no I/O; its times are milliseconds of a steady clock.
///
/// The deliveries that fill the share wait either for Postgres or for the provider. If Postgres is
/// slow, they are answered and wait to be recorded. Rows wait here then, and so do the callers that
/// bring more: to release rows and claim them again costs three times as much as sending them. If
/// the provider is slow, it must not hold up the others (promises 7 and 8). Then only a few rows
/// wait here for a short time, and the rest is released, due at the pace of the provider's answers.
///
/// A push to many named devices fills the share as fast as its provider answers. The few rows that
/// wait behind it keep their place as long as answers come, and no caller waits for them.
struct ProviderBacklog<Element> {
    /// How long a row waits for a slow provider.
    static var timeLimit: Int64 { 500 }
    /// The lowest pace at which released rows are due. The usual pace is that of the provider's
    /// answers.
    private static var slowestPace: Double { 200 }
    private static var shortestWait: Int64 { 1000 }
    private static var longestWait: Int64 { 60_000 }
    /// The time over which a pace is measured.
    private static var paceWindow: Int64 { 2000 }

    /// The number of waiting rows from which callers that bring more have to wait.
    let limit: Int
    /// The most rows that may be in flight at once.
    let share: Int
    private var rows: ContiguousArray<(element: Element, since: Int64)> = []
    private var head = 0
    /// The requests without an answer, of shards as well.
    private(set) var unanswered = 0
    private var unansweredOfShards = 0
    /// The time of the last answer, or of the first request after all were answered.
    private var heardAt: Int64 = 0
    /// Answers since `countedSince`.
    private var answers = 0
    private var countedSince: Int64 = 0
    private var closedUntil = Int64.min
    /// The time at which the next released row is due.
    private var nextDue = -Double.infinity

    init(limit: Int, share: Int) {
        self.limit = max(1, limit)
        self.share = max(1, share)
    }

    var count: Int { rows.count - head }
    var isEmpty: Bool { count == 0 }

    // MARK: The provider

    mutating func sent(_ count: Int, ofShard: Bool = false, at now: Int64) {
        if unanswered == 0 {
            answers = 0
            countedSince = now
            heardAt = now
        } else if now - countedSince > Self.paceWindow {
            answers /= 2
            countedSince = now - Self.paceWindow / 2
        }
        unanswered += count
        if ofShard { unansweredOfShards += count }
    }

    mutating func answered(ofShard: Bool = false, at now: Int64) {
        unanswered = max(0, unanswered - 1)
        if ofShard { unansweredOfShards = max(0, unansweredOfShards - 1) }
        answers += 1
        heardAt = now
    }

    /// Whether the rows here wait for the provider, and not for Postgres.
    private var waitsForProvider: Bool { unanswered * 2 >= share }

    /// Whether the provider is slow: rows alone fill the share, or it is silent.
    private func isProviderSlow(at now: Int64) -> Bool {
        (unanswered - unansweredOfShards) * 2 >= share
            || waitsForProvider && now - heardAt > Self.timeLimit
    }

    // MARK: Waiting rows

    /// Whether one more row may wait here.
    func admits(at now: Int64) -> Bool {
        !waitsForProvider || count < limit && now >= closedUntil
    }

    /// Whether callers that bring more should wait as well.
    var isPressing: Bool { count >= limit && !waitsForProvider }

    mutating func add(_ element: Element, at now: Int64) { rows.append((element, now)) }

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

    /// Takes all rows if the first has waited too long for a slow provider. Admits no more rows
    /// until the provider should have answered its requests.
    mutating func takeOverdue(at now: Int64) -> [Element] {
        guard !isEmpty, now - rows[head].since > Self.timeLimit, isProviderSlow(at: now) else {
            return []
        }
        let wait = Int64(Double(unanswered) / pace(now) * 1000)
        closedUntil = now + min(max(wait, Self.shortestWait), Self.longestWait)
        return take(count)
    }

    /// Returns the milliseconds until a row that is not admitted is due. Such rows are due one
    /// after the other, as fast as the provider answers.
    mutating func delay(at now: Int64) -> Int64 {
        let earliest = Double(max(now + Self.shortestWait, closedUntil))
        nextDue = max(nextDue + 1000 / pace(now), earliest)
        if nextDue > Double(now + Self.longestWait) { nextDue = earliest }
        return Int64(nextDue) - now
    }

    /// Returns the number of answers a second.
    func pace(_ now: Int64) -> Double {
        max(Double(answers) * 1000 / Double(max(1, now - countedSince)), Self.slowestPace)
    }
}
