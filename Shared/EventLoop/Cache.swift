import JSON

/// A cache of values read from a store by key, for a few seconds. Confined to its loop.
///
/// Concurrent callers share one read, unless it began before the last noted change. A value that
/// was read before a change is not stored after the change. While the store is unavailable, values
/// stay usable for longer.
package final class Cache<Value: Sendable>: @unchecked Sendable {
    package struct Terms: Sendable {
        /// How long a value is fresh.
        package var fresh: Duration
        /// How long after its read a value is usable while the store is unavailable.
        package var stale: Duration
        /// How long the absence of a value is cached.
        package var missing: Duration
        /// The time limit of a read, and (`timeLimitWithStale`) the limit if there is a stale
        /// value.
        package var timeLimit: Duration = .seconds(10)
        package var timeLimitWithStale: Duration = .seconds(1)
        /// The pause before an unavailable store is tried again.
        package var retryPause: Duration = .seconds(1)
        /// The limit beyond which the cache is emptied.
        package var maximumEntries = 10_000

        package init(fresh: Duration, stale: Duration = .zero, missing: Duration = .seconds(1)) {
            self.fresh = fresh
            self.stale = stale
            self.missing = missing
        }
    }

    /// The source of the values.
    package struct Store: Sendable {
        let isAway: @Sendable () -> Bool
        /// Whether an error says nothing about the value, so that a stale value may be used.
        let isTransient: @Sendable (any Error) -> Bool
        /// Thrown to callers if the store does not answer in time.
        let tooLate: any Error

        package init(
            isAway: @escaping @Sendable () -> Bool,
            isTransient: @escaping @Sendable (any Error) -> Bool,
            tooLate: any Error
        ) {
            self.isAway = isAway
            self.isTransient = isTransient
            self.tooLate = tooLate
        }
    }

    private struct Entry {
        let value: Value
        var readAt: ContinuousClock.Instant
    }

    private let terms: Terms
    private let store: Store
    private let loop: EventLoop
    private let now: @Sendable () -> ContinuousClock.Instant
    private var entries: ExactStringMap<Entry> = [:]
    /// Keys without a value, and when that was found.
    private var misses: ExactStringMap<ContinuousClock.Instant> = [:]
    /// Reads in flight, and the number of changes when each began.
    private var readings: ExactStringMap<(flight: SingleFlight<Value?>, changes: Int)> = [:]
    private var changes = 0
    /// The time until which the store is assumed to be unavailable.
    private var awayUntil: ContinuousClock.Instant?

    package init(
        _ terms: Terms,
        of store: Store,
        on loop: EventLoop,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.terms = terms
        self.store = store
        self.loop = loop
        self.now = now
    }

    /// Returns the value of a key.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - read: Reads the value, given the previous value; returns `nil` if there is no value.
    /// - Returns: `nil` if there is no value.
    /// - Throws: The errors of `read`, if there is no usable stale value.
    package nonisolated(nonsending) func value(
        _ key: String,
        _ read: @escaping @Sendable (Value?) async throws -> Value?
    ) async throws -> Value? {
        loop.checkIsolated()
        let entry = entries[key]
        if let entry, isUsable(entry) { return entry.value }
        if isMissing(key) { return nil }
        do {
            return try await reading(key, entry?.value, read).wait()
        } catch  where store.isTransient(error) {
            // The value was valid a moment ago, and nothing shows that it has changed.
            guard let entry, now() - entry.readAt < terms.stale else { throw error }
            awayUntil = now() + terms.retryPause
            return entry.value
        }
    }

    /// Returns the result of `value` if that needs no read.
    package func remembered(_ key: String) -> Value? {
        guard let entry = entries[key], isUsable(entry) else { return nil }
        return entry.value
    }

    /// Returns the last value read, however long ago.
    package func last(_ key: String) -> Value? { entries[key]?.value }

    /// Whether the value was recently found missing.
    package func isMissing(_ key: String) -> Bool {
        guard let at = misses[key] else { return false }
        return now() - at < terms.missing
    }

    /// Notes that the values of these keys may have changed (`nil`: of all keys): they are read
    /// again at the next use.
    package func changed(_ keys: [String]?) {
        changes += 1
        misses = [:]
        for key in keys ?? Array(entries.keys) {
            guard let entry = entries[key] else { continue }
            entries[key] = Entry(value: entry.value, readAt: entry.readAt - terms.fresh)
        }
    }

    package func remove(_ key: String) { entries[key] = nil }

    private func isUsable(_ entry: Entry) -> Bool {
        let now = now()
        let age = now - entry.readAt
        if age < terms.fresh { return true }
        guard age < terms.stale else { return false }
        return awayUntil.map { now < $0 } ?? false || store.isAway()
    }

    private func reading(
        _ key: String,
        _ known: Value?,
        _ read: @escaping @Sendable (Value?) async throws -> Value?
    ) -> SingleFlight<Value?> {
        if let reading = readings[key], reading.changes == changes { return reading.flight }
        let mayBeStale = known != nil && terms.stale > .zero
        let flight = SingleFlight<Value?>(
            on: loop,
            atMost: mayBeStale ? terms.timeLimitWithStale : terms.timeLimit,
            orElse: store.tooLate
        )
        let (before, began) = (changes, now())
        readings[key] = (flight, before)
        flight.start {
            let value = try await read(known)
            self.keep(value, of: key, readAt: began, isCurrent: self.changes == before)
            return value
        } whenOver: { _ in
            if self.readings[key]?.flight === flight { self.readings[key] = nil }
        }
        return flight
    }

    private func keep(
        _ value: Value?,
        of key: String,
        readAt: ContinuousClock.Instant,
        isCurrent: Bool
    ) {
        guard let value else {
            entries[key] = nil
            guard isCurrent else { return }
            if misses.count >= terms.maximumEntries { misses = [:] }
            misses[key] = now()
            return
        }
        guard isCurrent else { return }
        if entries.count >= terms.maximumEntries { entries = [:] }
        entries[key] = Entry(value: value, readAt: readAt)
    }
}
