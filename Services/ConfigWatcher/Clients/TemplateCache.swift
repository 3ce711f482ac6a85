import ConfigStorage
import EventLoop
import JSON
import Observability
import PushCore
import RemoteConfig

/// A cache of the templates that one loop's clients fetch, validated against Postgres. Confined to the loop.
///
/// Authority: a cached template is served only if Postgres confirmed it within `trust`, or since
/// the fetch began; the time counts from the query. One small query confirms all apps at once, and
/// all waiting fetches share it. A changed template is loaded again on demand. A version is
/// announced at the earliest twice that time after its commit, so a fetch that begins after an
/// announcement never gets an older version.
///
/// Bounded: templates have weights, and the least recently used are evicted first.
final class TemplateCache: @unchecked Sendable {
    struct Bounds: Sendable {
        /// The time for which a confirmation counts.
        var trust = Duration.milliseconds(250)
        /// The age at which a confirmation is refreshed, while there are fetches.
        var refreshAfter = Duration.milliseconds(120)
        /// The time limit of a query.
        var timeLimit = Duration.seconds(3)
        var weight = 256 << 20
    }

    /// The result for an app's clients. Confined to the loop.
    struct Known: @unchecked Sendable {
        /// 0: nothing was published.
        let version: Int
        let config: CompiledConfig?
    }

    private final class Entry {
        let known: Known
        /// A later app with the same id is another one.
        let createdAt: Instant
        /// The time of the query that loaded it.
        let askedAt: ContinuousClock.Instant
        let weight: Int
        var lastUse: Int

        init(
            _ known: Known,
            weight: Int,
            createdAt: Instant,
            askedAt: ContinuousClock.Instant,
            lastUse: Int
        ) {
            self.known = known
            self.createdAt = createdAt
            self.askedAt = askedAt
            self.weight = weight
            self.lastUse = lastUse
        }
    }

    private let source: ConfigSource
    private let bounds: Bounds
    private let loop: EventLoop
    private let pool: FairPool
    private let log: Log
    private var entries: [String: Entry] = [:]
    private var weight = 0
    private var uses = 0
    /// The revision up to which all changes were read; `nil` before the first query.
    private var revision: Int?
    private var confirmedAt: ContinuousClock.Instant?
    private var confirming: SingleFlight<Void>?
    private var loading: [String: SingleFlight<Void>] = [:]
    /// Whether something has changed since the query in flight was sent.
    private var isNoticed = false

    init(
        _ source: ConfigSource,
        within bounds: Bounds = Bounds(),
        compilingIn pool: FairPool? = nil,
        on loop: EventLoop,
        log: Log
    ) {
        self.source = source
        self.bounds = bounds
        self.loop = loop
        self.pool = pool ?? FairPool(on: loop)
        self.log = log
    }

    /// Returns the template if it is cached and confirmed; `nil` if Postgres must be queried. On
    /// the loop only.
    func remembered(_ app: String, createdAt: Instant) -> Known? {
        loop.checkIsolated()
        let now = ContinuousClock.now
        return fresh(app, createdAt, since: now, now: now)
    }

    /// Returns the current template of an app.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - createdAt: The time when that app was created.
    /// - Returns: The result for its clients.
    /// - Throws: `ConfigUnavailable` if Postgres does not answer in time.
    func config(of app: String, createdAt: Instant) async throws -> Known {
        loop.checkIsolated()
        let began = ContinuousClock.now
        if let known = fresh(app, createdAt, since: began, now: began) { return known }
        let deadline = began + bounds.timeLimit
        while ContinuousClock.now < deadline {
            if revision == nil || entries[app]?.createdAt == createdAt {
                try await confirm().wait()
            } else {
                try await load(app, createdAt).wait()
            }
            if let known = fresh(app, createdAt, since: began, now: .now) { return known }
        }
        throw ConfigUnavailable()
    }

    /// Queries the changes, as some version has become current.
    func noticed() {
        guard !entries.isEmpty else { return }
        isNoticed = true
        if confirming == nil { confirm() }
    }

    private func fresh(
        _ app: String,
        _ createdAt: Instant,
        since began: ContinuousClock.Instant,
        now: ContinuousClock.Instant
    ) -> Known? {
        guard let entry = entries[app], entry.createdAt == createdAt else { return nil }
        let askedAt = max(entry.askedAt, confirmedAt ?? entry.askedAt)
        let age = now - askedAt
        guard askedAt >= began || age <= bounds.trust else { return nil }
        uses += 1
        entry.lastUse = uses
        if age > bounds.refreshAfter, confirming == nil { confirm() }
        return entry.known
    }

