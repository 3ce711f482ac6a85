internal import Cryptography
internal import EventLoop
internal import JSON
internal import Observability
internal import PushStorage

/// The keys of issuers, as one loop knows them. They are kept in Postgres, one row an address, and asked
/// for by whichever process says there first that it does.
actor IssuerKeys {
    nonisolated private let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private struct Known {
        let set: JWKSet
        let stamp: Int
        /// A day after they were to be renewed.
        let heldUntil: ContinuousClock.Instant
    }

    /// While an issuer is away, his last keys hold for so long after they were fresh.
    private static let hold = Duration.seconds(86_400)
    /// What nobody found a moment ago is not looked for again, whoever makes up the names of keys.
    private static let lookInterval = Duration.seconds(1)
    /// As long as somebody else may take who is asking the issuer, and a little.
    private static let patience = JWKSSource.timeout + .seconds(2)
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
    private var entries: TextMap<Known> = [:]
    private var lookedAt: TextMap<ContinuousClock.Instant> = [:]
    private var looks: TextMap<Flight<Void>> = [:]

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

    /// The keys of an address: those that are there, as long as they hold, without waiting; else those
    /// that the issuer shows.
    ///
    /// - Returns: `nil` where none are known that hold.
    func keys(of url: String) async throws -> JWKSet? {
        if let known = held(url) { return known.set }
        try await look(url)
        return held(url)?.set
    }

    /// The keys of an address after a key was not among them: the issuer may have a new one. He is asked
    /// once a minute at most.
    ///
    /// - Returns: `nil` where there are no others than before.
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

    /// All who ask at once share one look.
    private func look(_ url: String) async throws {
        if let look = looks[url] { return try await look.wait() }
        if let at = lookedAt[url], now() - at < Self.lookInterval { return }
        let flight = Flight<Void>(
            on: loop,
            // The database's own patience, and the issuer's.
            atMost: Self.patience + .seconds(10),
            orElse: LoginRefusal.unavailable
        )
        looks[url] = flight
        flight.start {
            try await self.lookAnew(url)
        } whenOver: { _ in
            self.assumeIsolated { keys in
                if keys.looks[url] === flight { keys.looks[url] = nil }
                if keys.lookedAt.count >= Self.maximumEntries { keys.lookedAt = [:] }
                keys.lookedAt[url] = keys.now()
            }
        }
        try await flight.wait()
    }

    /// In the database first; then the issuer is asked, unless somebody has lately or does just now.
    private func lookAnew(_ url: String) async throws {
        if let stored = try await rows.keys(url), adopt(stored), held(url) != nil { return }
        if try await rows.claim(url) { return try await ask(url) }
        let deadline = ContinuousClock.now + Self.patience
        while ContinuousClock.now < deadline {
            guard let stored = try await rows.keys(url) else { return }
            let isOld = stored.askedAgo.map { $0 > Self.patience } ?? true
            if adopt(stored) || !stored.isBeingAsked || isOld { return }
            try await loop.sleep(for: Self.pollInterval)
        }
    }

    /// Asks the issuer. What he has answered is kept, and what came of it is told: nothing is thrown on
    /// his account.
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
                "an issuer's keys were not to be had",
                [.detail: .string(url), .reason: .string(fault.text)]
            )
            try await rows.gaveUp(url)
        }
    }

    /// - Returns: Whether they are other keys than those that were known.
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

    // MARK: Ahead of need

    /// Takes up what others have fetched.
    func refresh() async throws {
        let known = entries.map { (url: $0.key, stamp: $0.value.stamp) }
        guard !known.isEmpty else { return }
        for stored in try await rows.changed(known) { adopt(stored) }
    }

    /// Asks the issuers whose keys are soon to be stale.
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
