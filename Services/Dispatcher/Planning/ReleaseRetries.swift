import PushStorage
import Storage

/// The retries of failed releases of scheduled pushes. Releases fewer pushes at a time until the
/// faulty one is alone, then releases that one page by page. If that fails too, retries it after a
/// backoff, so that it does not block others. Pure: no clock, no I/O.
struct ReleaseRetries {
    private struct Entry {
        var count = 0
        var until: ContinuousClock.Instant
    }

    private static let batchLimit = 100
    /// The most entries at once. Another replica may release a push, so that its entry is not
    /// removed here.
    private static let maximumPushes = 1000
    private static let shortestBackoff = 1000
    private static let longestBackoff = 60_000

    /// The most pushes that are released at once.
    private(set) var limit = batchLimit
    /// The pushes that are planned page by page, and not in the transaction that releases them.
    private(set) var inPages: Set<String> = []
    private var entries: [String: Entry] = [:]

    func backingOff(at now: ContinuousClock.Instant) -> [String] {
        entries.filter { $0.value.until > now }.map(\.key)
    }

    /// Notes that several pushes together could not be released.
    ///
    /// - Returns: `false` if there was only one already.
    mutating func shrink() -> Bool {
        guard limit > 1 else { return false }
        limit = max(1, limit / 10)
        return true
    }

    /// Notes released pushes. `isAll` says that nothing more is due, so that the search for the
    /// faulty push has ended.
    mutating func released(_ pushIDs: [String], isAll: Bool) {
        for id in pushIDs {
            inPages.remove(id)
            entries[id] = nil
        }
        if isAll { limit = Self.batchLimit }
    }

    mutating func add(_ error: UnreleasablePush, at now: ContinuousClock.Instant) {
        if inPages.count + entries.count >= Self.maximumPushes { (inPages, entries) = ([], [:]) }
        if error.cause.isStatementTimeout, inPages.insert(error.id).inserted { return }
        var entry = entries[error.id] ?? Entry(until: now)
        entry.count += 1
        let wait = min(Self.longestBackoff, Self.shortestBackoff << min(entry.count - 1, 10))
        entry.until = now + .milliseconds(wait)
        entries[error.id] = entry
    }
}