    // MARK: Queries

    @discardableResult
    private func confirm() -> SingleFlight<Void> {
        if let confirming { return confirming }
        isNoticed = false
        let flight = flight()
        confirming = flight
        flight.start { [self] in
            let changed = try await follow()
            guard !flight.isOver else { return }
            confirmedAt = max(flight.beganAt, confirmedAt ?? flight.beganAt)
            // Templates that were in use are loaded again before the next fetch.
            for (app, createdAt) in changed { load(app, createdAt) }
        } whenOver: { [self] result in
            if confirming === flight { confirming = nil }
            if !told(result), isNoticed { confirm() }
        }
        return flight
    }

    /// Queries the changes, and evicts the changed templates.
    private func follow() async throws -> [(app: String, createdAt: Instant)] {
        let latest = try await source.revision()
        guard var known = revision else {
            revision = latest
            return []
        }
        if latest < known {
            // Another database, or one from a backup: all cached state is invalid.
            entries = [:]
            weight = 0
            for flight in loading.values { flight.isStale = true }
            revision = latest
        }
        guard latest > known else { return [] }
        var changed: [(app: String, createdAt: Instant)] = []
        while true {
            let heads = try await source.heads(known)
            for head in heads {
                if let createdAt = forget(head) { changed.append((head.app, createdAt)) }
                known = max(known, head.revision)
            }
            if heads.count < ConfigSource.headsAtOnce { break }
        }
        revision = max(revision ?? 0, known, latest)
        return changed
    }

    /// - Returns: The app's time of creation, if its template was cached and has changed.
    private func forget(_ head: ConfigHead) -> Instant? {
        // A load in flight may return an earlier version.
        loading[head.app]?.isStale = true
        guard let entry = entries[head.app], entry.known.version != head.currentVersion else {
            return nil
        }
        remove(head.app)
        return entry.createdAt
    }

    @discardableResult
    private func load(_ app: String, _ createdAt: Instant) -> SingleFlight<Void> {
        if let flight = loading[app] { return flight }
        let flight = flight()
        loading[app] = flight
        flight.start { [self] in
            var askedAt = flight.beganAt
            var made = try await compiled(try await source.current(app), of: app)
            while flight.isStale, !flight.isOver {
                flight.isStale = false
                askedAt = .now
                made = try await compiled(try await source.current(app), of: app)
            }
            guard !flight.isOver else { return }
            keep(made, app, createdAt, askedAt)
        } whenOver: { [self] result in
            if loading[app] === flight { loading[app] = nil }
            told(result)
        }
        return flight
    }

    private func flight() -> SingleFlight<Void> {
        SingleFlight(on: loop, atMost: bounds.timeLimit, orElse: ConfigUnavailable())
    }

    /// - Returns: Whether the query failed.
    @discardableResult
    private func told(_ result: Result<Void, any Error>) -> Bool {
        guard case .failure(let error) = result else { return false }
        log.warning("templates cannot be read", [.error: .string("\(error)")])
        return true
    }

    /// Compiles a template on the pool, so that fetches of other apps do not wait for it.
    private func compiled(
        _ current: ConfigSource.Current?,
        of app: String
    ) async throws -> (known: Known, weight: Int) {
        guard let (version, json) = current else {
            return (Known(version: 0, config: nil), 256)
        }
        return try await pool.run(of: app) {
            try Known.compiled(json, version: version, of: app)
        }
    }

    // MARK: Storing

    private func keep(
        _ made: (known: Known, weight: Int),
        _ app: String,
        _ createdAt: Instant,
        _ askedAt: ContinuousClock.Instant
    ) {
        remove(app)
        while weight + made.weight > bounds.weight,
            let oldest = entries.min(by: { $0.value.lastUse < $1.value.lastUse })
        {
            remove(oldest.key)
        }
        uses += 1
        weight += made.weight
        entries[app] = Entry(
            made.known,
            weight: made.weight,
            createdAt: createdAt,
            askedAt: askedAt,
            lastUse: uses
        )
    }

    private func remove(_ app: String) {
        if let entry = entries.removeValue(forKey: app) { weight -= entry.weight }
    }
}

/// The error of a fetch if Postgres does not confirm the current version in time.
struct ConfigUnavailable: Error, Equatable {}
