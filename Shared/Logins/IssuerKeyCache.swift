internal import Cryptography
internal import EventLoop
internal import JSON
internal import Observability
import Storage

/// The issuers' keys, cached by one loop. They are stored in Postgres, one row an address, and
/// fetched by the process that claims the row first.
actor IssuerKeyCache {
    nonisolated private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private struct Known {
        let set: JWKSet
        let stamp: Int
        /// A day after they were due for renewal.
        let heldUntil: ContinuousClock.Instant
    }

    /// How long an unavailable issuer's last keys remain valid after they were fresh.
    private static let hold = Duration.seconds(86_400)
    /// The shortest interval between lookups of missing keys, as tokens may name any key.
    private static let lookInterval = Duration.seconds(1)
    /// The time that another process may take to fetch from the issuer, and a little more.
    private static let timeLimit = JWKSSource.timeout + .seconds(2)
    private static let pollInterval = Duration.milliseconds(100)
    static let refreshInterval = Duration.seconds(5)
    static let renewInterval = Duration.seconds(10)
    private static let maximumEntries = 10_000
    private static let maximumRenewals = 4

    private let rows: LoginRows
    private let source: JWKSSource
    private let log: Log
    private let metrics: Metrics
    private let now: @Sendable () -> ContinuousClock.Instant
    private var entries: ExactStringMap<Known> = [:]
    private var lookedAt: ExactStringMap<ContinuousClock.Instant> = [:]
    private var looks: ExactStringMap<SingleFlight<Void>> = [:]

    init(
        _ rows: LoginRows,
        _ source: JWKSSource,
        on loop: EventLoop,
        log: Log,
        metrics: Metrics,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.rows = rows
        self.source = source
        self.loop = loop
        self.log = log
        self.metrics = metrics
        self.now = now
    }

    /// Returns the valid keys of an address: stored ones without waiting, else fetched ones.
    ///
    /// - Returns: `nil` if there are no valid keys.
    func keys(of url: String) async throws -> JWKSet? {
        if let known = held(url) { return known.set }
        try await look(url)
        return held(url)?.set
    }

    /// Fetches the keys of an address again after a key was missing, as the issuer may have a new
    /// one. The issuer is asked at most once a minute.
    ///
    /// - Returns: `nil` if there are no new keys.
    func renewed(_ url: String) async throws -> JWKSet? {
        let before = entries[url]?.stamp
        try await look(url)
        guard let known = held(url), known.stamp != before else { return nil }
        return known.set
    }

    private func held(_ url: String) -> Known? {
        guard let known = entries[url], now() < known.heldUntil else { return nil }
        return known
    }

    /// Looks the keys up; concurrent callers share one lookup.
    private func look(_ url: String) async throws {
        if let look = looks[url] { return try await look.wait() }
        if let at = lookedAt[url], now() - at < Self.lookInterval { return }
        let flight = SingleFlight<Void>(
            on: loop,
            // The time limit of the issuer, and that of the database.
            atMost: Self.timeLimit + .seconds(10),
            orElse: LoginRefusal.unavailable
        )
        looks[url] = flight
        flight.start {
            try await self.loadOrFetch(url)
        } whenOver: { _ in
            self.assumeIsolated { keys in
                if keys.looks[url] === flight { keys.looks[url] = nil }
                if keys.lookedAt.count >= Self.maximumEntries { keys.lookedAt = [:] }
                keys.lookedAt[url] = keys.now()
            }
        }
        try await flight.wait()
    }

    /// Looks in the database first. Then fetches from the issuer, unless another process is doing
    /// so or did so recently.
    private func loadOrFetch(_ url: String) async throws {
        if let stored = try await rows.keys(url), adopt(stored), held(url) != nil { return }
        if try await rows.claim(url) { return try await ask(url) }
        let deadline = ContinuousClock.now + Self.timeLimit
        while ContinuousClock.now < deadline {
            guard let stored = try await rows.keys(url) else { return }
            let isOld = stored.askedAgo.map { $0 > Self.timeLimit } ?? true
            if adopt(stored) || !stored.isBeingAsked || isOld { return }
            try await loop.sleep(for: Self.pollInterval)
        }
    }

    /// Fetches from the issuer, stores its answer and reports the result. A failure of the issuer
    /// is not thrown.
    private func ask(_ url: String) async throws {
        let result = await source.fetch(url)
        switch result {
        case .success(let fetched):
            metrics.counter(.jwksFetches, ["result": "ok"]).add()
            try await rows.keep(url, fetched.set.json, fetched.freshFor)
            if let stored = try await rows.keys(url) { adopt(stored) }
        case .failure(let fault):
            metrics.counter(.jwksFetches, ["result": fault.metricLabel]).add()
            log.info(
                "cannot fetch issuer keys",
                [.detail: .string(url), .reason: .string(fault.text)]
            )
            try await rows.recordFailure(url)
        }
    }

    /// - Returns: Whether the keys differ from the cached ones.
    @discardableResult
    private func adopt(_ stored: StoredJWKS) -> Bool {
        guard let json = stored.keys, entries[stored.url]?.stamp != stored.stamp,
            let set = try? JWKSet(json)
        else { return false }
        if entries.count >= Self.maximumEntries { entries = [:] }
        entries[stored.url] = Known(
            set: set,
            stamp: stored.stamp,
            heldUntil: now() + stored.freshFor + Self.hold
        )
        return true
    }

    // MARK: Renewal

    /// Reads the keys that other processes have fetched.
    func refresh() async throws {
        let known = entries.map { (url: $0.key, stamp: $0.value.stamp) }
        guard !known.isEmpty else { return }
        for stored in try await rows.changed(known) { adopt(stored) }
    }

    /// Fetches from the issuers whose keys will soon be stale.
    func renew() async throws {
        try await rows.prune()
        let urls = try await rows.due()
        metrics.gauge(.jwksAge).set(Int(try await rows.oldestAge().components.seconds))
        await withTaskGroup(of: Void.self) { group in
            for (number, url) in urls.enumerated() {
                if number >= Self.maximumRenewals { await group.next() }
                group.addTask { await self.renew(url) }
            }
        }
    }

    private func renew(_ url: String) async {
        do {
            if try await rows.claim(url) { try await ask(url) }
        } catch {
            log.debug("an issuer's keys were not renewed", [.error: .string("\(error)")])
        }
    }
}
