/// A queue of rows that wait in memory for their provider's share of the flight budget, in the order in
/// which they came. Pure: no clock, no I/O; its times are milliseconds of a steady clock.
///
/// The deliveries that fill the share are either answered and wait to be recorded, or wait for the
/// provider. Then either Postgres is slow: rows wait here, as do the callers that bring more: recording
/// them as due later and claiming them again would cost three times as much as sending them. Or the
/// provider is slow, and must not hold up the others (promises 7 and 8): only a few rows wait, not for
/// long, and the rest is released, to be due as fast as the provider answers.
struct ProviderBacklog<Element> {
    /// How long a row waits for a slow provider.
    static var timeLimit: Int64 { 500 }
    /// The lowest pace at which released rows are due; usually it is that of the provider's answers.
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
    private(set) var unanswered = 0
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

    mutating func sent(_ count: Int, at now: Int64) {
        if unanswered == 0 {
            answers = 0
            countedSince = now
        } else if now - countedSince > Self.paceWindow {
            answers /= 2
            countedSince = now - Self.paceWindow / 2
        }
        unanswered += count
    }

    mutating func answered() {
        unanswered = max(0, unanswered - 1)
        answers += 1
    }

    /// Whether the rows here wait for the provider.
    private var isProviderSlow: Bool { unanswered * 2 >= share }

    // MARK: Waiting rows

    /// Whether one more may wait here.
    func admits(at now: Int64) -> Bool {
        !isProviderSlow || count < limit && now >= closedUntil
    }

    /// Whether callers that bring more should wait as well.
    var isPressing: Bool { count >= limit && !isProviderSlow }

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

    /// Takes all rows if the first has waited too long for a slow provider; until the provider should
    /// have answered its requests, no more rows wait for it.
    mutating func takeOverdue(at now: Int64) -> [Element] {
        guard !isEmpty, isProviderSlow, now - rows[head].since > Self.timeLimit else { return [] }
        let wait = Int64(Double(unanswered) / pace(now) * 1000)
        closedUntil = now + min(max(wait, Self.shortestWait), Self.longestWait)
        return take(count)
    }

    /// Returns the milliseconds until a row that finds no room is due: one after the other, as fast as
    /// the provider answers.
    mutating func delay(at now: Int64) -> Int64 {
        let earliest = Double(max(now + Self.shortestWait, closedUntil))
        nextDue = max(nextDue + 1000 / pace(now), earliest)
        if nextDue > Double(now + Self.longestWait) { nextDue = earliest }
        return Int64(nextDue) - now
    }

    /// Returns the answers a second.
    func pace(_ now: Int64) -> Double {
        max(Double(answers) * 1000 / Double(max(1, now - countedSince)), Self.slowestPace)
    }
}
