import PushCore
import PushStorage
import ServiceKit
import Storage

/// The retries of pushes whose planning failed here: when each is retried, with which page size, and
/// whether it fails. An error that a condition may cause could be the database's own as well: a
/// timeout, a lack of memory, a lost connection. After several of them the push fails. Any other push
/// is retried until it succeeds, with smaller and smaller pages: half of its audience may have received
/// it. Pure: no clock, no I/O.
struct PlanningRetries {
    private struct Trouble {
        /// Failures without a page in between; each makes the backoff longer.
        var tries = 0
        /// The failures of these that the push itself may have caused.
        var faults = 0
        var looksAt: Int?
        var until: ContinuousClock.Instant
        var failure: String?
    }

    private static let maximum = 3
    /// The most entries at once; another replica may finish a push.
    private static let maximumPushes = 1000
    private static let smallestPage = 200
    private static let shortestRest = 250
    private static let longestRest = 30_000

    private var troubles: [String: Trouble] = [:]

    /// Returns the pushes in backoff, so that no other push waits behind them.
    func resting(at now: ContinuousClock.Instant) -> [String] {
        troubles.filter { $0.value.until > now }.map(\.key)
    }

    /// Returns how many installations the next page of a push reads; `nil` for as many as it takes.
    func looksAt(_ pushID: String) -> Int? { troubles[pushID]?.looksAt }

    /// Returns why a push cannot be planned, if that could not be stored yet.
    func failure(of pushID: String) -> String? { troubles[pushID]?.failure }

    /// Notes that a page was written: the next may be larger again.
    mutating func planned(_ pushID: String) {
        guard let looksAt = troubles[pushID]?.looksAt else {
            troubles[pushID] = nil
            return
        }
        troubles[pushID]?.tries = 0
        troubles[pushID]?.faults = 0
        troubles[pushID]?.looksAt = min(looksAt * 2, PlanningStore.carefulPage)
    }

    mutating func ended(_ pushID: String) { troubles[pushID] = nil }

    /// - Returns: The reason if it is not retried; `nil` if it is, after a backoff.
    mutating func add(
        _ error: StorageError,
        to push: PlanningPush,
        at now: ContinuousClock.Instant
    ) -> String? {
        if troubles.count >= Self.maximumPushes, troubles[push.id] == nil { troubles = [:] }
        var trouble = troubles[push.id] ?? Trouble(until: now)
        trouble.tries += 1
        if error.isStatementTimeout {
            let smaller = trouble.looksAt.map { max(Self.smallestPage, $0 / 10) }
            trouble.looksAt = smaller ?? PlanningStore.carefulPage
        }
        let rest = min(Self.longestRest, Self.shortestRest << min(trouble.tries, 10))
        trouble.until = now + .milliseconds(rest)
        let hasCondition = push.request.hasCondition
        let mayFail = hasCondition || push.request.isDryRun
        // A condition may be the cause of a database crash.
        let isOfThePush =
            error.isStatementTimeout
            || hasCondition && error.sqlState?.hasPrefix("53") ?? true
        if isOfThePush { trouble.faults += 1 }
        if mayFail, isOfThePush, trouble.faults >= Self.maximum {
            let subject = hasCondition ? "where: " : ""
            trouble.failure =
                subject
                + (error.isStatementTimeout
                    ? "the database takes longer than its statement timeout to ask it of the app's"
                        + " devices"
                    : "the database cannot answer it: \(error.description)")
        }
        troubles[push.id] = trouble
        return trouble.failure
    }
}
