import PushStorage

/// How scheduled pushes are released where that goes wrong: fewer at a time until the one that cannot
/// be released is alone, that one page by page, and if that does not help it is left alone for a
/// while, so that it stops no other. Pure: no clock, no I/O.
struct ReleaseTroubles {
    private struct Rest {
        var count = 0
        var until: ContinuousClock.Instant
    }

    private static let batchLimit = 100
    /// Kept at once; a push may be another's to release.
    private static let maximumPushes = 1000
    private static let shortestRest = 1000
    private static let longestRest = 60_000

    /// Pushes released at once.
    private(set) var limit = batchLimit
    /// Those of which nothing is planned at once.
    private(set) var inPages: Set<String> = []
    private var rests: [String: Rest] = [:]

    func resting(at now: ContinuousClock.Instant) -> [String] {
        rests.filter { $0.value.until > now }.map(\.key)
    }

    /// Several together could not be released.
    ///
    /// - Returns: `false` where it was one already.
    mutating func shrink() -> Bool {
        guard limit > 1 else { return false }
        limit = max(1, limit / 10)
        return true
    }

    /// `isAll`: nothing more is due, so that what was looked for is found.
    mutating func released(_ pushIDs: [String], isAll: Bool) {
        for id in pushIDs {
            inPages.remove(id)
            rests[id] = nil
        }
        if isAll { limit = Self.batchLimit }
    }

    mutating func add(_ error: UnreleasablePush, at now: ContinuousClock.Instant) {
        if inPages.count + rests.count >= Self.maximumPushes { (inPages, rests) = ([], [:]) }
        if error.cause.isStatementTimeout, inPages.insert(error.id).inserted { return }
        var rest = rests[error.id] ?? Rest(until: now)
        rest.count += 1
        let wait = min(Self.longestRest, Self.shortestRest << min(rest.count - 1, 10))
        rest.until = now + .milliseconds(wait)
        rests[error.id] = rest
    }
}
