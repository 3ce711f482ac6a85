import PushCore
import PushStorage
import ServiceKit

/// What went wrong with the pushes that are planned here: when each is tried again, by which part, and
/// whether it has to go. Errors that a condition may be the cause of could be the database's own as
/// well: a timeout, a want of memory, a connection that was lost. Often enough, and the push fails.
/// Any other is tried until it succeeds, by smaller and smaller parts: half of its audience may have
/// got it. Pure: no clock, no I/O.
struct PlanningTroubles {
    private struct Trouble {
        /// Tries without a page in between; each makes it rest longer.
        var tries = 0
        /// Those of them that the push itself may be the cause of.
        var faults = 0
        var looksAt: Int?
        var until: ContinuousClock.Instant
        var failure: String?
    }

    private static let maximum = 3
    /// Kept at once; a push may be another's to finish.
    private static let maximumPushes = 1000
    private static let smallestPage = 200
    private static let shortestRest = 250
    private static let longestRest = 30_000

    private var troubles: [String: Trouble] = [:]

    /// The pushes that are left alone for now, so that nobody waits behind them.
    func resting(at now: ContinuousClock.Instant) -> [String] {
        troubles.filter { $0.value.until > now }.map(\.key)
    }

    /// How many installations the next page of a push looks at; `nil`: as many as it takes.
    func looksAt(_ pushID: String) -> Int? { troubles[pushID]?.looksAt }

    /// Why a push cannot be planned, as far as that could not be written down yet.
    func failure(of pushID: String) -> String? { troubles[pushID]?.failure }

    /// A page was written: the next may be larger again.
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

    /// - Returns: Why it is not to be tried again; `nil`: it rests, and is.
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
        // A condition may be what the database goes down by.
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
