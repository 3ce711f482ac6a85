import PushCore
import PushStorage
import ServiceKit
import Storage

/// The retries of pushes whose planning failed in this process: the time of the next attempt, its
/// page size, and whether the push fails. An error may come from a condition, or from the database:
/// a timeout, a lack of memory, a lost connection. A push with a condition, or a dry run, fails
/// after several such errors. Any other push is retried with ever smaller pages until it succeeds,
/// as half of its audience may have received it already. Pure: no clock, no I/O.
struct PlanningRetries {
    private struct Entry {
        /// Consecutive failures without a written page. Each makes the backoff longer.
        var tries = 0
        /// The number of these failures that the push itself may have caused.
        var faults = 0
        var pageSize: Int?
        var until: ContinuousClock.Instant
        var failure: String?
    }

    private static let maximum = 3
    /// The most entries at once. Another replica may finish a push, so that its entry is not
    /// removed here.
    private static let maximumPushes = 1000
    private static let smallestPage = 200
    private static let shortestBackoff = 250
    private static let longestBackoff = 30_000

    private var entries: [String: Entry] = [:]

    /// Returns the pushes in backoff, so that no other push waits behind them.
    func backingOff(at now: ContinuousClock.Instant) -> [String] {
        entries.filter { $0.value.until > now }.map(\.key)
    }

    /// Returns how many installations the next page of a push reads; `nil` for the full size.
    func pageSize(_ pushID: String) -> Int? { entries[pushID]?.pageSize }

    /// Returns why a push must fail, if that could not be stored yet.
    func failure(of pushID: String) -> String? { entries[pushID]?.failure }

    /// Notes that a page was written: the next may be larger again.
    mutating func planned(_ pushID: String) {
        guard let pageSize = entries[pushID]?.pageSize else {
            entries[pushID] = nil
            return
        }
        entries[pushID]?.tries = 0
        entries[pushID]?.faults = 0
        entries[pushID]?.pageSize = min(pageSize * 2, PlanningStore.carefulPage)
    }

    mutating func ended(_ pushID: String) { entries[pushID] = nil }

    /// - Returns: The reason if the push fails; `nil` if it is retried after a backoff.
    mutating func add(
        _ error: StorageError,
        to push: PlanningPush,
        at now: ContinuousClock.Instant
    ) -> String? {
        if entries.count >= Self.maximumPushes, entries[push.id] == nil { entries = [:] }
        var entry = entries[push.id] ?? Entry(until: now)
        entry.tries += 1
        if error.isStatementTimeout {
            let smaller = entry.pageSize.map { max(Self.smallestPage, $0 / 10) }
            entry.pageSize = smaller ?? PlanningStore.carefulPage
        }
        let delay = min(Self.longestBackoff, Self.shortestBackoff << min(entry.tries, 10))
        entry.until = now + .milliseconds(delay)
        let hasCondition = push.request.hasCondition
        let mayFail = hasCondition || push.request.isDryRun
        // A condition may be the cause of a database crash.
        let isOfThePush =
            error.isStatementTimeout
            || hasCondition && error.sqlState?.hasPrefix("53") ?? true
        if isOfThePush { entry.faults += 1 }
        if mayFail, isOfThePush, entry.faults >= Self.maximum {
            let subject = hasCondition ? "where: " : ""
            entry.failure =
                subject
                + (error.isStatementTimeout
                    ? "the database takes longer than its statement timeout to ask it of the app's"
                        + " devices"
                    : "the database cannot answer it: \(error.description)")
        }
        entries[push.id] = entry
        return entry.failure
    }
}
